//! How many frames CUDA fills in one go: what was asked for, or what the frames at hand are best served by.

use std::time::Duration;

use vulkan_cuda::ring::MAX_DEPTH;

use super::FrameTiming;

/// How many frames CUDA fills for each wait, where the hand-off can fill several: see [`vulkan_cuda::Ring::batch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batching {
    /// Always so many, or as many as the ring has slots if that is fewer.
    Fixed(u32),
    /// The fewest with which the hand-off takes no more than a twentieth of a frame, as far as the ring has slots.
    Auto {
        /// What changes the field may show later by so much and no more. This wins over the hand-off's cost.
        latency: Duration,
    },
}

impl Batching {
    /// The latency that [`Batching::default`] allows: two frames of a display with 60 Hz.
    pub const LATENCY: Duration = Duration::from_millis(33);
}

impl Default for Batching {
    fn default() -> Self {
        Self::Auto { latency: Self::LATENCY }
    }
}

/// The hand-off may take this part of a frame.
const SHARE: f64 = 0.05;
/// A smaller batch is taken only if the hand-off keeps to this part with it, so that the choice does not waver.
const SHARE_TO_SHRINK: f64 = 0.04;
/// The switches take less, in seconds: a frame with more left waits for something else, such as the display.
const PLAUSIBLE: f64 = 1e-3;
/// Looks that differ by less agree.
const STEADY: f64 = 0.1;
/// Frames that are looked at before each choice: so many or a few more, for whole batches.
const FRAMES: usize = 16;
/// An upper bound of that.
const MOST: usize = FRAMES + MAX_DEPTH as usize;

/// Chooses the batch, again and again, from what the last frames took.
///
/// A frame takes its kernel k, its draw d and its part of the switches S that the GPU makes for each batch: k + d + S / B. Kernel and
/// draw are measured. Where the GPU goes to CUDA in the midst of a draw, that draw seems longer; but with batches of two or more at
/// least half of the draws are whole, so the lower quartile is the draw alone, and S is what is left of the frame.
pub(super) struct AutoBatch {
    /// No batch is longer: the ring's slots.
    longest: usize,
    latency: Duration,
    batch: usize,
    /// S in seconds, as far as a batch of several frames has shown it.
    switches: Option<f64>,
    /// What a frame took, in seconds, that had to wait for something else, before S was known.
    paced: Option<f64>,
    /// The first frame that the last choice was in force for. Earlier ones are not looked at.
    from: u64,
    /// What a frame took at the last look, in seconds.
    last: Option<f64>,
    seen: Seen,
    changes: u64,
}

/// What the frames since the last choice took.
#[derive(Clone, Debug)]
struct Seen {
    frames: usize,
    /// In nanoseconds of the GPU's clock: when the frame before the first ended, and the last.
    began: Option<f64>,
    ended: f64,
    /// In seconds, of all frames together.
    kernels: f64,
    /// In seconds, of each frame.
    draws: [f64; MOST],
}

impl Seen {
    /// Nothing yet; the frame before ended at `began`.
    fn since(began: Option<f64>) -> Self {
        Self { frames: 0, began, ended: 0.0, kernels: 0.0, draws: [0.0; MOST] }
    }

    /// The draw alone, in seconds.
    fn draw(&mut self) -> f64 {
        let draws = &mut self.draws[..self.frames];
        draws.sort_unstable_by(f64::total_cmp);
        draws[draws.len() / 4]
    }
}

impl AutoBatch {
    /// `longest`: how many frames a batch may have at most. `None` where there is nothing to choose.
    pub(super) fn new(longest: usize, latency: Duration) -> Option<Self> {
        // With a batch of two the first look shows what the switches take.
        (longest > 1).then_some(Self {
            longest,
            latency,
            batch: if latency.is_zero() { 1 } else { 2 },
            switches: None,
            paced: None,
            // The first frames run with cold caches.
            from: FRAMES as u64 / 2,
            last: None,
            seen: Seen::since(None),
            changes: 0,
        })
    }

    /// Frames in a batch, from the next one on.
    pub(super) fn batch(&self) -> usize {
        self.batch
    }

    /// How often it chose another batch than before.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Frame `next` does not follow the one before it at once: what came between is no part of any frame.
    pub(super) fn rest(&mut self, next: u64) {
        self.from = self.from.max(next + 1);
        self.seen = Seen::since(None);
    }

