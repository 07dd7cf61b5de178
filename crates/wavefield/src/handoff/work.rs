//! What CUDA does for a frame, independent of the order: kernels, and the memory that they write.

use cudarc::driver::sys::CUdeviceptr;

use super::field::FieldWork;
use super::texture::TextureWork;
use crate::Result;
use crate::cuda::{Cuda, Kernel, KernelParameters, KernelSource, Signature, Stream};
use crate::producer::{Fill, Frame, ProducerDesc, Source};
use crate::scene::Scene;
use crate::vulkan::Device;

/// A scene's kernels and the memory that they write: slots shared with Vulkan, CUDA's own memory, or both.
///
/// Before a work is dropped, the stream that runs its kernels must be idle.
pub(crate) trait Work {
    /// The shared slots as Vulkan knows them.
    fn slots(&self) -> Vec<Source>;

    /// Parameters of the kernel that may change between frames.
    fn parameters(&self) -> &KernelParameters;

    /// Enqueues a frame's kernels between the frame's two events.
    ///
    /// # Safety
    /// Nobody else touches the slot until the stream has passed this point.
    unsafe fn enqueue(&self, fill: &Fill, frame: &Frame, into: Place) -> Result<()>;

    /// Enqueues a copy of [`Place::Own`] into a slot.
    ///
    /// # Safety
    /// Nobody else touches the slot until the stream has passed this point.
    unsafe fn copy_to_slot(&self, stream: &Stream, slot: usize) -> Result<()>;

    /// Copies [`Place::Own`] to the host, and waits for the stream.
    fn read_own(&self, stream: &Stream, bytes: &mut [u8]) -> Result<()>;

    /// The slot's address in CUDA; `None` if the slot is an image.
    fn address(&self, slot: usize) -> Option<CUdeviceptr>;
}

/// What a frame is written into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A shared slot.
    Slot(usize),
    /// CUDA's own memory, used by one stream only.
    Own,
}

/// What memory to make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// The number of shared slots.
    pub(crate) slots: usize,
    /// Whether to make [`Place::Own`].
    pub(crate) own: bool,
}

/// Loads the kernel that fills a scene.
///
/// # Errors
/// Fails if the kernel does not load or has another signature.
pub(super) fn load(context: &Cuda, source: &KernelSource, signature: Signature) -> Result<Kernel> {
    let kernel = Kernel::load(context, source)?;
    // Checked only now: for text that is not PTX, the compiler's message is better.
    source.check_signature(signature)?;
    Ok(kernel)
}

/// Loads the kernels and makes the memory. `context` must belong to the same GPU as the device: see
/// [`vulkan_cuda::find_twin`].
///
/// # Errors
/// Fails if a frame is too large, if a kernel does not load or is for another scene, or if memory has run out.
pub(crate) fn work(
    device: &Device,
    context: &Cuda,
    source: &KernelSource,
    desc: &ProducerDesc,
    memory: Memory,
) -> Result<Box<dyn Work>> {
    Ok(match desc.scene {
        Scene::Field => Box::new(FieldWork::new(device, context, source, desc, memory)?),
        Scene::Texture => Box::new(TextureWork::new(device, context, source, desc, memory)?),
    })
}
