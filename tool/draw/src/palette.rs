use ash::vk;
use vulkan_cuda::ownership::Access;

use super::ColorMap;
use wavefield_gpu::Result;
use wavefield_gpu::vulkan::{
    AutoDestroy, Bound, Buffer, Image, ImageDesc, Queue, copy_of_level, one_shot, record_upload, sampler,
};

const EXTENT: vk::Extent2D = vk::Extent2D { width: 256, height: 1 };

pub(super) struct Palette {
    image: Image,
    sampler: AutoDestroy<vk::Sampler>,
}

impl Palette {
    /// Creates the colour map's image. Waits for the queue.
    pub(super) fn new(queue: &mut Queue, map: ColorMap) -> Result<Self> {
        let device = queue.device();
        let usage = vk::ImageUsageFlags::SAMPLED | vk::ImageUsageFlags::TRANSFER_DST;
        let desc = ImageDesc::color("colour map", EXTENT, vk::Format::R8G8B8A8_SRGB, usage);
        let image = Image::new(device, &desc)?;
        let palette = Self { image, sampler: sampler(device, vk::SamplerAddressMode::CLAMP_TO_EDGE)? };
        palette.set(queue, map)?;
        Ok(palette)
    }

    /// Uploads another colour map. Waits for the queue.
    pub(super) fn set(&self, queue: &mut Queue, map: ColorMap) -> Result<()> {
        let device = queue.device().clone();
        let texels = map.texels(EXTENT.width as usize);
        let bytes = bytemuck::cast_slice(&texels);
        let staging =
            Buffer::filled(&device, "colour map upload", bytes, vk::BufferUsageFlags::TRANSFER_SRC)?;
        let reads = Access {
            stage: vk::PipelineStageFlags2::FRAGMENT_SHADER,
            access: vk::AccessFlags2::SHADER_SAMPLED_READ,
        };
        let (image, all) = (self.image.raw(), [copy_of_level(0, EXTENT, 0)]);
        // SAFETY: recording; image and buffer live until `one_shot` has waited for the queue.
        one_shot(queue, |commands| unsafe {
            record_upload(&device, commands, staging.raw(), image, &all, reads);
        })
    }

    pub(super) fn bound(&self) -> [Bound; 2] {
        [
            Bound::Sampled(self.image.view(), vk::ImageLayout::SHADER_READ_ONLY_OPTIMAL),
            Bound::Sampler(self.sampler.raw()),
        ]
    }
}
