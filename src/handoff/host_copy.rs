//! Device → host → device: what a program does whose two APIs know nothing of each other. Here to show what it costs.

use std::time::{Duration, Instant};

use ash::vk;
use gpu_allocator::MemoryLocation;
use vulkan_cuda::ownership::Owner;

use crate::Result;
use crate::cuda::{Cuda, DeviceMemory, KernelSource, Signature};
use crate::producer::{Blocked, Fill, Frame, FrameSync, Producer, SLOT_USAGE, check_grid};
use crate::vulkan::{Buffer, BufferDesc, Device, Queue, buffer_barrier, pipeline_barrier};
use crate::wave::Grid;

/// A buffer of CUDA's own, host memory, and a buffer of Vulkan's own.
pub struct HostCopyHandoff {
    fill: Fill,
    own: DeviceMemory,
    staging: Buffer,
    buffer: Buffer,
    slots: [vk::Buffer; 1],
    blocked: Blocked,
    timeout: Duration,
    device: Device,
}

impl HostCopyHandoff {
    /// Works with any pair of devices; nothing is shared.
    pub fn new(
        queue: &Queue,
        context: &Cuda,
        source: &KernelSource,
        grid: Grid,
        timeout: Duration,
    ) -> Result<Self> {
        let device = queue.device();
        check_grid(device, grid)?;
        let make = |label, usage, location| {
            Buffer::new(device, &BufferDesc { label, size: grid.bytes(), usage, location })
        };
        let usage = SLOT_USAGE | vk::BufferUsageFlags::TRANSFER_DST;
        let buffer = make("the field", usage, MemoryLocation::GpuOnly)?;
        Ok(Self {
            fill: Fill::new(context, source, Signature::Field, grid)?,
            own: DeviceMemory::new(context, grid.bytes())?,
            // Cached host memory, because CUDA's copy is faster into it than into write-combined memory.
            staging: make(
                "the field on the host",
                vk::BufferUsageFlags::TRANSFER_SRC,
                MemoryLocation::GpuToCpu,
            )?,
            slots: [buffer.raw()],
            buffer,
            blocked: Blocked::default(),
            timeout,
            device: device.clone(),
        })
    }

    fn run(&mut self, frame: &Frame) -> Result<()> {
        // SAFETY: CUDA's own memory, 16 bytes a vertex, touched by this stream alone.
        unsafe { self.fill.enqueue(self.own.pointer(), frame) }?;
        let began = Instant::now();
        // The copy itself would wait too, but not give up.
        self.fill.wait_idle(self.timeout)?;
        let bytes = self.staging.bytes_mut()?;
        self.own.read(self.fill.stream(), bytes)?;
        self.blocked.add(began.elapsed());
        Ok(())
    }
}

impl Producer for HostCopyHandoff {
    fn name(&self) -> &'static str {
        "cuda, host-copy"
    }

    fn slots(&self) -> &[vk::Buffer] {
        &self.slots
    }

    /// There is one staging buffer: the pacer's wait says that Vulkan has read it.
    fn max_in_flight(&self) -> usize {
        1
    }

    fn produce(&mut self, frame: &Frame) -> Result<()> {
        self.run(frame).map_err(|error| self.fill.blame(error))
    }

    fn record_before_draw(&self, commands: vk::CommandBuffer, frame: &Frame) {
        let writes = (vk::PipelineStageFlags2::ALL_TRANSFER, vk::AccessFlags2::TRANSFER_WRITE);
        let reads = (frame.reads.stage, frame.reads.access);
        let reuse = buffer_barrier(self.buffer.raw(), (frame.reads.stage, vk::AccessFlags2::NONE), writes);
        let written = buffer_barrier(self.buffer.raw(), writes, reads);
        let copy = [vk::BufferCopy::default().size(self.buffer.size())];
        // SAFETY: recording, outside a render pass; both buffers are alive and of the same size.
        unsafe {
            pipeline_barrier(&self.device, commands, &[reuse], &[]);
            self.device.raw().cmd_copy_buffer(commands, self.staging.raw(), self.buffer.raw(), &copy);
            pipeline_barrier(&self.device, commands, &[written], &[]);
        }
    }

    fn record_after_draw(&self, _commands: vk::CommandBuffer, _frame: &Frame) {}

    fn commands_repeat(&self) -> bool {
        true
    }

    fn sync(&mut self, _frame: &Frame) -> Result<FrameSync> {
        Ok(FrameSync::default())
    }

    fn owner(&self) -> Owner {
        Owner::Queue
    }

    fn blocked(&self) -> Blocked {
        self.blocked
    }

    fn fill(&self) -> Option<&Fill> {
        Some(&self.fill)
    }

    fn is_idle(&self) -> Result<bool> {
        self.fill.is_idle()
    }

    fn stamp_frames(&mut self) -> Result<()> {
        self.fill.stamp_frames()
    }
}
