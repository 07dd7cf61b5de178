//! Frame times, and what a hand-off costs.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::draw::View;
use crate::options::must_stop;
use crate::picture::Picture;
use crate::swapchain::Canvas;
use crate::ways::{HandOff, Ways};

/// The times between frames, in milliseconds.
#[derive(Default)]
pub struct Times {
    last: Option<Instant>,
    all: Vec<f64>,
}

/// The maximum number of frame times that are kept.
const MOST: usize = 1 << 20;

impl Times {
    /// Records a drawn frame. Returns the time since the previous frame in seconds.
    pub fn frame(&mut self) -> Option<f64> {
        let now = Instant::now();
        let seconds = (now - self.last.replace(now)?).as_secs_f64();
        // Drop the older half to make room.
        if self.all.len() == MOST {
            self.all.drain(..MOST / 2);
        }
        self.all.push(1e3 * seconds);
        Some(seconds)
    }

    /// Leaves out the time from the last frame to the next one.
    pub fn pause(&mut self) {
        self.last = None;
    }

    /// Summarizes the last `count` frames. Returns `None` if there are fewer than two.
    pub fn newest(&self, count: usize) -> Option<Summary> {
        Summary::of(&self.all[self.all.len().saturating_sub(count)..])
    }
}

/// Statistics of frame times, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    pub frames: usize,
    pub mean: f64,
    /// The percentiles: 50, 95 and 99 % of the frames took at most this long.
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
}

impl Summary {
    pub fn of(times: &[f64]) -> Option<Self> {
        if times.len() < 2 {
            return None;
        }
        let mut sorted = times.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100) - 1];
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        Some(Self { frames: times.len(), mean, p50: at(50), p95: at(95), p99: at(99) })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { frames, mean, p50, p95, p99 } = self;
        write!(f, "{frames} frames: mean {mean:.3} ms, p50 {p50:.3}, p95 {p95:.3}, p99 {p99:.3}")
    }
}

/// How long the kernel and the draw take alone, in milliseconds. In a frame, the GPU may switch between CUDA
/// and Vulkan in the middle of either, so times measured in a frame include switches.
#[derive(Clone, Copy)]
pub struct Alone {
    /// 0 without CUDA.
    pub kernel: f64,
    pub draw: f64,
}

impl Alone {
    /// Launches the kernel and draws to a separate image, for a short time. Waits for the GPU. Returns `None`
    /// while frames of a batch are still to be drawn.
    pub fn measure(ways: &mut Ways, view: &View) -> Result<Option<Self>> {
        let frames = &mut ways.frames;
        frames.wait_all()?;
        let kernel = frames.field.as_mut().map_or(Ok(Some(Duration::ZERO)), |field| field.kernel_time());
        let Some(kernel) = kernel? else { return Ok(None) };
        let picture = Picture::new(&frames.gpu, frames.draw.extent, frames.draw.format)?;
        let canvas = std::mem::replace(&mut frames.canvas, Canvas::Picture(picture));
        let hand_off = std::mem::replace(&mut ways.hand_off, HandOff::Skipped);
        let draw = Self::draw(ways, &View { bar: None, ..*view });
        let idle = ways.frames.wait_all();
        ways.hand_off = hand_off;
        let picture = std::mem::replace(&mut ways.frames.canvas, canvas);
        if let Err(error) = idle {
            // The GPU may still use the picture.
            std::mem::forget(picture);
            return Err(error);
        }
        Ok(Some(Self { kernel: 1e3 * kernel.as_secs_f64(), draw: draw? }))
    }

    fn draw(ways: &mut Ways, view: &View) -> Result<f64> {
        // The first frame writes the vertices.
        ways.draw(view)?;
        ways.frames.wait_all()?;
        let (began, mut count) = (Instant::now(), 0);
        while count < 2 || began.elapsed() < Duration::from_millis(60) {
            ways.draw(view)?;
            count += 1;
        }
        ways.frames.wait_all()?;
        Ok(1e3 * began.elapsed().as_secs_f64() / f64::from(count))
    }
}

