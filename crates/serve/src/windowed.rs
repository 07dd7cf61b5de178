//! `serve` in a window.

use super::headless::FLIGHTS;
use super::host::Host;
use super::{Options, check_scene, listen};
use wavefield_base::{Result, output_file};
use wavefield_engine::{Config, Ended, FrameHookDesc, Stop};
use wavefield_window::{EventLoop, run_with};

/// The window of [`wavefield_window::run_windowed`], in which a client may draw.
pub fn serve_windowed(
    event_loop: &mut EventLoop,
    config: &Config,
    options: &Options,
    stop: &Stop,
) -> Result<Ended> {
    check_scene(config)?;
    if let Some(path) = &options.json {
        output_file::check_writable(path)?;
    }
    let acceptor = listen(options, stop)?;
    let client = FrameHookDesc {
        make: Box::new(|choice| Ok(Box::new(Host::new(acceptor, choice, config, options)))),
        flights: FLIGHTS.max(config.ring.unwrap_or_default().depth()),
    };
    run_with(event_loop, config, stop, Some(client))
}
