//! CPU threads that fill memory which both the CPU and the GPU can address.

use ash::vk;
use gpu_allocator::MemoryLocation;
use rayon::prelude::*;

use super::{Frame, Produced, Producer, ProducerDesc, Profile, check_grid, own_slots};
use crate::contents::wave::{self, Vertex, WaveShape};
use crate::contents::{frame_stamp, gallery};
use wavefield_gpu::Result;
use wavefield_gpu::vulkan::{Buffer, Device};

pub struct HostProducer {
    buffers: Vec<Buffer>,
    profile: Profile,
    desc: ProducerDesc,
}

impl HostProducer {
    pub fn new(device: &Device, desc: &ProducerDesc) -> Result<Self> {
        let grid = desc.grid;
        check_grid(device, grid)?;
        wavefield_gpu::threads::start()?;
        let none = vk::BufferUsageFlags::empty();
        let buffers = own_slots(device, grid, desc.ring, none, MemoryLocation::CpuToGpu)?;
        let slots: Vec<_> = buffers.iter().map(|buffer| buffer.raw().into()).collect();
        // With one frame in flight per slot, its previous frame is done before `produce` writes it again.
        let (max_in_flight, parameters) = (slots.len(), gallery::WAVE.parameters());
        let profile = Profile { max_in_flight, parameters, ..Profile::of_queue("host", slots) };
        Ok(Self { buffers, profile, desc: *desc })
    }
}

impl Producer for HostProducer {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn produce(&mut self, frame: &Frame) -> Result<Produced> {
        let Self { ref mut buffers, ref profile, desc: ProducerDesc { grid, stamped, .. } } = *self;
        let phase = wave::phase(frame.time) as f32;
        let shape = WaveShape::of(&profile.parameters.values(&frame.parameters));
        let bytes = buffers[profile.slot_of(frame.index)].bytes_mut()?;
        // Devices align such buffers to at least 16 bytes, which the cast checks.
        let vertices: &mut [Vertex] = bytemuck::cast_slice_mut(bytes);
        vertices.par_chunks_mut(grid.cols as usize).enumerate().for_each(|(row, vertices)| {
            for (col, vertex) in vertices.iter_mut().enumerate() {
                *vertex = wave::vertex(grid, col as u32, row as u32, phase, shape);
                if stamped {
                    vertex.w = frame_stamp::apply(vertex.w, frame.index);
                }
            }
        });
        // A submission makes the host's earlier writes visible by itself ("Host Write Ordering Guarantees").
        Ok(self.profile.produced(frame))
    }
}