    /// A frame was drawn; `next` is the number of the one that is asked for next. Gives the batch if it is another now.
    pub(super) fn drawn(&mut self, timing: &FrameTiming, next: u64) -> Option<usize> {
        let (Some(kernel), Some(draw), Some(end)) = (timing.kernel, timing.draw, timing.end_ns) else {
            return None;
        };
        if timing.frame < self.from {
            self.seen.began = Some(end);
            return None;
        }
        let seen = &mut self.seen;
        seen.began.get_or_insert(end);
        seen.ended = end;
        seen.kernels += kernel.as_secs_f64();
        seen.draws[seen.frames] = draw.as_secs_f64();
        seen.frames += 1;
        // Whole batches, so that each look sees as many switches as there were.
        if seen.frames < FRAMES.next_multiple_of(self.batch) {
            return None;
        }
        let mut seen = std::mem::replace(seen, Seen::since(Some(end)));
        let batch = self.choose(&mut seen);
        if batch == self.batch {
            return None;
        }
        // At the worst, the first frame of a batch as before was the last one asked for.
        self.from = next + self.batch as u64;
        (self.batch, self.last, self.changes) = (batch, None, self.changes + 1);
        Some(self.batch())
    }

    fn choose(&mut self, seen: &mut Seen) -> usize {
        let frames = seen.frames as f64;
        let frame = (seen.ended - seen.began.unwrap_or(seen.ended)) * 1e-9 / frames;
        // The last frame of a batch is filled so many frames before it would be by itself.
        let most = if frame > 0.0 { (self.latency.as_secs_f64() / frame) as usize } else { 0 };
        let most = most.saturating_add(1);
        // Two looks must agree: one in which the draw became longer or shorter tells nothing.
        let steady = self.last.replace(frame).is_some_and(|last| (frame / last - 1.0).abs() < STEADY);
        let batch = if steady { self.fitting(frame, seen) } else { self.batch };
        batch.min(most)
    }

