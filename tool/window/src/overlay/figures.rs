//! The times of recent frames, and how a switch of settings changed them. Pure arithmetic.

use std::collections::VecDeque;
use std::time::Instant;

use wavefield_run::watch::trace::{FrameSpans, GpuClock};

pub(super) const FRAMES: usize = 240;

/// The times of recent frames, in seconds unless stated otherwise.
#[derive(Default)]
pub(super) struct Figures {
    frames: VecDeque<FrameParts>,
    seen: Option<u64>,
    /// When the CPU began the latest frame, and when [`Figures::ignore_gap`] was last called.
    began: Option<Instant>,
    rested: Option<Instant>,
    /// The end of the latest draw, in nanoseconds of the GPU's clock; `None` after a gap.
    end: Option<f64>,
    batch: usize,
    uses_cuda: bool,
    pub(super) before: Option<Cost>,
}

/// The parts of a frame's time, or their means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FrameParts {
    /// The time from the end of one draw to the end of the next.
    pub(super) frame: f64,
    pub(super) kernel: Option<f64>,
    pub(super) draw: f64,
    /// How long the GPU had no work, because it waited for the display or the CPU.
    pub(super) idle: f64,
    /// The GPU time after the draw, for the overlay and a film's copy.
    pub(super) behind: f64,
    pub(super) cpu: f64,
    uses_cuda: bool,
}

impl FrameParts {
    /// Returns the rest of the frame's time. If CUDA fills the field, this is the time of the hand-off.
    pub(super) fn other(&self) -> f64 {
        (self.frame - self.idle - self.kernel.unwrap_or(0.0) - self.draw - self.behind).max(0.0)
    }

    /// Returns the name and the text of [`FrameParts::other`], which is rough: it includes presenting.
    pub(super) fn other_text(&self) -> (&'static str, String) {
        (if self.uses_cuda { "hand-off" } else { "other" }, format!("about {}", time(self.other())))
    }

    fn handoff_text(&self) -> String {
        if self.uses_cuda { self.other_text().1 } else { "none".into() }
    }

