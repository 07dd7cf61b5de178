//! CPU threads fill the slot, in memory that both the CPU and the GPU can address.

use ash::vk;
use gpu_allocator::MemoryLocation;
use rayon::prelude::*;
use vulkan_cuda::Ring;
use vulkan_cuda::ownership::Owner;

use super::{Frame, FrameSync, Producer, check_grid, own_slots};
use crate::Result;
use crate::stamp;
use crate::vulkan::{Buffer, Device};
use crate::wave::{self, Grid, Vertex};

/// Fills slots on the CPU, one row a task.
pub struct HostProducer {
    buffers: Vec<Buffer>,
    slots: Vec<vk::Buffer>,
    grid: Grid,
    stamped: bool,
}

impl HostProducer {
    /// Works on every Vulkan device.
    pub fn new(device: &Device, grid: Grid, ring: Ring) -> Result<Self> {
        check_grid(device, grid)?;
        crate::threads::start()?;
        let buffers = own_slots(device, grid, ring, vk::BufferUsageFlags::empty(), MemoryLocation::CpuToGpu)?;
        Ok(Self { slots: buffers.iter().map(Buffer::raw).collect(), buffers, grid, stamped: false })
    }
}

impl Producer for HostProducer {
    fn name(&self) -> &'static str {
        "host"
    }

    fn slots(&self) -> &[vk::Buffer] {
        &self.slots
    }

    /// No more than the ring has slots: then the frame that last used this slot is done before `produce` begins.
    fn max_in_flight(&self) -> usize {
        self.slots.len()
    }

    fn produce(&mut self, frame: &Frame) -> Result<()> {
        let (grid, turn) = (self.grid, wave::turn(frame.time) as f32);
        let (stamped, frame_index) = (self.stamped, frame.index);
        let slot = self.slot_of(frame.index);
        let bytes = self.buffers[slot].bytes_mut()?;
        // A device aligns such buffers to 16 bytes and more; the cast looks.
        let vertices: &mut [Vertex] = bytemuck::cast_slice_mut(bytes);
        vertices.par_chunks_mut(grid.cols as usize).enumerate().for_each(|(row, vertices)| {
            for (col, vertex) in vertices.iter_mut().enumerate() {
                *vertex = wave::vertex(grid, col as u32, row as u32, turn);
                if stamped {
                    vertex.w = stamp::apply(vertex.w, frame_index);
                }
            }
        });
        Ok(())
    }

    fn record_before_draw(&self, _commands: vk::CommandBuffer, _frame: &Frame) {
        // A submission makes the host's earlier writes visible by itself ("Host Write Ordering Guarantees").
    }

    fn record_after_draw(&self, _commands: vk::CommandBuffer, _frame: &Frame) {}

    fn sync(&mut self, _frame: &Frame) -> Result<FrameSync> {
        Ok(FrameSync::default())
    }

    fn owner(&self) -> Owner {
        Owner::Queue
    }

    fn stamp_frames(&mut self) -> Result<()> {
        self.stamped = true;
        Ok(())
    }
}
