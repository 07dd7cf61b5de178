//! Connects to the display, and gives up in time.

use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use wavefield::app::{Config, EventLoop, Stop};
use wavefield::{Error, Result, note};

/// Connects to the display.
///
/// A display server that accepts the connection and then says nothing holds this thread inside its library for ever. So another
/// thread keeps the time and listens for a stop meanwhile, and ends the process: nothing was begun yet.
///
/// # Errors
/// Those of [`EventLoop::new`].
pub fn connect(config: &Config, stop: &Stop) -> Result<EventLoop> {
    let (connected, wait) = std::sync::mpsc::channel::<()>();
    let (timeout, stop, began) = (config.timeout, stop.clone(), Instant::now());
    let mut asked = None;
    let watch = move || {
        while wait.recv_timeout(Duration::from_millis(50)) == Err(RecvTimeoutError::Timeout) {
            // Not at once: a display that answers in time shows and closes its window, which is the better end.
            let stopped =
                stop.requested() && asked.get_or_insert_with(Instant::now).elapsed() > Duration::from_secs(1);
            let error = if stopped {
                Error::Stopped("stopped while connecting to the display".into())
            } else if began.elapsed() > timeout {
                Error::Window {
                    what: "connecting to the display",
                    reason: format!(
                        "it accepted the connection and sent nothing for {:.0} s; --timeout allows more, --headless \
                         needs no display",
                        timeout.as_secs_f64()
                    ),
                }
            } else {
                continue;
            };
            note!("error: {error}");
            crate::leave_at_once(error.exit_code());
        }
    };
    // Without a thread to spare it goes on without a limit; a second signal ends that.
    let _ = std::thread::Builder::new().name("display watch".into()).spawn(watch);
    let event_loop = EventLoop::new();
    drop(connected);
    event_loop
}
