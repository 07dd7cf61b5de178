//! Buffers, images and parts of pipelines for `draw`, `compute` and `picture`. CUDA shares none of them.

use std::ffi::CStr;
use std::sync::Arc;

use anyhow::{Context, Result};
use ash::vk;
use gpu_allocator::MemoryLocation;
use gpu_allocator::vulkan::{Allocation, AllocationCreateDesc, AllocationScheme};

use crate::gpu::Gpu;

pub struct Buffer {
    pub raw: vk::Buffer,
    pub size: u64,
    allocation: Option<Allocation>,
    gpu: Arc<Gpu>,
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
        let raw = gpu.check("vkCreateBuffer", unsafe { gpu.device.create_buffer(&info, None) })?;
        // From here on, Drop cleans up.
        let mut buffer = Self { raw, size, allocation: None, gpu: gpu.clone() };
        // SAFETY: made above.
        let requirements = unsafe { gpu.device.get_buffer_memory_requirements(raw) };
        let memory = allocate(gpu, name, requirements, location, AllocationScheme::DedicatedBuffer(raw))?;
        let memory = buffer.allocation.insert(memory);
        // SAFETY: memory for this buffer's requirements, bound once.
        let bound = unsafe { gpu.device.bind_buffer_memory(raw, memory.memory(), memory.offset()) };
        gpu.check("vkBindBufferMemory", bound)?;
        Ok(buffer)
    }

    /// Fails if the CPU cannot map the memory.
    pub fn bytes(&mut self) -> Result<&mut [u8]> {
        let bytes = self.allocation.as_mut().and_then(|memory| memory.mapped_slice_mut());
        bytes.and_then(|bytes| bytes.get_mut(..self.size as usize)).context("the CPU cannot read this memory")
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the GPU is done with it: `Frames` waits before anything is dropped.
        unsafe { self.gpu.device.destroy_buffer(self.raw, None) };
        release(&self.gpu, &mut self.allocation);
    }
}

pub struct Image {
    pub raw: vk::Image,
    pub view: vk::ImageView,
    pub extent: vk::Extent2D,
    pub format: vk::Format,
    allocation: Option<Allocation>,
    gpu: Arc<Gpu>,
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
        let info = vk::ImageCreateInfo::default()
            .image_type(vk::ImageType::TYPE_2D)
            .format(format)
            .extent(vk::Extent3D { width: extent.width, height: extent.height, depth: 1 })
            .mip_levels(1)
            .array_layers(1)
            .samples(samples)
            .usage(usage);
        // SAFETY: a live device and a plain description.
        let raw = gpu.check("vkCreateImage", unsafe { gpu.device.create_image(&info, None) })?;
        // From here on, Drop cleans up; destroying a null view does nothing.
        let mut image =
            Self { raw, view: vk::ImageView::null(), extent, format, allocation: None, gpu: gpu.clone() };
        // SAFETY: made above.
        let requirements = unsafe { gpu.device.get_image_memory_requirements(raw) };
        let scheme = AllocationScheme::DedicatedImage(raw);
        let memory = allocate(gpu, name, requirements, MemoryLocation::GpuOnly, scheme)?;
        let memory = image.allocation.insert(memory);
        // SAFETY: memory for this image's requirements, bound once.
        let bound = unsafe { gpu.device.bind_image_memory(raw, memory.memory(), memory.offset()) };
        gpu.check("vkBindImageMemory", bound)?;
        let aspect = match usage.contains(vk::ImageUsageFlags::DEPTH_STENCIL_ATTACHMENT) {
            true => vk::ImageAspectFlags::DEPTH,
            false => vk::ImageAspectFlags::COLOR,
        };
        image.view = view(gpu, raw, format, aspect)?;
        Ok(image)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: the GPU is done with it: `Frames` waits before anything is dropped.
        unsafe {
            self.gpu.device.destroy_image_view(self.view, None);
            self.gpu.device.destroy_image(self.raw, None);
        }
        release(&self.gpu, &mut self.allocation);
    }
}

pub fn view(
    gpu: &Gpu,
    image: vk::Image,
    format: vk::Format,
    aspect: vk::ImageAspectFlags,
) -> Result<vk::ImageView> {
    let info = vk::ImageViewCreateInfo::default()
        .image(image)
        .view_type(vk::ImageViewType::TYPE_2D)
        .format(format)
        .subresource_range(whole(aspect));
    // SAFETY: a live image of this device and format.
    gpu.check("vkCreateImageView", unsafe { gpu.device.create_image_view(&info, None) })
}

