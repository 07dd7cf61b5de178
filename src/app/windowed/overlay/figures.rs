//! What the last frames took, and what a switch has changed. Pure arithmetic.

use std::collections::VecDeque;
use std::time::Duration;

use crate::app::FrameTiming;

/// Frames that are remembered.
pub(super) const FRAMES: usize = 240;
/// Frames after which the figures of new settings are worth showing.
const SETTLED: u64 = 60;
/// A frame with more than this left waits for something else than the hand-off, such as the display: see
/// [`crate::app::Batching::Auto`].
const PLAUSIBLE: f64 = 1e-3;

/// The last frames. All times in seconds.
#[derive(Default)]
pub(super) struct Figures {
    frames: VecDeque<Sample>,
    /// When the last frame ended, in nanoseconds of the GPU's clock.
    end_ns: Option<f64>,
    /// Frames with these settings.
    count: u64,
    before: Option<Cost>,
}

#[derive(Clone, Copy)]
struct Sample {
    frame: f64,
    kernel: Option<f64>,
    draw: Option<f64>,
    cpu: f64,
}

/// What frames took on average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mean {
    /// From the end of one draw to the end of the next.
    pub(super) frame: f64,
    pub(super) kernel: Option<f64>,
    /// The draw alone: where CUDA gets in while Vulkan draws, the switches between the two lie between the draw's timestamps, so
    /// this is the lower quartile.
    pub(super) draw: Option<f64>,
    pub(super) cpu: f64,
}

impl Mean {
    /// What is left of the frame; `None` where that is not known.
    pub(super) fn rest(&self) -> Option<f64> {
        Some((self.frame - self.kernel.unwrap_or(0.0) - self.draw?).max(0.0))
    }

    /// What the hand-off takes; `None` where the frame waits for something else.
    pub(super) fn handoff(&self) -> Option<f64> {
        self.rest().filter(|rest| *rest <= PLAUSIBLE)
    }
}

/// What settings cost.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cost {
    pub(super) name: String,
    pub(super) mean: Mean,
}

impl Figures {
    /// The GPU has finished a frame.
    pub(super) fn add(&mut self, timing: &FrameTiming) {
        let end = self.end_ns;
        self.end_ns = timing.end_ns;
        let (Some(from), Some(to)) = (end, timing.end_ns) else { return };
        let seconds = |time: Duration| time.as_secs_f64();
        if self.frames.len() == FRAMES {
            self.frames.pop_front();
        }
        self.frames.push_back(Sample {
            frame: (to - from) * 1e-9,
            kernel: timing.kernel.map(seconds),
            draw: timing.draw.map(seconds),
            cpu: seconds(timing.cpu),
        });
        self.count += 1;
    }

    /// There was a rest: the time until the next frame is no frame time.
    pub(super) fn rest(&mut self) {
        self.end_ns = None;
    }

    /// Other settings from now on; `name` is that of those before.
    pub(super) fn switched(&mut self, name: String) {
        if let Some(mean) = self.mean().filter(|_| self.is_settled()) {
            self.before = Some(Cost { name, mean });
        }
        (self.end_ns, self.count) = (None, 0);
        self.frames.clear();
    }

    /// Whether these settings have drawn enough frames.
    pub(super) fn is_settled(&self) -> bool {
        self.count >= SETTLED
    }

    /// What the settings before these took.
    pub(super) fn before(&self) -> Option<&Cost> {
        self.before.as_ref()
    }

    /// What frames take with these settings.
    pub(super) fn mean(&self) -> Option<Mean> {
        let count = self.frames.len() as f64;
        let mean = |of: fn(&Sample) -> Option<f64>| {
            let all: Option<Vec<f64>> = self.frames.iter().map(of).collect();
            all.filter(|all| !all.is_empty()).map(|all| all.iter().sum::<f64>() / count)
        };
        let mut draws: Vec<f64> = self.frames.iter().filter_map(|sample| sample.draw).collect();
        draws.sort_unstable_by(f64::total_cmp);
        Some(Mean {
            frame: mean(|sample| Some(sample.frame))?,
            kernel: mean(|sample| sample.kernel),
            draw: draws.get(draws.len() / 4).copied(),
            cpu: mean(|sample| Some(sample.cpu))?,
        })
    }

