use std::ffi::CStr;

use ash::vk;

use super::Samples;
use super::pass::depth_format;
use wavefield_gpu::Result;
use wavefield_gpu::vulkan::{AutoDestroy, Device, shader_module};

/// SPIR-V from one file of WGSL.
pub(super) struct Shaders {
    vertex: &'static [u8],
    fragment: &'static [u8],
    entry: &'static CStr,
}

macro_rules! shaders {
    ($file:literal) => {
        shaders!($file, "fragment_main")
    };
    ($file:literal, $entry:literal) => {
        Shaders {
            vertex: wavefield_gpu::shaders::spirv(concat!($file, ".vertex_main")),
            fragment: wavefield_gpu::shaders::spirv(concat!($file, ".", $entry)),
            entry: match CStr::from_bytes_with_nul(concat!($entry, "\0").as_bytes()) {
                Ok(entry) => entry,
                Err(_) => panic!("a name has no zeros"),
            },
        }
    };
}

pub(super) const BACKGROUND: Shaders = shaders!("background");
pub(super) const CLOUD: Shaders = shaders!("cloud");
pub(super) const FIELD: Shaders = shaders!("field");
pub(super) const HEIGHTS: Shaders = shaders!("heights");
pub(super) const HEIGHT_POINTS: Shaders = shaders!("height_points");
pub(super) const HEIGHT_WIREFRAME: Shaders = shaders!("heights", "wireframe_main");
pub(super) const IMAGE: Shaders = shaders!("image");
pub(super) const PLANE: Shaders = shaders!("plane");
pub(super) const POINTS: Shaders = shaders!("points");
pub(super) const CLOUD_FACTS: Shaders = shaders!("cloud", "facts_main");
pub(super) const FIELD_FACTS: Shaders = shaders!("field", "facts_main");
pub(super) const HEIGHT_FACTS: Shaders = shaders!("heights", "facts_main");
pub(super) const HEIGHT_POINT_FACTS: Shaders = shaders!("height_points", "facts_main");
pub(super) const IMAGE_FACTS: Shaders = shaders!("image", "facts_main");
pub(super) const POINT_FACTS: Shaders = shaders!("points", "facts_main");
pub(super) const WIREFRAME: Shaders = shaders!("field", "wireframe_main");

pub(super) struct PipelineDesc<'a> {
    pub(super) layout: vk::PipelineLayout,
    pub(super) formats: &'a [vk::Format],
    pub(super) samples: Samples,
    /// The depth test. Depth is reversed, so `GREATER` means nearer. The background lies at the depth to
    /// which the picture is cleared, so it needs `GREATER_OR_EQUAL` to show where nothing was drawn.
    pub(super) shows: vk::CompareOp,
}

pub(super) struct Pipeline(AutoDestroy<vk::Pipeline>);

impl Pipeline {
    pub(super) fn new(device: &Device, shaders: &Shaders, desc: &PipelineDesc<'_>) -> Result<Self> {
        let vertex = shader_module(device, shaders.vertex)?;
        let fragment = shader_module(device, shaders.fragment)?;
        let stage = |stage, module: &AutoDestroy<vk::ShaderModule>, name| {
            vk::PipelineShaderStageCreateInfo::default().stage(stage).module(module.raw()).name(name)
        };
        let stages = [
            stage(vk::ShaderStageFlags::VERTEX, &vertex, c"vertex_main"),
            stage(vk::ShaderStageFlags::FRAGMENT, &fragment, shaders.entry),
        ];
        let vertex_input = vk::PipelineVertexInputStateCreateInfo::default();
        let assembly = vk::PipelineInputAssemblyStateCreateInfo::default()
            .topology(vk::PrimitiveTopology::TRIANGLE_LIST);
        let viewport = vk::PipelineViewportStateCreateInfo::default().viewport_count(1).scissor_count(1);
        let raster = vk::PipelineRasterizationStateCreateInfo::default()
            .polygon_mode(vk::PolygonMode::FILL)
            // Both sides show: a low camera sees the underside of a crest.
            .cull_mode(vk::CullModeFlags::NONE)
            .front_face(vk::FrontFace::COUNTER_CLOCKWISE)
            .line_width(1.0);
        let multisample =
            vk::PipelineMultisampleStateCreateInfo::default().rasterization_samples(desc.samples.flags());
        let depth_stencil = vk::PipelineDepthStencilStateCreateInfo::default()
            .depth_test_enable(true)
            .depth_write_enable(true)
            .depth_compare_op(desc.shows);
        let blend =
            vk::PipelineColorBlendAttachmentState::default().color_write_mask(vk::ColorComponentFlags::RGBA);
        let blend = vec![blend; desc.formats.len()];
        let blend = vk::PipelineColorBlendStateCreateInfo::default().attachments(&blend);
        let dynamic = [vk::DynamicState::VIEWPORT, vk::DynamicState::SCISSOR];
        let dynamic = vk::PipelineDynamicStateCreateInfo::default().dynamic_states(&dynamic);
        let mut rendering = vk::PipelineRenderingCreateInfo::default()
            .color_attachment_formats(desc.formats)
            .depth_attachment_format(depth_format(device));
        let info = [vk::GraphicsPipelineCreateInfo::default()
            .stages(&stages)
            .vertex_input_state(&vertex_input)
            .input_assembly_state(&assembly)
            .viewport_state(&viewport)
            .rasterization_state(&raster)
            .multisample_state(&multisample)
            .depth_stencil_state(&depth_stencil)
            .color_blend_state(&blend)
            .dynamic_state(&dynamic)
            .layout(desc.layout)
            .push_next(&mut rendering)];
        // SAFETY: the description points to locals; if a single pipeline fails, there is nothing to destroy.
        let pipeline = AutoDestroy::new(device, "vkCreateGraphicsPipelines", |vk| unsafe {
            let made = vk.create_graphics_pipelines(vk::PipelineCache::null(), &info, None);
            made.map(|made| made[0]).map_err(|(_, result)| result)
        });
        Ok(Self(pipeline?))
    }

    /// # Safety
    /// `commands` is recording.
    pub(super) unsafe fn bind(&self, commands: vk::CommandBuffer) {
        // SAFETY: recording (the caller's promise), and the pipeline is alive and of this device.
        unsafe {
            self.0.device().raw().cmd_bind_pipeline(commands, vk::PipelineBindPoint::GRAPHICS, self.0.raw())
        };
    }
}
