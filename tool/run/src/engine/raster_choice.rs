//! Whether the graphics pipeline or compute shaders draw, with `--raster auto`: what takes less time on this device.

use std::fmt;
use std::time::Duration;

use super::FrameTiming;

/// Frames to measure of each, and before them those that do not count: the first frames run with cold caches.
const FRAMES: usize = 5;
const COLD: usize = 3;
/// If draws of the chosen one take this many times what was measured, both are measured again.
const CHANGED: u32 = 2;

/// The times of the draws by one of them.
#[derive(Clone, Copy, Default)]
struct Measured {
    frames: usize,
    least: Option<Duration>,
}

impl Measured {
    fn add(&mut self, draw: Duration) {
        self.frames += 1;
        if self.frames > COLD {
            self.least = Some(self.least.map_or(draw, |least| least.min(draw)));
        }
    }

    fn is_done(&self) -> bool {
        self.frames == COLD + FRAMES
    }
}

/// Chooses from measured draws. The least time of each counts, because a switch to CUDA during a draw makes it longer.
pub(super) struct RasterChoice {
    graphics: Measured,
    compute: Measured,
    /// The number of the last frames whose draws took [`CHANGED`] times as long.
    slow: usize,
}

impl RasterChoice {
    pub(super) fn new() -> Self {
        Self { graphics: Measured::default(), compute: Measured::default(), slow: 0 }
    }

    /// Adds a finished frame. Returns whether compute shaders draw the next one.
    pub(super) fn drawn(&mut self, timing: &FrameTiming, by_compute: bool) -> bool {
        let Some(draw) = timing.draw else { return by_compute };
        let is_chosen = self.graphics.is_done() && self.compute.is_done();
        let of_this = if timing.by_compute { &mut self.compute } else { &mut self.graphics };
        if !of_this.is_done() {
            of_this.add(draw);
        } else if is_chosen && timing.by_compute == by_compute {
            let limit = of_this.least.unwrap_or_default() * CHANGED;
            self.slow = if draw > limit { self.slow + 1 } else { 0 };
            if self.slow > FRAMES {
                *self = Self::new();
            }
        }
        match (self.compute.is_done(), self.graphics.is_done()) {
            (false, _) => true,
            (true, false) => false,
            (true, true) => self.compute.least < self.graphics.least,
        }
    }
}

impl fmt::Display for RasterChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = |measured: Measured| measured.least.unwrap_or_default().as_secs_f64() * 1e3;
        let (compute, graphics) = (milliseconds(self.compute), milliseconds(self.graphics));
        match (self.compute.is_done() && self.graphics.is_done(), compute < graphics) {
            (false, _) => write!(f, "not chosen yet"),
            (true, true) => write!(f, "compute, {compute:.3} ms a draw (graphics: {graphics:.3} ms)"),
            (true, false) => write!(f, "graphics, {graphics:.3} ms a draw (compute: {compute:.3} ms)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws `count` frames that take `times` microseconds by compute and by graphics. Returns who draws then.
    fn draw(choice: &mut RasterChoice, mut by_compute: bool, count: usize, times: [u64; 2]) -> bool {
        for frame in 0..count as u64 {
            let draw = Some(Duration::from_micros(times[usize::from(!by_compute)]));
            let (kernel, end_ns, cpu, latency) = (None, None, Duration::ZERO, Duration::ZERO);
            by_compute = choice
                .drawn(&FrameTiming { frame, kernel, draw, end_ns, cpu, latency, by_compute }, by_compute);
        }
        by_compute
    }

    #[test]
    fn what_takes_less_time_draws() {
        for (times, expected) in [([100, 2500], true), ([2500, 100], false)] {
            let mut choice = RasterChoice::new();
            assert!(choice.to_string().contains("not chosen"));
            assert_eq!(draw(&mut choice, true, 2 * (COLD + FRAMES), times), expected);
            let said = choice.to_string();
            assert!(said.starts_with(if expected { "compute, 0.100" } else { "graphics, 0.100" }), "{said}");
            assert_eq!(draw(&mut choice, expected, 1000, times), expected);
        }
    }

    #[test]
    fn a_field_that_becomes_slow_to_draw_is_measured_again() {
        let mut choice = RasterChoice::new();
        assert!(draw(&mut choice, true, 100, [100, 200]));
        assert!(!draw(&mut choice, true, 100, [900, 500]), "its triangles have become large");
        assert!(!draw(&mut choice, false, 100, [900, 990]), "less than twice as slow");
    }

    #[test]
    fn without_times_nothing_is_chosen() {
        let mut choice = RasterChoice::new();
        let timing = |frame| FrameTiming {
            frame,
            kernel: None,
            draw: None,
            end_ns: None,
            cpu: Duration::ZERO,
            latency: Duration::ZERO,
            by_compute: false,
        };
        assert!((0..100).all(|frame| !choice.drawn(&timing(frame), false)));
    }
}
