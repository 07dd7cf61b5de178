//! Plain Vulkan, to look at the result: a buffer that the CPU reads, and command buffers that copy into it.

use std::error::Error;

use ash::vk;

use super::match_devices::Gpu;

/// A buffer in memory that the CPU can read, and a pool of command buffers.
pub struct Target {
    pub buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    pool: vk::CommandPool,
    bytes: u64,
    device: ash::Device,
    // Keeps the device alive.
    _pair: vulkan_cuda::Pair,
}

#[allow(dead_code)] // Each example uses only some of these functions.
impl Target {
    pub fn new(gpu: &Gpu, bytes: u64) -> Result<Self, vk::Result> {
        let device = gpu.device.clone();
        let info = vk::BufferCreateInfo::default().size(bytes).usage(vk::BufferUsageFlags::TRANSFER_DST);
        let pool = vk::CommandPoolCreateInfo::default().queue_family_index(gpu.family);
        // SAFETY: a live device and plain descriptions; the memory is of a type and size that the buffer
        // allows. A failure in between ends the example; the end of the process then frees what was made
        // before.
        unsafe {
            let buffer = device.create_buffer(&info, None)?;
            let needs = device.get_buffer_memory_requirements(buffer);
            let wanted = vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT;
            let fits = |&(index, kind): &(u32, &vk::MemoryType)| {
                needs.memory_type_bits & (1 << index) != 0 && kind.property_flags.contains(wanted)
            };
            let types = (0..).zip(gpu.memory.memory_types_as_slice());
            let (index, _) = types.into_iter().find(fits).ok_or(vk::Result::ERROR_FEATURE_NOT_PRESENT)?;
            let info = vk::MemoryAllocateInfo::default().allocation_size(needs.size).memory_type_index(index);
            let memory = device.allocate_memory(&info, None)?;
            device.bind_buffer_memory(buffer, memory, 0)?;
            let pool = device.create_command_pool(&pool, None)?;
            Ok(Self { buffer, memory, pool, bytes, device, _pair: gpu.pair.clone() })
        }
    }

    /// Returns a command buffer with the commands of `record`, and a barrier that makes the copy visible to
    /// the CPU.
    pub fn record(
        &self,
        record: impl FnOnce(&ash::Device, vk::CommandBuffer),
    ) -> Result<vk::CommandBuffer, vk::Result> {
        let info = vk::CommandBufferAllocateInfo::default().command_pool(self.pool).command_buffer_count(1);
        let to_host = [vk::MemoryBarrier2::default()
            .src_stage_mask(vk::PipelineStageFlags2::ALL_TRANSFER)
            .src_access_mask(vk::AccessFlags2::TRANSFER_WRITE)
            .dst_stage_mask(vk::PipelineStageFlags2::HOST)
            .dst_access_mask(vk::AccessFlags2::HOST_READ)];
        // SAFETY: a live pool, and a new command buffer from it.
        unsafe {
            let commands = self.device.allocate_command_buffers(&info)?[0];
            self.device.begin_command_buffer(commands, &vk::CommandBufferBeginInfo::default())?;
            record(&self.device, commands);
            let barriers = vk::DependencyInfo::default().memory_barriers(&to_host);
            self.device.cmd_pipeline_barrier2(commands, &barriers);
            self.device.end_command_buffer(commands)?;
            Ok(commands)
        }
    }

    /// Records a copy of a picture in `GENERAL`, `side` texels of four bytes, to `offset` of the buffer.
    ///
    /// # Safety
    /// The commands are being recorded, and the buffer is large enough.
    pub unsafe fn copy_image(
        &self,
        commands: vk::CommandBuffer,
        image: vk::Image,
        [width, height]: [u32; 2],
        offset: u64,
    ) {
        let layers =
            vk::ImageSubresourceLayers::default().aspect_mask(vk::ImageAspectFlags::COLOR).layer_count(1);
        let copy = [vk::BufferImageCopy::default()
            .buffer_offset(offset)
            .image_subresource(layers)
            .image_extent(vk::Extent3D { width, height, depth: 1 })];
        let layout = vk::ImageLayout::GENERAL;
        // SAFETY: the caller's promise.
        unsafe { self.device.cmd_copy_image_to_buffer(commands, image, layout, self.buffer, &copy) };
    }

    /// Records, submits, and waits.
    pub fn run(
        &self,
        gpu: &Gpu,
        record: impl FnOnce(&ash::Device, vk::CommandBuffer),
    ) -> Result<(), vk::Result> {
        let commands = self.record(record)?;
        // SAFETY: recorded above; the caller keeps everything in the commands alive until the queue is idle.
        unsafe {
            self.submit_raw(gpu, commands, &[], &[])?;
            self.device.queue_wait_idle(gpu.queue)
        }
    }

    /// Submits `commands`, which begin after `waits` and end before `signals`.
    ///
    /// # Safety
    /// [`Target::record`] made the commands, and everything in them lives until the queue is idle.
    pub unsafe fn submit(
        &self,
        gpu: &Gpu,
        commands: vk::CommandBuffer,
        waits: &[vk::SemaphoreSubmitInfo<'_>],
        signals: &[vk::SemaphoreSubmitInfo<'_>],
    ) -> Result<(), Box<dyn Error>> {
        // SAFETY: the caller's promise.
        Ok(unsafe { self.submit_raw(gpu, commands, waits, signals) }?)
    }

    /// # Safety
    /// As for [`Target::submit`].
    unsafe fn submit_raw(
        &self,
        gpu: &Gpu,
        commands: vk::CommandBuffer,
        waits: &[vk::SemaphoreSubmitInfo<'_>],
        signals: &[vk::SemaphoreSubmitInfo<'_>],
    ) -> Result<(), vk::Result> {
        let buffers = [vk::CommandBufferSubmitInfo::default().command_buffer(commands)];
        let batch = [vk::SubmitInfo2::default()
            .wait_semaphore_infos(waits)
            .command_buffer_infos(&buffers)
            .signal_semaphore_infos(signals)];
        // SAFETY: the caller's promise.
        unsafe { self.device.queue_submit2(gpu.queue, &batch, vk::Fence::null()) }
    }

    /// Returns what was copied. The queue must be idle.
    pub fn words(&self) -> Result<Vec<u32>, vk::Result> {
        // SAFETY: host-visible memory of this many bytes, which nothing writes any more.
        unsafe {
            let from = self.device.map_memory(self.memory, 0, self.bytes, vk::MemoryMapFlags::empty())?;
            let words = std::slice::from_raw_parts(from.cast::<u32>(), (self.bytes / 4) as usize).to_vec();
            self.device.unmap_memory(self.memory);
            Ok(words)
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // SAFETY: nothing is used after this wait. (Without an error, the example has waited before.)
        unsafe {
            let _ = self.device.device_wait_idle();
            self.device.destroy_command_pool(self.pool, None);
            self.device.destroy_buffer(self.buffer, None);
            self.device.free_memory(self.memory, None);
        }
    }
}
