//! A compute pipeline over buffers and images: what a pass over all vertices or texels needs, whatever it does with them.

use std::ffi::CStr;

use ash::vk;

use super::{Device, ShaderModule};
use crate::Result;

/// Threads in a workgroup of every compute shader in `shaders/` whose work is a row of things.
const WORKGROUP: u64 = 256;
/// Workgroups that every device allows in one dimension.
const MAX_GROUPS: u64 = 65_535;

/// Workgroups for one thread each of `threads`, rounded up. Two dimensions, because one may hold no more than 65,535.
pub fn groups(threads: u64) -> [u32; 2] {
    let groups = threads.div_ceil(WORKGROUP);
    [groups.min(MAX_GROUPS) as u32, groups.div_ceil(MAX_GROUPS) as u32]
}

/// How to make a [`ComputePipeline`].
pub struct ComputePipelineDesc<'a> {
    /// The shader, as SPIR-V.
    pub spirv: &'a [u8],
    /// Its entry point.
    pub entry: &'a CStr,
    /// Bytes of push constants; a multiple of 4.
    pub constants: u32,
    /// For each descriptor set of the shader, which has one descriptor at binding 0: what can be bound there. None of the
    /// lists is empty.
    pub sets: &'a [Choices<'a>],
}

/// What can be bound to one of a shader's sets.
#[derive(Clone, Copy, Debug)]
pub enum Choices<'a> {
    /// These, all of one kind.
    These(&'a [Bound]),
    /// So many of this kind, each of which is pointed somewhere before it is used.
    Later(vk::DescriptorType, usize),
}

/// Something that a shader reads or writes.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// A storage buffer, or a part of one.
    Buffer(vk::DescriptorBufferInfo),
    /// An image that is read texel by texel, in this layout.
    Sampled(vk::ImageView, vk::ImageLayout),
    /// An image that is written, in the layout `GENERAL`.
    Storage(vk::ImageView),
}

impl Bound {
    fn kind(&self) -> vk::DescriptorType {
        match self {
            Self::Buffer(_) => vk::DescriptorType::STORAGE_BUFFER,
            Self::Sampled(..) => vk::DescriptorType::SAMPLED_IMAGE,
            Self::Storage(_) => vk::DescriptorType::STORAGE_IMAGE,
        }
    }
}

impl From<vk::Buffer> for Bound {
    fn from(buffer: vk::Buffer) -> Self {
        Self::Buffer(vk::DescriptorBufferInfo { buffer, offset: 0, range: vk::WHOLE_SIZE })
    }
}

impl Choices<'_> {
    fn kind(&self) -> vk::DescriptorType {
        match self {
            Self::These(list) => list.first().map_or(vk::DescriptorType::STORAGE_BUFFER, Bound::kind),
            Self::Later(kind, _) => *kind,
        }
    }

    fn count(&self) -> usize {
        match self {
            Self::These(list) => list.len(),
            Self::Later(_, count) => *count,
        }
    }
}

/// The pipeline, with one descriptor set for each thing that can be bound.
pub struct ComputePipeline {
    raw: vk::Pipeline,
    layout: vk::PipelineLayout,
    set_layouts: Vec<vk::DescriptorSetLayout>,
    pool: vk::DescriptorPool,
    sets: Vec<Vec<vk::DescriptorSet>>,
    device: Device,
}

