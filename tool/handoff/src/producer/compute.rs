//! A Vulkan compute shader in the draw's queue, without a second API or a semaphore.

use std::any::Any;

use ash::vk;
use gpu_allocator::MemoryLocation;
use vulkan_cuda::ExportedBuffer;

use super::{
    Frame, Producer, ProducerDesc, Profile, SLOT_USAGE, Source, Vertices, check_grid, each_slot, own_slots,
};
use crate::contents::{frame_stamp, gallery::KernelShader, scene::Scene, wave::Grid};
use wavefield_gpu::Result;
use wavefield_gpu::vulkan::{
    Bound, Buffer, Choices, ComputePipeline, Device, buffer_barrier, groups, pipeline_barrier,
};

pub struct ComputeProducer {
    pipeline: ComputePipeline,
    profile: Profile,
    /// The memory of the slots.
    _memory: Box<dyn Any>,
    shader: &'static KernelShader,
    desc: ProducerDesc,
    device: Device,
}

impl ComputeProducer {
    /// Makes the slots, in exported memory if `exported`. Nothing imports that memory: the option shows how
    /// much slower a draw from exported memory is.
    pub fn new(
        device: &Device,
        desc: &ProducerDesc,
        shader: &'static KernelShader,
        exported: bool,
    ) -> Result<Self> {
        check_grid(device, desc.grid)?;
        let (memory, slots): (Box<dyn Any>, Vec<_>) = if exported {
            let (sharing, bytes, depth) = (device.sharing()?, desc.grid.bytes(), desc.ring.depth());
            let make = || Ok(ExportedBuffer::new(sharing, bytes, SLOT_USAGE)?);
            let buffers = each_slot(device, None, (Scene::Field, desc.grid), depth, make)?;
            let slots = buffers.iter().map(ExportedBuffer::raw).collect();
            (Box::new(buffers), slots)
        } else {
            let none = vk::BufferUsageFlags::empty();
            let buffers = own_slots(device, desc.grid, desc.ring, none, MemoryLocation::GpuOnly)?;
            let slots = buffers.iter().map(Buffer::raw).collect();
            (Box::new(buffers), slots)
        };
        let bound: Vec<_> = slots.iter().map(|&slot| Bound::from(slot)).collect();
        let pipeline = ComputePipeline::new(
            device,
            (shader.spirv, shader.entry),
            size_of::<ShaderConstants>() as u32,
            &[Choices::These(&bound)],
        )?;
        let slots = slots.into_iter().map(Source::from).collect();
        let parameters = shader.parameters();
        let profile = Profile { in_queue: true, parameters, ..Profile::of_queue("compute", slots) };
        Ok(Self { pipeline, profile, _memory: memory, shader, desc: *desc, device: device.clone() })
    }
}

/// Columns, rows, phase, the bits of a colour to keep, the bits to set, three unused words, and the values of
/// the kernel's parameters, as in `gallery.wgsl`.
type ShaderConstants = [u32; 8 + VALUES];
const VALUES: usize = 4;

impl Producer for ComputeProducer {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn record_before_draw(&self, commands: vk::CommandBuffer, frame: &Frame, source: Source) {
        let Source::Vertices(Vertices { buffer, .. }) = source else { return };
        let writes = (vk::PipelineStageFlags2::COMPUTE_SHADER, vk::AccessFlags2::SHADER_STORAGE_WRITE);
        let reads = (frame.reads.stage, frame.reads.access);
        // The draw that read this slot K frames ago must be done. It wrote nothing that must be made visible.
        let reuse = buffer_barrier(buffer, (frame.reads.stage, vk::AccessFlags2::NONE), writes);
        let written = buffer_barrier(buffer, writes, reads);
        let phase = self.shader.phase(frame.time);
        let (keep, stamp) = match self.desc.stamped {
            true => (!frame_stamp::MASK, frame_stamp::of(frame.index)),
            false => (u32::MAX, 0),
        };
        let mut constants: ShaderConstants = [0; 8 + VALUES];
        let Grid { cols, rows } = self.desc.grid;
        constants[..5].copy_from_slice(&[cols, rows, phase.to_bits(), keep, stamp]);
        let values = self.profile.parameters.values(&frame.parameters);
        constants[8..].iter_mut().zip(&*values).for_each(|(constant, value)| *constant = value.to_bits());
        let slot = self.profile.slot_of(frame.index);
        // SAFETY: recording, outside a render pass, with a live buffer. `slot` is an index into the
        // pipeline's only list, and the constants have their type's size. The barriers order the writes with
        // the draws.
        unsafe {
            pipeline_barrier(&self.device, commands, &[reuse], &[]);
            let constants = bytemuck::bytes_of(&constants);
            self.pipeline.dispatch(commands, [slot], constants, groups(self.desc.grid.count()));
            pipeline_barrier(&self.device, commands, &[written], &[]);
        }
    }
}
