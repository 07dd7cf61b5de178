//! A renderer that could also run without CUDA: it has its own memory allocator, command pools, frames in
//! flight and pace.

use std::error::Error;
use std::sync::Arc;

use ash::vk;
use gpu_allocator::MemoryLocation;
use gpu_allocator::vulkan::{
    Allocation, AllocationCreateDesc, AllocationScheme, Allocator, AllocatorCreateDesc,
};
use vulkan_cuda::{SharedBuffer, VulkanTurn};

use super::device::Device;
use super::{BYTES, fill};

/// How many frames the CPU may be ahead of the queue. This is independent of the number of slots.
const IN_FLIGHT: u64 = 2;

/// The engine's objects for one frame in flight.
#[derive(Default)]
struct Frame {
    pool: vk::CommandPool,
    commands: vk::CommandBuffer,
    /// The buffer that it draws to.
    target: vk::Buffer,
    memory: Option<Allocation>,
    /// CUDA's frame that it draws.
    shows: Option<u64>,
}

/// A renderer with two frames in flight.
pub struct Engine {
    frames: Vec<Frame>,
    /// The engine's own timeline: frame n is done at value n + 1.
    done: vk::Semaphore,
    submitted: u64,
    checked: u64,
    // Dropped last, in this order: the allocator frees its memory on the device.
    allocator: Allocator,
    pub device: Arc<Device>,
}

impl Engine {
    pub fn new(device: Arc<Device>) -> Result<Self, Box<dyn Error>> {
        let allocator = Allocator::new(&AllocatorCreateDesc {
            instance: device.instance.raw.clone(),
            device: device.raw.clone(),
            physical_device: device.physical,
            debug_settings: Default::default(),
            buffer_device_address: false,
            allocation_sizes: Default::default(),
        })?;
        let (frames, done) = (Vec::new(), vk::Semaphore::null());
        // From here on `Drop` cleans up; destroying a null handle does nothing.
        let mut engine = Self { frames, done, submitted: 0, checked: 0, allocator, device };
        let raw = &engine.device.raw;
        let mut timeline = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let target = vk::BufferCreateInfo::default().size(BYTES).usage(vk::BufferUsageFlags::TRANSFER_DST);
        let pool = vk::CommandPoolCreateInfo::default().queue_family_index(engine.device.family);
        // SAFETY: a live device and plain descriptions; memory of the size and type that the buffer requires.
        unsafe {
            engine.done =
                raw.create_semaphore(&vk::SemaphoreCreateInfo::default().push_next(&mut timeline), None)?;
            for _ in 0..IN_FLIGHT {
                engine.frames.push(Frame::default());
                let frame = engine.frames.last_mut().expect("pushed");
                frame.target = raw.create_buffer(&target, None)?;
                let memory = frame.memory.insert(engine.allocator.allocate(&AllocationCreateDesc {
                    name: "target",
                    requirements: raw.get_buffer_memory_requirements(frame.target),
                    location: MemoryLocation::GpuToCpu,
                    linear: true,
                    allocation_scheme: AllocationScheme::GpuAllocatorManaged,
                })?);
                raw.bind_buffer_memory(frame.target, memory.memory(), memory.offset())?;
                frame.pool = raw.create_command_pool(&pool, None)?;
                let info =
                    vk::CommandBufferAllocateInfo::default().command_pool(frame.pool).command_buffer_count(1);
                frame.commands = raw.allocate_command_buffers(&info)?[0];
            }
        }
        Ok(engine)
    }

