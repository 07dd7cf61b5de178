//! Vulkan's half of the check: copies bytes into and out of shared buffers and images, which CUDA owns in between.

use std::ops::Range;

use ash::vk;
use vulkan_cuda::ExportedImage;
use vulkan_cuda::ownership::{Access, Owner, SHARED_LAYOUT, first_release};

use wavefield_base::Result;
use wavefield_gpu::vulkan::{
    Buffer, Image, ImageDesc, Queue, color_barrier, copy_of_level, image_barrier, levels_of, one_shot,
    pipeline_barrier, read_image_levels,
};

const WRITES: Access =
    Access { stage: vk::PipelineStageFlags2::ALL_TRANSFER, access: vk::AccessFlags2::TRANSFER_WRITE };

pub(super) fn hand_over(queue: &mut Queue, image: &ExportedImage) -> Result<()> {
    let (device, family) = (queue.device().clone(), queue.family());
    one_shot(queue, |commands| {
        for barrier in first_release(image.raw(), family) {
            // SAFETY: recording; the image lives until `one_shot` has waited for the queue.
            unsafe { pipeline_barrier(&device, commands, &[], &[barrier]) };
        }
    })
}

/// Reads every level. CUDA owns the image before and after, and must be idle.
pub(super) fn read_levels(queue: &mut Queue, image: &ExportedImage) -> Result<Vec<Vec<u8>>> {
    let (places, regions) = regions(image);
    let size = places.last().map_or(0, |last| last.end) as u64;
    // SAFETY: a live image with these levels, and the regions lie in `size` bytes.
    let bytes =
        unsafe { read_image_levels(queue, (image.raw(), SHARED_LAYOUT), &regions, size, Owner::External) }?;
    Ok(places.into_iter().map(|place| bytes[place].to_vec()).collect())
}

/// Writes every level. CUDA owns the image before and after, and must be idle.
pub(super) fn write_levels(queue: &mut Queue, image: &ExportedImage, levels: &[Vec<u8>]) -> Result<()> {
    let (device, family) = (queue.device().clone(), queue.family());
    let (places, regions) = regions(image);
    let mut bytes = vec![0; places.last().map_or(0, |last| last.end)];
    for (place, level) in places.into_iter().zip(levels) {
        bytes[place].copy_from_slice(level);
    }
    let staging = Buffer::filled(&device, "texels on the host", &bytes, vk::BufferUsageFlags::TRANSFER_SRC)?;
    let (raw, layout) = (image.raw(), vk::ImageLayout::TRANSFER_DST_OPTIMAL);
    let scope = (WRITES.stage, WRITES.access);
    let transition = |from, to| color_barrier(raw, (from, scope), (to, scope));
    one_shot(queue, |commands| {
        // SAFETY: recording; the image lives until `one_shot` has waited for the queue.
        let barrier = |barrier| unsafe { pipeline_barrier(&device, commands, &[], &[barrier]) };
        // Acquire from CUDA, change to the layout for a copy (the validation layer warns of any other), and back.
        barrier(Owner::External.acquire_image(raw, family, WRITES));
        barrier(transition(SHARED_LAYOUT, layout));
        // SAFETY: as above, and the regions lie in the buffer, which lives as long.
        unsafe { device.raw().cmd_copy_buffer_to_image(commands, staging.raw(), raw, layout, &regions) };
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

/// Clears a depth image to each of `depths` in turn, and each time copies it to the next place in a buffer, 4 bytes a pixel.
/// CUDA owns the buffer before and after, and must be idle.
pub(super) fn write_depths(
    queue: &mut Queue,
    buffer: vk::Buffer,
    extent: vk::Extent2D,
    depths: &[f32],
) -> Result<()> {
    let (device, family, aspect) = (queue.device().clone(), queue.family(), vk::ImageAspectFlags::DEPTH);
    let (source, target) = (vk::ImageLayout::TRANSFER_SRC_OPTIMAL, vk::ImageLayout::TRANSFER_DST_OPTIMAL);
    // The attachment is for the image's view, which needs a usage of its own.
    let usage = vk::ImageUsageFlags::TRANSFER_SRC
        | vk::ImageUsageFlags::TRANSFER_DST
        | vk::ImageUsageFlags::DEPTH_STENCIL_ATTACHMENT;
    let color = ImageDesc::color("depth to copy", extent, vk::Format::D32_SFLOAT, usage);
    let image = Image::new(&device, &ImageDesc { aspect, ..color })?;
    let read = (WRITES.stage, vk::AccessFlags2::TRANSFER_READ);
    let written = (WRITES.stage, WRITES.access);
    let (clear, copy) = (
        image_barrier(image.raw(), aspect, (vk::ImageLayout::UNDEFINED, read), (target, written)),
        image_barrier(image.raw(), aspect, (target, written), (source, read)),
    );
    one_shot(queue, |commands| {
        let acquire = Owner::External.acquire(buffer, family, WRITES);
        let release = Owner::External.release(buffer, family, WRITES);
        // SAFETY: recording; image and buffer live until `one_shot` has waited for the queue, and the buffer has room.
        unsafe {
            pipeline_barrier(&device, commands, &[acquire], &[]);
            for (index, &depth) in (0..).zip(depths) {
                let value = vk::ClearDepthStencilValue { depth, stencil: 0 };
                let mut region =
                    copy_of_level(0, extent, 4 * index * u64::from(extent.width) * u64::from(extent.height));
                region.image_subresource.aspect_mask = aspect;
                pipeline_barrier(&device, commands, &[], &[clear]);
                device.raw().cmd_clear_depth_stencil_image(
                    commands,
                    image.raw(),
                    target,
                    &value,
                    &[levels_of(aspect, 0..1)],
                );
                pipeline_barrier(&device, commands, &[], &[copy]);
                device.raw().cmd_copy_image_to_buffer(commands, image.raw(), source, buffer, &[region]);
            }
            pipeline_barrier(&device, commands, &[release], &[]);
        }
    })
}

/// For each level its place in a buffer, and the copy with all its layers. Each begins at a multiple of the largest texel.
fn regions(image: &ExportedImage) -> (Vec<Range<usize>>, Vec<vk::BufferImageCopy>) {
    let shape = image.shape();
    let mut end = 0_usize;
    let region = |level| {
        let texels = shape.level_texels(level).iter().product::<u32>();
        let begin = end.next_multiple_of(16);
        end = begin + (texels * image.format().bytes()) as usize;
        let subresource = vk::ImageSubresourceLayers::default()
            .aspect_mask(vk::ImageAspectFlags::COLOR)
            .mip_level(level)
            .layer_count(shape.layers());
        let copy = vk::BufferImageCopy::default()
            .buffer_offset(begin as u64)
            .image_subresource(subresource)
            .image_extent(shape.level_extent(level));
        (begin..end, copy)
    };
    (0..shape.levels()).map(region).unzip()
}
