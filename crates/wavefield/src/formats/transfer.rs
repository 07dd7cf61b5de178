//! Vulkan's half of the check: copies bytes into and out of shared buffers and images, which CUDA owns in between.

use ash::vk;
use vulkan_cuda::layout::Range;
use vulkan_cuda::ownership::{Access, Owner, SHARED_LAYOUT, first_release, whole_image};
use vulkan_cuda::{ExportedImage, Shape};

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

/// Reads all levels of an image, each into its range. CUDA owns the image before and after, and must be idle.
pub(super) fn read_image(
    queue: &mut Queue,
    image: &ExportedImage,
    ranges: &[Range],
    size: u64,
) -> Result<Vec<u8>> {
    let regions = regions(image.shape(), ranges);
    // SAFETY: an image of this shape, which lives; the ranges lie in `size` bytes.
    unsafe { read_image_levels(queue, (image.raw(), SHARED_LAYOUT), &regions, size, Owner::External) }
}

/// Writes all levels of an image, each from its range. CUDA owns the image before and after, and must be idle.
pub(super) fn write_image(
    queue: &mut Queue,
    image: &ExportedImage,
    ranges: &[Range],
    bytes: &[u8],
) -> Result<()> {
    let device = queue.device().clone();
    let staging = Buffer::filled(&device, "texels on the host", bytes, vk::BufferUsageFlags::TRANSFER_SRC)?;
    let regions = regions(image.shape(), ranges);
    let family = queue.family();
    let layout = vk::ImageLayout::TRANSFER_DST_OPTIMAL;
    one_shot(queue, |commands| {
        // Acquire from CUDA, change to the layout for a copy (the validation layer warns of any other), and back.
        let acquire = Owner::External.acquire_image(image.raw(), family, WRITES);
        let release = Owner::External.release_image(image.raw(), family, WRITES);
        // SAFETY: recording. Image and buffer live until `one_shot` has waited for the queue, and every range lies
        // inside the buffer.
        unsafe {
            pipeline_barrier(&device, commands, &[], &[acquire]);
            pipeline_barrier(&device, commands, &[], &[transition(image, SHARED_LAYOUT, layout)]);
            device.raw().cmd_copy_buffer_to_image(commands, staging.raw(), image.raw(), layout, &regions);
            pipeline_barrier(&device, commands, &[], &[transition(image, layout, SHARED_LAYOUT)]);
            pipeline_barrier(&device, commands, &[], &[release]);
        }
    })
}

fn transition(
    image: &ExportedImage,
    from: vk::ImageLayout,
    to: vk::ImageLayout,
) -> vk::ImageMemoryBarrier2<'static> {
    let scope = (WRITES.stage, WRITES.access);
    image_barrier(image.raw(), vk::ImageAspectFlags::COLOR, (from, scope), (to, scope))
        .subresource_range(whole_image())
}

/// Writes `bytes` to a buffer that CUDA owns before and after. CUDA must be idle.
pub(super) fn write_buffer(queue: &mut Queue, buffer: vk::Buffer, bytes: &[u8]) -> Result<()> {
    let device = queue.device().clone();
    let staging = Buffer::filled(&device, "texels on the host", bytes, vk::BufferUsageFlags::TRANSFER_SRC)?;
    let copy = [vk::BufferCopy::default().size(bytes.len() as u64)];
    let family = queue.family();
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

/// One copy per level, with all its layers.
fn regions(shape: Shape, ranges: &[Range]) -> Vec<vk::BufferImageCopy> {
    let region = |(level, range): (usize, &Range)| {
        let subresource = vk::ImageSubresourceLayers::default()
            .aspect_mask(vk::ImageAspectFlags::COLOR)
            .mip_level(level as u32)
            .layer_count(shape.layers());
        vk::BufferImageCopy::default()
            .buffer_offset(range.offset)
            .image_subresource(subresource)
            .image_extent(shape.level_extent(level as u32))
    };
    ranges.iter().enumerate().map(region).collect()
}
