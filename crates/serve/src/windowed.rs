//! `serve` in a window.

use super::headless::FLIGHTS;
use super::host::Host;
use super::{Options, check_scene, listen};
use wavefield_base::{Result, output_file};
use wavefield_engine::{Config, Ended, FrameHookDesc, Stop};

/// A window in which a client may draw. `run` opens it, and calls the hook between two frames.
pub fn serve_windowed(
    config: &Config,
    options: &Options,
    stop: &Stop,
    run: impl FnOnce(FrameHookDesc<'_>) -> Result<Ended>,
) -> Result<Ended> {
    check_scene(config)?;
    if let Some(path) = &options.json {
        output_file::check_writable(path)?;
    }
    let acceptor = listen(options, stop)?;
    run(FrameHookDesc {
        make: Box::new(|choice| Ok(Box::new(Host::new(acceptor, choice, config, options)))),
        flights: FLIGHTS.max(config.ring.unwrap_or_default().depth()),
    })
}