    pub(super) fn text(&self) -> String {
        let (name, other) = self.other_text();
        format!(
            "kernel {}, draw {}, {name} {other}, overlay {}, idle {}: together {}",
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
    pub(super) mean: FrameParts,
}

impl Figures {
    /// Sets how the next frames are filled. Drops the previous frames if the batch changes.
    pub(super) fn filled(&mut self, uses_cuda: bool, batch: usize) {
        self.uses_cuda = uses_cuda;
        if std::mem::replace(&mut self.batch, batch) != batch {
            self.end = None;
            self.frames.clear();
        }
    }

    /// Adds a frame if it is new. `in_queue`: whether its kernel ran in Vulkan's queue. `behind`: see
    /// [`FrameParts`].
    pub(super) fn add(&mut self, spans: &FrameSpans, in_queue: bool, clock: &GpuClock, behind: f64) {
        let [begin, draw, end] = spans.vulkan;
        if self.seen.is_some_and(|seen| spans.frame <= seen) {
            return;
        }
        let follows = self.seen.replace(spans.frame).is_some_and(|seen| seen + 1 == spans.frame);
        let (began, took) = spans.cpu;
        // The times of the last frames before a gap may arrive only after the gap.
        let was = self.began.replace(began);
        let rested = self.rested.zip(was).is_some_and(|(rested, was)| was < rested && rested < began);
        let Some(before) = self.end.replace(end).filter(|_| follows && !rested) else { return };
        let kernel = if in_queue { Some((begin, draw)) } else { spans.cuda };
        // The GPU had work from the frame's submission or the start of its kernel, whichever came first.
        // Ignore a kernel that ended before the end of the previous draw: a batch filled the frame ahead of
        // time. `took` excludes the CPU's waits for the hand-off, so the time that the GPU loses during them
        // counts as hand-off.
        let submitted = clock.at(began + took);
        let launched = kernel.filter(|(_, end)| *end > before).map(|(begin, _)| begin);
        let asked = launched.map_or(submitted, |begin| begin.min(submitted));
        if self.frames.len() == FRAMES {
            self.frames.pop_front();
        }
        self.frames.push_back(FrameParts {
            frame: (end - before) * 1e-9,
            idle: ((asked.min(draw) - before) * 1e-9 - behind).max(0.0),
            behind,
            kernel: kernel.map(|(begin, end)| (end - begin) * 1e-9),
            draw: (end - draw) * 1e-9,
            cpu: took.as_secs_f64(),
            uses_cuda: self.uses_cuda,
        });
    }

    pub(super) fn ignore_gap(&mut self, now: Instant) {
        (self.end, self.rested) = (None, Some(now));
    }

    /// Starts over after a switch from these settings, and keeps their cost if it had settled.
    pub(super) fn switched(&mut self, settings: Vec<String>) {
        if let Some(mean) = self.mean().filter(|_| self.is_settled()) {
            self.before = Some(Cost { settings, mean });
        }
        self.end = None;
        self.frames.clear();
    }

    pub(super) fn renumbered(&mut self) {
        (self.seen, self.end) = (None, None);
    }

    pub(super) fn is_settled(&self) -> bool {
        self.frames.len() == FRAMES
    }

    /// Returns the mean of each part, but the lower quartile of the draws: some draws include a switch to
    /// CUDA.
    pub(super) fn mean(&self) -> Option<FrameParts> {
        let count = self.frames.len() as f64;
        let sum = |of: fn(&FrameParts) -> f64| self.frames.iter().map(of).sum::<f64>() / count;
        let kernels: Vec<f64> = self.frames.iter().filter_map(|sample| sample.kernel).collect();
        let mut draws: Vec<f64> = self.frames.iter().map(|sample| sample.draw).collect();
        draws.sort_unstable_by(f64::total_cmp);
        let quartile = *draws.get(draws.len() / 4)?;
        Some(FrameParts {
            draw: quartile,
            frame: sum(|sample| sample.frame),
            kernel: (!kernels.is_empty()).then(|| kernels.iter().sum::<f64>() / kernels.len() as f64),
            idle: sum(|sample| sample.idle),
            behind: sum(|sample| sample.behind),
            cpu: sum(|sample| sample.cpu),
            uses_cuda: self.uses_cuda,
        })
    }

    /// Returns the frame times in seconds, oldest first.
    pub(super) fn frame_times(&self) -> impl ExactSizeIterator<Item = f64> + '_ {
        self.frames.iter().map(|sample| sample.frame)
    }

    pub(super) fn quantiles(&self) -> Option<(f64, f64)> {
        let mut times: Vec<f64> = self.frame_times().collect();
        times.sort_unstable_by(f64::total_cmp);
        let at = |part: f64| times.get((times.len() as f64 * part) as usize).copied();
        at(0.5).zip(at(0.99))
    }
}

pub(super) fn time(seconds: f64) -> String {
    let (value, unit) = match seconds {
        1.0.. => (seconds, "s"),
        1e-3.. => (seconds * 1e3, "ms"),
        _ => (seconds * 1e6, "µs"),
    };
    let decimals = match value {
        99.95.. => 0,
        9.995.. => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {unit}")
}

/// Describes the effect of a switch in one line, once the new figures have `settled`.
pub(super) fn change(before: &Cost, now: &Cost, settled: bool) -> String {
    let differ = before.settings.iter().zip(&now.settings).filter(|(was, is)| was != is);
    let (was, is): (Vec<&str>, Vec<&str>) = differ.map(|(was, is)| (was.as_str(), is.as_str())).unzip();
    let (was, is) = (was.join(", "), is.join(", "));
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
    use wavefield_handoff::producer::Batch;

    /// A clock that was at 5 s at `host`.
    fn tied(host: Instant) -> GpuClock {
        GpuClock { host, gpu_ns: 5e9, error: Duration::ZERO, calibrated: false }
    }

    fn add_all(figures: &mut Figures, frames: &[FrameSpans], clock: &GpuClock) {
        for frame in frames {
            figures.add(frame, false, clock, 0.0);
        }
    }

    /// Frames with a kernel of 100 µs and a draw of 1 ms, one every `every` µs. The CPU submits each frame
    /// `ahead` µs before the end of the last.
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
        let (clock, mut figures) = (tied(base), Figures::default());
        figures.filled(true, 1);
        let frames = frames(count, every, ahead, &clock, base);
        // Add some frames twice.
        add_all(&mut figures, &frames[..frames.len() / 2], &clock);
        add_all(&mut figures, &frames, &clock);
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
        figures.switched(settings("binary"));
        assert!(!figures.is_settled() && figures.mean().is_none());
        let now = Cost {
            settings: settings("timeline ring 8 batch 8"),
            mean: after(100, 1170.0, 500.0).mean().unwrap(),
        };
        let line = |settled| change(figures.before.as_ref().unwrap(), &now, settled);
        assert_eq!(line(false), "binary → timeline ring 8 batch 8: settling…");
        assert_eq!(line(true), "binary → timeline ring 8 batch 8: hand-off about 338 µs → about 70.0 µs");
        // Another switch at once: settings that have not settled are not kept for comparison.
        figures.switched(settings("timeline ring 8 batch 8"));
        assert_eq!(figures.before.as_ref().unwrap().settings[0], "binary");
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
        let (clock, mut figures) = (tied(base), Figures::default());
        let frames = frames(10, 1350.0, 500.0, &clock, base);
        let rest = frames[5].cpu.0 - Duration::from_micros(10);
        add_all(&mut figures, &frames[..5], &clock);
        figures.ignore_gap(rest);
        // The list still contains the old frames, which are not added twice.
        add_all(&mut figures, &frames, &clock);
        assert_eq!(figures.frame_times().len(), 8);
        figures.switched(Vec::new());
        add_all(&mut figures, &frames, &clock);
        assert_eq!(figures.frame_times().len(), 0);
        // The GPU is done with the last frames before the rest only when that is over.
        let mut figures = Figures::default();
        add_all(&mut figures, &frames[..3], &clock);
        figures.ignore_gap(rest);
        add_all(&mut figures, &frames, &clock);
        assert_eq!(figures.frame_times().len(), 7, "frames 1, 2, 4 and 6 to 9");
    }

    #[test]
    fn a_kernel_that_ran_ahead_does_not_turn_a_wait_into_handoff() {
        let base = Instant::now();
        let (clock, mut figures) = (tied(base), Figures::default());
        let mut frames = frames(101, 16_350.0, -15_000.0, &clock, base);
        for pair in frames.chunks_exact_mut(2) {
            // The second of each pair is filled right after the first.
            let first = pair[0].cuda.unwrap().1;
            pair[1].cuda = Some((first, first + 100e3));
        }
        add_all(&mut figures, &frames, &clock);
        let mean = figures.mean().unwrap();
        assert!(mean.other() < 300e-6 && mean.idle > 14e-3, "{mean:?}");
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
