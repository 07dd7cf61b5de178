//! Measures frame pacing and CPU time for `status`, for the lines printed at the end, and for `--json`.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::protocol::Spread;
use super::{FRAME_SECONDS, ServeSetup, frame_time};
use wavefield_gpu::{Result, output_file, say};
use wavefield_run::{Config, Engine, FrameTimes};

#[derive(Default)]
pub(super) struct Intervals {
    last: Option<Instant>,
    times: FrameTimes,
    longest: Duration,
    marks: u64,
}

impl Intervals {
    pub(super) fn mark(&mut self, now: Instant) {
        self.marks += 1;
        if let Some(last) = self.last.replace(now) {
            self.times.add(now - last);
            self.longest = self.longest.max(now - last);
        }
    }

    pub(super) fn spread(&self) -> Spread {
        // The histogram rounds up to three significant digits, so a quantile could exceed the longest time.
        let quantile = |quantile| microseconds(self.times.quantile(quantile).min(self.longest));
        let (frames, max) = (self.times.count(), microseconds(self.longest));
        Spread { frames, p50: quantile(0.5), p99: quantile(0.99), max }
    }

    /// Returns by how much the longest time exceeds `target`, in microseconds, or 0 if it does not.
    pub(super) fn late(&self, target: Duration) -> u64 {
        microseconds(self.longest.saturating_sub(target))
    }
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Measurements of one stretch: the time of one client, or the time before, between or after clients.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Stretch {
    pub(super) producer: String,
    /// `None` if there was no client.
    pub(super) client: Option<String>,
    pub(super) ended: String,
    pub(super) seconds: f64,
    pub(super) draws: u64,
    /// The number of draws that showed something new. Each frame is counted once.
    pub(super) frames: u64,
    /// The time from the submission of one such draw to the next.
    pub(super) frame_us: Spread,
    /// The time from the submission of one draw to the next, including repeats.
    pub(super) gaps_us: Spread,
    /// By how much the longest of these gaps exceeds the frame time.
    pub(super) late_us: u64,
    /// The average CPU time of all the renderer's threads from one of `frames` to the next.
    pub(super) cpu_us_per_frame: f64,
}

pub(super) struct Watch {
    since: Instant,
    cpu: Duration,
    pub(super) draws: Intervals,
    frames: Intervals,
}

impl Watch {
    /// `last` is when the previous draw was submitted, so that no gap between two stretches is lost.
    pub(super) fn start(last: Option<Instant>) -> Self {
        Self {
            since: Instant::now(),
            cpu: cpu_time(),
            draws: Intervals { last, ..Intervals::default() },
            frames: Intervals::default(),
        }
    }

    /// Counts a submitted draw. `new`: whether it shows something for the first time.
    pub(super) fn drawn(&mut self, new: bool) {
        let now = Instant::now();
        self.draws.mark(now);
        if new {
            if self.frames.marks == 0 {
                // CPU time before the first new frame belongs to no frame.
                self.cpu = cpu_time();
            }
            self.frames.mark(now);
        }
    }

    /// Leaves out the next gap, in which nothing is drawn because nothing changes.
    pub(super) fn ignore_gap(&mut self) {
        (self.draws.last, self.frames.last) = (None, None);
    }

    pub(super) fn seconds(&self) -> f64 {
        self.since.elapsed().as_secs_f64()
    }

    pub(super) fn late_us(&self) -> u64 {
        self.draws.late(frame_time())
    }
}

pub(super) fn cpu_time() -> Duration {
    wavefield_gpu::threads::cpu_time().unwrap_or_default()
}

/// The maximum number of stretches kept: a renderer may run for months and serve any number of clients.
const MAX_STRETCHES: usize = 1000;

/// The current stretch, the most recent earlier stretches (oldest first), and totals over all earlier ones.
pub(super) struct ServeReport {
    pub(super) watch: Watch,
    last: VecDeque<Stretch>,
    totals: Totals,
}

/// Totals over all stretches that have ended, including those that are no longer kept.
#[derive(Debug, Default, Serialize)]
struct Totals {
    stretches: u64,
    clients: u64,
    seconds: f64,
    draws: u64,
    frames: u64,
}

impl ServeReport {
    pub(super) fn new() -> Self {
        Self { watch: Watch::start(None), last: VecDeque::new(), totals: Totals::default() }
    }

