//! Buffers, images and parts of pipelines for `draw`, `picture` and `ways`. CUDA shares none of them.

use std::ffi::CStr;
use std::sync::Arc;

use anyhow::{Context, Result};
use ash::{Device, vk};
use gpu_allocator::MemoryLocation;
use gpu_allocator::vulkan::{Allocation, AllocationCreateDesc, AllocationScheme};

use crate::gpu::{AutoDestroy, Gpu};
use crate::options::say;

/// Memory for one buffer or image, which is freed when dropped.
struct Memory {
    allocation: Allocation,
    gpu: Arc<Gpu>,
}

impl Memory {
    fn new(gpu: &Arc<Gpu>, desc: &AllocationCreateDesc<'_>) -> Result<Self> {
        let AllocationCreateDesc { name, requirements, .. } = desc;
        let allocation = gpu.allocator().allocate(desc);
        let allocation = allocation
            .with_context(|| format!("no memory for {name}, {} bytes, on {}", requirements.size, gpu.name))?;
        Ok(Self { allocation, gpu: gpu.clone() })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // This fails only for memory from another allocator.
        let _ = self.gpu.allocator().free(std::mem::take(&mut self.allocation));
    }
}

pub struct Buffer {
    pub buffer: AutoDestroy<vk::Buffer>,
    // Dropped after the buffer.
    memory: Memory,
    size: u64,
}

impl Buffer {
    pub fn new(
        gpu: &Arc<Gpu>,
        name: &'static str,
        size: u64,
        usage: vk::BufferUsageFlags,
        location: MemoryLocation,
    ) -> Result<Self> {
        let info = vk::BufferCreateInfo::default().size(size).usage(usage);
        // SAFETY: a live device and a plain description.
        let made = unsafe { gpu.device.create_buffer(&info, None) };
        let buffer = AutoDestroy::new(gpu, "vkCreateBuffer", made, Device::destroy_buffer)?;
        // SAFETY: made above.
        let requirements = unsafe { gpu.device.get_buffer_memory_requirements(buffer.raw) };
        let allocation_scheme = AllocationScheme::DedicatedBuffer(buffer.raw);
        let desc = AllocationCreateDesc { name, requirements, location, linear: true, allocation_scheme };
        let memory = Memory::new(gpu, &desc)?;
        let (block, offset) = (&memory.allocation, memory.allocation.offset());
        // SAFETY: memory for this buffer's requirements, bound once.
        let bound = unsafe { gpu.device.bind_buffer_memory(buffer.raw, block.memory(), offset) };
        gpu.check("vkBindBufferMemory", bound)?;
        Ok(Self { buffer, memory, size })
    }

    /// Returns the contents. Fails if the memory is not mapped.
    pub fn bytes(&mut self) -> Result<&mut [u8]> {
        let bytes = self.memory.allocation.mapped_slice_mut();
        bytes.and_then(|bytes| bytes.get_mut(..self.size as usize)).context("the CPU cannot read this memory")
    }
}

pub struct Image {
    pub view: AutoDestroy<vk::ImageView>,
    pub image: AutoDestroy<vk::Image>,
    // Dropped after the image.
    _memory: Memory,
    pub extent: vk::Extent2D,
    pub format: vk::Format,
}

impl Image {
    pub fn new(
        gpu: &Arc<Gpu>,
        name: &'static str,
        extent: vk::Extent2D,
        format: vk::Format,
        samples: vk::SampleCountFlags,
        usage: vk::ImageUsageFlags,
    ) -> Result<Self> {
        let info = vk::ImageCreateInfo::default().image_type(vk::ImageType::TYPE_2D).format(format);
        let info = info.extent(extent.into()).mip_levels(1).array_layers(1).samples(samples).usage(usage);
        // SAFETY: a live device and a plain description.
        let made = unsafe { gpu.device.create_image(&info, None) };
        let image = AutoDestroy::new(gpu, "vkCreateImage", made, Device::destroy_image)?;
        // SAFETY: made above.
        let requirements = unsafe { gpu.device.get_image_memory_requirements(image.raw) };
        let (location, allocation_scheme) =
            (MemoryLocation::GpuOnly, AllocationScheme::DedicatedImage(image.raw));
        let desc = AllocationCreateDesc { name, requirements, location, linear: false, allocation_scheme };
        let memory = Memory::new(gpu, &desc)?;
        let (block, offset) = (&memory.allocation, memory.allocation.offset());
        // SAFETY: memory for this image's requirements, bound once.
        let bound = unsafe { gpu.device.bind_image_memory(image.raw, block.memory(), offset) };
        gpu.check("vkBindImageMemory", bound)?;
        let aspect = match usage.contains(vk::ImageUsageFlags::DEPTH_STENCIL_ATTACHMENT) {
            true => vk::ImageAspectFlags::DEPTH,
            false => vk::ImageAspectFlags::COLOR,
        };
        let view = view(gpu, image.raw, format, aspect)?;
        Ok(Self { view, image, _memory: memory, extent, format })
    }
}

