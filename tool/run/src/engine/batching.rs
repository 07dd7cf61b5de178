//! How many frames CUDA fills at once: a fixed number, or one chosen from measured frame times.

use std::time::Duration;

use vulkan_cuda::ring::MAX_DEPTH;

use super::FrameTiming;

/// How many frames CUDA fills per wait, if the hand-off can fill several: see [`vulkan_cuda::Ring::turn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batching {
    /// Always this number, or the ring's depth if that is smaller.
    Fixed(u32),
    /// The smallest number that keeps the hand-off's cost below 5 % of a frame, up to the ring's depth.
    Auto {
        /// The maximum delay that a batch may add until a change is visible. Overrides the hand-off's cost.
        latency: Duration,
    },
}

impl Batching {
    /// The latency of [`Batching::default`]: two frames of a 60 Hz display.
    pub const LATENCY: Duration = Duration::from_millis(33);
}

impl Default for Batching {
    fn default() -> Self {
        Self::Auto { latency: Self::LATENCY }
    }
}

/// The largest fraction of a frame's time that the hand-off may take.
const SHARE: f64 = 0.05;
/// The limit for choosing a smaller batch. Below [`SHARE`], so that the choice does not oscillate.
const SHARE_TO_SHRINK: f64 = 0.04;
/// The longest plausible time of a batch's switches, in seconds. If more time is unexplained, the frames wait
/// for something else, such as the display.
const PLAUSIBLE: f64 = 1e-3;
/// Two measurements agree if they differ by less than this fraction.
const STEADY: f64 = 0.1;
/// Frames to measure before each choice, rounded up to whole batches.
const FRAMES: usize = 16;
const MOST: usize = FRAMES + MAX_DEPTH as usize;

/// Chooses the batch size from measured frame times, and keeps adjusting it.
///
/// A frame takes the time k + d + S / B: its kernel k, its draw d, and its share of the switches S that the
/// GPU makes once per batch of B frames. Kernel and draw are measured. A switch to CUDA during a draw makes
/// that draw seem longer, but in batches of two or more at least half of the draws are undisturbed, so the
/// lower quartile is d. The rest of the frame is S / B.
pub(super) struct AutoBatch {
    /// The ring's depth.
    longest: usize,
    latency: Duration,
    pub(super) batch: usize,
    /// S in seconds, measured in batches, or from the difference between single frames and batches of two.
    switches: Option<f64>,
    /// The frame time in seconds, in a batch with more than [`PLAUSIBLE`] unexplained while S was unknown.
    paced: Option<f64>,
    /// The first frame to which the last choice applies. Earlier frames are not measured.
    from: u64,
    /// The frame time of the last measurement, in seconds.
    last: Option<f64>,
    seen: BatchSample,
    pub(super) changes: u64,
}

#[derive(Clone, Debug)]
struct BatchSample {
    frames: usize,
    /// The end of the frame before the first one, in nanoseconds of the GPU's clock.
    began: Option<f64>,
    /// The end of the last frame, on the same clock.
    ended: f64,
    /// The sum of all kernel times, in seconds.
    kernels: f64,
    /// Each frame's draw time, in seconds.
    draws: [f64; MOST],
}

impl BatchSample {
    fn since(began: Option<f64>) -> Self {
        Self { frames: 0, began, ended: 0.0, kernels: 0.0, draws: [0.0; MOST] }
    }
}

impl AutoBatch {
    pub(super) fn new(longest: usize, latency: Duration) -> Option<Self> {
        // With a batch of two, the first measurement yields the switches' time.
        (longest > 1).then_some(Self {
            longest,
            latency,
            batch: if latency.is_zero() { 1 } else { 2 },
            switches: None,
            paced: None,
            // The first frames run with cold caches.
            from: FRAMES as u64 / 2,
            last: None,
            seen: BatchSample::since(None),
            changes: 0,
        })
    }

