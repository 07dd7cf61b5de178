use vulkan_cuda::shared_ring::Slot;

use crate::producer::{CudaTimeline, Frame, ProducerDesc, Source};
use wavefield_gpu::Result;
use wavefield_gpu::cuda::{Cuda, Kernel, KernelParameters, KernelSource, Signature, Stream};
use wavefield_gpu::vulkan::Device;

/// What CUDA does for a frame, in every hand-off. The stream must be idle when it or its memory goes.
pub trait SceneKernels: Sized + 'static {
    type Slot: Slot;
    type Scratch;

    /// Loads the kernels. `context` must be of the device's GPU: see [`vulkan_cuda::find_twin`].
    fn new(device: &Device, context: &Cuda, source: &KernelSource, desc: &ProducerDesc) -> Result<Self>;

    /// Makes the slots of a ring, after `new`, so that a bad kernel fails before gigabytes are allocated.
    fn slots(&self, device: &Device, context: &Cuda, depth: usize) -> Result<Vec<Self::Slot>>;

    /// Allocates CUDA's own memory for one frame.
    fn scratch(&self, context: &Cuda) -> Result<Self::Scratch>;

    fn source(slot: &Self::Slot) -> Source;

    fn parameters(&self) -> &KernelParameters;

    /// Enqueues a frame's kernels between its two events.
    ///
    /// # Safety
    /// Nobody else touches the slot until the stream has passed this point.
    unsafe fn enqueue(
        &self,
        timeline: &CudaTimeline,
        frame: &Frame,
        into: Destination<'_, Self>,
    ) -> Result<()>;

    /// Enqueues a copy of CUDA's own memory into a slot.
    ///
    /// # Safety
    /// One value of this type made both. Nobody else touches the slot until the stream has passed this point.
    unsafe fn copy(scratch: &Self::Scratch, slot: &Self::Slot, stream: &Stream) -> Result<()>;

    /// Waits for the stream.
    fn read(scratch: &Self::Scratch, stream: &Stream, bytes: &mut [u8]) -> Result<()>;
}

pub enum Destination<'a, K: SceneKernels> {
    Slot(&'a K::Slot),
    /// CUDA's own memory, used by one stream only.
    Scratch(&'a K::Scratch),
}

pub(super) fn load(context: &Cuda, source: &KernelSource, signature: Signature) -> Result<Kernel> {
    let kernel = Kernel::load(context, source)?;
    // Checked only now: for text that is not PTX, the compiler's message is better.
    source.check_signature(signature)?;
    Ok(kernel)
}
