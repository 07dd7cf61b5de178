//! The reference for `kernels/ripples.cu`, written from the formula, independently of the code.

use super::{cosine, numbers, place, sine};
use crate::wave::{Grid, HEIGHT};

/// Seconds after which the field repeats.
pub(super) const LOOP: f64 = 20.0;

/// Where a source starts, in turns, and how often it goes across and along in a loop.
const SOURCES: [(f64, f64, f64); 6] = [
    (0.0, 1.0, 1.0),
    (1.0 / 6.0, 2.0, 2.0),
    (2.0 / 6.0, 1.0, 3.0),
    (3.0 / 6.0, 2.0, 1.0),
    (4.0 / 6.0, 1.0, 2.0),
    (5.0 / 6.0, 2.0, 3.0),
];

pub(super) fn reference(grid: Grid, col: u32, row: u32, time: f64, values: &[f32]) -> [f64; 4] {
    let ((x, z), turn) = (place(grid, col, row), (time / LOOP).rem_euclid(1.0));
    let [amplitude, rings, spread] = numbers(values);
    let ripple = |(start, across, along): (f64, f64, f64)| {
        let source = (spread * sine(across * turn + start), spread * cosine(along * turn + start));
        let distance = (x - source.0).hypot(z - source.1);
        // One and a half new rings per second.
        0.5 * sine(rings * distance - 1.5 * LOOP * turn) / (1.0 + 10.0 * distance.powi(2))
    };
    let sum: f64 = SOURCES.into_iter().map(ripple).sum();
    [x, HEIGHT * amplitude * sum, z, 0.5 + 0.5 * sum]
}
