use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use wavefield_gpu::{Error, Result, note};
use wavefield_run::{Config, Stop};
use wavefield_window::EventLoop;

use crate::signals::leave_at_once;

/// Connects to the display. If the display server accepts the connection and then sends nothing, the library
/// never returns. A second thread therefore ends the process after a timeout, which is safe because no run
/// has begun.
pub(super) fn connect(config: &Config, stop: &Stop) -> Result<EventLoop> {
    let (connected, wait) = std::sync::mpsc::channel::<()>();
    let (timeout, stop, began) = (config.timeout, stop.clone(), Instant::now());
    let mut asked = None;
    let watch = move || {
        while wait.recv_timeout(Duration::from_millis(50)) == Err(RecvTimeoutError::Timeout) {
            // Wait a second after a stop: if the display answers by then, the window can close properly.
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
            leave_at_once(error.exit_code());
        }
    };
    // If the thread cannot be started, there is no timeout, but a second signal still ends the process.
    let _ = std::thread::Builder::new().name("display watch".into()).spawn(watch);
    let event_loop = EventLoop::new();
    drop(connected);
    event_loop
}