impl ComputePipeline {
    /// Makes it. What is bound must live as long as it is used.
    pub fn new(device: &Device, desc: &ComputePipelineDesc<'_>) -> Result<Self> {
        // Null handles are skipped by Drop, so each step can simply fail.
        let mut made = Self {
            raw: vk::Pipeline::null(),
            layout: vk::PipelineLayout::null(),
            set_layouts: Vec::new(),
            pool: vk::DescriptorPool::null(),
            sets: Vec::new(),
            device: device.clone(),
        };
        let vk = device.raw();
        for choices in desc.sets {
            let binding = [vk::DescriptorSetLayoutBinding::default()
                .binding(0)
                .descriptor_type(choices.kind())
                .descriptor_count(1)
                .stage_flags(vk::ShaderStageFlags::COMPUTE)];
            let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&binding);
            // SAFETY: (and for all calls here) a live device, and descriptions that point to locals.
            let layout = unsafe { vk.create_descriptor_set_layout(&info, None) };
            made.set_layouts.push(layout.map_err(device.failed("vkCreateDescriptorSetLayout"))?);
        }
        let constants = [vk::PushConstantRange::default()
            .stage_flags(vk::ShaderStageFlags::COMPUTE)
            .size(desc.constants)];
        let info = vk::PipelineLayoutCreateInfo::default()
            .set_layouts(&made.set_layouts)
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
        made.make_sets(desc.sets)?;
        Ok(made)
    }

    fn make_sets(&mut self, all: &[Choices<'_>]) -> Result<()> {
        let device = self.device.clone();
        let vk = device.raw();
        let size = |choices: &Choices<'_>| {
            vk::DescriptorPoolSize::default().ty(choices.kind()).descriptor_count(choices.count() as u32)
        };
        let sizes: Vec<_> = all.iter().map(size).collect();
        let count = all.iter().map(|choices| choices.count() as u32).sum();
        let info = vk::DescriptorPoolCreateInfo::default().max_sets(count).pool_sizes(&sizes);
        // SAFETY: (and for all calls here) a live device, and descriptions that point to locals.
        self.pool = unsafe { vk.create_descriptor_pool(&info, None) }
            .map_err(device.failed("vkCreateDescriptorPool"))?;
        for (list, choices) in all.iter().enumerate() {
            let layouts = vec![self.set_layouts[list]; choices.count()];
            let info =
                vk::DescriptorSetAllocateInfo::default().descriptor_pool(self.pool).set_layouts(&layouts);
            // SAFETY: as above; the pool was sized for this.
            let sets = unsafe { vk.allocate_descriptor_sets(&info) }
                .map_err(device.failed("vkAllocateDescriptorSets"))?;
            self.sets.push(sets);
            let Choices::These(bound) = choices else { continue };
            for (chosen, &bound) in bound.iter().enumerate() {
                // SAFETY: the sets were never used.
                unsafe { self.point(list, chosen, bound) };
            }
        }
        Ok(())
    }

    /// Binds something else, of the same kind, at place `chosen` of list `list`, for commands that are recorded from now on.
    ///
    /// # Safety
    /// No submitted commands use that place, and none that were recorded with it are submitted again. What is bound lives
    /// as long as commands use it.
    pub(crate) unsafe fn point(&self, list: usize, chosen: usize, bound: Bound) {
        let write =
            vk::WriteDescriptorSet::default().dst_set(self.sets[list][chosen]).descriptor_type(bound.kind());
        let image = |view, layout| [vk::DescriptorImageInfo::default().image_view(view).image_layout(layout)];
        let update = |write| {
            // SAFETY: the set is not in use (the caller's promise), and the description points to locals.
            unsafe { self.device.raw().update_descriptor_sets(&[write], &[]) };
        };
        match bound {
            Bound::Buffer(part) => update(write.buffer_info(&[part])),
            Bound::Sampled(view, layout) => update(write.image_info(&image(view, layout))),
            Bound::Storage(view) => update(write.image_info(&image(view, vk::ImageLayout::GENERAL))),
        }
    }

    /// Records a dispatch of so many workgroups (see [`groups`]) with `chosen[n]` of the n-th list bound to set n.
    ///
    /// # Safety
    /// `commands` is recording, outside a render pass; there is a choice for every list, within its bounds; `constants`
    /// has as many bytes as the pipeline was made for; what the shader touches is ordered by the caller's barriers.
    pub unsafe fn dispatch<const SETS: usize>(
        &self,
        commands: vk::CommandBuffer,
        chosen: [usize; SETS],
        constants: &[u8],
        groups: [u32; 2],
    ) {
        let sets: [_; SETS] = std::array::from_fn(|set| self.sets[set][chosen[set]]);
        let (point, stage) = (vk::PipelineBindPoint::COMPUTE, vk::ShaderStageFlags::COMPUTE);
        let vk = self.device.raw();
        // SAFETY: recording (the caller's promise); pipeline, layout and sets belong together and are alive.
        unsafe {
            vk.cmd_bind_pipeline(commands, point, self.raw);
            vk.cmd_bind_descriptor_sets(commands, point, self.layout, 0, &sets, &[]);
            vk.cmd_push_constants(commands, self.layout, stage, 0, constants);
            vk.cmd_dispatch(commands, groups[0], groups[1], 1);
        }
    }
}

impl Drop for ComputePipeline {
    fn drop(&mut self) {
        if self.device.is_left_running() {
            return;
        }
        let vk = self.device.raw();
        // SAFETY: whoever drops a resource waits first (see the module `vulkan`); null handles are allowed.
        unsafe {
            vk.destroy_descriptor_pool(self.pool, None);
            vk.destroy_pipeline(self.raw, None);
            vk.destroy_pipeline_layout(self.layout, None);
            for &layout in &self.set_layouts {
                vk.destroy_descriptor_set_layout(layout, None);
            }
        }
    }
}
