//! What a benchmark run found, as data: what `--json` writes and every other output is made from.
//!
//! Times are microseconds, sizes are bytes. The schema's version is in [`SCHEMA`]; a field is never renamed or given
//! another meaning without a new version. `docs/bench-schema.md` describes it for people.

use serde::{Deserialize, Serialize};

pub use crate::machine::Machine;

/// The schema's name and version.
pub const SCHEMA: &str = "wavefield-bench/1";

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// False where the run was stopped before its last round.
    pub complete: bool,
    /// The command line, program name included.
    pub command: String,
    /// When it started: seconds since 1970, UTC.
    pub started: u64,
    /// Where it ran.
    pub machine: Machine,
    /// How it measured.
    pub settings: Settings,
    /// What it found, in the order of the table.
    pub cells: Vec<Cell>,
    /// Strategies that could not run here, and why.
    pub skipped: Vec<Skipped>,
}

fn field() -> String {
    "field".into()
}

fn four() -> u32 {
    4
}

fn sleep() -> String {
    "sleep".into()
}

/// How a run measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// What was shown: `field` or `texture`; older files omit it; the default is `field`.
    #[serde(default = "field")]
    pub scene: String,
    /// The picture's width and height in pixels.
    pub size: [u32; 2],
    /// Samples per pixel; older files omit it; the default is 4.
    #[serde(default = "four")]
    pub samples: u32,
    /// How the CPU waited for the GPU: `hybrid`, `sleep` or `poll`. Older files omit it: `sleep`, or `poll` where their command has
    /// `--spin`.
    #[serde(default = "sleep")]
    pub wait: String,
    /// Rounds: in each, every cell runs once, so that drift hits all alike.
    pub rounds: u32,
    /// Frames of each cell that come before the measured ones in every round.
    pub warmup_frames: u64,
    /// Milliseconds that each cell is measured for in every round.
    pub round_ms: u64,
}

/// One strategy with one ring, batch and grid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The strategy's name on the command line.
    pub strategy: String,
    /// Slots in the ring.
    pub ring: u32,
    /// Frames that CUDA fills for each wait.
    pub batch: u32,
    /// Vertices, or texels, across and along.
    pub grid: [u32; 2],
    /// Frames measured, over all rounds.
    pub frames: u64,
    /// From the end of one frame on the GPU to the end of the next.
    pub frame_us: Distribution,
    /// The kernel alone, by CUDA events (by Vulkan timestamps where it runs there); absent where nothing is produced.
    pub kernel_us: Option<f64>,
    /// What `cuMemsetD32Async` takes for the same bytes, in `produce-only`: as fast as memory can be written. Absent
    /// elsewhere, and in files of before it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memset_us: Option<f64>,
    /// The draw alone, by Vulkan timestamps; absent where nothing is drawn.
    pub draw_us: Option<f64>,
    /// CPU time to produce, record and submit a frame, waits left out.
    pub cpu_us: Distribution,
    /// Cores that the process kept busy while it was measured, by all of its threads: CPU time / time. Absent where it is not
    /// known, and in older files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<f64>,
    /// How often the CPU had to wait, per frame.
    pub blocking_waits: f64,
    /// Bytes that the producer writes, per frame.
    pub bytes: u64,
    /// From the begin of a frame's production to the end of its draw, in frames.
    pub latency_frames: f64,
    /// Hand-off overhead: frame - kernel - draw, by the means, where the draw is that of `render-only` on the same
    /// grid: a cell's own draw has in it what it waited for CUDA. Absent where one of them is.
    pub overhead_us: Option<f64>,
    /// The mean frame time of each round, in order.
    pub round_means_us: Vec<f64>,
    /// (largest - smallest) / median of the rounds' means.
    pub spread: f64,
    /// Whether the spread is too large to trust the cell.
    pub noisy: bool,
}

impl Cell {
    /// Frames a second, from the mean.
    pub fn frames_per_second(&self) -> f64 {
        1e6 / self.frame_us.mean
    }

    /// What the producer writes, in 10^9 bytes a second.
    pub fn gigabytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.frame_us.mean * 1e-3
    }
}

/// What `complete` is in files from before it was recorded.
pub(super) fn complete() -> bool {
    true
}

/// A distribution of times in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// The arithmetic mean.
    pub mean: f64,
    /// Half of the samples keep to it.
    pub p50: f64,
    /// 95 of 100 keep to it.
    pub p95: f64,
    /// 99 of 100 keep to it.
    pub p99: f64,
    /// The largest sample.
    pub max: f64,
}

/// A strategy that could not run here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Its name.
    pub strategy: String,
    /// Why.
    pub reason: String,
}
