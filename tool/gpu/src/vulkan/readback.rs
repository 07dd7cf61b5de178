//! Copies from the GPU to the CPU, for pictures and tests: the slow path that interop avoids.

use ash::vk;
use gpu_allocator::MemoryLocation;
use vulkan_cuda::ownership::{Access, Owner};

use super::{
    AutoDestroy, Buffer, BufferDesc, Device, Image, Queue, buffer_barrier, copy_of_level, image_barrier,
    pipeline_barrier,
};
use crate::Result;

const READS: Access =
    Access { stage: vk::PipelineStageFlags2::ALL_TRANSFER, access: vk::AccessFlags2::TRANSFER_READ };

/// Reads a buffer. Waits for the queue. `owner` owns the buffer before and after the copy. If that is CUDA,
/// CUDA must be idle.
///
/// # Safety
/// `buffer` must be alive, belong to the queue's device, have at least `size` bytes, and the usage
/// `TRANSFER_SRC`.
pub unsafe fn read_buffer(queue: &mut Queue, buffer: vk::Buffer, size: u64, owner: Owner) -> Result<Vec<u8>> {
    let (device, family) = (queue.device().clone(), queue.family());
    let acquire = owner.acquire(buffer, family, READS);
    let release = owner.release(buffer, family, READS);
    let copy = [vk::BufferCopy::default().size(size)];
    read_back(queue, "buffer read-back", size, |commands, staging| {
        // SAFETY: recording; both buffers (one by the caller's promise) live until the queue is idle.
        unsafe {
            pipeline_barrier(&device, commands, &[acquire], &[]);
            device.raw().cmd_copy_buffer(commands, buffer, staging, &copy);
            pipeline_barrier(&device, commands, &[release], &[]);
        }
    })
}

/// Reads a colour image in `TRANSFER_SRC_OPTIMAL` as unpadded rows of 4 bytes per pixel. Waits for the queue.
pub fn read_image(queue: &mut Queue, image: &Image) -> Result<Vec<u8>> {
    let extent = image.extent();
    let size = u64::from(extent.width) * u64::from(extent.height) * 4;
    let place = (image.raw(), vk::ImageLayout::TRANSFER_SRC_OPTIMAL);
    // SAFETY: the image is alive and of this size; Vulkan owns it.
    unsafe { read_image_levels(queue, place, &[copy_of_level(0, extent, 0)], size, Owner::Queue) }
}

/// Reads levels of an image into `size` bytes, at the offsets in `regions`. Waits for the queue.
///
/// `owner` owns the image, in this layout, before and after the copy. If it is CUDA, CUDA must be idle.
///
/// # Safety
/// The image must be alive, belong to the queue's device, and have the usage `TRANSFER_SRC`. `regions` must
/// lie within the image and `size`.
pub unsafe fn read_image_levels(
    queue: &mut Queue,
    (image, layout): (vk::Image, vk::ImageLayout),
    regions: &[vk::BufferImageCopy],
    size: u64,
    owner: Owner,
) -> Result<Vec<u8>> {
    let (device, family) = (queue.device().clone(), queue.family());
    let copied = vk::ImageLayout::TRANSFER_SRC_OPTIMAL;
    let scope = (READS.stage, READS.access);
    let transition = |from, to| image_barrier(image, (from, scope), (to, scope));
    // The ownership transfer changes no layout: see `vulkan_cuda::ownership`.
    let acquire = owner.acquire_image(image, family, READS).old_layout(layout).new_layout(layout);
    let release = owner.release_image(image, family, READS).old_layout(layout).new_layout(layout);
    read_back(queue, "picture read-back", size, |commands, staging| {
        // SAFETY: recording; image (by the caller's promise) and buffer live until the queue is idle.
        unsafe {
            pipeline_barrier(&device, commands, &[], &[acquire]);
            pipeline_barrier(&device, commands, &[], &[transition(layout, copied)]);
            device.raw().cmd_copy_image_to_buffer(commands, image, copied, staging, regions);
            pipeline_barrier(&device, commands, &[], &[transition(copied, layout)]);
            pipeline_barrier(&device, commands, &[], &[release]);
        }
    })
}