pub fn view(
    gpu: &Arc<Gpu>,
    image: vk::Image,
    format: vk::Format,
    aspect: vk::ImageAspectFlags,
) -> Result<AutoDestroy<vk::ImageView>> {
    let info = vk::ImageViewCreateInfo::default().image(image).view_type(vk::ImageViewType::TYPE_2D);
    let info = info.format(format).subresource_range(whole(aspect));
    // SAFETY: the image is alive, belongs to this device and has this format.
    let made = unsafe { gpu.device.create_image_view(&info, None) };
    AutoDestroy::new(gpu, "vkCreateImageView", made, Device::destroy_image_view)
}

/// Returns the subresource range of a whole image with one level and one layer.
pub fn whole(aspect: vk::ImageAspectFlags) -> vk::ImageSubresourceRange {
    vk::ImageSubresourceRange::default().aspect_mask(aspect).level_count(1).layer_count(1)
}

/// Pipeline stages, and how they access memory.
pub type Scope = (vk::PipelineStageFlags2, vk::AccessFlags2);

/// Returns a barrier that orders `before` before `after` and changes the layout in between.
pub fn image_barrier(
    image: vk::Image,
    aspect: vk::ImageAspectFlags,
    layouts: (vk::ImageLayout, vk::ImageLayout),
    before: Scope,
    after: Scope,
) -> vk::ImageMemoryBarrier2<'static> {
    let barrier = vk::ImageMemoryBarrier2::default().image(image).subresource_range(whole(aspect));
    let barrier = barrier.old_layout(layouts.0).src_stage_mask(before.0).src_access_mask(before.1);
    barrier.new_layout(layouts.1).dst_stage_mask(after.0).dst_access_mask(after.1)
}

/// Returns a barrier that orders `before` before `after`, in all memory.
pub fn memory_barrier(before: Scope, after: Scope) -> vk::MemoryBarrier2<'static> {
    let barrier = vk::MemoryBarrier2::default().src_stage_mask(before.0).src_access_mask(before.1);
    barrier.dst_stage_mask(after.0).dst_access_mask(after.1)
}

/// What the shaders of a pipeline access: one storage buffer, and push constants.
pub struct Layout {
    pub pipeline: AutoDestroy<vk::PipelineLayout>,
    _set: AutoDestroy<vk::DescriptorSetLayout>,
    stages: vk::ShaderStageFlags,
    gpu: Arc<Gpu>,
}

impl Layout {
    /// Creates the layout. `constants` is the size of the push constants in bytes.
    pub fn new(gpu: &Arc<Gpu>, stages: vk::ShaderStageFlags, constants: usize) -> Result<Self> {
        let binding = vk::DescriptorSetLayoutBinding::default().descriptor_count(1).stage_flags(stages);
        let binding = [binding.descriptor_type(vk::DescriptorType::STORAGE_BUFFER)];
        let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&binding);
        let info = info.flags(vk::DescriptorSetLayoutCreateFlags::PUSH_DESCRIPTOR_KHR);
        // SAFETY: a live device with the extension.
        let made = unsafe { gpu.device.create_descriptor_set_layout(&info, None) };
        let destroy = Device::destroy_descriptor_set_layout;
        let set = AutoDestroy::new(gpu, "vkCreateDescriptorSetLayout", made, destroy)?;
        let sets = [set.raw];
        let constants = [vk::PushConstantRange::default().stage_flags(stages).size(constants as u32)];
        let info = vk::PipelineLayoutCreateInfo::default().set_layouts(&sets);
        let info = info.push_constant_ranges(&constants);
        // SAFETY: a live device, and the set layout made above.
        let made = unsafe { gpu.device.create_pipeline_layout(&info, None) };
        let pipeline =
            AutoDestroy::new(gpu, "vkCreatePipelineLayout", made, Device::destroy_pipeline_layout)?;
        Ok(Self { pipeline, _set: set, stages, gpu: gpu.clone() })
    }

    /// # Safety
    /// `commands` must be recording. `buffer` must live until they are done. `constants` must have the size
    /// that [`Layout::new`] got.
    pub unsafe fn bind(
        &self,
        commands: vk::CommandBuffer,
        point: vk::PipelineBindPoint,
        buffer: vk::Buffer,
        constants: &[u8],
    ) {
        let buffer = [vk::DescriptorBufferInfo::default().buffer(buffer).range(vk::WHOLE_SIZE)];
        let write = vk::WriteDescriptorSet::default().buffer_info(&buffer);
        let write = [write.descriptor_type(vk::DescriptorType::STORAGE_BUFFER)];
        // SAFETY: the caller's promise; the write fits the set layout.
        unsafe {
            self.gpu.push_descriptor.cmd_push_descriptor_set(commands, point, self.pipeline.raw, 0, &write);
            self.gpu.device.cmd_push_constants(commands, self.pipeline.raw, self.stages, 0, constants);
        }
    }
}

