//! What keeps CUDA and Vulkan apart in one slot. For comparison, `binary` and `cpu_sync` have a file each.

use std::time::Duration;

use crate::producer::{CudaTimeline, FrameSync, ProducerDesc, Submit};
use wavefield_gpu::Result;
use wavefield_gpu::{cuda::Cuda, vulkan::Queue};

/// For each frame, `wait_free` and `signal_ready` are called around the work that fills the slot. Then
/// `submit` makes Vulkan's submission that reads it.
pub(super) trait SlotSync: Sized + 'static {
    /// Begins with `cuda`.
    const NAME: &'static str;

    /// Whether only the GPU waits. Otherwise the CPU does, and one frame is in flight at a time.
    const ON_GPU: bool;

    fn new(queue: &Queue, context: &Cuda, desc: &ProducerDesc) -> Result<Self>;

    /// Makes CUDA's later work, which writes the slot, wait until Vulkan has read it.
    fn wait_free(&mut self, timeline: &CudaTimeline) -> Result<()>;

    /// Announces that the slot is full once CUDA's earlier work is done. Returns the CPU's wait, if any.
    fn signal_ready(&mut self, timeline: &CudaTimeline) -> Result<Option<Duration>>;

    /// Makes the submission in which Vulkan reads the slot.
    ///
    /// # Safety
    /// As for [`Producer::submit`](crate::producer::Producer::submit).
    unsafe fn submit(&mut self, submit: Submit<'_>) -> Result<()> {
        submit(FrameSync::default())
    }

    /// Says which side keeps the other waiting, for the error of a stuck run. `None` if the CPU waits.
    fn late_side(&self, _fill: &CudaTimeline) -> Option<String> {
        None
    }
}