    /// The batch that the hand-off's cost asks for.
    fn fitting(&mut self, frame: f64, seen: &mut Seen) -> usize {
        let frames = seen.frames as f64;
        let batch = self.batch as f64;
        let left = ((frame - seen.kernels / frames - seen.draw()) * batch).max(0.0);
        if self.batch > 1 && left <= PLAUSIBLE {
            self.switches = Some(left);
        }
        let Some(switches) = self.switches else {
            // Whatever the frame waits for, a batch would not make it shorter, and the field would only be late. Once it no longer
            // waits for that, another look shows the switches.
            if self.batch > 1 {
                self.paced = Some(frame);
                return 1;
            }
            return if self.paced.is_none_or(|paced| frame < paced * (1.0 - STEADY)) { 2 } else { 1 };
        };
        let work = (frame - switches / batch).max(0.0);
        let keeps_to = |share: f64| {
            let keeps = |batch: &usize| switches / *batch as f64 <= share * (work + switches / *batch as f64);
            (1..self.longest).find(keeps).unwrap_or(self.longest)
        };
        match keeps_to(SHARE) {
            enough if enough >= self.batch => enough,
            _ => keeps_to(SHARE_TO_SHRINK).min(self.batch),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const MICROSECOND: Duration = Duration::from_micros(1);

    /// A GPU whose frames take their kernel, their draw and, in the first of each batch, the switches.
    struct Gpu {
        kernel: f64,
        draw: f64,
        switches: f64,
        /// A display that shows a frame no more often than every so many µs.
        pace: f64,
        now: f64,
        frame: u64,
        /// Of the batch, frames that were drawn.
        drawn: usize,
    }

    impl Gpu {
        fn new(draw: f64) -> Self {
            Self { kernel: 8.0, draw, switches: 340.0, pace: 0.0, now: 0.0, frame: 0, drawn: 0 }
        }

        /// Draws some frames as `auto` says; gives the batch at the end.
        fn draw(&mut self, auto: &mut AutoBatch, frames: u64) -> usize {
            for _ in 0..frames {
                let batch = auto.batch();
                let first = self.drawn == 0;
                self.drawn = (self.drawn + 1) % batch;
                let switches = if first { self.switches + self.kernel * batch as f64 } else { 0.0 };
                let work = self.draw + switches;
                self.now += work.max(self.pace);
                let timing = FrameTiming {
                    frame: self.frame,
                    kernel: Some(MICROSECOND.mul_f64(self.kernel)),
                    // What comes between is between the draw's timestamps.
                    draw: Some(MICROSECOND.mul_f64(work)),
                    end_ns: Some(self.now * 1e3),
                    submitted: Instant::now(),
                    cpu: Duration::ZERO,
                    latency: Duration::ZERO,
                };
                self.frame += 1;
                // Three are in flight.
                auto.drawn(&timing, self.frame + 2);
            }
            auto.batch()
        }
    }

    fn settled(draw: f64, longest: usize) -> usize {
        let mut auto = AutoBatch::new(longest, Batching::LATENCY).unwrap();
        Gpu::new(draw).draw(&mut auto, 2000)
    }

    #[test]
    fn the_smallest_batch_that_keeps_the_hand_off_within_its_share() {
        // It begins with 2, and takes 1 only where 340 µs are a twenty-fifth of the frame.
        let batches = [
            (40_000.0, 1),
            (8_200.0, 1),
            (8_100.0, 2),
            (4_000.0, 2),
            (2_800.0, 3),
            (1_300.0, 5),
            (1_000.0, 7),
            (100.0, 8),
        ];
        for (draw, batch) in batches {
            assert_eq!(settled(draw, 8), batch, "a draw of {draw} µs");
        }
        assert_eq!(settled(1_000.0, 3), 3, "no more than the ring has slots");
        assert!(AutoBatch::new(1, Batching::LATENCY).is_none());
    }

    #[test]
    fn the_choice_does_not_waver() {
        let mut auto = AutoBatch::new(8, Batching::LATENCY).unwrap();
        let mut gpu = Gpu::new(2_150.0);
        gpu.draw(&mut auto, 200);
        let settled = auto.changes();
        for frame in 0..2000 {
            // By 2 % up and down, where 3 would be enough at times and 4 at others.
            gpu.draw = 2_150.0 * (1.0 + 0.02 * (f64::from(frame) / 100.0).sin());
            gpu.draw(&mut auto, 1);
        }
        assert!(auto.changes() <= settled + 1, "{} changes", auto.changes());
    }

    #[test]
    fn it_follows_the_draw() {
        let mut auto = AutoBatch::new(8, Batching::LATENCY).unwrap();
        let mut gpu = Gpu::new(4_000.0);
        assert_eq!(gpu.draw(&mut auto, 300), 2);
        gpu.draw = 1_000.0;
        let more = gpu.draw(&mut auto, 300);
        assert!(more == 7 || more == 8, "{more}");
        gpu.draw = 40_000.0;
        assert_eq!(gpu.draw(&mut auto, 300), 1);
        gpu.draw = 1_000.0;
        let more = gpu.draw(&mut auto, 300);
        assert!(more == 7 || more == 8, "{more}: what the switches take is still known");
    }

    #[test]
    fn a_frame_that_waits_for_the_display_is_filled_by_itself() {
        let mut auto = AutoBatch::new(8, Batching::LATENCY).unwrap();
        let mut gpu = Gpu { pace: 16_667.0, ..Gpu::new(1_000.0) };
        assert_eq!(gpu.draw(&mut auto, 300), 1);
        assert_eq!(auto.changes(), 1, "it does not try again and again");
        gpu.pace = 0.0;
        let more = gpu.draw(&mut auto, 300);
        assert!(more == 7 || more == 8, "{more}");
        gpu.pace = 16_667.0;
        assert_eq!(gpu.draw(&mut auto, 300), 1, "with the switches known");
        // A quicker display is a display, too.
        let mut auto = AutoBatch::new(8, Batching::LATENCY).unwrap();
        assert_eq!(gpu.draw(&mut auto, 300), 1);
        gpu.pace = 6_944.0;
        assert_eq!((gpu.draw(&mut auto, 300), gpu.draw(&mut auto, 300), auto.changes()), (1, 1, 3));
    }

    #[test]
    fn the_bound_on_latency_wins() {
        for (milliseconds, batch) in [(0, 1), (1, 1), (2, 2), (6, 5), (100, 8)] {
            let mut auto = AutoBatch::new(8, Duration::from_millis(milliseconds)).unwrap();
            // About 1.2 ms a frame.
            let mut gpu = Gpu { switches: 900.0, ..Gpu::new(1_100.0) };
            assert_eq!(gpu.draw(&mut auto, 1000), batch, "{milliseconds} ms");
        }
        // At once, however unsteady the frames are.
        let mut auto = AutoBatch::new(8, Batching::LATENCY).unwrap();
        let mut gpu = Gpu::new(1_000.0);
        assert!(gpu.draw(&mut auto, 300) >= 7);
        for frame in 0..100 {
            gpu.draw = if frame / 16 % 2 == 0 { 20_000.0 } else { 30_000.0 };
            gpu.draw(&mut auto, 1);
        }
        assert!(auto.batch() <= 2, "{}", auto.batch());
    }

    #[test]
    fn a_rest_is_no_part_of_a_frame() {
        let mut auto = AutoBatch::new(8, Batching::LATENCY).unwrap();
        let mut gpu = Gpu::new(1_000.0);
        let settled = gpu.draw(&mut auto, 300);
        for _ in 0..20 {
            // Long enough for the bound on latency to ask for a batch of one.
            gpu.now += 1e6;
            auto.rest(gpu.frame);
            assert_eq!(gpu.draw(&mut auto, 40), settled);
        }
    }

    #[test]
    fn without_times_nothing_changes() {
        let mut auto = AutoBatch::new(8, Batching::LATENCY).unwrap();
        let timing = FrameTiming {
            frame: 0,
            kernel: None,
            draw: None,
            end_ns: None,
            submitted: Instant::now(),
            cpu: Duration::ZERO,
            latency: Duration::ZERO,
        };
        assert!((0..1000).all(|_| auto.drawn(&timing, 3).is_none()));
        assert_eq!(auto.batch(), 2);
    }
}