/// The SPIR-V of `FILE.ENTRY`, which build.rs makes.
macro_rules! spirv {
    ($name:literal) => {
        include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".spv")).as_slice()
    };
}
pub(crate) use spirv;

pub fn shader(gpu: &Arc<Gpu>, spirv: &[u8]) -> Result<AutoDestroy<vk::ShaderModule>> {
    let words = ash::util::read_spv(&mut std::io::Cursor::new(spirv))?;
    let info = vk::ShaderModuleCreateInfo::default().code(&words);
    // SAFETY: naga generated the SPIR-V, so it is valid.
    let made = unsafe { gpu.device.create_shader_module(&info, None) };
    AutoDestroy::new(gpu, "vkCreateShaderModule", made, Device::destroy_shader_module)
}

/// Creates a pipeline. `formats` are the colour format, the depth format, and the number of samples.
pub fn graphics_pipeline(
    gpu: &Arc<Gpu>,
    [vertex, fragment]: [&[u8]; 2],
    layout: vk::PipelineLayout,
    formats: (vk::Format, vk::Format, vk::SampleCountFlags),
    shows: vk::CompareOp,
) -> Result<AutoDestroy<vk::Pipeline>> {
    let (vertex, fragment) = (shader(gpu, vertex)?, shader(gpu, fragment)?);
    let stage = |stage, module, name: &'static CStr| {
        vk::PipelineShaderStageCreateInfo::default().stage(stage).module(module).name(name)
    };
    let stages = [
        stage(vk::ShaderStageFlags::VERTEX, vertex.raw, c"vertex_main"),
        stage(vk::ShaderStageFlags::FRAGMENT, fragment.raw, c"fragment_main"),
    ];
    let input = vk::PipelineVertexInputStateCreateInfo::default();
    let triangles = vk::PrimitiveTopology::TRIANGLE_LIST;
    let assembly = vk::PipelineInputAssemblyStateCreateInfo::default().topology(triangles);
    let viewport = vk::PipelineViewportStateCreateInfo::default().viewport_count(1).scissor_count(1);
    // Cull nothing: a low camera sees the underside of a crest.
    let raster = vk::PipelineRasterizationStateCreateInfo::default().line_width(1.0);
    let multisample = vk::PipelineMultisampleStateCreateInfo::default().rasterization_samples(formats.2);
    let depth = vk::PipelineDepthStencilStateCreateInfo::default().depth_test_enable(true);
    let depth = depth.depth_write_enable(true).depth_compare_op(shows);
    let all = vk::ColorComponentFlags::RGBA;
    let blend = [vk::PipelineColorBlendAttachmentState::default().color_write_mask(all)];
    let blend = vk::PipelineColorBlendStateCreateInfo::default().attachments(&blend);
    let dynamic = [vk::DynamicState::VIEWPORT, vk::DynamicState::SCISSOR];
    let dynamic = vk::PipelineDynamicStateCreateInfo::default().dynamic_states(&dynamic);
    let colors = [formats.0];
    let rendering = vk::PipelineRenderingCreateInfo::default().color_attachment_formats(&colors);
    let mut rendering = rendering.depth_attachment_format(formats.1);
    let info = vk::GraphicsPipelineCreateInfo::default().stages(&stages).vertex_input_state(&input);
    let info = info.input_assembly_state(&assembly).viewport_state(&viewport).rasterization_state(&raster);
    let info = info.multisample_state(&multisample).depth_stencil_state(&depth).color_blend_state(&blend);
    let info = [info.dynamic_state(&dynamic).layout(layout).push_next(&mut rendering)];
    // SAFETY: the description points to locals. The modules are needed only until the pipeline is made.
    let made = unsafe { gpu.device.create_graphics_pipelines(vk::PipelineCache::null(), &info, None) };
    let made = made.map(|made| made[0]).map_err(|(_, result)| result);
    AutoDestroy::new(gpu, "vkCreateGraphicsPipelines", made, Device::destroy_pipeline)
}

/// Returns `wanted`, or the next smaller number of samples that both colour and depth support.
pub fn possible_samples(gpu: &Gpu, wanted: u32) -> vk::SampleCountFlags {
    let limits = &gpu.limits;
    let possible = limits.framebuffer_color_sample_counts & limits.framebuffer_depth_sample_counts;
    let mut samples = wanted;
    // Every device has one sample.
    while !possible.contains(vk::SampleCountFlags::from_raw(samples)) {
        samples /= 2;
    }
    if samples != wanted {
        say(format_args!("note: {} has no {wanted} samples; using {samples}", gpu.name));
    }
    vk::SampleCountFlags::from_raw(samples)
}
