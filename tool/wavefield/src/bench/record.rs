//! The result of a benchmark run as data, from which every output is generated.
//!
//! `docs/bench-schema.md` describes the fields. A renamed field or a new meaning needs a new [`SCHEMA`].

use serde::{Deserialize, Serialize};

use super::strategy::Strategy;
pub use wavefield_gpu::machine::Machine;

pub const SCHEMA: &str = "wavefield-bench/2";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub schema: String,
    pub complete: bool,
    pub command: String,
    pub started: u64,
    pub machine: Machine,
    pub settings: Settings,
    pub cells: Vec<Cell>,
    pub skipped: Vec<Skipped>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    pub scene: String,
    pub size: [u32; 2],
    pub samples: u32,
    /// What `--raster` said. A file without it was measured with the graphics pipeline.
    #[serde(default = "graphics")]
    pub raster: String,
    /// Every cell runs once in each round, so that drift affects all cells alike.
    pub rounds: u32,
    /// The number of frames before the measured ones, for each cell in every round.
    pub warmup_frames: u64,
    pub round_ms: u64,
}

fn graphics() -> String {
    "graphics".into()
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    pub strategy: String,
    pub ring: u32,
    pub batch: u32,
    pub grid: [u32; 2],
    pub frames: u64,
    pub frame_us: Distribution,
    pub kernel_us: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memset_us: Option<f64>,
    pub draw_us: Option<f64>,
    /// Whether compute shaders drew the last frame.
    #[serde(default)]
    pub by_compute: bool,
    pub cpu_us: Distribution,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<f64>,
    pub blocking_waits: f64,
    pub bytes: u64,
    pub latency_frames: f64,
    pub overhead_us: Option<f64>,
    pub round_means_us: Vec<f64>,
    pub spread: f64,
    pub noisy: bool,
}

/// Sets the overhead of each cell with a hand-off: its mean frame time, less its kernel time, less the mean
/// frame time of `render-only` on the same grid and ring ([one slot](Strategy::slots_alone) for `inline`), if
/// known.
///
/// A cell's own draw time cannot be used: if CUDA interrupts the draw, the GPU's switch to CUDA and back is
/// between the draw's timestamps, and the overhead would seem to vanish.
pub(super) fn with_overhead(mut cells: Vec<Cell>) -> Vec<Cell> {
    let alone: Vec<_> = cells
        .iter()
        .filter(|cell| cell.strategy == Strategy::RenderOnly.name())
        .map(|cell| (cell.grid, cell.ring, cell.frame_us.mean))
        .collect();
    for cell in cells.iter_mut().filter(|cell| Strategy::has_handoff(&cell.strategy)) {
        let slots = Strategy::slots_alone(&cell.strategy, cell.ring);
        let draw = alone.iter().find(|(grid, ring, _)| (*grid, *ring) == (cell.grid, slots));
        let parts = draw.zip(cell.kernel_us);
        cell.overhead_us = parts.map(|((.., draw), kernel)| cell.frame_us.mean - kernel - draw);
    }
    cells
}

/// A distribution of times, in microseconds. Quantiles are by nearest rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    pub mean: f64,
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    pub max: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    pub strategy: String,
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn an_overhead_is_against_the_frame_of_the_draw_alone_with_the_same_ring() {
        let template = sample::small().cells[0].clone();
        let cell = |strategy: Strategy, ring, frame, kernel_us, draw_us| {
            let frame_us = Distribution { mean: frame, ..template.frame_us };
            let strategy = strategy.name().to_owned();
            Cell { strategy, ring, frame_us, kernel_us, draw_us, overhead_us: None, ..template.clone() }
        };
        let cells = with_overhead(vec![
            cell(Strategy::RenderOnly, 1, 100.0, None, Some(90.0)),
            cell(Strategy::RenderOnly, 8, 130.0, None, Some(120.0)),
            cell(Strategy::TIMELINE, 1, 300.0, Some(10.0), Some(280.0)),
            cell(Strategy::TIMELINE, 8, 200.0, Some(10.0), Some(180.0)),
            // `render-only` was not measured with this ring.
            cell(Strategy::TIMELINE, 16, 200.0, Some(10.0), Some(180.0)),
            cell(Strategy::ProduceOnly, 1, 10.0, Some(10.0), None),
            cell(Strategy::Compute, 8, 200.0, Some(10.0), Some(180.0)),
            cell(Strategy::INLINE, 8, 115.0, Some(10.0), Some(180.0)),
        ]);
        let found: Vec<_> = cells.iter().map(|cell| cell.overhead_us).collect();
        assert_eq!(found, [None, None, Some(190.0), Some(60.0), None, None, None, Some(5.0)]);
        assert!(with_overhead(cells[2..].to_vec()).iter().all(|cell| cell.overhead_us.is_none()));
    }
}