    /// Adds a finished frame. Returns the new batch size if it changes. `next` is the next frame to produce.
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
        // Only whole batches contain the right number of switches.
        if seen.frames < FRAMES.next_multiple_of(self.batch) {
            return None;
        }
        let mut seen = std::mem::replace(seen, BatchSample::since(Some(end)));
        let batch = self.choose(&mut seen);
        if batch == self.batch {
            return None;
        }
        // In the worst case the producer has just begun a batch of the old size.
        self.from = next + self.batch as u64;
        (self.batch, self.last, self.changes) = (batch, None, self.changes + 1);
        Some(self.batch)
    }

    fn choose(&mut self, seen: &mut BatchSample) -> usize {
        let frames = seen.frames as f64;
        let frame = (seen.ended - seen.began.unwrap_or(seen.ended)) * 1e-9 / frames;
        // The last frame of a batch of B is filled B - 1 frames earlier than it would be alone.
        let most = if frame > 0.0 { (self.latency.as_secs_f64() / frame) as usize } else { 0 };
        let most = most.saturating_add(1);
        // Two measurements must agree: a measurement during which the draw time changes is useless.
        let steady = self.last.replace(frame).is_some_and(|last| (frame / last - 1.0).abs() < STEADY);
        let batch = if steady { self.fitting(frame, seen) } else { self.batch };
        batch.min(most)
    }

    fn fitting(&mut self, frame: f64, seen: &mut BatchSample) -> usize {
        let frames = seen.frames as f64;
        let batch = self.batch as f64;
        let draws = &mut seen.draws[..seen.frames];
        draws.sort_unstable_by(f64::total_cmp);
        let draw = draws[draws.len() / 4];
        let left = ((frame - seen.kernels / frames - draw) * batch).max(0.0);
        if self.batch > 1 && left <= PLAUSIBLE {
            self.switches = Some(left);
        }
        let Some(switches) = self.switches else {
            if self.batch > 1 {
                // Too much time is unexplained. If frames wait, for example for the display, a batch does not
                // shorten them but delays the field. Or something else takes the time, such as the overlay.
                self.paced = Some(frame);
                return 1;
            }
            let Some(paced) = self.paced else { return 2 };
            // Unless frames wait, a single frame takes longer than in a batch of two, by half the switches.
            let switches = 2.0 * (frame - paced);
            if (SHARE * frame..=PLAUSIBLE).contains(&switches) {
                self.switches = Some(switches);
                return 2;
            }
            // Once frames no longer wait, another measurement in batches of two yields the switches.
            return if frame < paced * (1.0 - STEADY) { 2 } else { 1 };
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

    use super::*;

    const MICROSECOND: Duration = Duration::from_micros(1);

    /// A simulated GPU. The first frame of each batch contains the switches and the kernels of the whole
    /// batch. All times are in µs.
    struct FakeGpu {
        kernel: f64,
        draw: f64,
        switches: f64,
        /// The display's time per frame.
        pace: f64,
        /// The overlay's time per frame, after the draw's last timestamp.
        overlay: f64,
        now: f64,
        frame: u64,
        /// Frames of the current batch that were drawn.
        drawn: usize,
    }

    impl FakeGpu {
        fn new(draw: f64) -> Self {
            Self { kernel: 8.0, draw, switches: 340.0, pace: 0.0, overlay: 0.0, now: 0.0, frame: 0, drawn: 0 }
        }

        /// Draws frames in the batches that `auto` chooses. Returns the last batch.
        fn draw(&mut self, auto: &mut AutoBatch, frames: u64) -> usize {
            for _ in 0..frames {
                let batch = auto.batch;
                let first = self.drawn == 0;
                self.drawn = (self.drawn + 1) % batch;
                let switches = if first { self.switches + self.kernel * batch as f64 } else { 0.0 };
                let work = self.draw + switches;
                self.now += (work + self.overlay).max(self.pace);
                let timing = FrameTiming {
                    frame: self.frame,
                    kernel: Some(MICROSECOND.mul_f64(self.kernel)),
                    // The switches lie between the draw's timestamps.
                    draw: Some(MICROSECOND.mul_f64(work)),
                    end_ns: Some(self.now * 1e3),
                    cpu: Duration::ZERO,
                    by_compute: false,
                    latency: Duration::ZERO,
                };
                self.frame += 1;
                // Three are in flight.
                auto.drawn(&timing, self.frame + 2);
            }
            auto.batch
        }
    }

    fn settled(draw: f64, longest: usize) -> usize {
        let mut auto = AutoBatch::new(longest, Batching::LATENCY).unwrap();
        FakeGpu::new(draw).draw(&mut auto, 2000)
    }

    #[test]
    fn the_smallest_batch_that_keeps_the_hand_off_within_its_share() {
        // The choice begins with 2, and goes down to 1 only if 340 µs are at most a twenty-fifth of the
        // frame.
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
        let mut gpu = FakeGpu::new(2_150.0);
        gpu.draw(&mut auto, 200);
        let settled = auto.changes;
        for frame in 0..2000 {
            // 2 % up and down: sometimes 3 would be enough, sometimes 4.
            gpu.draw = 2_150.0 * (1.0 + 0.02 * (f64::from(frame) / 100.0).sin());
            gpu.draw(&mut auto, 1);
        }
        assert!(auto.changes <= settled + 1, "{} changes", auto.changes);
    }

    #[test]
    fn it_follows_the_draw() {
        let mut auto = AutoBatch::new(8, Batching::LATENCY).unwrap();
        let mut gpu = FakeGpu::new(4_000.0);
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
        let mut gpu = FakeGpu { pace: 16_667.0, ..FakeGpu::new(1_000.0) };
        assert_eq!(gpu.draw(&mut auto, 300), 1);
        assert_eq!(auto.changes, 1, "it does not try again and again");
        gpu.pace = 0.0;
        let more = gpu.draw(&mut auto, 300);
        assert!(more == 7 || more == 8, "{more}");
        gpu.pace = 16_667.0;
        assert_eq!(gpu.draw(&mut auto, 300), 1, "with the switches known");
        // A faster display also sets the pace.
        let mut auto = AutoBatch::new(8, Batching::LATENCY).unwrap();
        assert_eq!(gpu.draw(&mut auto, 300), 1);
        gpu.pace = 6_944.0;
        assert_eq!((gpu.draw(&mut auto, 300), gpu.draw(&mut auto, 300), auto.changes), (1, 1, 3));
    }

    /// The overlay's time looks like switches that no batch makes fewer.
    #[test]
    fn an_overlay_is_not_taken_for_a_display() {
        for (overlay, enough) in [(0.0, 3), (200.0, 3), (350.0, 3), (600.0, 3), (1_500.0, 2)] {
            let mut auto = AutoBatch::new(8, Batching::LATENCY).unwrap();
            let batch = FakeGpu { overlay, ..FakeGpu::new(2_500.0) }.draw(&mut auto, 300);
            assert!(batch >= enough, "{batch} with an overlay of {overlay} µs");
        }
    }

    #[test]
    fn the_bound_on_latency_wins() {
        for (milliseconds, batch) in [(0, 1), (1, 1), (2, 2), (6, 5), (100, 8)] {
            let mut auto = AutoBatch::new(8, Duration::from_millis(milliseconds)).unwrap();
            // About 1.2 ms a frame.
            let mut gpu = FakeGpu { switches: 900.0, ..FakeGpu::new(1_100.0) };
            assert_eq!(gpu.draw(&mut auto, 1000), batch, "{milliseconds} ms");
        }
        // The bound applies at once, even if frame times vary.
        let mut auto = AutoBatch::new(8, Batching::LATENCY).unwrap();
        let mut gpu = FakeGpu::new(1_000.0);
        assert!(gpu.draw(&mut auto, 300) >= 7);
        for frame in 0..100 {
            gpu.draw = if frame / 16 % 2 == 0 { 20_000.0 } else { 30_000.0 };
            gpu.draw(&mut auto, 1);
        }
        assert!(auto.batch <= 2, "{}", auto.batch);
    }

    #[test]
    fn without_times_nothing_changes() {
        let mut auto = AutoBatch::new(8, Batching::LATENCY).unwrap();
        let timing = FrameTiming {
            frame: 0,
            kernel: None,
            draw: None,
            end_ns: None,
            cpu: Duration::ZERO,
            by_compute: false,
            latency: Duration::ZERO,
        };
        assert!((0..1000).all(|_| auto.drawn(&timing, 3).is_none()));
        assert_eq!(auto.batch, 2);
    }
}
