//! Vulkan's half of the check: bytes into shared buffers and images and out of them, with CUDA owning them in between.

use ash::vk;
use gpu_allocator::MemoryLocation;

use crate::interop::layout::Range;
use crate::interop::ownership::{Access, Owner, SHARED_LAYOUT, first_release, whole_image};
use crate::interop::{ExportedImage, Shape};
use crate::vulkan::{
    Buffer, BufferDesc, Device, Queue, buffer_barrier, image_barrier, one_shot, pipeline_barrier,
};
use crate::{Error, Result};

const READS: Access =
    Access { stage: vk::PipelineStageFlags2::ALL_TRANSFER, access: vk::AccessFlags2::TRANSFER_READ };
const WRITES: Access =
    Access { stage: vk::PipelineStageFlags2::ALL_TRANSFER, access: vk::AccessFlags2::TRANSFER_WRITE };

/// A new image's way into CUDA's hands.
pub(super) fn hand_over(queue: &mut Queue, image: &ExportedImage) -> Result<()> {
    let (device, family) = (queue.device().clone(), queue.family());
    one_shot(queue, |commands| {
        for barrier in first_release(image.raw(), family) {
            // SAFETY: recording; the image lives until `one_shot` has waited for the queue.
            unsafe { pipeline_barrier(&device, commands, &[], &[barrier]) };
        }
    })
}

/// All levels of an image, each at its range. CUDA owns the image before and after, and is idle.
pub(super) fn read_image(
    queue: &mut Queue,
    image: &ExportedImage,
    ranges: &[Range],
    size: u64,
) -> Result<Vec<u8>> {
    let device = queue.device().clone();
    let staging = staging(&device, size, vk::BufferUsageFlags::TRANSFER_DST, MemoryLocation::GpuToCpu)?;
    let regions = regions(image.shape(), ranges);
    let family = queue.family();
    let layout = vk::ImageLayout::TRANSFER_SRC_OPTIMAL;
    one_shot(queue, |commands| {
        // SAFETY: recording; image and buffer live until `one_shot` has waited for the queue; every range lies in the
        // buffer.
        unsafe {
            take(&device, commands, image, family, READS, layout);
            device.raw().cmd_copy_image_to_buffer(commands, image.raw(), layout, staging.raw(), &regions);
            pipeline_barrier(&device, commands, &[to_host(&staging)], &[]);
            give(&device, commands, image, family, READS, layout);
        }
    })?;
    Ok(staging.bytes().unwrap_or_default().to_vec())
}

/// The other way round.
pub(super) fn write_image(
    queue: &mut Queue,
    image: &ExportedImage,
    ranges: &[Range],
    bytes: &[u8],
) -> Result<()> {
    let device = queue.device().clone();
    let staging = filled(&device, bytes)?;
    let regions = regions(image.shape(), ranges);
    let family = queue.family();
    let layout = vk::ImageLayout::TRANSFER_DST_OPTIMAL;
    one_shot(queue, |commands| {
        // SAFETY: as in `read_image`.
        unsafe {
            take(&device, commands, image, family, WRITES, layout);
            device.raw().cmd_copy_buffer_to_image(commands, staging.raw(), image.raw(), layout, &regions);
            give(&device, commands, image, family, WRITES, layout);
        }
    })
}

/// Takes the image from CUDA, and then gives it the layout that a copy likes best.
///
/// # Safety
/// `commands` is recording, outside a render pass, on a queue of `family`; the image lives until that is done.
unsafe fn take(
    device: &Device,
    commands: vk::CommandBuffer,
    image: &ExportedImage,
    family: u32,
    use_: Access,
    layout: vk::ImageLayout,
) {
    let acquire = Owner::External.acquire_image(image.raw(), family, use_);
    // SAFETY: the caller's promise.
    unsafe {
        pipeline_barrier(device, commands, &[], &[acquire]);
        pipeline_barrier(device, commands, &[], &[transition(image, use_, SHARED_LAYOUT, layout)]);
    }
}

/// The way back: the layout that CUDA finds it in, and then CUDA.
///
/// # Safety
/// As [`take`].
unsafe fn give(
    device: &Device,
    commands: vk::CommandBuffer,
    image: &ExportedImage,
    family: u32,
    use_: Access,
    layout: vk::ImageLayout,
) {
    let release = Owner::External.release_image(image.raw(), family, use_);
    // SAFETY: the caller's promise.
    unsafe {
        pipeline_barrier(device, commands, &[], &[transition(image, use_, layout, SHARED_LAYOUT)]);
        pipeline_barrier(device, commands, &[], &[release]);
    }
}

fn transition(
    image: &ExportedImage,
    use_: Access,
    from: vk::ImageLayout,
    to: vk::ImageLayout,
) -> vk::ImageMemoryBarrier2<'static> {
    let scope = (use_.stage, use_.access);
    image_barrier(image.raw(), vk::ImageAspectFlags::COLOR, (from, scope), (to, scope))
        .subresource_range(whole_image())
}

/// `bytes` into a buffer that CUDA owns before and after; CUDA is idle.
pub(super) fn write_buffer(queue: &mut Queue, buffer: vk::Buffer, bytes: &[u8]) -> Result<()> {
    let device = queue.device().clone();
    let staging = filled(&device, bytes)?;
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

/// One copy a level, with all its layers.
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

fn staging(
    device: &Device,
    size: u64,
    usage: vk::BufferUsageFlags,
    location: MemoryLocation,
) -> Result<Buffer> {
    Buffer::new(device, &BufferDesc { label: "texels on the host", size, usage, location })
}

fn filled(device: &Device, bytes: &[u8]) -> Result<Buffer> {
    let (size, usage) = (bytes.len() as u64, vk::BufferUsageFlags::TRANSFER_SRC);
    let mut staging = staging(device, size, usage, MemoryLocation::CpuToGpu)?;
    let mapped = staging.bytes_mut();
    let mapped = mapped.ok_or_else(|| {
        Error::Unsupported(format!("{} has no memory that the CPU can write", device.info().name))
    })?;
    mapped.copy_from_slice(bytes);
    Ok(staging)
}

/// Waiting for a queue does not make its writes visible to the host; this barrier does.
fn to_host(staging: &Buffer) -> vk::BufferMemoryBarrier2<'static> {
    buffer_barrier(
        staging.raw(),
        (WRITES.stage, WRITES.access),
        (vk::PipelineStageFlags2::HOST, vk::AccessFlags2::HOST_READ),
    )
}
