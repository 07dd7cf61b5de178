//! One slot and no semaphore: the CPU waits for CUDA before it submits to Vulkan, and for Vulkan before the
//! next frame. The wait for CUDA polls the stream, which keeps a core busy.

use std::time::{Duration, Instant};

use super::HandoffEntry;
use super::one_slot::{self, SlotSync};
use crate::producer::{CudaTimeline, ProducerDesc};
use wavefield_gpu::Result;
use wavefield_gpu::{cuda::Cuda, vulkan::Queue};

pub(super) const CPU_SYNC: HandoffEntry = one_slot::entry::<CpuSync>(
    "cpu-sync",
    "One buffer; the CPU waits",
    "A shared buffer or image; the CPU waits for each side",
);

struct CpuSync {
    timeout: Duration,
}

impl SlotSync for CpuSync {
    const NAME: &'static str = "cuda, cpu-sync";
    const ON_GPU: bool = false;

    fn new(_queue: &Queue, _context: &Cuda, desc: &ProducerDesc) -> Result<Self> {
        Ok(Self { timeout: desc.timeout })
    }

    fn wait_free(&mut self, _fill: &CudaTimeline) -> Result<()> {
        // Only one frame is in flight, so the frame loop has already waited for the previous frame.
        Ok(())
    }

    fn signal_ready(&mut self, timeline: &CudaTimeline) -> Result<Option<Duration>> {
        let began = Instant::now();
        timeline.wait_idle(self.timeout)?;
        Ok(Some(began.elapsed()))
    }
}
