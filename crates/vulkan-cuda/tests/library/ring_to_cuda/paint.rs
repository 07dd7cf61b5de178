//! Plain Vulkan: a compute shader that gives every texel of a storage image its own word, another in each
//! frame.

use std::error::Error;

use ash::vk;
use naga::valid::{Capabilities, ValidationFlags, Validator};

/// Writes what [`word`] says.
const SHADER: &str = "
    @group(0) @binding(0) var picture: texture_storage_2d<r32uint, write>;
    var<immediate> frame: u32;
    @compute @workgroup_size(8, 8) fn paint(@builtin(global_invocation_id) at: vec3u) {
        let index = at.y * textureDimensions(picture).x + at.x;
        textureStore(picture, at.xy, vec4u(index ^ (frame * 0x9e3779b1u)));
    }
";

/// The word of a texel.
pub fn word(index: u32, frame: u32) -> u32 {
    index ^ frame.wrapping_mul(0x9e37_79b1)
}

pub struct Paint {
    device: ash::Device,
    set_layout: vk::DescriptorSetLayout,
    pool: vk::DescriptorPool,
    layout: vk::PipelineLayout,
    pipeline: vk::Pipeline,
}

impl Paint {
    /// For this many images.
    pub fn new(device: &ash::Device, images: u32) -> Result<Self, Box<dyn Error>> {
        let (kind, stage) = (vk::DescriptorType::STORAGE_IMAGE, vk::ShaderStageFlags::COMPUTE);
        let bindings = [vk::DescriptorSetLayoutBinding::default()
            .descriptor_type(kind)
            .descriptor_count(1)
            .stage_flags(stage)];
        let set_layout = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
        let sizes = [vk::DescriptorPoolSize { ty: kind, descriptor_count: images }];
        let pool = vk::DescriptorPoolCreateInfo::default().max_sets(images).pool_sizes(&sizes);
        let constants = [vk::PushConstantRange { stage_flags: stage, offset: 0, size: 4 }];
        let words = spirv()?;
        let module = vk::ShaderModuleCreateInfo::default().code(&words);
        // SAFETY: a live device and plain descriptions; naga has validated the shader.
        unsafe {
            let set_layout = device.create_descriptor_set_layout(&set_layout, None)?;
            let pool = device.create_descriptor_pool(&pool, None)?;
            let layouts = [set_layout];
            let layout = vk::PipelineLayoutCreateInfo::default()
                .set_layouts(&layouts)
                .push_constant_ranges(&constants);
            let layout = device.create_pipeline_layout(&layout, None)?;
            let module = device.create_shader_module(&module, None)?;
            let stage =
                vk::PipelineShaderStageCreateInfo::default().stage(stage).module(module).name(c"paint");
            let info = vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout);
            let made = device.create_compute_pipelines(vk::PipelineCache::null(), &[info], None);
            device.destroy_shader_module(module, None);
            let pipeline = made.map_err(|(_, error)| error)?[0];
            Ok(Self { device: device.clone(), set_layout, pool, layout, pipeline })
        }
    }

    /// The descriptor of an image in `GENERAL`.
    pub fn set(&self, view: vk::ImageView) -> Result<vk::DescriptorSet, vk::Result> {
        let layouts = [self.set_layout];
        let info = vk::DescriptorSetAllocateInfo::default().descriptor_pool(self.pool).set_layouts(&layouts);
        let images = [vk::DescriptorImageInfo {
            image_view: view,
            image_layout: vk::ImageLayout::GENERAL,
            ..Default::default()
        }];
        // SAFETY: a live pool and view; the set is in no use yet.
        unsafe {
            let set = self.device.allocate_descriptor_sets(&info)?[0];
            let write = vk::WriteDescriptorSet::default()
                .dst_set(set)
                .descriptor_type(vk::DescriptorType::STORAGE_IMAGE)
                .image_info(&images);
            self.device.update_descriptor_sets(&[write], &[]);
            Ok(set)
        }
    }

    /// Records the shader, for an image of `side` texels, a multiple of 8.
    ///
    /// # Safety
    /// The commands are being recorded, and the image is in `GENERAL`.
    pub unsafe fn draw(&self, commands: vk::CommandBuffer, set: vk::DescriptorSet, side: u32, frame: u32) {
        let (device, point) = (&self.device, vk::PipelineBindPoint::COMPUTE);
        // SAFETY: the caller's promise; all of these are live.
        unsafe {
            device.cmd_bind_pipeline(commands, point, self.pipeline);
            device.cmd_bind_descriptor_sets(commands, point, self.layout, 0, &[set], &[]);
            let stage = vk::ShaderStageFlags::COMPUTE;
            device.cmd_push_constants(commands, self.layout, stage, 0, &frame.to_ne_bytes());
            device.cmd_dispatch(commands, side / 8, side / 8, 1);
        }
    }
}

impl Drop for Paint {
    fn drop(&mut self) {
        // SAFETY: the test drops it after the ring gave its slots back.
        unsafe {
            self.device.destroy_pipeline(self.pipeline, None);
            self.device.destroy_pipeline_layout(self.layout, None);
            self.device.destroy_descriptor_pool(self.pool, None);
            self.device.destroy_descriptor_set_layout(self.set_layout, None);
        }
    }
}

fn spirv() -> Result<Vec<u32>, Box<dyn Error>> {
    let module = naga::front::wgsl::parse_str(SHADER)?;
    let info = Validator::new(ValidationFlags::all(), Capabilities::IMMEDIATES).validate(&module)?;
    let options =
        naga::back::spv::Options { flags: naga::back::spv::WriterFlags::empty(), ..Default::default() };
    Ok(naga::back::spv::write_vec(&module, &info, &options, None)?)
}
