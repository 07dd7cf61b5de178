use ash::vk;

use super::{AutoDestroy, Device};
use crate::Result;

#[derive(Clone, Copy, Debug)]
pub enum Bound {
    Buffer(vk::DescriptorBufferInfo),
    /// A buffer and the number of bytes that a shader sees. [`Bindings::bind`] sets where they begin.
    Uniforms(vk::Buffer, u64),
    Sampled(vk::ImageView, vk::ImageLayout),
    /// An image that a shader writes, in the layout `GENERAL`.
    Storage(vk::ImageView),
    Sampler(vk::Sampler),
}

impl Bound {
    /// Returns the descriptor type and two descriptions, of which Vulkan reads the one that the type needs.
    pub(super) fn parts(self) -> (vk::DescriptorType, vk::DescriptorBufferInfo, vk::DescriptorImageInfo) {
        use vk::DescriptorType as Type;
        let (none, image) = (vk::DescriptorBufferInfo::default(), vk::DescriptorImageInfo::default());
        match self {
            Self::Buffer(part) => (Type::STORAGE_BUFFER, part, image),
            Self::Uniforms(buffer, range) => {
                (Type::UNIFORM_BUFFER_DYNAMIC, vk::DescriptorBufferInfo { buffer, offset: 0, range }, image)
            }
            Self::Sampled(view, layout) => {
                (Type::SAMPLED_IMAGE, none, image.image_view(view).image_layout(layout))
            }
            Self::Storage(view) => {
                (Type::STORAGE_IMAGE, none, image.image_view(view).image_layout(vk::ImageLayout::GENERAL))
            }
            Self::Sampler(sampler) => (Type::SAMPLER, none, image.sampler(sampler)),
        }
    }
}

impl From<vk::Buffer> for Bound {
    fn from(buffer: vk::Buffer) -> Self {
        Self::Buffer(vk::DescriptorBufferInfo { buffer, offset: 0, range: vk::WHOLE_SIZE })
    }
}

/// Describes the descriptor sets that can be bound as one set of a shader. They differ only in their objects.
pub struct SetDesc<'a> {
    /// The types and stages of bindings 0, 1, …; not empty.
    pub bindings: &'a [(vk::DescriptorType, vk::ShaderStageFlags)],
    /// The number of descriptor sets; at least 1.
    pub count: usize,
}

pub struct Bindings {
    layout: AutoDestroy<vk::PipelineLayout>,
    _set_layouts: Vec<AutoDestroy<vk::DescriptorSetLayout>>,
    _pool: AutoDestroy<vk::DescriptorPool>,
    /// For each set of the shader, the descriptor sets that can be bound to it.
    sets: Vec<Vec<vk::DescriptorSet>>,
}

impl Bindings {
    /// Creates layouts and sets. Each set must be [pointed](Self::point) at something before it is used.
    pub fn new(device: &Device, desc: &[SetDesc<'_>], constants: &[vk::PushConstantRange]) -> Result<Self> {
        let set_layout = |set: &SetDesc<'_>| {
            let binding = |(index, &(kind, stages))| {
                vk::DescriptorSetLayoutBinding::default()
                    .binding(index)
                    .descriptor_type(kind)
                    .descriptor_count(1)
                    .stage_flags(stages)
            };
            let bindings: Vec<_> = (0..).zip(set.bindings).map(binding).collect();
            let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
            // SAFETY: a live device, and a description that points to locals.
            let create = |vk: &ash::Device| unsafe { vk.create_descriptor_set_layout(&info, None) };
            AutoDestroy::new(device, "vkCreateDescriptorSetLayout", create)
        };
        let set_layouts = desc.iter().map(set_layout).collect::<Result<Vec<_>>>()?;
        let layouts: Vec<_> = set_layouts.iter().map(AutoDestroy::raw).collect();
        let info =
            vk::PipelineLayoutCreateInfo::default().set_layouts(&layouts).push_constant_ranges(constants);
        // SAFETY: (here and for all calls below) a live device, and descriptions that point to locals.
        let create = |vk: &ash::Device| unsafe { vk.create_pipeline_layout(&info, None) };
        let layout = AutoDestroy::new(device, "vkCreatePipelineLayout", create)?;

        let sizes: Vec<_> = desc
            .iter()
            .flat_map(|set| set.bindings.iter().map(|&(kind, _)| (kind, set.count as u32)))
            .map(|(kind, count)| vk::DescriptorPoolSize::default().ty(kind).descriptor_count(count))
            .collect();
        let count = desc.iter().map(|set| set.count as u32).sum();
        let info = vk::DescriptorPoolCreateInfo::default().max_sets(count).pool_sizes(&sizes);
        // SAFETY: as above.
        let create = |vk: &ash::Device| unsafe { vk.create_descriptor_pool(&info, None) };
        let pool = AutoDestroy::new(device, "vkCreateDescriptorPool", create)?;
        let sets = desc.iter().zip(layouts).map(|(set, layout)| {
            let layouts = vec![layout; set.count];
            let info =
                vk::DescriptorSetAllocateInfo::default().descriptor_pool(pool.raw()).set_layouts(&layouts);
            // SAFETY: as above; the pool was sized for this.
            unsafe { device.raw().allocate_descriptor_sets(&info) }
                .map_err(device.failed("vkAllocateDescriptorSets"))
        });
        let sets = sets.collect::<Result<_>>()?;
        Ok(Self { layout, _set_layouts: set_layouts, _pool: pool, sets })
    }