/// The results of `--bench`, in milliseconds.
pub struct Bench {
    ways: [(&'static str, Summary); 3],
    kernel: f64,
    /// The device and the settings, as members of a JSON object.
    setting: String,
}

/// In each round, the three ways are measured in turn: then a GPU that warms up does not favour one of them.
const ROUNDS: u64 = 5;

impl Bench {
    /// Draws `count` frames in each way, to a picture. Needs CUDA.
    pub fn measure(ways: &mut Ways, view: &View, count: u64) -> Result<Self> {
        let field = ways.frames.field.as_ref();
        let field = field.context("--bench needs CUDA: it measures what a hand-off costs")?;
        let [cols, rows] = field.wave.grid;
        // The first frames only fill the queues, so do not time them. Draw only whole batches.
        let first = 2 * ways.frames.ring() as u64;
        let last = (first + 1 + count.div_ceil(ROUNDS)).next_multiple_of(ways.batch as u64);
        let mut times = [HandOff::Gpu, HandOff::Cpu, HandOff::Skipped].map(|way| (way, Times::default()));
        let mut view = *view;
        for _ in 0..ROUNDS {
            for (way, times) in &mut times {
                ways.hand_off = *way;
                times.pause();
                for number in 0..last {
                    ensure!(!must_stop(), "stopped before everything was measured");
                    ways.draw(&view)?;
                    view.time += view.step;
                    if number >= first {
                        times.frame();
                    }
                }
                ways.frames.wait_all()?;
            }
        }
        let [Some(gpu), Some(cpu), Some(again)] = times.map(|(_, times)| times.newest(usize::MAX)) else {
            bail!("too few frames to measure");
        };
        let Ways { frames, batch, .. } = ways;
        let kernel = frames.field.as_mut().map(|field| field.kernel_time()).transpose()?.flatten();
        let kernel = 1e3 * kernel.context("every frame was drawn")?.as_secs_f64();
        let name = frames.gpu.name.replace(['"', '\\'], "'");
        let (ring, samples) = (frames.ring(), frames.draw.samples.as_raw());
        let setting = format!(
            r#""device": "{name}", "grid": [{cols}, {rows}], "samples": {samples}, "ring": {ring}, "batch": {batch}"#
        );
        Ok(Self { ways: [("gpu", gpu), ("cpu_sync", cpu), ("drawn_again", again)], kernel, setting })
    }

    /// Returns what a hand-off by the GPU and one by the CPU add to a frame: its time minus kernel and draw.
    fn costs(&self) -> [f64; 2] {
        let [gpu, cpu, again] = self.ways.map(|(_, way)| way.mean);
        [gpu, cpu].map(|frame| frame - self.kernel - again)
    }

    pub fn json(&self) -> String {
        let way = |(name, Summary { frames, mean, p50, p95, p99 })| {
            format!(
                r#"  "{name}": {{ "frames": {frames}, "mean_ms": {mean:.4}, "p50_ms": {p50:.4}, "p95_ms": {p95:.4}, "p99_ms": {p99:.4} }}"#
            )
        };
        let (ways, [gpu, cpu]) = (self.ways.map(way).join(",\n"), self.costs());
        format!(
            "{{\n  {},\n{ways},\n  \"kernel_ms\": {:.4},\n  \"handoff_ms\": {gpu:.4},\n  \"cpu_sync_handoff_ms\": {cpu:.4}\n}}\n",
            self.setting, self.kernel
        )
    }
}

impl fmt::Display for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const WAYS: [&str; 3] =
            ["the GPU hands over", "the CPU waits (--cpu-sync)", "drawn again, no hand-off"];
        writeln!(f, "{:28} {:>8} {:>8} {:>8} {:>8}", "ms a frame", "mean", "p50", "p95", "p99")?;
        for (name, (_, Summary { mean, p50, p95, p99, .. })) in WAYS.iter().zip(&self.ways) {
            writeln!(f, "{name:28} {mean:8.3} {p50:8.3} {p95:8.3} {p99:8.3}")?;
        }
        let (kernel, [gpu, cpu]) = (self.kernel, self.costs());
        writeln!(f, "{:28} {kernel:8.3}", "the kernel alone")?;
        write!(f, "A hand-off costs {gpu:.3} ms by the GPU, and {cpu:.3} ms if the CPU waits.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let times: Vec<_> = (1..=200).rev().map(f64::from).collect();
        let wanted = Summary { frames: 200, mean: 100.5, p50: 100.0, p95: 190.0, p99: 198.0 };
        assert_eq!(Summary::of(&times), Some(wanted));
        assert_eq!(Summary::of(&[1.0, 3.0]).map(|summary| (summary.p50, summary.p99)), Some((1.0, 3.0)));
        assert_eq!(Summary::of(&[1.0]), None);
    }

    #[test]
    fn the_time_after_a_pause_does_not_count() {
        let mut times = Times::default();
        assert_eq!(times.frame(), None);
        assert!(times.frame().is_some());
        times.pause();
        assert_eq!(times.frame(), None);
        assert_eq!(times.all.len(), 1);
    }
}
