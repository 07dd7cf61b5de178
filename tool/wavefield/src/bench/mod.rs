//! The benchmark: measures the cost of each hand-off, so that others can verify the figures.
//!
//! [`choose`] chooses a device. [`plan`] lists the cells: combinations of strategy, ring, batch and grid.
//! [`run`] measures them into a [`record::Report`], from which every output (table, JSON, page, comparison)
//! is made.
//!
//! - `strategy`: the strategies to compare; `runner`: measures them; `session`: the input and the samples
//! - `produce_only`: measures the CUDA kernel alone; `latency`: measures how long a signal takes
//! - [`record`]: the results as data; `stats`: means and intervals; `figures`: formats them
//! - `table`, `files`, `html`, `chart`, `advice`: the report as text, JSON and a page
//! - `compare`: compares old and new reports

mod advice;
mod chart;
mod compare;
mod figures;
mod files;
mod html;
mod latency;
mod produce_only;
pub mod record;
mod runner;
mod session;
mod stats;
mod strategy;
mod table;

pub use compare::compare;
pub use files::read_json;
pub use html::write_report;
pub use latency::measure_latency;
pub use runner::{choose, run};
pub use strategy::{Plan, Strategy, plan};
pub use table::Table;

/// A made-up report, as large as a real one.
#[cfg(test)]
mod sample {
    use super::record::{Cell, Distribution, Machine, Report, SCHEMA, Settings, Skipped};
    use super::stats;

    /// Names, and microseconds per frame for the hand-off.
    const STRATEGIES: [(&str, f64); 8] = [
        ("timeline", 9.0),
        ("timeline-batched", 5.0),
        ("binary", 14.0),
        ("fence", 38.0),
        ("host-sync", 71.0),
        ("device-copy", 12.0),
        ("staging", 3000.0),
        ("host-writes", 2500.0),
    ];

    /// Eight strategies, six rings, three grids.
    pub(super) fn report() -> Report {
        with(&[1, 2, 3, 4, 8, 16], &[256, 1024, 4096])
    }

    /// The same with one ring and one grid.
    pub(super) fn small() -> Report {
        with(&[3], &[1024])
    }

    fn with(rings: &[u32], grids: &[u32]) -> Report {
        let cells = grids.iter().flat_map(|&side| {
            STRATEGIES
                .iter()
                .flat_map(move |&(name, cost)| rings.iter().map(move |&ring| cell(name, cost, ring, side)))
        });
        Report {
            schema: SCHEMA.into(),
            complete: true,
            command: "wavefield bench --grids 256,1024,4096 --rings 1,2,3,4,8,16 --report report.html".into(),
            started: 1_767_225_599,
            machine: Machine {
                gpu: "Toy RTX 9000".into(),
                driver: "Toy 570.86.15".into(),
                vulkan: "1.4.303".into(),
                cuda: Some("12.8".into()),
                cpu: "Toy Xeon 8480".into(),
                threads: 16,
                build: "release".into(),
                ..Machine::default()
            },
            settings: Settings {
                scene: "field".into(),
                size: [1280, 720],
                samples: 4,
                raster: "auto".into(),
                rounds: 7,
                warmup_frames: 100,
                round_ms: 250,
            },
            cells: cells.collect(),
            skipped: vec![Skipped {
                strategy: "implicit-sync".into(),
                reason: "the driver does not export dma-buf fences <VK_EXT_external_memory_dma_buf>".into(),
            }],
        }
    }

    fn cell(strategy: &str, cost: f64, ring: u32, side: u32) -> Cell {
        let bytes = u64::from(side).pow(2) * 32;
        let (kernel, draw, overhead) =
            (4.0 + bytes as f64 / 3e6, 21.0 + bytes as f64 / 7e5, cost / f64::from(ring));
        let mean = kernel + draw + overhead;
        // One of the strategies is noisy.
        let rough = if strategy == "staging" { 0.2 } else { 0.01 };
        let round_means_us: Vec<f64> =
            (-3..=3).map(|round| mean * (1.0 + rough * f64::from(round) / 3.0)).collect();
        Cell {
            strategy: strategy.into(),
            ring,
            batch: if strategy == "timeline-batched" { 8 } else { 1 },
            grid: [side, side],
            frames: (1.75e6 / mean) as u64,
            frame_us: Distribution {
                mean,
                p50: mean * 0.98,
                p95: mean * 1.1,
                p99: mean * 1.2,
                max: mean * 1.9,
            },
            kernel_us: Some(kernel),
            memset_us: None,
            draw_us: Some(draw),
            by_compute: side == 4096,
            cpu_us: Distribution { mean: 11.0, p50: 10.5, p95: 14.0, p99: 19.0, max: 88.0 },
            cores: Some(0.07),
            blocking_waits: 1.0 / f64::from(ring),
            bytes,
            latency_frames: f64::from(ring.min(4)) - 0.1,
            overhead_us: Some(overhead),
            spread: stats::spread(&round_means_us),
            noisy: stats::is_noisy(&round_means_us),
            round_means_us,
        }
    }
}
