//! The times of the last frames, and how a switch of settings changed them. Pure arithmetic.

use std::collections::VecDeque;

use crate::app::FrameTiming;
use crate::trace::{FrameSpans, GpuClock};

pub(super) const FRAMES: usize = 240;
/// The number of frames after which caches are warm.
const WARM: u64 = 8;
/// The first held frames are discarded, one in this many, because the GPU has to settle.
const SETTLING: usize = 5;
/// The least number of held frames that must remain.
const FEWEST: usize = 3;

/// The last frames. All times are in seconds, unless stated otherwise.
#[derive(Default)]
pub(super) struct Figures {
    frames: VecDeque<Sample>,
    seen: Option<u64>,
    /// The end of its draw, in nanoseconds of the GPU's clock; `None` after a rest.
    end: Option<f64>,
    /// The number of frames with the current settings and batch.
    count: u64,
    batch: usize,
    /// Whether CUDA fills the frames, so that they are handed off.
    uses_cuda: bool,
    before: Option<Cost>,
    /// The held frames: see [`crate::app::Engine::hold`].
    held: Vec<Held>,
    /// The end of the last held frame, in nanoseconds of the GPU's clock.
    held_end: Option<f64>,
    held_mean: Option<HeldMean>,
}

/// A held frame, without its idle part.
#[derive(Clone, Copy)]
struct Held {
    frame: f64,
    draw: f64,
}

/// The mean of the held frames, which have no hand-off.
#[derive(Clone, Copy, Debug, PartialEq)]
struct HeldMean {
    frame: f64,
    draw: f64,
    error: f64,
}

#[derive(Clone, Copy)]
struct Sample {
    frame: f64,
    /// The part of the frame in which the GPU had no work, because the frame was not submitted yet.
    idle: f64,
    kernel: Option<f64>,
    draw: f64,
    behind: f64,
    cpu: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mean {
    /// From the end of one draw to the end of the next.
    pub(super) frame: f64,
    pub(super) kernel: Option<f64>,
    /// The undisturbed draw, measured with held frames. Without them, the lower quartile of all draws: if the GPU switches to CUDA
    /// during a draw, its timestamps include the switches.
    pub(super) draw: f64,
    /// The time in which the GPU had no work, because it waited for the display or the CPU.
    pub(super) idle: f64,
    /// The work after the draw: the overlay and a film's copy. With held frames it also includes presenting.
    pub(super) behind: f64,
    pub(super) cpu: f64,
    /// Twice the standard error of [`Mean::other`]; `None` without held frames.
    pub(super) error: Option<f64>,
    uses_cuda: bool,
}

impl Mean {
    /// What is left of the frame: if CUDA fills it, the hand-off's time.
    pub(super) fn other(&self) -> f64 {
        (self.frame - self.idle - self.kernel.unwrap_or(0.0) - self.draw - self.behind).max(0.0)
    }

    /// The name of what is left, and its time with its error.
    pub(super) fn other_text(&self) -> (&'static str, String) {
        let other = time(self.other());
        let text = match self.error {
            Some(error) => format!("{other} ± {}", time(error)),
            None => format!("about {other}"),
        };
        (if self.uses_cuda { "hand-off" } else { "other" }, text)
    }

    fn handoff_text(&self) -> String {
        if self.uses_cuda { self.other_text().1 } else { "none".into() }
    }