    /// Draws a slot. In this example, drawing is a copy. After an error the turn is dropped, so its frame is
    /// given up.
    pub fn draw(&mut self, read: VulkanTurn<SharedBuffer>) -> Result<(), Box<dyn Error>> {
        // The engine's pace: it waits until the last frame with these objects is done. It waits for its own
        // timeline, never for CUDA's.
        let index = (self.submitted % IN_FLIGHT) as usize;
        self.wait_for((self.submitted + 1).saturating_sub(IN_FLIGHT))?;
        self.check(index)?;

        let (raw, frame) = (&self.device.raw, &mut self.frames[index]);
        let copy = [vk::BufferCopy::default().size(BYTES)];
        let to_host = [vk::MemoryBarrier2::default()
            .src_stage_mask(vk::PipelineStageFlags2::ALL_TRANSFER)
            .src_access_mask(vk::AccessFlags2::TRANSFER_WRITE)
            .dst_stage_mask(vk::PipelineStageFlags2::HOST)
            .dst_access_mask(vk::AccessFlags2::HOST_READ)];
        // SAFETY: the queue is done with the pool; the commands are for its family, and both buffers have
        // this many bytes.
        unsafe {
            raw.reset_command_pool(frame.pool, vk::CommandPoolResetFlags::empty())?;
            raw.begin_command_buffer(frame.commands, &vk::CommandBufferBeginInfo::default())?;
            // ANCHOR: barriers
            read.record(frame.commands, |slot| {
                raw.cmd_copy_buffer(frame.commands, slot.vulkan(), frame.target, &copy);
            });
            // ANCHOR_END: barriers
            raw.cmd_pipeline_barrier2(
                frame.commands,
                &vk::DependencyInfo::default().memory_barriers(&to_host),
            );
            raw.end_command_buffer(frame.commands)?;
        }

        // ANCHOR: submit
        // 3. The engine's own wait stands for the waits that your engine has, for a swapchain image or an upload, for
        //    example. The wait for CUDA comes in addition.
        let all = vk::PipelineStageFlags2::ALL_COMMANDS;
        let own = vk::SemaphoreSubmitInfo::default().semaphore(self.done).stage_mask(all);
        let commands = [vk::CommandBufferSubmitInfo::default().command_buffer(frame.commands)];
        let shows = read.frame();
        let submit = |wait, signal| -> Result<(), Box<dyn Error>> {
            let waits = [own.value(self.submitted), wait];
            let signals = [own.value(self.submitted + 1), signal];
            let batch = [vk::SubmitInfo2::default()
                .wait_semaphore_infos(&waits)
                .command_buffer_infos(&commands)
                .signal_semaphore_infos(&signals)];
            // SAFETY: recorded above; every `Drop` here waits for the queue, so everything lives until the
            // queue has passed it.
            Ok(unsafe { raw.queue_submit2(self.device.queue, &batch, vk::Fence::null()) }?)
        };
        // SAFETY: `submit` makes one submission, and an error means that there was none.
        unsafe { read.submit(submit) }?;
        self.submitted += 1;
        frame.shows = Some(shows);
        // ANCHOR_END: submit
        Ok(())
    }

    /// Waits on the CPU until this many of the engine's frames are done. They come after CUDA's, and CUDA may
    /// fault, so the wait has a limit.
    fn wait_for(&self, frames: u64) -> Result<(), vk::Result> {
        let (semaphores, values) = ([self.done], [frames]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: the engine's own timeline.
        unsafe { self.device.raw.wait_semaphores(&info, 10_000_000_000) }
    }

    /// Checks what a frame in flight drew. The frame must be done.
    fn check(&mut self, index: usize) -> Result<(), Box<dyn Error>> {
        let frame = &mut self.frames[index];
        let Some(shows) = frame.shows.take() else { return Ok(()) };
        let bytes = frame.memory.as_ref().and_then(Allocation::mapped_slice).ok_or("not the CPU's memory")?;
        let mut words = (0..).zip(bytes[..BYTES as usize].chunks_exact(4));
        match words.position(|(index, bytes)| bytes != fill::word(index, shows).to_ne_bytes()) {
            None => self.checked += 1,
            Some(wrong) => return Err(format!("frame {shows} is wrong at word {wrong}").into()),
        }
        Ok(())
    }

    /// Waits for the last frames, and returns how many frames were right.
    pub fn finish(&mut self) -> Result<u64, Box<dyn Error>> {
        self.wait_for(self.submitted)?;
        (0..self.frames.len()).try_for_each(|index| self.check(index))?;
        Ok(self.checked)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let raw = &self.device.raw;
        // SAFETY: the queue is idle, and these objects are the engine's. The ring waits for the GPU itself.
        unsafe {
            let _ = raw.device_wait_idle();
            for frame in self.frames.drain(..) {
                raw.destroy_command_pool(frame.pool, None);
                raw.destroy_buffer(frame.target, None);
                let _ = frame.memory.map(|memory| self.allocator.free(memory));
            }
            raw.destroy_semaphore(self.done, None);
        }
    }
}
