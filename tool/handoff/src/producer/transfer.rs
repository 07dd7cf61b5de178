//! Ownership transfers of slots between Vulkan and CUDA.

use ash::vk;
use vulkan_cuda::ownership::{Access, Owner};

use super::Source;
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
            (Source::Vertices(slot), Self::Acquire) => {
                buffers = Some(cuda.acquire(slot.buffer, family, reads));
            }
            (Source::Vertices(slot), Self::Release) => {
                buffers = Some(cuda.release(slot.buffer, family, reads));
            }
            (Source::Texture(slot), Self::Acquire) => {
                images = Some(cuda.acquire_image(slot.image, family, reads));
            }
            (Source::Texture(slot), Self::Release) => {
                images = Some(cuda.release_image(slot.image, family, reads));
            }
        }
        // SAFETY: recording, for a queue of this family, and the slot is alive (the caller's promise).
        unsafe { pipeline_barrier(device, commands, buffers.as_slice(), images.as_slice()) };
    }
}
