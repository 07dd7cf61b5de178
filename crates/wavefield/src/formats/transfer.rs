//! Vulkan's half of the check: copies bytes into and out of shared buffers and images, which CUDA owns in between.

use ash::vk;
use vulkan_cuda::ExportedImage;
use vulkan_cuda::ownership::{Access, Owner, SHARED_LAYOUT, first_release, whole_image};

use crate::Result;
use crate::vulkan::{Buffer, Queue, image_barrier, one_shot, pipeline_barrier, read_image_levels};

const WRITES: Access =
    Access { stage: vk::PipelineStageFlags2::ALL_TRANSFER, access: vk::AccessFlags2::TRANSFER_WRITE };

/// Hands a new image over to CUDA.
pub(super) fn hand_over(queue: &mut Queue, image: &ExportedImage) -> Result<()> {
    let (device, family) = (queue.device().clone(), queue.family());
    one_shot(queue, |commands| {
        for barrier in first_release(image.raw(), family) {
            // SAFETY: recording; the image lives until `one_shot` has waited for the queue.
            unsafe { pipeline_barrier(&device, commands, &[], &[barrier]) };
        }
    })
}

/// Reads the `size` bytes of a level. CUDA owns the image before and after, and must be idle.
pub(super) fn read_level(
    queue: &mut Queue,
    image: &ExportedImage,
    level: u32,
    size: usize,
) -> Result<Vec<u8>> {
    let region = [region(image, level)];
    // SAFETY: a live image with this level, whose texels have `size` bytes.
    unsafe { read_image_levels(queue, (image.raw(), SHARED_LAYOUT), &region, size as u64, Owner::External) }
}

/// Writes a level. CUDA owns the image before and after, and must be idle.
pub(super) fn write_level(queue: &mut Queue, image: &ExportedImage, level: u32, bytes: &[u8]) -> Result<()> {
    let (device, family) = (queue.device().clone(), queue.family());
    let staging = Buffer::filled(&device, "texels on the host", bytes, vk::BufferUsageFlags::TRANSFER_SRC)?;
    let (raw, layout, region) = (image.raw(), vk::ImageLayout::TRANSFER_DST_OPTIMAL, [region(image, level)]);
    let scope = (WRITES.stage, WRITES.access);
    let transition = |from, to| {
        image_barrier(raw, vk::ImageAspectFlags::COLOR, (from, scope), (to, scope))
            .subresource_range(whole_image())
    };
    one_shot(queue, |commands| {
        // SAFETY: recording; the image lives until `one_shot` has waited for the queue.
        let barrier = |barrier| unsafe { pipeline_barrier(&device, commands, &[], &[barrier]) };
        // Acquire from CUDA, change to the layout for a copy (the validation layer warns of any other), and back.
        barrier(Owner::External.acquire_image(raw, family, WRITES));
        barrier(transition(SHARED_LAYOUT, layout));
        // SAFETY: as above, and the buffer, which lives as long, has the level's bytes.
        unsafe { device.raw().cmd_copy_buffer_to_image(commands, staging.raw(), raw, layout, &region) };
        barrier(transition(layout, SHARED_LAYOUT));
        barrier(Owner::External.release_image(raw, family, WRITES));
    })
}

/// Writes `bytes` to a buffer that CUDA owns before and after. CUDA must be idle.
pub(super) fn write_buffer(queue: &mut Queue, buffer: vk::Buffer, bytes: &[u8]) -> Result<()> {
    let (device, family) = (queue.device().clone(), queue.family());
    let staging = Buffer::filled(&device, "bytes on the host", bytes, vk::BufferUsageFlags::TRANSFER_SRC)?;
    let copy = [vk::BufferCopy::default().size(bytes.len() as u64)];
    one_shot(queue, |commands| {
        let acquire = Owner::External.acquire(buffer, family, WRITES);
        let release = Owner::External.release(buffer, family, WRITES);
        // SAFETY: recording; both buffers have these bytes and live until `one_shot` has waited for the queue.
        unsafe {
            pipeline_barrier(&device, commands, &[acquire], &[]);
            device.raw().cmd_copy_buffer(commands, staging.raw(), buffer, &copy);
            pipeline_barrier(&device, commands, &[release], &[]);
        }
    })
}

/// A level with all its layers, without padding.
fn region(image: &ExportedImage, level: u32) -> vk::BufferImageCopy {
    let subresource = vk::ImageSubresourceLayers::default()
        .aspect_mask(vk::ImageAspectFlags::COLOR)
        .mip_level(level)
        .layer_count(image.shape().layers());
    let extent = image.shape().level_extent(level);
    vk::BufferImageCopy::default().image_subresource(subresource).image_extent(extent)
}
