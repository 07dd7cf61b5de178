//! One slot and no semaphore: the CPU waits for CUDA before it submits to Vulkan, and for Vulkan before the next
//! frame. Nothing is copied, and nothing overlaps. The wait for CUDA polls the stream, which keeps a core busy.

use std::time::{Duration, Instant};

use vulkan_cuda::Turn;

use super::order::Order;
use crate::Result;
use crate::producer::{Fill, FrameSync};

/// The CPU as the messenger.
pub(super) struct CpuSync {
    /// How long it waits for CUDA.
    pub(super) timeout: Duration,
}

impl Order for CpuSync {
    fn is_on_gpu(&self) -> bool {
        false
    }

    fn wait_free(&mut self, _fill: &Fill, _turn: Turn) -> Result<()> {
        // With one frame in flight, the frame loop has already waited for the previous frame.
        Ok(())
    }

    fn signal_ready(&mut self, fill: &Fill, _turn: Turn) -> Result<Option<Duration>> {
        let began = Instant::now();
        fill.wait_idle(self.timeout)?;
        Ok(Some(began.elapsed()))
    }

    fn submission(&mut self, _turn: Turn) -> Result<FrameSync> {
        Ok(FrameSync::default())
    }

    fn late_side(&self, _fill: &Fill) -> Option<String> {
        None
    }
}
