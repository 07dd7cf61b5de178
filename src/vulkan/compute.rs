//! A compute pipeline over storage buffers: what a pass over all vertices needs, whatever it does with them.

use std::ffi::CStr;

use ash::vk;

use super::{Device, ShaderModule};
use crate::Result;

/// Threads in a workgroup, as in every compute shader of `shaders/`.
const WORKGROUP: u64 = 256;
/// Workgroups that every device allows in one dimension.
const MAX_GROUPS: u64 = 65_535;

/// How to make a [`ComputePipeline`].
pub struct ComputePipelineDesc<'a> {
    /// The shader, as SPIR-V.
    pub spirv: &'a [u8],
    /// Its entry point.
    pub entry: &'a CStr,
    /// Bytes of push constants; a multiple of 4.
    pub constants: u32,
    /// For each descriptor set of the shader, which has one storage buffer at binding 0: the buffers that can be bound
    /// there. None of the lists is empty.
    pub buffers: &'a [&'a [vk::Buffer]],
}

/// The pipeline, with one descriptor set for each buffer.
pub struct ComputePipeline {
    raw: vk::Pipeline,
    layout: vk::PipelineLayout,
    set_layout: vk::DescriptorSetLayout,
    pool: vk::DescriptorPool,
    sets: Vec<Vec<vk::DescriptorSet>>,
    device: Device,
}

impl ComputePipeline {
    /// Makes it. The buffers must live as long as it is used.
    pub fn new(device: &Device, desc: &ComputePipelineDesc<'_>) -> Result<Self> {
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
        let set_layouts = vec![made.set_layout; desc.buffers.len()];
        let constants = [vk::PushConstantRange::default()
            .stage_flags(vk::ShaderStageFlags::COMPUTE)
            .size(desc.constants)];
        let info = vk::PipelineLayoutCreateInfo::default()
            .set_layouts(&set_layouts)
            .push_constant_ranges(&constants);
        // SAFETY: as above.
        made.layout = unsafe { vk.create_pipeline_layout(&info, None) }
            .map_err(device.failed("vkCreatePipelineLayout"))?;
        let module = ShaderModule::new(device, desc.spirv)?;
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(module.raw())
            .name(desc.entry);
        let info = [vk::ComputePipelineCreateInfo::default().stage(stage).layout(made.layout)];
        // SAFETY: as above; on failure ash hands back what was made, of which there is nothing with one pipeline.
        made.raw = unsafe { vk.create_compute_pipelines(vk::PipelineCache::null(), &info, None) }
            .map_err(|(_, result)| device.failed("vkCreateComputePipelines")(result))?[0];
        made.make_sets(desc.buffers)?;
        Ok(made)
    }

    fn make_sets(&mut self, buffers: &[&[vk::Buffer]]) -> Result<()> {
        let device = &self.device;
        let vk = device.raw();
        let count = buffers.iter().map(|list| list.len() as u32).sum();
        let sizes = [vk::DescriptorPoolSize::default()
            .ty(vk::DescriptorType::STORAGE_BUFFER)
            .descriptor_count(count)];
        let info = vk::DescriptorPoolCreateInfo::default().max_sets(count).pool_sizes(&sizes);
        // SAFETY: (and for all calls here) a live device, and descriptions that point to locals.
        self.pool = unsafe { vk.create_descriptor_pool(&info, None) }
            .map_err(device.failed("vkCreateDescriptorPool"))?;
        for list in buffers {
            let layouts = vec![self.set_layout; list.len()];
            let info =
                vk::DescriptorSetAllocateInfo::default().descriptor_pool(self.pool).set_layouts(&layouts);
            // SAFETY: as above; the pool was sized for this.
            let sets = unsafe { vk.allocate_descriptor_sets(&info) }
                .map_err(device.failed("vkAllocateDescriptorSets"))?;
            for (&set, &buffer) in sets.iter().zip(*list) {
                let buffers = [vk::DescriptorBufferInfo::default().buffer(buffer).range(vk::WHOLE_SIZE)];
                let write = [vk::WriteDescriptorSet::default()
                    .dst_set(set)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .buffer_info(&buffers)];
                // SAFETY: as above; the set is not in use.
                unsafe { vk.update_descriptor_sets(&write, &[]) };
            }
            self.sets.push(sets);
        }
        Ok(())
    }

    /// Binds another buffer, or a part of one, at place `chosen` of list `list`, for commands that are recorded from now on.
    ///
    /// # Safety
    /// No submitted commands use that place, and none that were recorded with it are submitted again. The buffer lives as
    /// long as commands use it.
    pub(crate) unsafe fn point(&self, list: usize, chosen: usize, part: vk::DescriptorBufferInfo) {
        let parts = [part];
        let write = [vk::WriteDescriptorSet::default()
            .dst_set(self.sets[list][chosen])
            .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
            .buffer_info(&parts)];
        // SAFETY: the set is not in use (the caller's promise), and the description points to locals.
        unsafe { self.device.raw().update_descriptor_sets(&write, &[]) };
    }

    /// Records one thread for each of `threads`, rounded up to whole workgroups, with buffer `chosen[n]` of the n-th list
    /// bound to set n. Two dimensions of workgroups, because one may hold no more than 65,535.
    ///
    /// # Safety
    /// `commands` is recording, outside a render pass; there is a choice for every list, within its bounds; `constants`
    /// has as many bytes as the pipeline was made for; what the shader touches is ordered by the caller's barriers.
    pub unsafe fn dispatch<const SETS: usize>(
        &self,
        commands: vk::CommandBuffer,
        chosen: [usize; SETS],
        constants: &[u8],
        threads: u64,
    ) {
        let groups = threads.div_ceil(WORKGROUP);
        let sets: [_; SETS] = std::array::from_fn(|set| self.sets[set][chosen[set]]);
        let (point, stage) = (vk::PipelineBindPoint::COMPUTE, vk::ShaderStageFlags::COMPUTE);
        let vk = self.device.raw();
        // SAFETY: recording (the caller's promise); pipeline, layout and sets belong together and are alive.
        unsafe {
            vk.cmd_bind_pipeline(commands, point, self.raw);
            vk.cmd_bind_descriptor_sets(commands, point, self.layout, 0, &sets, &[]);
            vk.cmd_push_constants(commands, self.layout, stage, 0, constants);
            vk.cmd_dispatch(commands, groups.min(MAX_GROUPS) as u32, groups.div_ceil(MAX_GROUPS) as u32, 1);
        }
    }
}

impl Drop for ComputePipeline {
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
