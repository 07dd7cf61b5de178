//! The window: draws and presents frames, takes input, shows the overlay, reloads saved kernels. It is on the
//! desktop, or in browsers.
//!
//! - `state`: the state of a window, and how it draws a frame
//! - `screen`: the interface to the desktop or a browser, and [`Input`]; `desktop`: winit's window
//! - `web`: the window in a browser
//! - `controls`, `keys`: control of the camera, and the actions of keys
//! - `overlay`: the panel with figures and settings, the time axis of recent frames, the colour legend
//! - `reload`: reloads a kernel when its file is saved
//! - `clock`, `title`, `visibility`, `event_loop`: the field's time, the title, hidden windows, the display

#![warn(unreachable_pub)]

mod clock;
mod controls;
mod desktop;
mod event_loop;
mod keys;
mod overlay;
mod reload;
mod screen;
mod state;
mod title;
mod visibility;
#[cfg(all(feature = "web", target_os = "linux"))]
pub mod web;

use winit::application::ApplicationHandler;
use winit::event::{StartCause, WindowEvent};
use winit::event_loop::{ActiveEventLoop, ControlFlow};
use winit::window::WindowId;

use self::desktop::Desktop;
use self::event_loop::ended;
use self::state::WindowState;
use wavefield_gpu::{Result, report::Failures};
use wavefield_run::{Config, Ended, FrameHookDesc, Stop, Traced};

pub use self::event_loop::EventLoop;
pub use self::screen::Input;

/// Draws in a window until the user leaves, `stop` is requested, or `config.frames` frames are drawn. `hook`
/// runs between frames. Returns an error only if no window could be opened. [`Ended`] contains a later
/// failure.
pub fn run_windowed(
    event_loop: &mut EventLoop,
    config: &Config,
    stop: &Stop,
    hook: Option<FrameHookDesc<'_>>,
) -> Result<Ended> {
    let traced = Traced::begin(config)?;
    let failures = Failures::default();
    let mut app = WindowApp { config, stop, hook, traced, state: None, failures, left: false };
    let ran = event_loop.run(&mut app);
    app.failures.catch(ran);
    let Some(state) = app.state else {
        app.failures.outcome()?;
        return Err(ended("before a window could be opened".into()));
    };
    Ok(state.end(app.traced, app.failures))
}

struct WindowApp<'a> {
    config: &'a Config,
    stop: &'a Stop,
    traced: Option<Traced>,
    hook: Option<FrameHookDesc<'a>>,
    state: Option<WindowState<Desktop>>,
    failures: Failures,
    left: bool,
}

impl WindowApp<'_> {
    /// Runs `step` if there is a window and the run is not over. `step` returns whether to leave. An error
    /// ends the run.
    fn attempt(&mut self, step: impl FnOnce(&mut WindowState<Desktop>) -> Result<bool>) {
        if let Some(state) = self.state.as_mut().filter(|_| !self.left) {
            self.left = self.failures.catch(step(state)).unwrap_or(true);
        }
    }

    /// Returns false before there is a window, so that even an early stop ends with a summary.
    fn is_done(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.is_done(self.stop))
    }

    fn leave_if_over(&mut self, event_loop: &ActiveEventLoop) {
        self.left |= self.is_done();
        if self.left {
            event_loop.exit();
        }
    }
}

impl ApplicationHandler for WindowApp<'_> {
    fn resumed(&mut self, event_loop: &ActiveEventLoop) {
        if self.state.is_none() && !self.left {
            let (hook, traced) = (self.hook.take(), self.traced.as_ref());
            let opened = WindowState::window(event_loop, self.config, hook, self.stop, traced);
            self.state = self.failures.catch(opened);
            self.left = self.state.is_none();
        }
        self.leave_if_over(event_loop);
    }

    fn new_events(&mut self, event_loop: &ActiveEventLoop, _cause: StartCause) {
        self.leave_if_over(event_loop);
    }

    fn window_event(&mut self, event_loop: &ActiveEventLoop, _window: WindowId, event: WindowEvent) {
        if let WindowEvent::RedrawRequested = event {
            if !self.is_done() {
                self.attempt(|state| state.redraw().map(|()| false));
            }
        } else {
            self.attempt(|state| {
                state.wake();
                let inputs = state.screen.inputs(&event);
                state.on_inputs(inputs)
            });
        }
        self.leave_if_over(event_loop);
    }

    fn about_to_wait(&mut self, event_loop: &ActiveEventLoop) {
        let mut wakes = None;
        self.attempt(|state| {
            wakes = state.between_frames()?;
            Ok(false)
        });
        self.leave_if_over(event_loop);
        let Some(state) = self.state.as_ref().filter(|_| !self.left) else { return };
        match wakes {
            Some(at) => event_loop.set_control_flow(ControlFlow::WaitUntil(at)),
            None => {
                event_loop.set_control_flow(ControlFlow::Poll);
                state.screen.window.request_redraw();
            }
        }
    }
}
