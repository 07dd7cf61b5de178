//! One-time copies from the GPU to the CPU, for pictures and tests. This is the slow path that interop avoids.

use ash::vk;
use gpu_allocator::MemoryLocation;
use vulkan_cuda::ownership::{Access, Owner, whole_image};

use super::{
    Buffer, BufferDesc, Device, Image, Owned, Queue, buffer_barrier, image_barrier, pipeline_barrier,
};
use crate::Result;

/// Copies `size` bytes of a buffer to the CPU. Waits for the queue to be idle.
///
/// `owner` owns the buffer before and after the copy. If it is CUDA, CUDA must be idle.
///
/// # Safety
/// The buffer must be one of the queue's device, of at least `size` bytes, with the usage `TRANSFER_SRC`, and live.
pub unsafe fn read_buffer(queue: &mut Queue, buffer: vk::Buffer, size: u64, owner: Owner) -> Result<Vec<u8>> {
    let device = queue.device().clone();
    let staging = staging(&device, "buffer read-back", size)?;
    let access =
        Access { stage: vk::PipelineStageFlags2::ALL_TRANSFER, access: vk::AccessFlags2::TRANSFER_READ };
    let family = queue.family();
    one_shot(queue, |cmd| {
        let vk = device.raw();
        let acquire = owner.acquire(buffer, family, access);
        let release = owner.release(buffer, family, access);
        let copy = [vk::BufferCopy::default().size(size)];
        // SAFETY: `cmd` is recording; both buffers (one by the caller's promise) live until `one_shot` has waited for the queue.
        unsafe {
            vk.cmd_pipeline_barrier2(cmd, &vk::DependencyInfo::default().buffer_memory_barriers(&[acquire]));
            vk.cmd_copy_buffer(cmd, buffer, staging.raw(), &copy);
            vk.cmd_pipeline_barrier2(
                cmd,
                &vk::DependencyInfo::default().buffer_memory_barriers(&[release, to_host(&staging)]),
            );
        }
    })?;
    Ok(staging.bytes()?.to_vec())
}

/// Copies a colour image to the CPU, row by row without padding. Waits for the queue to be idle. The image has 4 bytes per
/// pixel and is in the layout `TRANSFER_SRC_OPTIMAL`.
pub fn read_image(queue: &mut Queue, image: &Image) -> Result<Vec<u8>> {
    let device = queue.device().clone();
    let extent = image.extent();
    let size = u64::from(extent.width) * u64::from(extent.height) * 4;
    let staging = staging(&device, "picture read-back", size)?;
    one_shot(queue, |cmd| {
        let region = [vk::BufferImageCopy::default()
            .image_subresource(
                vk::ImageSubresourceLayers::default().aspect_mask(vk::ImageAspectFlags::COLOR).layer_count(1),
            )
            .image_extent(vk::Extent3D { width: extent.width, height: extent.height, depth: 1 })];
        let layout = vk::ImageLayout::TRANSFER_SRC_OPTIMAL;
        let written =
            (vk::PipelineStageFlags2::COLOR_ATTACHMENT_OUTPUT, vk::AccessFlags2::COLOR_ATTACHMENT_WRITE);
        let read = (vk::PipelineStageFlags2::ALL_TRANSFER, vk::AccessFlags2::TRANSFER_READ);
        let visible =
            image_barrier(image.raw(), vk::ImageAspectFlags::COLOR, (layout, written), (layout, read));
        let vk = device.raw();
        // SAFETY: `cmd` is recording; image and buffer live until `one_shot` has waited for the queue.
        unsafe {
            vk.cmd_pipeline_barrier2(cmd, &vk::DependencyInfo::default().image_memory_barriers(&[visible]));
            vk.cmd_copy_image_to_buffer(cmd, image.raw(), layout, staging.raw(), &region);
            vk.cmd_pipeline_barrier2(
                cmd,
                &vk::DependencyInfo::default().buffer_memory_barriers(&[to_host(&staging)]),
            );
        }
    })?;
    Ok(staging.bytes()?.to_vec())
}

