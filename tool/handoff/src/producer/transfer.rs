//! Ownership transfers of slots between Vulkan and CUDA.

use ash::vk;
use vulkan_cuda::ownership::{Access, Owner};

use super::{ImageSlot, Source, Vertices};
use wavefield_gpu::vulkan::{Device, pipeline_barrier};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnershipTransfer {
    Acquire,
    Release,
}

impl OwnershipTransfer {
    /// Records the transfer for a queue of `family` that reads the slot as `reads` says.
    ///
    /// # Safety
    /// `commands` is recording, outside a render pass, for a queue of that family; the slot is alive.
    pub unsafe fn record(
        self,
        device: &Device,
        commands: vk::CommandBuffer,
        family: u32,
        slot: Source,
        reads: Access,
    ) {
        let cuda = Owner::External;
        let (mut buffers, mut images) = (None, None);
        match (slot, self) {
            (Source::Vertices(Vertices { buffer, .. }), Self::Acquire) => {
                buffers = Some(cuda.acquire(buffer, family, reads));
            }
            (Source::Vertices(Vertices { buffer, .. }), Self::Release) => {
                buffers = Some(cuda.release(buffer, family, reads));
            }
            (Source::Texture(ImageSlot { image, .. }), Self::Acquire) => {
                images = Some(cuda.acquire_image(image, family, reads));
            }
            (Source::Texture(ImageSlot { image, .. }), Self::Release) => {
                images = Some(cuda.release_image(image, family, reads));
            }
        }
        // SAFETY: recording, for a queue of this family, and the slot is alive (the caller's promise).
        unsafe { pipeline_barrier(device, commands, buffers.as_slice(), images.as_slice()) };
    }
}
