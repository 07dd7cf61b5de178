//! A Vulkan compute shader fills the slot, in the same command buffer as the draw: no second API, no semaphore.

use ash::vk;
use gpu_allocator::MemoryLocation;

use super::{DRAW_READS, Frame, FrameSync, Producer, SLOT_USAGE, check_grid, own_slots};
use crate::Result;
use crate::interop::ownership::Owner;
use crate::interop::{ExportedBuffer, Ring};
use crate::vulkan::{Buffer, Device, ShaderModule, buffer_barrier, pipeline_barrier};
use crate::wave::{self, Grid};

/// Threads in a workgroup, as in `shaders/wave.wgsl`.
const WORKGROUP: u64 = 256;
/// Workgroups that every device allows in one dimension.
const MAX_GROUPS: u64 = 65_535;

/// Fills slots with `shaders/wave.wgsl`.
pub struct ComputeProducer {
    pipeline: Pipeline,
    slots: Vec<vk::Buffer>,
    /// What owns the slots.
    _memory: Memory,
    grid: Grid,
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
        let buffer = ExportedBuffer::new(device, grid.bytes(), SLOT_USAGE)?;
        Self::with(device, grid, vec![buffer.raw()], Memory::Exported { _buffer: buffer })
    }

    fn with(device: &Device, grid: Grid, slots: Vec<vk::Buffer>, memory: Memory) -> Result<Self> {
        Ok(Self { pipeline: Pipeline::new(device, &slots)?, slots, _memory: memory, grid })
    }
}

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
        let reads = (DRAW_READS.stage, DRAW_READS.access);
        let device = &self.pipeline.device;
        // The draw that read this slot K frames ago must be done (no memory to make visible: it only read).
        let reuse = buffer_barrier(buffer, (DRAW_READS.stage, vk::AccessFlags2::NONE), writes);
        let written = buffer_barrier(buffer, writes, reads);
        // SAFETY: recording, outside a render pass; the buffer is alive.
        unsafe { pipeline_barrier(device, commands, &[reuse], &[]) };
        self.pipeline.dispatch(commands, slot, self.grid, frame.time);
        // SAFETY: as above.
        unsafe { pipeline_barrier(device, commands, &[written], &[]) };
    }

    fn record_after_draw(&self, _commands: vk::CommandBuffer, _frame: &Frame) {}

    fn sync(&self, _frame: &Frame) -> FrameSync {
        FrameSync::default()
    }

    fn owner(&self) -> Owner {
        Owner::Queue
    }

    fn runs_in_queue(&self) -> bool {
        true
    }
}

/// The compute pipeline, with one descriptor set a slot.
struct Pipeline {
    raw: vk::Pipeline,
    layout: vk::PipelineLayout,
    set_layout: vk::DescriptorSetLayout,
    pool: vk::DescriptorPool,
    sets: Vec<vk::DescriptorSet>,
    device: Device,
}