/// Copies levels of a shared or sampled image to the CPU: `regions` places them in `size` bytes. Waits for the queue to be
/// idle.
///
/// `owner` owns the image, in the layout given with it, before and after the copy. If it is CUDA, CUDA must be idle.
///
/// # Safety
/// The image must be one of the queue's device, with the levels of `regions` and the usage `TRANSFER_SRC`, and live.
/// `regions` must lie in `size` bytes.
pub(crate) unsafe fn read_image_levels(
    queue: &mut Queue,
    (image, layout): (vk::Image, vk::ImageLayout),
    regions: &[vk::BufferImageCopy],
    size: u64,
    owner: Owner,
) -> Result<Vec<u8>> {
    let device = queue.device().clone();
    let staging = staging(&device, "texture read-back", size)?;
    let access =
        Access { stage: vk::PipelineStageFlags2::ALL_TRANSFER, access: vk::AccessFlags2::TRANSFER_READ };
    let scope = (access.stage, access.access);
    let family = queue.family();
    one_shot(queue, |cmd| {
        let vk = device.raw();
        let copied = vk::ImageLayout::TRANSFER_SRC_OPTIMAL;
        let transition = |from, to| {
            image_barrier(image, vk::ImageAspectFlags::COLOR, (from, scope), (to, scope))
                .subresource_range(whole_image())
        };
        // The ownership transfer changes no layout: see `vulkan_cuda::ownership`.
        let acquire = owner.acquire_image(image, family, access).old_layout(layout).new_layout(layout);
        let release = owner.release_image(image, family, access).old_layout(layout).new_layout(layout);
        // SAFETY: `cmd` is recording; image (by the caller's promise) and buffer live until `one_shot` has waited for the queue.
        unsafe {
            pipeline_barrier(&device, cmd, &[], &[acquire]);
            pipeline_barrier(&device, cmd, &[], &[transition(layout, copied)]);
            vk.cmd_copy_image_to_buffer(cmd, image, copied, staging.raw(), regions);
            pipeline_barrier(&device, cmd, &[to_host(&staging)], &[transition(copied, layout)]);
            pipeline_barrier(&device, cmd, &[], &[release]);
        }
    })?;
    Ok(staging.bytes()?.to_vec())
}

fn staging(device: &Device, label: &'static str, size: u64) -> Result<Buffer> {
    Buffer::new(
        device,
        &BufferDesc {
            label,
            size,
            usage: vk::BufferUsageFlags::TRANSFER_DST,
            location: MemoryLocation::GpuToCpu,
        },
    )
}

/// The barrier that makes the copy visible to the host. Waiting for the queue does not.
fn to_host(staging: &Buffer) -> vk::BufferMemoryBarrier2<'static> {
    buffer_barrier(
        staging.raw(),
        (vk::PipelineStageFlags2::ALL_TRANSFER, vk::AccessFlags2::TRANSFER_WRITE),
        (vk::PipelineStageFlags2::HOST, vk::AccessFlags2::HOST_READ),
    )
}

/// Records commands with `record`, submits them and waits until the queue is idle.
pub(crate) fn one_shot(queue: &mut Queue, record: impl FnOnce(vk::CommandBuffer)) -> Result<()> {
    let device = queue.device().clone();
    let pool = TransientPool::new(&device, queue.family())?;
    let cmd = pool.allocate(1)?[0];
    let begin = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
    // SAFETY: a fresh command buffer.
    unsafe { device.raw().begin_command_buffer(cmd, &begin) }
        .map_err(device.failed("vkBeginCommandBuffer"))?;
    record(cmd);
    // SAFETY: recording.
    unsafe { device.raw().end_command_buffer(cmd) }.map_err(device.failed("vkEndCommandBuffer"))?;
    let commands = [vk::CommandBufferSubmitInfo::default().command_buffer(cmd)];
    // SAFETY: recorded and not pending; everything that the commands name outlives the wait in `submit_and_wait`.
    unsafe { queue.submit_and_wait(&commands) }
}

pub(crate) struct TransientPool(Owned<vk::CommandPool>);

impl TransientPool {
    pub(crate) fn new(device: &Device, family: u32) -> Result<Self> {
        let info = vk::CommandPoolCreateInfo::default()
            .flags(vk::CommandPoolCreateFlags::TRANSIENT)
            .queue_family_index(family);
        // SAFETY: a live device and a family of its queue.
        let raw = unsafe { device.raw().create_command_pool(&info, None) };
        Ok(Self(Owned::new(device, raw.map_err(device.failed("vkCreateCommandPool"))?)))
    }

    pub(crate) fn raw(&self) -> vk::CommandPool {
        self.0.raw()
    }

    /// Allocates command buffers, which are freed with the pool.
    pub(crate) fn allocate(&self, count: u32) -> Result<Vec<vk::CommandBuffer>> {
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(self.raw())
            .level(vk::CommandBufferLevel::PRIMARY)
            .command_buffer_count(count);
        let device = self.0.device();
        // SAFETY: a live pool.
        unsafe { device.raw().allocate_command_buffers(&info) }
            .map_err(device.failed("vkAllocateCommandBuffers"))
    }
}