    pub fn layout(&self) -> vk::PipelineLayout {
        self.layout.raw()
    }

    /// Points bindings 0, 1, … of a descriptor set at `bound`. `set` is the number of the shader's set, and
    /// `chosen` the index among the descriptor sets that can be bound to it.
    ///
    /// # Safety
    /// `bound` must have the types of the [`SetDesc`]. Pending commands must not use the set, and commands
    /// recorded with it must not be submitted again. Bound objects must outlive the commands that use them.
    pub unsafe fn point<const COUNT: usize>(&self, set: usize, chosen: usize, bound: [Bound; COUNT]) {
        let parts = bound.map(Bound::parts);
        let writes: [_; COUNT] = std::array::from_fn(|index| {
            let (kind, buffer, image) = &parts[index];
            vk::WriteDescriptorSet::default()
                .dst_set(self.sets[set][chosen])
                .dst_binding(index as u32)
                .descriptor_type(*kind)
                .buffer_info(std::slice::from_ref(buffer))
                .image_info(std::slice::from_ref(image))
        });
        // SAFETY: the types fit, the set is not in use (the caller's promise), and `writes` points to locals.
        unsafe { self.layout.device().raw().update_descriptor_sets(&writes, &[]) };
    }

    /// Binds set `chosen[n]` to the shader's set n. `offsets` has the first byte of each [`Bound::Uniforms`].
    ///
    /// # Safety
    /// `commands` must be recording, and these sets must point at something. The offsets must be multiples of
    /// `minUniformBufferOffsetAlignment` and lie in the buffers.
    pub unsafe fn bind<const SETS: usize>(
        &self,
        commands: vk::CommandBuffer,
        point: vk::PipelineBindPoint,
        chosen: [usize; SETS],
        offsets: &[u32],
    ) {
        let sets: [_; SETS] = std::array::from_fn(|set| self.sets[set][chosen[set]]);
        let vk = self.layout.device().raw();
        // SAFETY: the caller's promise; layout and sets belong together and are alive.
        unsafe { vk.cmd_bind_descriptor_sets(commands, point, self.layout(), 0, &sets, offsets) };
    }
}

/// Makes a sampler that filters linearly between texels and mip levels. `beyond` is the mode outside.
pub fn sampler(device: &Device, beyond: vk::SamplerAddressMode) -> Result<AutoDestroy<vk::Sampler>> {
    let info = vk::SamplerCreateInfo::default()
        .mag_filter(vk::Filter::LINEAR)
        .min_filter(vk::Filter::LINEAR)
        .mipmap_mode(vk::SamplerMipmapMode::LINEAR)
        .max_lod(vk::LOD_CLAMP_NONE)
        .address_mode_u(beyond)
        .address_mode_v(beyond);
    // SAFETY: a live device and a plain description.
    AutoDestroy::new(device, "vkCreateSampler", |vk| unsafe { vk.create_sampler(&info, None) })
}
