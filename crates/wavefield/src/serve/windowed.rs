//! `serve` in a window.

use super::headless::FLIGHTS;
use super::host::Host;
use super::{Options, check_scene, listen};
use crate::app::{CompanionDesc, Config, Ended, EventLoop, Stop, run_with};
use crate::{Result, whole_file};

/// The window of [`crate::app::run_windowed`], in which a client may draw.
pub fn serve_windowed(
    event_loop: &mut EventLoop,
    config: &Config,
    options: &Options,
    stop: &Stop,
) -> Result<Ended> {
    check_scene(config)?;
    if let Some(path) = &options.json {
        whole_file::check_writable(path)?;
    }
    let door = listen(options, stop)?;
    let client = CompanionDesc {
        make: Box::new(|choice| Ok(Box::new(Host::new(door, choice, config, options)))),
        flights: FLIGHTS.max(config.ring.unwrap_or_default().depth()),
    };
    run_with(event_loop, config, stop, Some(client))
}
