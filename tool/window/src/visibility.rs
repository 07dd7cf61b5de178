use std::time::{Duration, Instant};

use winit::window::Window;

/// How often to query the window system for changes that no event reports.
const LOOK: Duration = Duration::from_millis(250);
/// How long a redraw may take to come.
const UNSEEN: Duration = Duration::from_millis(100);

/// The reasons why the window is invisible, as far as the window system reports them.
pub(super) struct Visibility {
    empty: bool,
    /// Other windows cover the window, or the compositor shows something else.
    covered: bool,
    /// The window is minimised, or not on the screen. winit has no event for this.
    away: bool,
    /// When a redraw was requested that has not come yet. A Wayland compositor sends none to a window that
    /// nobody sees, on another workspace for example.
    requested: Option<Instant>,
    looked: Option<Instant>,
    #[cfg(target_os = "linux")]
    server: Option<x11::XServer>,
}

impl Visibility {
    #[cfg_attr(not(target_os = "linux"), allow(unused_variables))]
    pub(super) fn new(window: &Window) -> Self {
        Self {
            empty: false,
            covered: false,
            away: false,
            requested: None,
            looked: None,
            #[cfg(target_os = "linux")]
            server: x11::XServer::of(window),
        }
    }

    pub(super) fn resized(&mut self, empty: bool) {
        self.empty = empty;
        self.looked = None;
    }

    pub(super) fn occluded(&mut self, covered: bool) {
        self.covered = covered;
        self.looked = None;
    }

    pub(super) fn redraw_requested(&mut self) {
        self.requested.get_or_insert_with(Instant::now);
    }

    pub(super) fn redraw_came(&mut self) {
        self.requested = None;
    }

    /// Returns whether the window is invisible. Queries the window system after an event, and otherwise once
    /// every [`LOOK`].
    pub(super) fn is_hidden(&mut self, window: &Window) -> bool {
        if self.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            self.looked = Some(Instant::now());
            self.away = window.is_minimized() == Some(true);
            #[cfg(target_os = "linux")]
            {
                // A window manager may remove a window from the screen without minimising it.
                self.away |= self.server.as_ref().is_some_and(|server| !server.shows());
            }
        }
        let is_unseen = self.requested.is_some_and(|requested| requested.elapsed() >= UNSEEN);
        self.empty || self.covered || self.away || is_unseen
    }
}

#[cfg(target_os = "linux")]
mod x11 {
    use winit::raw_window_handle::{HasWindowHandle, RawWindowHandle};
    use winit::window::Window;
    use x11rb::protocol::xproto::{ConnectionExt, MapState};
    use x11rb::rust_connection::RustConnection;

    pub(super) struct XServer {
        connection: RustConnection,
        window: u32,
    }

    impl XServer {
        /// Returns `None` if the window is not an X11 window, or the server cannot be reached.
        pub(super) fn of(window: &Window) -> Option<Self> {
            let RawWindowHandle::Xlib(handle) = window.window_handle().ok()?.as_raw() else { return None };
            let (connection, _screen) = x11rb::connect(None).ok()?;
            Some(Self { connection, window: u32::try_from(handle.window).ok()? })
        }

        /// Returns whether the window and all its ancestors are mapped; true if the server does not answer.
        pub(super) fn shows(&self) -> bool {
            let asked = self.connection.get_window_attributes(self.window).ok();
            let attributes = asked.and_then(|asked| asked.reply().ok());
            attributes.is_none_or(|attributes| attributes.map_state == MapState::VIEWABLE)
        }
    }
}
