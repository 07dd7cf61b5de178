//! Two binary semaphores around one slot: the classic scheme. Only the GPU waits. But CUDA and Vulkan take
//! turns, so each frame costs two switches between the CUDA context and the graphics context.

use std::time::Duration;

use vulkan_cuda::SharedBinary;

use super::HandoffEntry;
use super::one_slot::{self, SlotSync};
use crate::producer::{CudaTimeline, FrameSync, ProducerDesc, Submit};
use wavefield_gpu::Result;
use wavefield_gpu::{cuda::Cuda, vulkan::Queue};

pub(super) const BINARY: HandoffEntry = one_slot::entry::<BinaryPair>(
    "binary",
    "One buffer, two semaphores",
    "One shared buffer or image and two binary semaphores: the classic scheme",
);

/// Each semaphore checks that every signal has one wait, which is submitted after the signal.
struct BinaryPair {
    /// Signalled by CUDA, waited for by Vulkan in the same frame.
    ready: SharedBinary,
    /// Signalled by Vulkan, waited for by CUDA in the next frame.
    free: SharedBinary,
    /// Whether Vulkan will signal `free`, so that the next frame must wait for it.
    read: bool,
}

impl SlotSync for BinaryPair {
    const NAME: &'static str = "cuda, binary";
    const ON_GPU: bool = true;

    fn new(queue: &Queue, context: &Cuda, _desc: &ProducerDesc) -> Result<Self> {
        let pair = queue.device().pair(context)?;
        Ok(Self { ready: SharedBinary::new(&pair)?, free: SharedBinary::new(&pair)?, read: false })
    }

    fn wait_free(&mut self, timeline: &CudaTimeline) -> Result<()> {
        // Wait only if a signal was submitted. The first frame waits for nothing.
        if !std::mem::take(&mut self.read) {
            return Ok(());
        }
        // SAFETY: the stream is idle before the semaphore is dropped.
        Ok(unsafe { self.free.cuda_wait(timeline.stream()) }?)
    }

    fn signal_ready(&mut self, timeline: &CudaTimeline) -> Result<Option<Duration>> {
        // SAFETY: as above.
        unsafe { self.ready.cuda_signal_after_kernels(timeline.stream()) }?;
        Ok(None)
    }

    unsafe fn submit(&mut self, submit: Submit<'_>) -> Result<()> {
        let (wait, signal) = (self.ready.vulkan_wait()?, self.free.vulkan_signal()?);
        submit(FrameSync { wait: Some(wait), signal: Some(signal), ..FrameSync::default() })?;
        self.ready.submitted();
        self.free.submitted();
        self.read = true;
        Ok(())
    }
}