/// Returns all of an image with one level and one layer.
pub fn whole(aspect: vk::ImageAspectFlags) -> vk::ImageSubresourceRange {
    vk::ImageSubresourceRange::default().aspect_mask(aspect).level_count(1).layer_count(1)
}

fn allocate(
    gpu: &Gpu,
    name: &'static str,
    requirements: vk::MemoryRequirements,
    location: MemoryLocation,
    scheme: AllocationScheme,
) -> Result<Allocation> {
    let desc = AllocationCreateDesc { name, requirements, location, linear: true, allocation_scheme: scheme };
    gpu.allocator()
        .allocate(&desc)
        .with_context(|| format!("no memory for {name}, {} bytes, on {}", requirements.size, gpu.name))
}

fn release(gpu: &Gpu, allocation: &mut Option<Allocation>) {
    if let Some(allocation) = allocation.take() {
        // It fails only for memory that is not the allocator's own.
        let _ = gpu.allocator().free(allocation);
    }
}

/// Stages, and how they access memory.
pub type Scope = (vk::PipelineStageFlags2, vk::AccessFlags2);

/// Returns a barrier that orders `before` before `after` and changes the layout in between.
pub fn image_barrier(
    image: vk::Image,
    aspect: vk::ImageAspectFlags,
    layouts: (vk::ImageLayout, vk::ImageLayout),
    before: Scope,
    after: Scope,
) -> vk::ImageMemoryBarrier2<'static> {
    vk::ImageMemoryBarrier2::default()
        .image(image)
        .subresource_range(whole(aspect))
        .old_layout(layouts.0)
        .new_layout(layouts.1)
        .src_stage_mask(before.0)
        .src_access_mask(before.1)
        .dst_stage_mask(after.0)
        .dst_access_mask(after.1)
        .src_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
        .dst_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
}

/// Returns a barrier that orders `before` before `after`, in all memory.
pub fn memory_barrier(before: Scope, after: Scope) -> vk::MemoryBarrier2<'static> {
    vk::MemoryBarrier2::default()
        .src_stage_mask(before.0)
        .src_access_mask(before.1)
        .dst_stage_mask(after.0)
        .dst_access_mask(after.1)
}

/// What a pipeline's shaders read: one storage buffer, and constants.
pub struct Layout {
    pub raw: vk::PipelineLayout,
    set: vk::DescriptorSetLayout,
    stages: vk::ShaderStageFlags,
    gpu: Arc<Gpu>,
}

impl Layout {
    /// `constants` is their size in bytes.
    pub fn new(gpu: &Arc<Gpu>, stages: vk::ShaderStageFlags, constants: usize) -> Result<Self> {
        let binding = [vk::DescriptorSetLayoutBinding::default()
            .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
            .descriptor_count(1)
            .stage_flags(stages)];
        let info = vk::DescriptorSetLayoutCreateInfo::default()
            .flags(vk::DescriptorSetLayoutCreateFlags::PUSH_DESCRIPTOR_KHR)
            .bindings(&binding);
        // SAFETY: a live device with the extension.
        let set = unsafe { gpu.device.create_descriptor_set_layout(&info, None) };
        let set = gpu.check("vkCreateDescriptorSetLayout", set)?;
        // From here on, Drop cleans up; destroying a null layout does nothing.
        let mut layout = Self { raw: vk::PipelineLayout::null(), set, stages, gpu: gpu.clone() };
        let sets = [set];
        let constants = [vk::PushConstantRange::default().stage_flags(stages).size(constants as u32)];
        let info =
            vk::PipelineLayoutCreateInfo::default().set_layouts(&sets).push_constant_ranges(&constants);
        // SAFETY: a live device, and a set made above.
        let raw = unsafe { gpu.device.create_pipeline_layout(&info, None) };
        layout.raw = gpu.check("vkCreatePipelineLayout", raw)?;
        Ok(layout)
    }

    /// # Safety
    /// `commands` is being recorded. `buffer` lives until they are done. `constants` has the layout's size.
    pub unsafe fn bind(
        &self,
        commands: vk::CommandBuffer,
        point: vk::PipelineBindPoint,
        buffer: vk::Buffer,
        constants: &[u8],
    ) {
        let buffer = [vk::DescriptorBufferInfo::default().buffer(buffer).range(vk::WHOLE_SIZE)];
        let write = [vk::WriteDescriptorSet::default()
            .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
            .buffer_info(&buffer)];
        // SAFETY: the caller's promise.
        unsafe {
            self.gpu.push_descriptor.cmd_push_descriptor_set(commands, point, self.raw, 0, &write);
            self.gpu.device.cmd_push_constants(commands, self.raw, self.stages, 0, constants);
        }
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: the GPU is done with them: `Frames` waits before anything is dropped.
        unsafe {
            self.gpu.device.destroy_pipeline_layout(self.raw, None);
            self.gpu.device.destroy_descriptor_set_layout(self.set, None);
        }
    }
}

