//! Predicts when the next frame is done from when earlier ones were. Arithmetic, without a GPU.
//!
//! A thread that has slept finds its caches cold; one that polls keeps a core busy. The compromise: nap until shortly before the
//! frame should be done, then poll, and sleep if it is late. The cost is bounded, however wrong the prediction is.

use std::time::{Duration, Instant};

/// Polling takes at most 1/`SHARE` of the time between two frames,
const SHARE: u32 = 20;
/// and at most this long. That is enough to warm the caches, and to catch frames that vary by some hundred microseconds.
const MOST: Duration = Duration::from_micros(500);
/// The longest nap. A core that idles for longer sleeps so deeply that its caches are cold again.
const LONGEST_NAP: Duration = Duration::from_micros(100);
/// The shortest useful poll. Naps are not exact enough to hit a shorter one.
const LEAST: Duration = Duration::from_micros(50);
/// How many intervals are remembered: few enough that the prediction keeps up with changes.
const REMEMBERED: usize = 8;

/// What to do while a frame is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Sleep for this time, which ends before the frame should be done. The frame does not wake the thread.
    Nap(Duration),
    Poll(Duration),
    /// Sleep until the frame wakes the thread.
    Sleep,
}

#[derive(Default)]
pub(super) struct Rhythm {
    last: Option<Instant>,
    intervals: [Duration; REMEMBERED],
    next: usize,
}

impl Rhythm {
    pub(super) fn step(&self, now: Instant) -> Step {
        let (Some(last), interval) = (self.last, self.interval()) else { return Step::Sleep };
        let time = (interval / SHARE).min(MOST);
        if time < LEAST {
            return Step::Sleep;
        }
        // Most of the polling comes before the predicted time, because naps end late rather than early.
        let from = last + interval - time * 2 / 3;
        let until = from + time;
        if now < from {
            Step::Nap((from - now).min(LONGEST_NAP))
        } else if now < until {
            Step::Poll(until - now)
        } else {
            Step::Sleep
        }
    }

    pub(super) fn arrived(&mut self, now: Instant) {
        if let Some(last) = self.last.replace(now) {
            self.remember(now - last);
        }
    }

    /// A frame was already done when the wait began.
    pub(super) fn unseen(&mut self) {
        self.last = None;
    }

    /// A frame was done before its nap ended. How long before is unknown. Half the interval is remembered instead, which
    /// shortens the next naps if this happens often, and changes nothing if it is rare.
    pub(super) fn overslept(&mut self, now: Instant) {
        if let Some(last) = self.last.take() {
            self.remember((now - last) / 2);
        }
    }

    fn remember(&mut self, interval: Duration) {
        self.intervals[self.next] = interval;
        self.next = (self.next + 1) % REMEMBERED;
    }