impl Pipeline {
    fn new(device: &Device, slots: &[vk::Buffer]) -> Result<Self> {
        // Null handles are skipped by Drop, so each step can simply fail.
        let mut made = Self {
            raw: vk::Pipeline::null(),
            layout: vk::PipelineLayout::null(),
            set_layout: vk::DescriptorSetLayout::null(),
            pool: vk::DescriptorPool::null(),
            sets: Vec::new(),
            device: device.clone(),
        };
        let vk = device.raw();
        let binding = [vk::DescriptorSetLayoutBinding::default()
            .binding(0)
            .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
            .descriptor_count(1)
            .stage_flags(vk::ShaderStageFlags::COMPUTE)];
        let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&binding);
        // SAFETY: (and for all calls here) a live device, and descriptions that point to locals.
        made.set_layout = unsafe { vk.create_descriptor_set_layout(&info, None) }
            .map_err(device.failed("vkCreateDescriptorSetLayout"))?;
        let set_layouts = vec![made.set_layout; slots.len()];
        let constants =
            [vk::PushConstantRange::default().stage_flags(vk::ShaderStageFlags::COMPUTE).size(12)];
        let info = vk::PipelineLayoutCreateInfo::default()
            .set_layouts(&set_layouts[..1])
            .push_constant_ranges(&constants);
        // SAFETY: as above.
        made.layout = unsafe { vk.create_pipeline_layout(&info, None) }
            .map_err(device.failed("vkCreatePipelineLayout"))?;
        let module = ShaderModule::new(device, include_bytes!(concat!(env!("OUT_DIR"), "/wave.spv")))?;
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(module.raw())
            .name(c"wave");
        let info = [vk::ComputePipelineCreateInfo::default().stage(stage).layout(made.layout)];
        // SAFETY: as above; on failure ash hands back what was made, of which there is nothing with one pipeline.
        made.raw = unsafe { vk.create_compute_pipelines(vk::PipelineCache::null(), &info, None) }
            .map_err(|(_, result)| device.failed("vkCreateComputePipelines")(result))?[0];

        let sizes = [vk::DescriptorPoolSize::default()
            .ty(vk::DescriptorType::STORAGE_BUFFER)
            .descriptor_count(slots.len() as u32)];
        let info = vk::DescriptorPoolCreateInfo::default().max_sets(slots.len() as u32).pool_sizes(&sizes);
        // SAFETY: as above.
        made.pool = unsafe { vk.create_descriptor_pool(&info, None) }
            .map_err(device.failed("vkCreateDescriptorPool"))?;
        let info =
            vk::DescriptorSetAllocateInfo::default().descriptor_pool(made.pool).set_layouts(&set_layouts);
        // SAFETY: as above; the pool was sized for this.
        made.sets = unsafe { vk.allocate_descriptor_sets(&info) }
            .map_err(device.failed("vkAllocateDescriptorSets"))?;
        for (&set, &buffer) in made.sets.iter().zip(slots) {
            let buffers = [vk::DescriptorBufferInfo::default().buffer(buffer).range(vk::WHOLE_SIZE)];
            let write = [vk::WriteDescriptorSet::default()
                .dst_set(set)
                .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                .buffer_info(&buffers)];
            // SAFETY: as above; the set is not in use.
            unsafe { vk.update_descriptor_sets(&write, &[]) };
        }
        Ok(made)
    }

    fn dispatch(&self, commands: vk::CommandBuffer, slot: usize, grid: Grid, time: f64) {
        let groups = grid.vertices().div_ceil(WORKGROUP);
        let turn = wave::turn(time) as f32;
        let constants = [grid.cols, grid.rows, turn.to_bits()];
        let vk = self.device.raw();
        // SAFETY: recording, outside a render pass; pipeline, layout and set belong together and are alive.
        unsafe {
            vk.cmd_bind_pipeline(commands, vk::PipelineBindPoint::COMPUTE, self.raw);
            vk.cmd_bind_descriptor_sets(
                commands,
                vk::PipelineBindPoint::COMPUTE,
                self.layout,
                0,
                &[self.sets[slot]],
                &[],
            );
            vk.cmd_push_constants(
                commands,
                self.layout,
                vk::ShaderStageFlags::COMPUTE,
                0,
                bytemuck::bytes_of(&constants),
            );
            vk.cmd_dispatch(commands, groups.min(MAX_GROUPS) as u32, groups.div_ceil(MAX_GROUPS) as u32, 1);
        }
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        let vk = self.device.raw();
        // SAFETY: whoever drops a resource waits first (see the module `vulkan`); null handles are allowed.
        unsafe {
            vk.destroy_descriptor_pool(self.pool, None);
            vk.destroy_pipeline(self.raw, None);
            vk.destroy_pipeline_layout(self.layout, None);
            vk.destroy_descriptor_set_layout(self.set_layout, None);
        }
    }
}
