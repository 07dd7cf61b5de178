//! How evenly frames come, and how much CPU time they take: for `status` and `--json`.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::frame_time;
use super::protocol::Spread;
use wavefield_run::FrameTimes;

#[derive(Default)]
pub(super) struct Intervals {
    last: Option<Instant>,
    times: FrameTimes,
    longest: Duration,
}

impl Intervals {
    pub(super) fn mark(&mut self, now: Instant) {
        if let Some(last) = self.last.replace(now) {
            self.times.add(now - last);
            self.longest = self.longest.max(now - last);
        }
    }

    pub(super) fn spread(&self) -> Spread {
        // The histogram rounds up to three digits, so a quantile could exceed the longest time.
        let quantile = |quantile| microseconds(self.times.quantile(quantile).min(self.longest));
        match self.times.count() {
            0 => Spread::default(),
            frames => {
                Spread { frames, p50: quantile(0.5), p99: quantile(0.99), max: microseconds(self.longest) }
            }
        }
    }

    /// Returns how much the longest time exceeds `target`, in microseconds; 0 if it does not.
    pub(super) fn late(&self, target: Duration) -> u64 {
        microseconds(self.longest.saturating_sub(target))
    }
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The time of one client, or the time between two.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Stretch {
    pub(super) producer: String,
    /// `None` between two clients.
    pub(super) client: Option<String>,
    pub(super) ended: String,
    pub(super) seconds: f64,
    pub(super) draws: u64,
    /// Draws of something new: each frame counts once.
    pub(super) frames: u64,
    /// From one such draw's submission to the next.
    pub(super) frame_us: Spread,
    /// From one draw's submission to the next, repeats included.
    pub(super) gaps_us: Spread,
    /// How much the longest of these gaps exceeds the time of a frame.
    pub(super) late_us: u64,
    /// The renderer's CPU time (all threads) from one of `frames` to the next, on average.
    pub(super) cpu_us_per_frame: f64,
}

pub(super) struct Watch {
    since: Instant,
    cpu: Duration,
    pub(super) draws: Intervals,
    frames: Intervals,
    new_frames: u64,
    all_draws: u64,
}

impl Watch {
    /// `last`: when the draw before was submitted, so that no gap is lost between two stretches.
    pub(super) fn start(last: Option<Instant>) -> Self {
        Self {
            since: Instant::now(),
            cpu: cpu_time(),
            draws: Intervals { last, ..Intervals::default() },
            frames: Intervals::default(),
            new_frames: 0,
            all_draws: 0,
        }
    }

    /// Counts a submitted draw; `new` if it shows something for the first time.
    pub(super) fn drawn(&mut self, new: bool) {
        let now = Instant::now();
        self.draws.mark(now);
        self.all_draws += 1;
        if new {
            if self.new_frames == 0 {
                // CPU time before the first new frame belongs to no frame.
                self.cpu = cpu_time();
            }
            self.frames.mark(now);
            self.new_frames += 1;
        }
    }

    /// Keeps the next gap from counting as late: nothing is drawn, because nothing changes.
    pub(super) fn ignore_gap(&mut self) {
        (self.draws.last, self.frames.last) = (None, None);
    }

    pub(super) fn seconds(&self) -> f64 {
        self.since.elapsed().as_secs_f64()
    }

    pub(super) fn late_us(&self) -> u64 {
        self.draws.late(frame_time())
    }

    pub(super) fn end(&self, producer: &str, client: Option<&str>, ended: &str) -> Stretch {
        let cpu = cpu_time().saturating_sub(self.cpu).as_secs_f64() * 1e6;
        Stretch {
            producer: producer.to_owned(),
            client: client.map(str::to_owned),
            ended: ended.to_owned(),
            seconds: self.seconds(),
            draws: self.all_draws,
            frames: self.new_frames,
            frame_us: self.frames.spread(),
            gaps_us: self.draws.spread(),
            late_us: self.late_us(),
            cpu_us_per_frame: cpu / self.new_frames.saturating_sub(1).max(1) as f64,
        }
    }
}

pub(super) fn cpu_time() -> Duration {
    wavefield_gpu::threads::cpu_time().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_what_exceeds_the_target() {
        let mut intervals = Intervals::default();
        let start = Instant::now();
        for millisecond in [0, 10, 20, 70, 80] {
            intervals.mark(start + Duration::from_millis(millisecond));
        }
        let spread = intervals.spread();
        assert_eq!((spread.frames, spread.max), (4, 50_000));
        assert!(spread.p50.abs_diff(10_000) < 20);
        assert_eq!(intervals.late(Duration::from_millis(20)), 30_000);
        assert_eq!(intervals.late(Duration::from_millis(60)), 0);
    }
}