    /// The lower quartile of the remembered intervals; zero until there are a few. In batches, it leaves out the wait between
    /// two batches. Too short an interval only costs some polling; too long a one would make a frame late.
    fn interval(&self) -> Duration {
        let mut sorted = self.intervals;
        sorted.sort_unstable();
        sorted[REMEMBERED / 4]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Waits as the pacer does for a frame that is done at `done`. Returns when that was noticed, and how long it polled.
    fn wait(rhythm: &mut Rhythm, begun: Instant, done: Instant) -> (Instant, Duration) {
        let (mut now, mut polled) = (begun, Duration::ZERO);
        if now >= done {
            rhythm.unseen();
            return (now, polled);
        }
        loop {
            match rhythm.step(now) {
                Step::Nap(time) => {
                    now += time;
                    if now >= done {
                        rhythm.overslept(now);
                        return (now, polled);
                    }
                }
                Step::Poll(time) => {
                    let asked = time.min(done - now);
                    (now, polled) = (now + asked, polled + asked);
                    if now >= done {
                        rhythm.arrived(now);
                        return (now, polled);
                    }
                }
                Step::Sleep => {
                    rhythm.arrived(done);
                    return (done, polled);
                }
            }
        }
    }

    /// Frames that are done at these intervals. Each wait begins `busy` after the frame before was noticed. Returns for each
    /// frame how late it was noticed, and how long the wait polled.
    fn frames(intervals: &[Duration], busy: Duration) -> Vec<(Duration, Duration)> {
        let (mut rhythm, mut done) = (Rhythm::default(), Instant::now());
        let mut now = done;
        let frame = |&interval: &Duration| {
            done += interval;
            let (noticed, polled) = wait(&mut rhythm, now, done);
            now = noticed + busy;
            (noticed - done, polled)
        };
        intervals.iter().map(frame).collect()
    }

    /// It polls for the last part of a frame that comes as predicted, and not at all for the first frames.
    #[test]
    fn steady_frames_are_polled_for_once_they_are_known() {
        for (interval, polled) in [(4 * MS, 133), (16 * MS, 333), (MS * 3 / 2, 50)] {
            let frames = frames(&vec![interval; 40], MS / 50);
            assert!(frames.iter().all(|frame| frame.0.is_zero()), "late: {frames:?}");
            let (first, rest) = frames.split_at(REMEMBERED);
            assert!(first[..5].iter().all(|frame| frame.1.is_zero()), "{first:?}");
            assert!(rest.iter().all(|frame| frame.1.as_micros().abs_diff(polled) <= 1), "{rest:?}");
        }
    }

    #[test]
    fn short_frames_are_slept_for() {
        assert!(frames(&[MS * 2 / 5; 40], MS / 50).iter().all(|&(late, polled)| (late + polled).is_zero()));
    }

    /// In a batch, all frames except the first come quickly. Those are the ones to be ready for.
    #[test]
    fn the_frames_of_a_batch_are_polled_for() {
        for batch in [2, 3, 8] {
            let intervals: Vec<_> = (0..80).map(|n| if n % batch == 0 { 4 * MS } else { 3 * MS }).collect();
            let frames = frames(&intervals, MS / 50);
            for (n, &(late, polled)) in frames.iter().enumerate().skip(2 * REMEMBERED) {
                let first = n % batch == 0;
                // 3 ms: 150 µs in all, two thirds of them before the frame.
                let wanted = if first { 150 } else { 100 };
                assert!(
                    late.is_zero() && polled.as_micros().abs_diff(wanted) <= 1,
                    "{batch}, {n}: {polled:?}"
                );
            }
        }
    }

    /// If the system preempts the thread once, the next prediction is as good as before.
    #[test]
    fn one_frame_out_of_line_changes_nothing() {
        for odd in [MS, 30 * MS] {
            let mut intervals = [4 * MS; 40];
            intervals[20] = odd;
            let frames = frames(&intervals, MS / 50);
            assert!(
                frames[24..].iter().all(|&(late, polled)| late.is_zero() && polled > MS / 10),
                "{frames:?}"
            );
        }
    }

    /// A frame does not end a nap, so naps must quickly become shorter when frames do.
    #[test]
    fn naps_get_short_when_frames_do() {
        let mut rhythm = Rhythm::default();
        let mut now = Instant::now();
        for _ in 0..20 {
            now = wait(&mut rhythm, now, now + 16 * MS).0;
        }
        let mut lost = Duration::ZERO;
        for frame in 0..100 {
            let done = now + MS;
            now = wait(&mut rhythm, now, done).0;
            lost += now - done;
            assert!(frame < 40 || now == done, "frame {frame} is still late");
        }
        assert!(lost < 150 * MS, "{lost:?}");
    }

    /// Two frames, the first unseen, do not count as one long frame.
    #[test]
    fn what_nobody_saw_is_not_counted() {
        let (mut rhythm, mut done) = (Rhythm::default(), Instant::now());
        for frame in 0..40 {
            done += 4 * MS;
            // At first, every second frame is done before the wait for it begins.
            let begun = if frame < 20 && frame % 2 == 0 { done + MS } else { done - MS };
            let noticed = wait(&mut rhythm, begun, done).0;
            assert!(noticed == done.max(begun), "frame {frame} was noticed {:?} late", noticed - done);
        }
    }

    proptest! {
        /// Polling never takes more than its share of a frame.
        #[test]
        fn polling_keeps_to_its_share(
            interval in 600u64..20_000,
            factors in prop::collection::vec(prop_oneof![Just(1.0), Just(1.08), 0.9..1.1, 0.01..5.0], 1..300),
            busy in 0u64..2_000,
        ) {
            let interval = Duration::from_micros(interval);
            let intervals: Vec<_> = factors.into_iter().map(|factor| interval.mul_f64(factor)).collect();
            let mut before = Duration::ZERO;
            for (interval, (late, polled)) in intervals.iter().zip(frames(&intervals, Duration::from_micros(busy))) {
                prop_assert!(polled * SHARE <= *interval + late - before, "{polled:?} of {interval:?}");
                before = late;
            }
        }
    }
}
