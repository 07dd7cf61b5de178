//! A colour map as an image for shaders.

use ash::vk;

use super::ColorMap;
use crate::Result;
use crate::vulkan::{
    Bound, Buffer, Image, ImageDesc, Owned, Queue, image_barrier, one_shot, pipeline_barrier, sampler,
};

const TEXELS: u32 = 256;

pub(super) struct Palette {
    image: Image,
    sampler: Owned<vk::Sampler>,
}

impl Palette {
    /// Makes the image with these colours. Waits for the queue.
    pub(super) fn new(queue: &mut Queue, map: ColorMap) -> Result<Self> {
        let device = queue.device();
        let image = Image::new(
            device,
            &ImageDesc {
                label: "colour map",
                extent: vk::Extent2D { width: TEXELS, height: 1 },
                format: vk::Format::R8G8B8A8_SRGB,
                levels: 1,
                samples: vk::SampleCountFlags::TYPE_1,
                usage: vk::ImageUsageFlags::SAMPLED | vk::ImageUsageFlags::TRANSFER_DST,
                aspect: vk::ImageAspectFlags::COLOR,
            },
        )?;
        let palette = Self { image, sampler: sampler(device, vk::SamplerAddressMode::CLAMP_TO_EDGE)? };
        palette.set(queue, map)?;
        Ok(palette)
    }

    /// Changes the colours. Waits for the queue.
    pub(super) fn set(&self, queue: &mut Queue, map: ColorMap) -> Result<()> {
        let device = queue.device().clone();
        let texels = map.texels(TEXELS as usize);
        let bytes = bytemuck::cast_slice(&texels);
        let staging =
            Buffer::filled(&device, "colour map upload", bytes, vk::BufferUsageFlags::TRANSFER_SRC)?;
        let image = self.image.raw();
        let aspect = vk::ImageAspectFlags::COLOR;
        let sampled = (vk::PipelineStageFlags2::FRAGMENT_SHADER, vk::AccessFlags2::SHADER_SAMPLED_READ);
        let written = (vk::PipelineStageFlags2::ALL_TRANSFER, vk::AccessFlags2::TRANSFER_WRITE);
        let before = image_barrier(
            image,
            aspect,
            (vk::ImageLayout::UNDEFINED, (sampled.0, vk::AccessFlags2::NONE)),
            (vk::ImageLayout::TRANSFER_DST_OPTIMAL, written),
        );
        let after = image_barrier(
            image,
            aspect,
            (vk::ImageLayout::TRANSFER_DST_OPTIMAL, written),
            (vk::ImageLayout::SHADER_READ_ONLY_OPTIMAL, sampled),
        );
        let region = [vk::BufferImageCopy::default()
            .image_subresource(vk::ImageSubresourceLayers::default().aspect_mask(aspect).layer_count(1))
            .image_extent(vk::Extent3D { width: TEXELS, height: 1, depth: 1 })];
        one_shot(queue, |commands| {
            // SAFETY: recording; image and buffer live until `one_shot` has waited for the queue.
            unsafe {
                pipeline_barrier(&device, commands, &[], &[before]);
                device.raw().cmd_copy_buffer_to_image(
                    commands,
                    staging.raw(),
                    image,
                    vk::ImageLayout::TRANSFER_DST_OPTIMAL,
                    &region,
                );
                pipeline_barrier(&device, commands, &[], &[after]);
            }
        })
    }

    pub(super) fn bound(&self) -> [Bound; 2] {
        [
            Bound::Sampled(self.image.view(), vk::ImageLayout::SHADER_READ_ONLY_OPTIMAL),
            Bound::Sampler(self.sampler.raw()),
        ]
    }
}
