//! `--record`: the film of a run.

use std::time::Duration;

use ash::vk;

use super::Config;
use crate::watch::recording::{Film, FilmDesc, Recorded};
use wavefield_gpu::vulkan::{Device, Flight};
use wavefield_gpu::{Result, report::Failures};

/// Starts the film that `config` asks for. If `complete`, the run waits so that the film has every frame.
pub fn film(device: &Device, config: &Config, format: vk::Format, complete: bool) -> Result<Option<Film>> {
    let Some(path) = &config.record else { return Ok(None) };
    let (path, side, timeout) = (path.clone(), config.record_side, config.timeout);
    Film::start(device, FilmDesc { path, side, format, complete, timeout }).map(Some)
}

/// Returns whether the current frame belongs in the film. `now` may count from any fixed moment.
pub fn wants(film: &mut Option<Film>, flight: &Flight, now: Duration) -> bool {
    film.as_mut().is_some_and(|film| {
        // The flight is free, so its earlier commands have finished.
        film.done(flight.index);
        film.wants(now)
    })
}

pub fn end(film: &mut Option<Film>, at_rest: bool, failures: &mut Failures) -> Option<Recorded> {
    film.as_mut().and_then(|film| failures.catch(film.end(at_rest)))
}