    pub(super) fn text(&self) -> String {
        let behind = if self.error.is_some() { "overlay and presenting" } else { "overlay" };
        let (name, other) = self.other_text();
        format!(
            "kernel {}, draw {}, {name} {other}, {behind} {}, idle {}: together {}",
            self.kernel.map_or("–".into(), time),
            time(self.draw),
            time(self.behind),
            time(self.idle),
            time(self.frame)
        )
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cost {
    pub(super) settings: Vec<String>,
    pub(super) mean: Mean,
}

impl Figures {
    /// Says how the next frames are filled. The frames of another batch do not count any more.
    pub(super) fn filled(&mut self, uses_cuda: bool, batch: usize) {
        self.uses_cuda = uses_cuda;
        if std::mem::replace(&mut self.batch, batch) != batch {
            (self.end, self.count) = (None, 0);
            self.frames.clear();
        }
    }

    /// Adds the frames that were not added before. `in_queue` says that their kernels are in Vulkan's queue. `behind` is the GPU's
    /// time for the work after the draw.
    pub(super) fn add<'a>(
        &mut self,
        frames: impl IntoIterator<Item = &'a FrameSpans>,
        in_queue: bool,
        clock: &GpuClock,
        behind: f64,
    ) {
        for spans in frames {
            self.add_frame(spans, in_queue, clock, behind);
        }
    }

    fn add_frame(&mut self, spans: &FrameSpans, in_queue: bool, clock: &GpuClock, behind: f64) {
        let [begin, draw, end] = spans.vulkan;
        if self.seen.is_some_and(|seen| spans.frame <= seen) {
            return;
        }
        let follows = self.seen.replace(spans.frame).is_some_and(|seen| seen + 1 == spans.frame);
        let Some(before) = self.end.replace(end).filter(|_| follows) else { return };
        let kernel = if in_queue { Some((begin, draw)) } else { spans.cuda };
        let (began, took) = spans.cpu;
        // The GPU had work from the frame's submission on, or from its kernel's start. A kernel that ended before the last frame does
        // not count: it was filled ahead, in a batch.
        // `took` leaves out the waits for the hand-off, so the time that the GPU lost to them counts as the hand-off's.
        let submitted = clock.at(began + took);
        let launched = kernel.filter(|(_, end)| *end > before).map(|(begin, _)| begin);
        let asked = launched.map_or(submitted, |begin| begin.min(submitted));
        if self.frames.len() == FRAMES {
            self.frames.pop_front();
        }
        self.frames.push_back(Sample {
            frame: (end - before) * 1e-9,
            idle: idle(before, asked.min(draw), behind),
            behind,
            kernel: kernel.map(|(begin, end)| (end - begin) * 1e-9),
            draw: (end - draw) * 1e-9,
            cpu: took.as_secs_f64(),
        });
        self.count += 1;
    }

    /// Says that the time until the next frame is not a frame time.
    pub(super) fn rest(&mut self) {
        self.end = None;
    }

    /// To be called after a switch from these settings. Keeps their cost if it had settled, and starts again.
    pub(super) fn switched(&mut self, settings: Vec<String>, settled: bool) {
        if let Some(mean) = self.mean().filter(|_| settled) {
            self.before = Some(Cost { settings, mean });
        }
        (self.end, self.count) = (None, 0);
        self.frames.clear();
        self.begin_held();
    }

    pub(super) fn begin_held(&mut self) {
        (self.held_mean, self.held_end) = (None, None);
        self.held.clear();
    }

    /// Adds a held frame, unless it was added before. For `behind`, see [`Figures::add`].
    pub(super) fn add_held(&mut self, timing: &FrameTiming, clock: &GpuClock, behind: f64) {
        let (Some(draw), Some(end)) = (timing.draw, timing.end_ns) else { return };
        let Some(before) = self.held_end.replace(end).filter(|before| *before < end) else { return };
        let draw = draw.as_secs_f64();
        let asked = clock.at(timing.submitted).min(end - draw * 1e9);
        self.held.push(Held { frame: (end - before) * 1e-9 - idle(before, asked, behind), draw });
    }

    pub(super) fn held_frames(&self) -> usize {
        self.held.len()
    }

    pub(super) fn end_held(&mut self) {
        let settled = &self.held[self.held.len().div_ceil(SETTLING)..];
        if settled.len() >= FEWEST {
            let (frame, error) = middle(settled.iter().map(|held| held.frame));
            let (draw, _) = middle(settled.iter().map(|held| held.draw));
            self.held_mean = Some(HeldMean { frame, draw, error });
        }
    }

    pub(super) fn renumbered(&mut self) {
        (self.seen, self.end) = (None, None);
    }

    pub(super) fn is_warm(&self) -> bool {
        self.count >= WARM
    }

    pub(super) fn is_settled(&self) -> bool {
        self.count >= FRAMES as u64
    }

    pub(super) fn before(&self) -> Option<&Cost> {
        self.before.as_ref()
    }

    /// The average frame with the current settings; `None` without frames.
    pub(super) fn mean(&self) -> Option<Mean> {
        let count = self.frames.len() as f64;
        let sum = |of: fn(&Sample) -> f64| self.frames.iter().map(of).sum::<f64>() / count;
        let kernels: Vec<f64> = self.frames.iter().filter_map(|sample| sample.kernel).collect();
        let mut draws: Vec<f64> = self.frames.iter().map(|sample| sample.draw).collect();
        draws.sort_unstable_by(f64::total_cmp);
        let quartile = *draws.get(draws.len() / 4)?;
        let frame = sum(|sample| sample.frame);
        let rest = |sample: &Sample| sample.frame - sample.idle - sample.kernel.unwrap_or(0.0);
        let mean_rest = self.frames.iter().map(rest).sum::<f64>() / count;
        let squares = self.frames.iter().map(|sample| (rest(sample) - mean_rest).powi(2)).sum::<f64>();
        Some(Mean {
            draw: self.held_mean.map_or(quartile, |held| held.draw),
            frame,
            kernel: (!kernels.is_empty()).then(|| kernels.iter().sum::<f64>() / kernels.len() as f64),
            idle: sum(|sample| sample.idle),
            behind: match self.held_mean {
                Some(held) => held.frame - held.draw,
                None => sum(|sample| sample.behind),
            },
            cpu: sum(|sample| sample.cpu),
            error: self.held_mean.map(|held| 2.0 * (squares / count.powi(2) + held.error.powi(2)).sqrt()),
            uses_cuda: self.uses_cuda,
        })
    }

    /// The frame times in seconds, the oldest first.
    pub(super) fn frame_times(&self) -> impl ExactSizeIterator<Item = f64> + '_ {
        self.frames.iter().map(|sample| sample.frame)
    }