    /// The frame times, the oldest first.
    pub(super) fn frame_times(&self) -> impl ExactSizeIterator<Item = f64> + '_ {
        self.frames.iter().map(|sample| sample.frame)
    }

    /// The times that half of the frames and 99 of 100 keep to.
    pub(super) fn quantiles(&self) -> Option<(f64, f64)> {
        let mut times: Vec<f64> = self.frame_times().collect();
        times.sort_unstable_by(f64::total_cmp);
        let at = |part: f64| {
            times.get(((times.len() as f64 * part) as usize).min(times.len().max(1) - 1)).copied()
        };
        at(0.5).zip(at(0.99))
    }
}

/// A time as people read it: three digits, in the unit that suits it.
pub(super) fn time(seconds: f64) -> String {
    let (value, unit) = if seconds >= 1.0 {
        (seconds, "s")
    } else if seconds >= 1e-3 {
        (seconds * 1e3, "ms")
    } else {
        (seconds * 1e6, "µs")
    };
    let decimals = match value {
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {unit}")
}

/// What a switch has changed, in a line.
pub(super) fn change(before: &Cost, now: &Cost) -> String {
    let handoff = |cost: &Cost| cost.mean.handoff();
    let (what, from, to) = match (handoff(before), handoff(now)) {
        (Some(from), Some(to)) => ("hand-off", from, to),
        _ => ("frame", before.mean.frame, now.mean.frame),
    };
    format!("{} → {}: {what} {} → {}", before.name, now.name, time(from), time(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(frame: u64, every_us: f64, draw_us: u64) -> FrameTiming {
        FrameTiming {
            frame,
            kernel: Some(Duration::from_micros(100)),
            draw: Some(Duration::from_micros(draw_us)),
            end_ns: Some(frame as f64 * every_us * 1e3),
            cpu: Duration::from_micros(20),
            latency: Duration::ZERO,
        }
    }

    fn after(frames: u64, every_us: f64) -> Figures {
        let mut figures = Figures::default();
        // Every other draw has the switches within it.
        (0..frames).for_each(|frame| figures.add(&timing(frame, every_us, 1000 + 300 * (frame % 2))));
        figures
    }

    #[test]
    fn the_handoff_is_what_is_left_of_the_frame() {
        let figures = after(100, 1250.0);
        let mean = figures.mean().unwrap();
        assert!((mean.handoff().unwrap() * 1e6 - 150.0).abs() < 1e-6, "{mean:?}");
        let (p50, p99) = figures.quantiles().unwrap();
        assert!((p50 * 1e6 - 1250.0).abs() < 1e-6 && (p99 * 1e6 - 1250.0).abs() < 1e-6);
        assert_eq!(figures.frame_times().len(), 99, "the first has no frame before it");
    }

    #[test]
    fn a_frame_that_waits_for_the_display_says_nothing_of_the_handoff() {
        assert_eq!(after(100, 16_667.0).mean().unwrap().handoff(), None);
        assert_eq!(Figures::default().mean(), None);
    }

    #[test]
    fn a_switch_shows_before_and_after() {
        let mut figures = after(100, 1438.0);
        figures.switched("binary".into());
        assert!(!figures.is_settled() && figures.mean().is_none());
        (0..100).for_each(|frame| figures.add(&timing(frame, 1170.0, 1000)));
        let now = Cost { name: "timeline ring 8 batch 8".into(), mean: figures.mean().unwrap() };
        let line = change(figures.before().unwrap(), &now);
        assert_eq!(line, "binary → timeline ring 8 batch 8: hand-off 338 µs → 70.0 µs");
        // One more switch, at once: what was hardly seen is not what it is compared with.
        figures.switched("timeline ring 8 batch 8".into());
        figures.switched("inline".into());
        assert_eq!(figures.before().unwrap().name, "timeline ring 8 batch 8");
        let slow = Cost { name: "fifo".into(), mean: after(100, 16_667.0).mean().unwrap() };
        assert_eq!(change(&slow, &now), "fifo → timeline ring 8 batch 8: frame 16.7 ms → 1.17 ms");
    }

    #[test]
    fn a_rest_is_no_frame_time() {
        let mut figures = after(10, 1000.0);
        figures.rest();
        figures.add(&timing(5000, 1000.0, 1000));
        assert_eq!(figures.frame_times().len(), 9);
    }

    #[test]
    fn times_have_three_digits() {
        assert_eq!(time(0.000_000_5), "0.50 µs");
        assert_eq!(time(0.000_338), "338 µs");
        assert_eq!(time(0.012_34), "12.3 ms");
        assert_eq!(time(2.0), "2.00 s");
    }
}
