//! What the measurement of a cell needs, and what it collects.

use std::time::Duration;

use super::strategy::Plan;
use wavefield_engine::{Choice, FrameTiming, Stop};
use wavefield_gpu::cuda::Cuda;

pub(super) struct Session<'a> {
    pub(super) plan: &'a Plan,
    pub(super) choice: &'a Choice,
    pub(super) stop: &'a Stop,
    /// Held for the whole run, so that no cell pays for making it.
    pub(super) context: Option<Cuda>,
}

#[derive(Default)]
pub(super) struct Samples {
    pub(super) frame_us: Vec<f64>,
    pub(super) kernel_us: Vec<f64>,
    pub(super) draw_us: Vec<f64>,
    pub(super) cpu_us: Vec<f64>,
    pub(super) latency_us: Vec<f64>,
    pub(super) memset_us: Vec<f64>,
    pub(super) waits: u64,
    /// CPU time of the whole process during `time`.
    pub(super) cpu: Duration,
    pub(super) time: Duration,
    pub(super) round_means_us: Vec<f64>,
}

impl Samples {
    /// Adds `timing`. Its frame time is from the end of `last` to its own end.
    pub(super) fn add(&mut self, last: &FrameTiming, timing: &FrameTiming) {
        let microseconds = |time: Duration| time.as_secs_f64() * 1e6;
        if let (Some(from), Some(to)) = (last.end_ns, timing.end_ns) {
            self.frame_us.push((to - from) * 1e-3);
        }
        self.kernel_us.extend(timing.kernel.map(microseconds));
        self.draw_us.extend(timing.draw.map(microseconds));
        self.cpu_us.push(microseconds(timing.cpu));
        self.latency_us.push(microseconds(timing.latency));
    }
}