/// Creates a shader module, which the caller destroys.
pub fn shader(gpu: &Gpu, spirv: &[u8]) -> Result<vk::ShaderModule> {
    let words = ash::util::read_spv(&mut std::io::Cursor::new(spirv))?;
    let info = vk::ShaderModuleCreateInfo::default().code(&words);
    // SAFETY: naga wrote the words.
    gpu.check("vkCreateShaderModule", unsafe { gpu.device.create_shader_module(&info, None) })
}

/// Creates a pipeline. `formats` are those of colour and depth, and the number of samples.
pub fn graphics_pipeline(
    gpu: &Gpu,
    vertex: &[u8],
    fragment: &[u8],
    layout: vk::PipelineLayout,
    formats: (vk::Format, vk::Format, vk::SampleCountFlags),
    shows: vk::CompareOp,
) -> Result<vk::Pipeline> {
    let vertex = shader(gpu, vertex)?;
    let fragment = shader(gpu, fragment).inspect_err(|_| {
        // SAFETY: made above.
        unsafe { gpu.device.destroy_shader_module(vertex, None) }
    })?;
    let stage = |stage, module, name: &'static CStr| {
        vk::PipelineShaderStageCreateInfo::default().stage(stage).module(module).name(name)
    };
    let stages = [
        stage(vk::ShaderStageFlags::VERTEX, vertex, c"vertex_main"),
        stage(vk::ShaderStageFlags::FRAGMENT, fragment, c"fragment_main"),
    ];
    let input = vk::PipelineVertexInputStateCreateInfo::default();
    let assembly =
        vk::PipelineInputAssemblyStateCreateInfo::default().topology(vk::PrimitiveTopology::TRIANGLE_LIST);
    let viewport = vk::PipelineViewportStateCreateInfo::default().viewport_count(1).scissor_count(1);
    // Both sides show: a low camera sees the underside of a crest.
    let raster = vk::PipelineRasterizationStateCreateInfo::default().line_width(1.0);
    let multisample = vk::PipelineMultisampleStateCreateInfo::default().rasterization_samples(formats.2);
    let depth = vk::PipelineDepthStencilStateCreateInfo::default()
        .depth_test_enable(true)
        .depth_write_enable(true)
        .depth_compare_op(shows);
    let blend =
        [vk::PipelineColorBlendAttachmentState::default().color_write_mask(vk::ColorComponentFlags::RGBA)];
    let blend = vk::PipelineColorBlendStateCreateInfo::default().attachments(&blend);
    let dynamic = [vk::DynamicState::VIEWPORT, vk::DynamicState::SCISSOR];
    let dynamic = vk::PipelineDynamicStateCreateInfo::default().dynamic_states(&dynamic);
    let colors = [formats.0];
    let mut rendering = vk::PipelineRenderingCreateInfo::default()
        .color_attachment_formats(&colors)
        .depth_attachment_format(formats.1);
    let info = [vk::GraphicsPipelineCreateInfo::default()
        .stages(&stages)
        .vertex_input_state(&input)
        .input_assembly_state(&assembly)
        .viewport_state(&viewport)
        .rasterization_state(&raster)
        .multisample_state(&multisample)
        .depth_stencil_state(&depth)
        .color_blend_state(&blend)
        .dynamic_state(&dynamic)
        .layout(layout)
        .push_next(&mut rendering)];
    // SAFETY: the description points to locals. The modules are needed only until the pipeline is made.
    let made = unsafe {
        let made = gpu.device.create_graphics_pipelines(vk::PipelineCache::null(), &info, None);
        gpu.device.destroy_shader_module(vertex, None);
        gpu.device.destroy_shader_module(fragment, None);
        made
    };
    Ok(gpu.check("vkCreateGraphicsPipelines", made.map_err(|(_, result)| result))?[0])
}

/// Returns the wanted number of samples, or the next smaller one for both colour and depth.
pub fn possible_samples(gpu: &Gpu, wanted: u32) -> vk::SampleCountFlags {
    let limits = &gpu.limits;
    let possible = limits.framebuffer_color_sample_counts & limits.framebuffer_depth_sample_counts;
    let mut samples = wanted;
    // Every device has one sample.
    while !possible.contains(vk::SampleCountFlags::from_raw(samples)) {
        samples /= 2;
    }
    if samples != wanted {
        crate::say(format_args!("note: {} has no {wanted} samples; using {samples}", gpu.name));
    }
    vk::SampleCountFlags::from_raw(samples)
}
