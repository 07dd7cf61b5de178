//! A Vulkan compute shader fills the slot, in the same command buffer as the draw: no second API, no semaphore.

use ash::vk;
use gpu_allocator::MemoryLocation;
use vulkan_cuda::ownership::Owner;
use vulkan_cuda::{ExportedBuffer, Ring};

use super::{Frame, FrameSync, Producer, SLOT_USAGE, check_grid, own_slots};
use crate::Result;
use crate::stamp;
use crate::vulkan::{
    Bound, Buffer, Choices, ComputePipeline, ComputePipelineDesc, Device, buffer_barrier, groups,
    pipeline_barrier,
};
use crate::wave::{self, Grid};

/// Fills slots with `shaders/wave.wgsl`.
pub struct ComputeProducer {
    pipeline: ComputePipeline,
    slots: Vec<vk::Buffer>,
    /// What owns the slots.
    _memory: Memory,
    grid: Grid,
    stamped: bool,
    device: Device,
}

enum Memory {
    Own { _buffers: Vec<Buffer> },
    Exported { _buffer: ExportedBuffer },
}

impl ComputeProducer {
    /// Works on every Vulkan device.
    pub fn new(device: &Device, grid: Grid, ring: Ring) -> Result<Self> {
        check_grid(device, grid)?;
        let buffers = own_slots(device, grid, ring, vk::BufferUsageFlags::empty(), MemoryLocation::GpuOnly)?;
        let slots: Vec<_> = buffers.iter().map(Buffer::raw).collect();
        Self::with(device, grid, slots, Memory::Own { _buffers: buffers })
    }

    /// The same with one slot in memory that was exported, though nobody imports it: to find out what that costs a draw.
    pub(super) fn exported(device: &Device, grid: Grid) -> Result<Self> {
        check_grid(device, grid)?;
        let buffer = ExportedBuffer::new(device.sharing()?, grid.bytes(), SLOT_USAGE)?;
        Self::with(device, grid, vec![buffer.raw()], Memory::Exported { _buffer: buffer })
    }

    fn with(device: &Device, grid: Grid, slots: Vec<vk::Buffer>, memory: Memory) -> Result<Self> {
        let bound: Vec<_> = slots.iter().map(|&slot| Bound::from(slot)).collect();
        let pipeline = ComputePipeline::new(
            device,
            &ComputePipelineDesc {
                spirv: include_bytes!(concat!(env!("OUT_DIR"), "/wave.wave.spv")),
                entry: c"wave",
                constants: size_of::<Constants>() as u32,
                sets: &[Choices::These(&bound)],
            },
        )?;
        Ok(Self { pipeline, slots, _memory: memory, grid, stamped: false, device: device.clone() })
    }

    fn constants(&self, frame: &Frame) -> Constants {
        let turn = wave::turn(frame.time) as f32;
        let (keep, stamp) = match self.stamped {
            true => (!stamp::MASK, stamp::of(frame.index)),
            false => (u32::MAX, 0),
        };
        [self.grid.cols, self.grid.rows, turn.to_bits(), keep, stamp]
    }
}

/// As in `shaders/wave.wgsl`: columns, rows, turn, and which bits of a colour to keep and which to set.
type Constants = [u32; 5];

impl Producer for ComputeProducer {
    fn name(&self) -> &'static str {
        "compute"
    }

    fn slots(&self) -> &[vk::Buffer] {
        &self.slots
    }

    fn produce(&mut self, _frame: &Frame) -> Result<()> {
        // All of it is in the command buffer.
        Ok(())
    }

    fn record_before_draw(&self, commands: vk::CommandBuffer, frame: &Frame) {
        let slot = self.slot_of(frame.index);
        let buffer = self.slots[slot];
        let writes = (vk::PipelineStageFlags2::COMPUTE_SHADER, vk::AccessFlags2::SHADER_STORAGE_WRITE);
        let reads = (frame.reads.stage, frame.reads.access);
        // The draw that read this slot K frames ago must be done (no memory to make visible: it only read).
        let reuse = buffer_barrier(buffer, (frame.reads.stage, vk::AccessFlags2::NONE), writes);
        let written = buffer_barrier(buffer, writes, reads);
        let constants = self.constants(frame);
        // SAFETY: recording, outside a render pass; the buffer is alive; there is one list, of the slots, and
        // the constants have their type's size; the barriers order the shader's writes with the draws around it.
        unsafe {
            pipeline_barrier(&self.device, commands, &[reuse], &[]);
            let constants = bytemuck::bytes_of(&constants);
            self.pipeline.dispatch(commands, [slot], constants, groups(self.grid.vertices()));
            pipeline_barrier(&self.device, commands, &[written], &[]);
        }
    }

    fn record_after_draw(&self, _commands: vk::CommandBuffer, _frame: &Frame) {}

    fn sync(&mut self, _frame: &Frame) -> Result<FrameSync> {
        Ok(FrameSync::default())
    }

    fn owner(&self) -> Owner {
        Owner::Queue
    }

    fn runs_in_queue(&self) -> bool {
        true
    }

    fn stamp_frames(&mut self) -> Result<()> {
        self.stamped = true;
        Ok(())
    }
}
