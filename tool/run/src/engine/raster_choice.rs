//! Whether the graphics pipeline or compute shaders draw, with `--raster auto`: what takes less time on this device.

use std::fmt;
use std::time::Duration;

use super::FrameTiming;

/// Frames to measure of each, and before them those that do not count: the first frames run with cold caches.
const FRAMES: usize = 5;
const COLD: usize = 3;
/// If draws of the chosen one take this many times what was measured, both are measured again.
const CHANGED: u32 = 2;
/// Compute shaders are not tried if the graphics pipeline takes longer than this, and this for each element. Then each element
/// covers many pixels, which only the graphics pipeline rejects in blocks.
const HOPELESS: Duration = Duration::from_millis(20);
const HOPELESS_EACH: f64 = 10e-9;
/// A draw by compute shaders that is shorter is mostly the start of its dispatches.
const SHORT: Duration = Duration::from_micros(100);
/// The trial of compute shaders ends with a draw of this many times the graphics pipeline's.
const TOO_SLOW: u32 = 4;

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
        self.frames >= COLD + FRAMES
    }
}

/// Chooses from measured draws. The least time of each counts, because a switch to CUDA during a draw makes it longer.
pub(super) struct RasterChoice {
    /// The number of elements of the array.
    elements: u64,
    graphics: Measured,
    compute: Measured,
    /// The number of the last frames whose draws took [`CHANGED`] times as long, and how many are needed. Each time that
    /// both are measured again doubles it, because something else may use the GPU.
    slow: usize,
    patience: usize,
    /// Whether the device says how long a draw takes.
    is_timed: bool,
}

impl RasterChoice {
    pub(super) fn new(elements: u64) -> Self {
        let (graphics, compute) = (Measured::default(), Measured::default());
        Self { elements, graphics, compute, slow: 0, patience: FRAMES, is_timed: true }
    }

    /// Adds a finished frame. Returns whether compute shaders draw the next one.
    pub(super) fn drawn(&mut self, timing: &FrameTiming, by_compute: bool) -> bool {
        self.is_timed = timing.draw.is_some();
        let Some(draw) = timing.draw else { return by_compute };
        let is_chosen = self.is_chosen();
        let of_this = if timing.by_compute { &mut self.compute } else { &mut self.graphics };
        if !is_chosen && !of_this.is_done() {
            of_this.add(draw);
            if timing.by_compute && self.graphics.least.is_some_and(|graphics| draw > graphics * TOO_SLOW) {
                self.compute = Measured { frames: COLD + FRAMES, least: Some(draw) };
            }
        } else if is_chosen && timing.by_compute == by_compute {
            let limit = of_this.least.unwrap_or_default() * CHANGED;
            self.slow = if draw > limit { self.slow + 1 } else { 0 };
            if self.slow > self.patience {
                *self = Self { patience: self.patience.saturating_mul(2), ..Self::new(self.elements) };
            }
        }
        match (self.graphics.is_done(), self.is_chosen()) {
            (false, _) => false,
            (true, false) => true,
            (true, true) => self.compute.least.is_some_and(|compute| Some(compute) < self.graphics.least),
        }
    }

    /// Returns whether more frames lead to a choice.
    pub(super) fn needs_frames(&self) -> bool {
        self.is_timed && !self.is_chosen()
    }

    /// Returns whether compute shaders draw many views, which share dispatches: not if a frame takes them far longer.
    pub(super) fn suits_many_views(&self) -> bool {
        let times = self.graphics.least.zip(self.compute.least);
        self.is_chosen() && times.is_some_and(|(graphics, compute)| compute < SHORT.max(graphics * CHANGED))
    }

    fn is_chosen(&self) -> bool {
        self.graphics.is_done() && (self.compute.is_done() || self.is_hopeless())
    }

    fn is_hopeless(&self) -> bool {
        let limit = HOPELESS + Duration::from_secs_f64(HOPELESS_EACH * self.elements as f64);
        self.graphics.least.is_some_and(|least| least > limit)
    }
}

impl fmt::Display for RasterChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = |least: Duration| least.as_secs_f64() * 1e3;
        match (self.is_chosen(), self.graphics.least.map(milliseconds), self.compute.least.map(milliseconds))
        {
            (true, Some(graphics), Some(compute)) if compute < graphics => {
                write!(f, "compute, {compute:.3} ms a draw (graphics: {graphics:.3} ms)")
            }
            (true, Some(graphics), Some(compute)) => {
                write!(f, "graphics, {graphics:.3} ms a draw (compute: {compute:.3} ms)")
            }
            (true, Some(graphics), None) => {
                write!(f, "graphics, {graphics:.3} ms a draw: its elements are too large for compute shaders")
            }
            _ => write!(f, "graphics, as long as too few frames were measured"),
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

    /// A million elements.
    fn choice() -> RasterChoice {
        RasterChoice::new(1 << 20)
    }

    #[test]
    fn what_takes_less_time_draws() {
        for (times, expected, of_many, words) in [
            ([100, 2500], true, true, "compute, 0.100"),
            ([2500, 1000], false, false, "graphics, 1.000"),
            // Short draws, so many views have another choice.
            ([90, 30], false, true, "graphics, 0.030"),
        ] {
            let mut choice = choice();
            assert!(choice.to_string().contains("too few"));
            assert_eq!(draw(&mut choice, false, 2 * (COLD + FRAMES), times), expected);
            assert_eq!(choice.suits_many_views(), of_many);
            let said = choice.to_string();
            assert!(said.starts_with(words), "{said}");
            assert_eq!(draw(&mut choice, expected, 1000, times), expected);
        }
    }

    #[test]
    fn a_field_that_becomes_slow_to_draw_is_measured_again() {
        let mut choice = choice();
        assert!(draw(&mut choice, false, 100, [100, 200]));
        assert!(!draw(&mut choice, true, 100, [900, 500]), "its triangles have become large");
        assert!(!draw(&mut choice, false, 100, [900, 990]), "less than twice as slow");
        let patience = choice.patience;
        assert!(!draw(&mut choice, false, 100, [9000, 5000]));
        assert_eq!(choice.patience, 2 * patience, "the next time, more slow draws are needed");
    }

    #[test]
    fn compute_shaders_are_not_tried_for_long() {
        let mut slow = choice();
        draw(&mut slow, false, COLD + FRAMES, [0, 1000]);
        assert!(!draw(&mut slow, true, 1, [5000, 1000]), "one draw of five times as long is enough");
        let mut huge = choice();
        assert!(!draw(&mut huge, false, 100, [1, 400_000]), "large triangles: they are not tried at all");
        assert!(huge.to_string().contains("too large"), "{huge}");
    }

    #[test]
    fn without_times_nothing_is_chosen() {
        let mut choice = choice();
        let timing = |frame| FrameTiming {
            frame,
            kernel: None,
            draw: None,
            end_ns: None,
            cpu: Duration::ZERO,
            latency: Duration::ZERO,
            by_compute: false,
        };
        assert!(choice.needs_frames());
        assert!((0..100).all(|frame| !choice.drawn(&timing(frame), false)));
        assert!(!choice.needs_frames(), "nobody draws for ever to find out");
    }
}
