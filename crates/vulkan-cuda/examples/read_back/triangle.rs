//! Plain Vulkan: a pipeline that draws a triangle, and what its picture must show.

use std::error::Error;
use std::ffi::CStr;

use ash::vk;
use naga::valid::{Capabilities, ValidationFlags, Validator};

/// A triangle whose red is a push constant, from 0 to 1. It covers the left lower half of the picture.
const SHADERS: &str = "
    var<immediate> red: f32;
    @vertex fn corner(@builtin(vertex_index) index: u32) -> @builtin(position) vec4f {
        return vec4f(select(-1.0, 1.0, index == 1u), select(1.0, -1.0, index == 2u), 0.0, 1.0);
    }
    @fragment fn colour() -> @location(0) vec4f {
        return vec4f(red, 1.0, 0.0, 1.0);
    }
";
/// The background.
const BLUE: [f32; 4] = [0.0, 0.0, 1.0, 1.0];

pub struct Triangle {
    device: ash::Device,
    pass: vk::RenderPass,
    layout: vk::PipelineLayout,
    pipeline: vk::Pipeline,
    side: u32,
}

impl Triangle {
    /// A failure in between ends the example; the end of the process then frees what was made before.
    pub fn new(device: &ash::Device, format: vk::Format, side: u32) -> Result<Self, Box<dyn Error>> {
        // The ring keeps an image in GENERAL.
        let attachments = [vk::AttachmentDescription::default()
            .format(format)
            .samples(vk::SampleCountFlags::TYPE_1)
            .load_op(vk::AttachmentLoadOp::CLEAR)
            .store_op(vk::AttachmentStoreOp::STORE)
            .initial_layout(vk::ImageLayout::GENERAL)
            .final_layout(vk::ImageLayout::GENERAL)];
        let colours = [vk::AttachmentReference { attachment: 0, layout: vk::ImageLayout::GENERAL }];
        let subpasses = [vk::SubpassDescription::default().color_attachments(&colours)];
        // The copy after the pass reads what was drawn.
        let dependencies = [vk::SubpassDependency::default()
            .dst_subpass(vk::SUBPASS_EXTERNAL)
            .src_stage_mask(vk::PipelineStageFlags::COLOR_ATTACHMENT_OUTPUT)
            .src_access_mask(vk::AccessFlags::COLOR_ATTACHMENT_WRITE)
            .dst_stage_mask(vk::PipelineStageFlags::TRANSFER)
            .dst_access_mask(vk::AccessFlags::TRANSFER_READ)];
        let pass = vk::RenderPassCreateInfo::default()
            .attachments(&attachments)
            .subpasses(&subpasses)
            .dependencies(&dependencies);
        let constants =
            [vk::PushConstantRange { stage_flags: vk::ShaderStageFlags::FRAGMENT, offset: 0, size: 4 }];
        let layout = vk::PipelineLayoutCreateInfo::default().push_constant_ranges(&constants);
        let module = vk::ShaderModuleCreateInfo::default();
        let words = spirv()?;
        // SAFETY: a live device and plain descriptions; naga has validated the shaders.
        unsafe {
            let pass = device.create_render_pass(&pass, None)?;
            let layout = device.create_pipeline_layout(&layout, None)?;
            let module = device.create_shader_module(&module.code(&words), None)?;
            let stage = |stage, entry: &'static CStr| {
                vk::PipelineShaderStageCreateInfo::default().stage(stage).module(module).name(entry)
            };
            let stages = [
                stage(vk::ShaderStageFlags::VERTEX, c"corner"),
                stage(vk::ShaderStageFlags::FRAGMENT, c"colour"),
            ];
            let (input, list) = (
                vk::PipelineVertexInputStateCreateInfo::default(),
                vk::PipelineInputAssemblyStateCreateInfo::default()
                    .topology(vk::PrimitiveTopology::TRIANGLE_LIST),
            );
            let area = vk::Extent2D { width: side, height: side };
            let (viewports, scissors) = (
                [vk::Viewport {
                    width: side as f32,
                    height: side as f32,
                    max_depth: 1.0,
                    ..Default::default()
                }],
                [vk::Rect2D { extent: area, ..Default::default() }],
            );
            let viewport =
                vk::PipelineViewportStateCreateInfo::default().viewports(&viewports).scissors(&scissors);
            let raster = vk::PipelineRasterizationStateCreateInfo::default().line_width(1.0);
            let samples = vk::PipelineMultisampleStateCreateInfo::default()
                .rasterization_samples(vk::SampleCountFlags::TYPE_1);
            let blends = [vk::PipelineColorBlendAttachmentState::default()
                .color_write_mask(vk::ColorComponentFlags::RGBA)];
            let blend = vk::PipelineColorBlendStateCreateInfo::default().attachments(&blends);
            let info = vk::GraphicsPipelineCreateInfo::default()
                .stages(&stages)
                .vertex_input_state(&input)
                .input_assembly_state(&list)
                .viewport_state(&viewport)
                .rasterization_state(&raster)
                .multisample_state(&samples)
                .color_blend_state(&blend)
                .layout(layout)
                .render_pass(pass);
            let made = device.create_graphics_pipelines(vk::PipelineCache::null(), &[info], None);
            device.destroy_shader_module(module, None);
            let pipeline = made.map_err(|(_, error)| error)?[0];
            Ok(Self { device: device.clone(), pass, layout, pipeline, side })
        }
    }

    /// What the triangle is drawn on. The caller destroys it.
    pub fn framebuffer(&self, view: vk::ImageView) -> Result<vk::Framebuffer, vk::Result> {
        let views = [view];
        let info = vk::FramebufferCreateInfo::default()
            .render_pass(self.pass)
            .attachments(&views)
            .width(self.side)
            .height(self.side)
            .layers(1);
        // SAFETY: a live view of the pass's format.
        unsafe { self.device.create_framebuffer(&info, None) }
    }

    /// Records the draw.
    ///
    /// # Safety
    /// The commands are being recorded, and the picture is in `GENERAL`.
    pub unsafe fn draw(&self, commands: vk::CommandBuffer, framebuffer: vk::Framebuffer, red: u8) {
        let clear = [vk::ClearValue { color: vk::ClearColorValue { float32: BLUE } }];
        let area =
            vk::Rect2D { extent: vk::Extent2D { width: self.side, height: self.side }, ..Default::default() };
        let begin = vk::RenderPassBeginInfo::default()
            .render_pass(self.pass)
            .framebuffer(framebuffer)
            .render_area(area)
            .clear_values(&clear);
        let (device, stage) = (&self.device, vk::ShaderStageFlags::FRAGMENT);
        // SAFETY: the caller's promise; all of these are live.
        unsafe {
            device.cmd_begin_render_pass(commands, &begin, vk::SubpassContents::INLINE);
            device.cmd_bind_pipeline(commands, vk::PipelineBindPoint::GRAPHICS, self.pipeline);
            device.cmd_push_constants(
                commands,
                self.layout,
                stage,
                0,
                &(f32::from(red) / 255.0).to_ne_bytes(),
            );
            device.cmd_draw(commands, 3, 1, 0, 0);
            device.cmd_end_render_pass(commands);
        }
    }

    /// Whether a picture shows the triangle with this red, away from its edge.
    pub fn check(&self, picture: &[u32], red: u8) -> Result<(), String> {
        let side = self.side as usize;
        let (green, blue) = (0xff00_ff00 | u32::from(red), 0xffff_0000);
        for (place, &pixel) in picture.iter().enumerate() {
            let (col, row) = (place % side, place / side);
            let expected = if col < row { green } else { blue };
            if col != row && pixel != expected {
                return Err(format!("pixel {col}, {row} is {pixel:#010x} instead of {expected:#010x}"));
            }
        }
        Ok(())
    }
}

impl Drop for Triangle {
    fn drop(&mut self) {
        // SAFETY: the example drops it after the ring, whose drop waits.
        unsafe {
            self.device.destroy_pipeline(self.pipeline, None);
            self.device.destroy_pipeline_layout(self.layout, None);
            self.device.destroy_render_pass(self.pass, None);
        }
    }
}

fn spirv() -> Result<Vec<u32>, Box<dyn Error>> {
    let module = naga::front::wgsl::parse_str(SHADERS)?;
    let info = Validator::new(ValidationFlags::all(), Capabilities::IMMEDIATES).validate(&module)?;
    // Without a change of Y: the triangle is in Vulkan's coordinates.
    let options =
        naga::back::spv::Options { flags: naga::back::spv::WriterFlags::empty(), ..Default::default() };
    Ok(naga::back::spv::write_vec(&module, &info, &options, None)?)
}
