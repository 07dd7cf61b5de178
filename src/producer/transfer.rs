//! The queue family ownership transfers of a slot that Vulkan and CUDA share.

use ash::vk;
use vulkan_cuda::ownership::{Access, Owner};

use super::{ImageSlot, Source, Vertices};
use crate::vulkan::{Device, pipeline_barrier};

/// Records that Vulkan's queue family takes a slot from CUDA, for `reads`.
///
/// # Safety
/// Recording, outside a render pass, for a queue of that family; the slot is alive.
pub(crate) unsafe fn acquire(
    device: &Device,
    commands: vk::CommandBuffer,
    family: u32,
    slot: Source,
    reads: Access,
) {
    let cuda = Owner::External;
    // SAFETY: the caller's promise.
    unsafe {
        match slot {
            Source::Vertices(Vertices { buffer, .. }) => {
                pipeline_barrier(device, commands, &[cuda.acquire(buffer, family, reads)], &[]);
            }
            Source::Texture(ImageSlot { image, .. }) => {
                pipeline_barrier(device, commands, &[], &[cuda.acquire_image(image, family, reads)]);
            }
        }
    }
}

/// Records that it gives the slot back.
///
/// # Safety
/// As [`acquire`].
pub(crate) unsafe fn release(
    device: &Device,
    commands: vk::CommandBuffer,
    family: u32,
    slot: Source,
    reads: Access,
) {
    let cuda = Owner::External;
    // SAFETY: the caller's promise.
    unsafe {
        match slot {
            Source::Vertices(Vertices { buffer, .. }) => {
                pipeline_barrier(device, commands, &[cuda.release(buffer, family, reads)], &[]);
            }
            Source::Texture(ImageSlot { image, .. }) => {
                pipeline_barrier(device, commands, &[], &[cuda.release_image(image, family, reads)]);
            }
        }
    }
}