    /// Ends the current stretch, and begins the next one, whose first gap starts at `last_draw`.
    pub(super) fn end(&mut self, producer: &str, client: Option<&str>, why: &str, last_draw: Instant) {
        let Watch { draws, frames, .. } = &self.watch;
        let cpu = cpu_time().saturating_sub(self.watch.cpu).as_secs_f64() * 1e6;
        let stretch = Stretch {
            producer: producer.to_owned(),
            client: client.map(str::to_owned),
            ended: why.to_owned(),
            seconds: self.watch.seconds(),
            draws: draws.marks,
            frames: frames.marks,
            frame_us: frames.spread(),
            gaps_us: draws.spread(),
            late_us: self.watch.late_us(),
            cpu_us_per_frame: cpu / frames.marks.saturating_sub(1).max(1) as f64,
        };
        self.watch = Watch::start(Some(last_draw));
        self.totals.stretches += 1;
        self.totals.clients += u64::from(stretch.client.is_some());
        self.totals.seconds += stretch.seconds;
        self.totals.draws += stretch.draws;
        self.totals.frames += stretch.frames;
        if self.last.len() == MAX_STRETCHES {
            self.last.pop_front();
        }
        self.last.push_back(stretch);
    }

    pub(super) fn print(&self) {
        for stretch in &self.last {
            let Some(client) = &stretch.client else { continue };
            say!(
                "stretch       {client}: {} frames in {:.1} s by {}, p50 {} µs, p99 {} µs, {:.0} µs of CPU each; longest gap {} µs",
                stretch.frames,
                stretch.seconds,
                stretch.producer,
                stretch.frame_us.p50,
                stretch.frame_us.p99,
                stretch.cpu_us_per_frame,
                stretch.gaps_us.max
            );
        }
        let Totals { stretches, clients, frames, .. } = self.totals;
        let left_out = stretches - self.last.len() as u64;
        if left_out > 0 {
            say!(
                "clients       {clients} in all, {frames} frames; the first {left_out} stretches are not kept"
            );
        }
    }

    pub(super) fn write(&self, engine: &Engine, setup: &ServeSetup) -> Result<()> {
        let Some(path) = &setup.options.json else { return Ok(()) };
        let Config { grid, handoff, .. } = &setup.config;
        let (ring, _) = setup.config.ring_of(*handoff);
        let report = serde_json::json!({
            "schema": "wavefield-serve/1",
            "device": engine.device().info().name,
            "grid": [grid.cols, grid.rows],
            "ring": ring.depth(),
            "handoff": handoff.name(),
            "verify": engine.observers.tally(),
            "frame_seconds": FRAME_SECONDS,
            "totals": self.totals,
            "stretches": self.last,
        });
        output_file::write(path, |file| Ok(serde_json::to_writer_pretty(file, &report)?))
    }
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

    #[test]
    fn many_clients_leave_exact_sums_and_a_bounded_list() {
        let mut report = ServeReport::new();
        let many = MAX_STRETCHES as u64 + 7;
        for number in 0..many {
            let client = (number % 2 == 0).then(|| format!("client {number}"));
            report.watch.drawn(true);
            report.watch.drawn(false);
            report.end("x", client.as_deref(), "left", Instant::now());
        }
        assert_eq!(report.last.len(), MAX_STRETCHES);
        assert_eq!(report.last.back().unwrap().client.as_deref(), Some(&*format!("client {}", many - 1)));
        let totals = &report.totals;
        assert_eq!((totals.stretches, totals.clients), (many, many.div_ceil(2)));
        assert_eq!((totals.draws, totals.frames), (2 * many, many));
    }
}