/// Returns the bytes that `record`'s commands copy into a buffer. Waits for the queue.
fn read_back(
    queue: &mut Queue,
    label: &'static str,
    size: u64,
    record: impl FnOnce(vk::CommandBuffer, vk::Buffer),
) -> Result<Vec<u8>> {
    let device = queue.device().clone();
    let (usage, location) = (vk::BufferUsageFlags::TRANSFER_DST, MemoryLocation::GpuToCpu);
    let staging = Buffer::new(&device, &BufferDesc { label, size, usage, location })?;
    one_shot(queue, |commands| {
        record(commands, staging.raw());
        // SAFETY: recording; the buffer lives until `one_shot` has waited for the queue.
        unsafe { pipeline_barrier(&device, commands, &[to_host(staging.raw())], &[]) };
    })?;
    Ok(staging.bytes()?.to_vec())
}

/// Returns a barrier that makes a copy into the buffer visible to the host; waiting for the queue does not.
pub fn to_host(buffer: vk::Buffer) -> vk::BufferMemoryBarrier2<'static> {
    buffer_barrier(
        buffer,
        (vk::PipelineStageFlags2::ALL_TRANSFER, vk::AccessFlags2::TRANSFER_WRITE),
        (vk::PipelineStageFlags2::HOST, vk::AccessFlags2::HOST_READ),
    )
}

pub fn one_shot(queue: &mut Queue, record: impl FnOnce(vk::CommandBuffer)) -> Result<()> {
    let device = queue.device().clone();
    let pool = CommandPool::of_queue(queue, vk::CommandPoolCreateFlags::TRANSIENT)?;
    let cmd = pool.allocate(1)?[0];
    begin(&device, cmd, vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT)?;
    record(cmd);
    end(&device, cmd)?;
    let commands = [vk::CommandBufferSubmitInfo::default().command_buffer(cmd)];
    // SAFETY: recorded and not pending; what `record` made the commands use outlives this call.
    unsafe { queue.submit_and_wait(&commands) }
}

/// Begins recording. The command buffer must be new, or resettable and not pending.
pub fn begin(device: &Device, commands: vk::CommandBuffer, usage: vk::CommandBufferUsageFlags) -> Result<()> {
    let info = vk::CommandBufferBeginInfo::default().flags(usage);
    // SAFETY: the command buffer is new, or resettable and not pending, as demanded above.
    unsafe { device.raw().begin_command_buffer(commands, &info) }
        .map_err(device.failed("vkBeginCommandBuffer"))
}

/// Ends recording. The command buffer must be recording, outside a render pass.
pub fn end(device: &Device, commands: vk::CommandBuffer) -> Result<()> {
    // SAFETY: recording, outside a render pass.
    unsafe { device.raw().end_command_buffer(commands) }.map_err(device.failed("vkEndCommandBuffer"))
}

/// Frees its command buffers when dropped.
pub type CommandPool = AutoDestroy<vk::CommandPool>;

impl CommandPool {
    pub fn of_queue(queue: &Queue, flags: vk::CommandPoolCreateFlags) -> Result<Self> {
        let info = vk::CommandPoolCreateInfo::default().flags(flags).queue_family_index(queue.family());
        // SAFETY: a live device, and the family of its queue.
        let create = |vk: &ash::Device| unsafe { vk.create_command_pool(&info, None) };
        Self::new(queue.device(), "vkCreateCommandPool", create)
    }

    pub fn allocate(&self, count: u32) -> Result<Vec<vk::CommandBuffer>> {
        let info =
            vk::CommandBufferAllocateInfo::default().command_pool(self.raw()).command_buffer_count(count);
        let device = self.device();
        // SAFETY: a live pool.
        unsafe { device.raw().allocate_command_buffers(&info) }
            .map_err(device.failed("vkAllocateCommandBuffers"))
    }
}
