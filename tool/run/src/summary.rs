use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::watch::{recording::Recorded, verify::Checked};
use wavefield_gpu::vulkan::ValidationLog;
use wavefield_gpu::{Error, report::Failures};

/// Times between frames, to three significant digits, in constant memory.
pub struct FrameTimes {
    nanoseconds: Histogram<u64>,
    total: Duration,
}

impl Default for FrameTimes {
    fn default() -> Self {
        // 1 µs to 1 hour. Longer times are clamped.
        let nanoseconds = Histogram::new_with_bounds(1_000, 3_600_000_000_000, 3);
        Self {
            nanoseconds: nanoseconds.unwrap_or_else(|_| unreachable!("the bounds are valid")),
            total: Duration::ZERO,
        }
    }
}

impl FrameTimes {
    pub fn add(&mut self, time: Duration) {
        self.nanoseconds.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        self.total += time;
    }

    /// Adds the time until the GPU finished the last frame. It affects the rate, but is not a frame time.
    pub fn finish(&mut self, time: Duration) {
        self.total += time;
    }

    pub fn count(&self) -> u64 {
        self.nanoseconds.len()
    }

    pub fn quantile(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.nanoseconds.value_at_quantile(quantile))
    }

    /// Returns 0 without frames.
    pub fn per_second(&self) -> f64 {
        match self.total.as_secs_f64() {
            0.0 => 0.0,
            seconds => self.count() as f64 / seconds,
        }
    }
}

pub struct RunSummary {
    pub frames: u64,
    /// Frames that were skipped because the window had no image to draw on.
    pub skipped: u64,
    pub times: FrameTimes,
    /// How often the CPU waited because it was as far ahead of the GPU as allowed.
    pub pacing_waits: u64,
    /// How often the hand-off made the CPU wait: zero for asynchronous hand-offs.
    pub handoff_waits: u64,
    pub ring: usize,
    /// The number of frames that CUDA fills per wait; the last value if it changed.
    pub batch: usize,
    /// How often [`super::Batching::Auto`] changed `batch`; `None` if it could not.
    pub batch_changes: Option<u64>,
    pub scene: super::Scene,
    pub grid: wavefield_handoff::contents::wave::Grid,
    pub producer: &'static str,
    /// What draws, and why; `None` if there was no choice.
    pub raster: Option<String>,
    pub device: String,
    pub parts: Option<String>,
    pub recorded: Option<Recorded>,
    pub checked: Option<Checked>,
    /// Warnings of the validation layer; `None` without it.
    pub validation: Option<u64>,
}

pub struct Ended {
    pub summary: RunSummary,
    /// The first failure; later ones were printed. All output that could be written was written.
    pub failure: Option<Error>,
}

impl Ended {
    /// Call this once everything is destroyed, to include validation messages about the destruction.
    pub fn new(mut summary: RunSummary, mut failures: Failures, log: &ValidationLog) -> Self {
        let clean = failures.catch(log.verdict());
        summary.validation = summary.validation.and(clean).map(|()| log.warnings());
        Self { summary, failure: failures.outcome().err() }
    }
}

impl fmt::Display for RunSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = |quantile| self.times.quantile(quantile).as_secs_f64() * 1e3;
        write!(f, "frames        {}", self.frames)?;
        if self.skipped > 0 {
            write!(f, " ({} skipped, nothing to draw on)", self.skipped)?;
        }
        writeln!(f)?;
        if self.times.count() > 0 {
            writeln!(f, "rate          {:.1} frames/s", self.times.per_second())?;
            writeln!(
                f,
                "frame time    median {:.3} ms, p99 {:.3} ms",
                milliseconds(0.5),
                milliseconds(0.99)
            )?;
        }
        if let Some(parts) = &self.parts {
            writeln!(f, "last frames   {parts}")?;
        }
        writeln!(
            f,
            "producer      {}, {} {}, ring of {}{}",
            self.producer,
            self.grid,
            self.scene.elements(),
            self.ring,
            match (self.batch, self.batch_changes) {
                (1, None) => String::new(),
                (batch, None) => format!(", batches of {batch}"),
                (batch, Some(changes)) => format!(", batches of {batch} at the end (changed {changes}×)"),
            }
        )?;
        writeln!(f, "device        {}", self.device)?;
        if let Some(raster) = &self.raster {
            writeln!(f, "draw          by {raster}")?;
        }
        writeln!(f, "hand-off      {} CPU waits", self.handoff_waits)?;
        write!(f, "pacing        {} CPU waits for a frame to be drawn", self.pacing_waits)?;
        if let Some(recorded) = &self.recorded {
            write!(f, "\nrecording     {recorded}")?;
        }
        if let Some(warnings) = self.validation {
            write!(f, "\nvalidation    no errors, {warnings} warnings")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_a_known_sequence() {
        let mut times = FrameTimes::default();
        for millisecond in 1..=100 {
            times.add(Duration::from_millis(millisecond));
        }
        let near = |got: Duration, want: f64| (got.as_secs_f64() * 1e3 / want - 1.0).abs() < 0.002;
        assert!(near(times.quantile(0.5), 50.0) && near(times.quantile(0.99), 99.0));
        assert!((times.per_second() - 100.0 / 5.05).abs() < 1e-9);
    }

    #[test]
    fn no_frames_are_no_division() {
        let times = FrameTimes::default();
        assert_eq!((times.per_second(), times.count()), (0.0, 0));
    }
}
