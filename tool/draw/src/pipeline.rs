use std::ffi::CStr;

use ash::vk;

use super::pass::depth_format;
use super::{Output, Samples, Style};
use wavefield_gpu::Result;
use wavefield_gpu::vulkan::{AutoDestroy, Device, shader_module};
use wavefield_handoff::contents::array::ArrayKind;
use wavefield_handoff::contents::scene::Scene;

/// The SPIR-V of a WGSL file's vertex and fragment shaders, and the fragment shader's name.
struct Shaders {
    vertex: &'static [u8],
    fragment: &'static [u8],
    entry: &'static CStr,
}

macro_rules! shaders {
    ($file:literal, $entry:literal) => {
        const {
            &Shaders {
                vertex: wavefield_gpu::shaders::spirv(concat!($file, ".vertex_main")),
                fragment: wavefield_gpu::shaders::spirv(concat!($file, ".", $entry)),
                entry: match CStr::from_bytes_with_nul(concat!($entry, "\0").as_bytes()) {
                    Ok(entry) => entry,
                    Err(_) => panic!("a name has no zeros"),
                },
            }
        }
    };
}

pub(super) type Pipeline = AutoDestroy<vk::Pipeline>;

/// What the pipelines of a renderer have in common.
pub(super) struct Pipelines {
    pub(super) device: Device,
    pub(super) layout: vk::PipelineLayout,
    pub(super) output: Output,
    pub(super) samples: Samples,
    pub(super) scene: Scene,
}

impl Pipelines {
    /// Creates the background's pipeline. The background is at the depth to which the picture is cleared, so
    /// it needs `GREATER_OR_EQUAL` to appear where nothing was drawn.
    pub(super) fn background(&self) -> Result<Pipeline> {
        self.make(shaders!("background", "fragment_main"), vk::CompareOp::GREATER_OR_EQUAL)
    }

    pub(super) fn of(&self, kind: ArrayKind, style: Style) -> Result<Pipeline> {
        let shaders = match (self.scene, kind, style) {
            // A texture's plane has no `Output::Facts`.
            (Scene::Field, ..) if self.output == Output::Facts => match (kind, style) {
                (ArrayKind::Mesh, Style::Points) => shaders!("points", "facts_main"),
                (ArrayKind::Mesh, _) => shaders!("field", "facts_main"),
                (ArrayKind::Surface, Style::Points) => shaders!("height_points", "facts_main"),
                (ArrayKind::Surface, _) => shaders!("heights", "facts_main"),
                (ArrayKind::Points, _) => shaders!("cloud", "facts_main"),
                (ArrayKind::Image, _) => shaders!("image", "facts_main"),
                (ArrayKind::Triangles, _) => shaders!("faces", "facts_main"),
                (ArrayKind::Lines, _) => shaders!("lines", "facts_main"),
            },
            (Scene::Texture, ..) => shaders!("plane", "fragment_main"),
            (_, ArrayKind::Mesh, Style::Surface) => shaders!("field", "fragment_main"),
            (_, ArrayKind::Mesh, Style::Wireframe) => shaders!("field", "wireframe_main"),
            (_, ArrayKind::Mesh, Style::Points) => shaders!("points", "fragment_main"),
            (_, ArrayKind::Surface, Style::Surface) => shaders!("heights", "fragment_main"),
            (_, ArrayKind::Surface, Style::Wireframe) => shaders!("heights", "wireframe_main"),
            (_, ArrayKind::Surface, Style::Points) => shaders!("height_points", "fragment_main"),
            (_, ArrayKind::Points, _) => shaders!("cloud", "fragment_main"),
            (_, ArrayKind::Image, _) => shaders!("image", "fragment_main"),
            (_, ArrayKind::Triangles, _) => shaders!("faces", "fragment_main"),
            (_, ArrayKind::Lines, _) => shaders!("lines", "fragment_main"),
        };
        // Depth is reversed, so a greater depth is nearer.
        self.make(shaders, vk::CompareOp::GREATER)
    }

    fn make(&self, shaders: &Shaders, shows: vk::CompareOp) -> Result<Pipeline> {
        let (device, formats) = (&self.device, self.output.formats());
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
            // Show both sides: a low camera sees the underside of a crest.
            .cull_mode(vk::CullModeFlags::NONE)
            .line_width(1.0);
        let multisample =
            vk::PipelineMultisampleStateCreateInfo::default().rasterization_samples(self.samples.flags());
        let depth_stencil = vk::PipelineDepthStencilStateCreateInfo::default()
            .depth_test_enable(true)
            .depth_write_enable(true)
            .depth_compare_op(shows);
        let blend =
            vk::PipelineColorBlendAttachmentState::default().color_write_mask(vk::ColorComponentFlags::RGBA);
        let blend = vec![blend; formats.len()];
        let blend = vk::PipelineColorBlendStateCreateInfo::default().attachments(&blend);
        let dynamic = [vk::DynamicState::VIEWPORT, vk::DynamicState::SCISSOR];
        let dynamic = vk::PipelineDynamicStateCreateInfo::default().dynamic_states(&dynamic);
        let mut rendering = vk::PipelineRenderingCreateInfo::default()
            .color_attachment_formats(formats)
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
            .layout(self.layout)
            .push_next(&mut rendering)];
        // SAFETY: the description points to locals; if a single pipeline fails, there is nothing to destroy.
        AutoDestroy::new(device, "vkCreateGraphicsPipelines", |vk| unsafe {
            let made = vk.create_graphics_pipelines(vk::PipelineCache::null(), &info, None);
            made.map(|made| made[0]).map_err(|(_, result)| result)
        })
    }
}
