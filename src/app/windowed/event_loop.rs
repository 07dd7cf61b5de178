//! The connection to the window system.

use std::panic::catch_unwind;

use winit::application::ApplicationHandler;
use winit::error::EventLoopError;
use winit::platform::run_on_demand::EventLoopExtRunOnDemand;

use crate::{Error, Result};

/// The connection to the window system. A process can have one only, but may open one window after another with it.
pub struct EventLoop(winit::event_loop::EventLoop<()>);

impl EventLoop {
    /// Connects to the display.
    ///
    /// # Errors
    /// No display, or the libraries that speak to it are not installed.
    pub fn new() -> Result<Self> {
        let failed = |reason| Error::Window { what: "no display", reason };
        // winit panics where one of the X11 libraries that it opens at run time is missing; that is an error here.
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| ()));
        let made = catch_unwind(winit::event_loop::EventLoop::new);
        std::panic::set_hook(hook);
        match made {
            Ok(Ok(event_loop)) => Ok(Self(event_loop)),
            Ok(Err(error)) => Err(failed(words(&error))),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or(panic.downcast_ref::<&str>().copied());
                Err(failed(text.unwrap_or("the window system's libraries are incomplete").to_owned()))
            }
        }
    }

    /// Hands events to `app` until it asks to leave.
    pub(super) fn run(&mut self, app: &mut impl ApplicationHandler) -> Result<()> {
        self.0.run_app_on_demand(app).map_err(|error| ended(error.to_string()))
    }
}

/// The error of an event loop that ended too early.
pub(super) fn ended(reason: String) -> Error {
    Error::Window { what: "the event loop ended", reason }
}

/// winit's error without the source line that it begins with.
fn words(error: &EventLoopError) -> String {
    let text = error.to_string();
    let reason = text.split_once(".rs:").and_then(|(_, rest)| rest.split_once(": "));
    reason.map_or(&*text, |(_line, reason)| reason).trim_end_matches('.').to_owned()
}
