//! A made-up report for tests, as large as a real one.

use super::record::{Cell, Distribution, Machine, Report, SCHEMA, Settings, Skipped};
use super::stats;

/// Name, hand-off in microseconds per frame, hand-off in microseconds per million vertices, and how many extra slots help to
/// hide it.
const STRATEGIES: [(&str, f64, f64, f64); 8] = [
    ("timeline", 9.0, 2.0, 2.0),
    ("timeline-batched", 5.0, 2.0, 2.0),
    ("binary", 14.0, 2.0, 2.0),
    ("fence", 38.0, 3.0, 3.0),
    ("host-sync", 71.0, 4.0, 1.0),
    ("device-copy", 12.0, 48.0, 2.0),
    ("staging", 30.0, 1400.0, 3.0),
    ("host-writes", 25.0, 1900.0, 2.0),
];

/// Eight strategies, six rings, three grids.
pub fn report() -> Report {
    with(&[1, 2, 3, 4, 8, 16], &[256, 1024, 4096])
}

/// The same with one ring and one grid.
pub fn small() -> Report {
    with(&[3], &[1024])
}

fn with(rings: &[u32], grids: &[u32]) -> Report {
    let mut state = 7u64;
    let mut noise = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1u64 << 24) as f64
    };
    let mut cells = Vec::new();
    for &side in grids {
        for (strategy, fixed, per_million, depth) in STRATEGIES {
            for &ring in rings {
                let millions = f64::from(side).powi(2) / 1e6;
                let (kernel, draw) = (4.0 + 11.0 * millions, 21.0 + 46.0 * millions);
                let hidden = 1.0 - (f64::from(ring) - 1.0).min(depth) / (depth + 0.6);
                let overlap = if ring > 1 { 0.25 * kernel.min(draw) } else { 0.0 };
                let wide = 1.0 + 0.05 * noise();
                let overhead =
                    (fixed * (0.3 + hidden) + per_million * millions * (0.8 + 0.2 * hidden)) * wide - overlap;
                let mean = kernel + draw + overhead;
                let rough = if noise() > 0.96 { 0.2 } else { 0.03 };
                let round_means_us: Vec<f64> =
                    (0..7).map(|_| mean * (1.0 + rough * (noise() - 0.5))).collect();
                let tail = 1.0 + 0.3 * noise();
                cells.push(Cell {
                    strategy: strategy.into(),
                    ring,
                    batch: if strategy == "timeline-batched" { 8 } else { 1 },
                    grid: [side, side],
                    frames: (1.75e6 / mean) as u64,
                    frame_us: Distribution {
                        mean,
                        p50: mean * 0.985,
                        p95: mean * 1.06 * tail,
                        p99: mean * 1.15 * tail,
                        max: mean * (1.6 + 2.0 * noise()) * tail,
                    },
                    kernel_us: Some(kernel),
                    memset_us: None,
                    draw_us: Some(draw),
                    cpu_us: Distribution { mean: 11.0, p50: 10.5, p95: 14.0, p99: 19.0, max: 88.0 },
                    cores: Some(0.07),
                    blocking_waits: if strategy == "host-sync" { 2.0 } else { 1.0 / f64::from(ring) },
                    bytes: u64::from(side).pow(2) * 32,
                    latency_frames: f64::from(ring.min(4)) - 0.1,
                    overhead_us: Some(overhead),
                    spread: stats::spread(&round_means_us),
                    noisy: stats::is_noisy(&round_means_us),
                    round_means_us,
                });
            }
        }
    }
    Report {
        schema: SCHEMA.into(),
        complete: true,
        command: "wavefield bench --grids 256,1024,4096 --rings 1,2,3,4,8,16 --html report.html".into(),
        started: 1_767_225_599,
        machine: Machine {
            gpu: "Toy RTX 9000".into(),
            software: false,
            driver: "Toy 570.86.15".into(),
            vulkan: "1.4.303".into(),
            cuda: Some("12.8".into()),
            cpu: "Toy Xeon 8480".into(),
            threads: 16,
            os: "Linux 6.1.0".into(),
            wavefield: "0.1.0".into(),
            build: "release".into(),
        },
        settings: Settings {
            scene: "field".into(),
            size: [1280, 720],
            samples: 4,
            wait: "sleep".into(),
            rounds: 7,
            warmup_frames: 100,
            round_ms: 250,
        },
        cells,
        skipped: vec![Skipped {
            strategy: "implicit-sync".into(),
            reason: "the driver does not export dma-buf fences <VK_EXT_external_memory_dma_buf>".into(),
        }],
    }
}