    /// The median and the 99th percentile of the frame times.
    pub(super) fn quantiles(&self) -> Option<(f64, f64)> {
        let mut times: Vec<f64> = self.frame_times().collect();
        times.sort_unstable_by(f64::total_cmp);
        let at = |part: f64| {
            times.get(((times.len() as f64 * part) as usize).min(times.len().max(1) - 1)).copied()
        };
        at(0.5).zip(at(0.99))
    }
}

/// How long the GPU had no work, in seconds: from the end of a draw (`before`) and the work after it (`behind`) to the next
/// submission (`asked`).
fn idle(before: f64, asked: f64, behind: f64) -> f64 {
    ((asked - before) * 1e-9 - behind).max(0.0)
}

/// The mean of the middle half of the values, which outliers do not change, and its standard error.
fn middle(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let count = values.len();
    let half = &values[count / 4..count - count / 4];
    let spread = half.last().zip(half.first()).map_or(0.0, |(high, low)| high - low);
    // The middle half of a normal distribution is 1.35 standard deviations wide.
    (half.iter().sum::<f64>() / half.len() as f64, spread / 1.35 / (count as f64).sqrt())
}

/// A time as text, with three digits and a suitable unit.
pub(super) fn time(seconds: f64) -> String {
    let (value, unit) = if seconds >= 1.0 {
        (seconds, "s")
    } else if seconds >= 1e-3 {
        (seconds * 1e3, "ms")
    } else {
        (seconds * 1e6, "µs")
    };
    let decimals = match value {
        99.95.. => 0,
        9.995.. => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {unit}")
}

/// Describes the effect of a switch in one line. Before the new figures have `settled`, they say nothing.
pub(super) fn change(before: &Cost, now: &Cost, settled: bool) -> String {
    let differ: Vec<_> =
        before.settings.iter().zip(&now.settings).filter(|(before, now)| before != now).collect();
    let words = |of: fn(&(&String, &String)) -> String| differ.iter().map(of).collect::<Vec<_>>().join(", ");
    let (was, is) = (words(|(before, _)| before.to_string()), words(|(_, now)| now.to_string()));
    let (before, now) = (&before.mean, &now.mean);
    match before.uses_cuda || now.uses_cuda {
        _ if !settled => format!("{was} → {is}: settling…"),
        true => format!("{was} → {is}: hand-off {} → {}", before.handoff_text(), now.handoff_text()),
        false => format!("{was} → {is}: frame {} → {}", time(before.frame), time(now.frame)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::producer::Batch;

    /// Frames with a kernel of 100 µs and a draw of 1 ms, one every `every` µs. The CPU submits each frame `ahead` µs before the
    /// end of the last.
    fn frames(count: u64, every: f64, ahead: f64, clock: &GpuClock, base: Instant) -> Vec<FrameSpans> {
        let base_ns = clock.at(base);
        let frame = |frame: u64| {
            let end = base_ns + (frame + 1) as f64 * every * 1e3;
            let asked = (frame as f64 * every - ahead) * 1e-6;
            // Every other draw contains the switches.
            let draw = end - 1e6 - 200e3 * (frame % 2) as f64;
            FrameSpans {
                frame,
                batch: Batch::of_one(frame),
                vulkan: [draw, draw, end],
                slices: None,
                cuda: Some((draw - 150e3, draw - 50e3)),
                cpu: (base + Duration::from_secs_f64(asked.max(0.0)), Duration::ZERO),
            }
        };
        (0..count).map(frame).collect()
    }

    fn after(count: u64, every: f64, ahead: f64) -> Figures {
        let base = Instant::now();
        let (clock, mut figures) = (GpuClock::made_up(base, 5e9), Figures::default());
        figures.filled(true, 1);
        let frames = frames(count, every, ahead, &clock, base);
        // Add some frames twice.
        figures.add(&frames[..frames.len() / 2], false, &clock, 0.0);
        figures.add(&frames, false, &clock, 0.0);
        figures
    }

    fn near(got: f64, microseconds: f64) -> bool {
        (got * 1e6 - microseconds).abs() < 0.01
    }

    #[test]
    fn the_handoff_is_what_is_left_of_a_busy_frame() {
        let figures = after(101, 1350.0, 500.0);
        let mean = figures.mean().unwrap();
        assert!(near(mean.other(), 250.0) && near(mean.idle, 0.0), "{mean:?}");
        assert!(near(mean.kernel.unwrap(), 100.0) && near(mean.draw, 1000.0), "{mean:?}");
        let (p50, p99) = figures.quantiles().unwrap();
        assert!(near(p50, 1350.0) && near(p99, 1350.0));
        assert_eq!(figures.frame_times().len(), 100, "the first has no frame before it");
    }

    #[test]
    fn what_waits_for_the_display_is_not_the_handoffs() {
        // Submitted 15 ms after the end of the last frame. From then on everything takes as long as before.
        let mean = after(101, 16_350.0, -15_000.0).mean().unwrap();
        assert!(near(mean.idle, 15_000.0) && near(mean.other(), 250.0), "{mean:?}");
        assert_eq!(Figures::default().mean(), None);
    }

    #[test]
    fn a_switch_shows_before_and_after() {
        let mut figures = after(FRAMES as u64 + 1, 1438.0, 500.0);
        assert!(figures.is_settled());
        let settings = |handoff: &str| vec![handoff.to_owned(), "64x64".to_owned()];
        figures.switched(settings("binary"), true);
        assert!(!figures.is_settled() && figures.mean().is_none());
        let now = Cost {
            settings: settings("timeline ring 8 batch 8"),
            mean: after(100, 1170.0, 500.0).mean().unwrap(),
        };
        let line = |settled| change(figures.before().unwrap(), &now, settled);
        assert_eq!(line(false), "binary → timeline ring 8 batch 8: settling…");
        assert_eq!(line(true), "binary → timeline ring 8 batch 8: hand-off about 338 µs → about 70.0 µs");
        // Another switch at once: settings that have not settled are not kept for comparison.
        figures.switched(settings("timeline ring 8 batch 8"), false);
        assert_eq!(figures.before().unwrap().settings[0], "binary");
    }

    #[test]
    fn frames_of_another_batch_do_not_count() {
        let mut figures = after(FRAMES as u64 + 1, 1438.0, 500.0);
        figures.filled(true, 1);
        assert!(figures.is_settled());
        figures.filled(true, 7);
        assert!(!figures.is_settled() && figures.mean().is_none());
    }

    #[test]
    fn without_cuda_there_is_no_hand_off() {
        let mut figures = after(100, 1438.0, 500.0);
        figures.filled(false, 1);
        let mean = figures.mean().unwrap();
        assert_eq!(mean.other_text(), ("other", "about 338 µs".into()));
        assert!(
            mean.text().contains(", other about 338 µs, ") && !mean.text().contains("hand-off"),
            "{mean:?}"
        );
        let cost = |settings: &str, mean| Cost { settings: vec![settings.into()], mean };
        let (compute, host) = (cost("compute", mean), cost("host", mean));
        assert_eq!(change(&compute, &host, true), "compute → host: frame 1.44 ms → 1.44 ms");
        let cuda = cost("inline", after(100, 1170.0, 500.0).mean().unwrap());
        assert_eq!(change(&compute, &cuda, true), "compute → inline: hand-off none → about 70.0 µs");
    }

    #[test]
    fn a_rest_is_no_frame_time() {
        let base = Instant::now();
        let (clock, mut figures) = (GpuClock::made_up(base, 5e9), Figures::default());
        let frames = frames(10, 1350.0, 500.0, &clock, base);
        figures.add(&frames[..5], false, &clock, 0.0);
        figures.rest();
        // The list still contains the old frames, which are not added twice.
        figures.add(&frames, false, &clock, 0.0);
        assert_eq!(figures.frame_times().len(), 8);
        figures.switched(Vec::new(), true);
        figures.add(&frames, false, &clock, 0.0);
        assert_eq!(figures.frame_times().len(), 0);
    }

    #[test]
    fn a_kernel_that_ran_ahead_does_not_turn_a_wait_into_handoff() {
        let base = Instant::now();
        let (clock, mut figures) = (GpuClock::made_up(base, 5e9), Figures::default());
        let mut frames = frames(101, 16_350.0, -15_000.0, &clock, base);
        for pair in frames.chunks_exact_mut(2) {
            // The second of each pair is filled right after the first.
            let first = pair[0].cuda.unwrap().1;
            pair[1].cuda = Some((first, first + 100e3));
        }
        figures.add(&frames, false, &clock, 0.0);
        let mean = figures.mean().unwrap();
        assert!(mean.other() < 300e-6 && mean.idle > 14e-3, "{mean:?}");
    }

    /// Adds held frames with a draw of 1 ms. `every` has their times in µs; each is submitted `ahead` µs before the end of the last.
    fn add_held(figures: &mut Figures, every: &[f64], ahead: f64) {
        let base = Instant::now();
        let clock = GpuClock::made_up(base, 5e9);
        let mut end = 1e6;
        for every in every {
            let asked = end - ahead;
            end += every;
            let timing = FrameTiming {
                frame: 7,
                kernel: None,
                draw: Some(Duration::from_millis(1)),
                end_ns: Some(clock.at(base) + end * 1e3),
                submitted: base + Duration::from_secs_f64(asked * 1e-6),
                cpu: Duration::ZERO,
                latency: Duration::ZERO,
            };
            // Add each frame twice.
            figures.add_held(&timing, &clock, 0.0);
            figures.add_held(&timing, &clock, 0.0);
        }
    }

    #[test]
    fn presenting_and_switches_within_the_draw_are_told_from_the_hand_off() {
        // Presenting takes 150 µs of each frame, with and without a hand-off.
        let mut figures = after(101, 1500.0, 500.0);
        assert!(near(figures.mean().unwrap().other(), 400.0), "nobody knows yet");
        figures.begin_held();
        add_held(&mut figures, &[1150.0; 51], 500.0);
        assert_eq!(figures.held_frames(), 50);
        figures.end_held();
        let mean = figures.mean().unwrap();
        assert!(near(mean.other(), 250.0) && near(mean.behind, 150.0) && near(mean.draw, 1000.0), "{mean:?}");
        assert!(near(mean.error.unwrap(), 0.0) && near(mean.frame, 1500.0), "{mean:?}");
        assert_eq!(
            mean.text(),
            "kernel 100 µs, draw 1.00 ms, hand-off 250 µs ± 0.00 µs, overlay and presenting 150 µs, idle 0.00 µs: together 1.50 ms"
        );
        // The frames with a hand-off are still there. A switch discards the held frames: the draw's time may differ.
        assert_eq!(figures.frame_times().len(), 100);
        figures.switched(Vec::new(), true);
        assert_eq!(figures.before().unwrap().mean, mean);
        assert_eq!((figures.held_mean, figures.held_frames()), (None, 0));
    }

    #[test]
    fn neither_outliers_nor_the_first_frames_nor_waits_move_the_held_mean() {
        let mut every = vec![5000.0; 10];
        for frame in 0..40 {
            every.push(if frame % 10 == 3 { 4000.0 } else { 1150.0 + 10.0 * f64::from(frame % 3) });
        }
        let mut figures = after(101, 1500.0, 500.0);
        add_held(&mut figures, &every, 500.0);
        figures.end_held();
        let mean = figures.mean().unwrap();
        assert!((mean.behind - 160e-6).abs() < 5e-6, "{mean:?}");
        assert!(mean.error.is_some_and(|error| error > 1e-6 && error < 10e-6), "{mean:?}");
        // A display with 16 ms per frame: each frame is submitted 15 ms late.
        let mut paced = after(101, 16_350.0, -15_000.0);
        add_held(&mut paced, &[16_100.0; 12], -15_000.0);
        paced.end_held();
        let mean = paced.mean().unwrap();
        assert!(near(mean.behind, 100.0) && near(mean.other(), 150.0), "{mean:?}");
        // Too few held frames count as none.
        let mut few = after(101, 1500.0, 500.0);
        add_held(&mut few, &[1150.0; 4], 500.0);
        few.end_held();
        assert_eq!(few.mean().unwrap().other_text().1, "about 400 µs");
    }

    #[test]
    fn times_have_three_digits() {
        assert_eq!(time(0.000_000_5), "0.50 µs");
        assert_eq!(time(0.000_338), "338 µs");
        assert_eq!(time(0.012_34), "12.3 ms");
        assert_eq!(
            (time(2.0), time(99.999e-6), time(9.999e-3)),
            ("2.00 s".into(), "100 µs".into(), "10.0 ms".into())
        );
    }
}
