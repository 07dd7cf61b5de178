//! The input to the measurement of every cell, and the samples that a measurement collects.

use std::time::Duration;

use super::record::{Cell, Distribution};
use super::stats;
use super::strategy::{CellPlan, Plan, Strategy};
use wavefield_gpu::cuda::Cuda;
use wavefield_run::{Choice, Config, FrameTiming, Scene, Stop};

pub(super) struct BenchSession<'a> {
    pub(super) plan: &'a Plan,
    pub(super) base: &'a Config,
    pub(super) choice: &'a Choice,
    pub(super) stop: &'a Stop,
    /// Kept for the whole run, so that no cell includes the time to create it.
    pub(super) context: Option<Cuda>,
}

#[derive(Default)]
pub(super) struct Measurements {
    pub(super) frame_us: Vec<f64>,
    pub(super) kernel_us: Vec<f64>,
    pub(super) draw_us: Vec<f64>,
    pub(super) by_compute: bool,
    pub(super) cpu_us: Vec<f64>,
    pub(super) latency_us: Vec<f64>,
    pub(super) memset_us: Vec<f64>,
    pub(super) waits: u64,
    /// CPU time of the whole process during `time`.
    pub(super) cpu: Duration,
    pub(super) time: Duration,
    pub(super) round_means_us: Vec<f64>,
}

impl Measurements {
    /// Adds the frame `timing`. Its frame time is from the end of the previous frame, `last`, to its own end.
    pub(super) fn add(&mut self, last: &FrameTiming, timing: &FrameTiming) {
        let microseconds = |time: Duration| time.as_secs_f64() * 1e6;
        if let (Some(from), Some(to)) = (last.end_ns, timing.end_ns) {
            self.frame_us.push((to - from) * 1e-3);
        }
        self.kernel_us.extend(timing.kernel.map(microseconds));
        self.draw_us.extend(timing.draw.map(microseconds));
        self.by_compute = timing.by_compute;
        self.cpu_us.push(microseconds(timing.cpu));
        self.latency_us.push(microseconds(timing.latency));
    }

    pub(super) fn summarise(mut self, plan: &CellPlan, scene: Scene) -> Cell {
        let mean =
            |values: &[f64]| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
        let frames = self.frame_us.len();
        let frame_us = Distribution::of(&mut self.frame_us);
        let produces = plan.strategy.produces();
        Cell {
            strategy: plan.strategy.name().to_owned(),
            ring: plan.ring.depth() as u32,
            batch: plan.batch,
            grid: [plan.grid.cols, plan.grid.rows],
            frames: frames as u64,
            frame_us,
            kernel_us: mean(&self.kernel_us).filter(|_| produces),
            memset_us: mean(&self.memset_us),
            draw_us: mean(&self.draw_us).filter(|_| plan.strategy != Strategy::ProduceOnly),
            by_compute: self.by_compute,
            cpu_us: Distribution::of(&mut self.cpu_us),
            cores: (!self.time.is_zero()).then(|| self.cpu.div_duration_f64(self.time)),
            blocking_waits: self.waits as f64 / frames.max(1) as f64,
            bytes: if produces { scene.frame_bytes(plan.grid) } else { 0 },
            latency_frames: mean(&self.latency_us).unwrap_or(0.0) / frame_us.mean.max(f64::MIN_POSITIVE),
            overhead_us: None,
            noisy: stats::is_noisy(&self.round_means_us),
            spread: stats::spread(&self.round_means_us),
            round_means_us: self.round_means_us,
        }
    }
}
