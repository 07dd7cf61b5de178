use ash::vk;

use super::Picture;
use wavefield_gpu::Result;
use wavefield_gpu::vulkan::{Device, Image, ImageDesc};

pub struct OffscreenTarget(Image);

impl OffscreenTarget {
    /// The format whose bytes a PNG file takes without conversion.
    pub const FORMAT: vk::Format = vk::Format::R8G8B8A8_SRGB;

    pub fn new(device: &Device, extent: vk::Extent2D, format: vk::Format) -> Result<Self> {
        let usage = vk::ImageUsageFlags::COLOR_ATTACHMENT
            | vk::ImageUsageFlags::TRANSFER_SRC
            | vk::ImageUsageFlags::TRANSFER_DST;
        Ok(Self(Image::new(device, &ImageDesc::color("the picture", extent, format, usage))?))
    }

    pub fn picture(&self) -> Picture {
        Picture {
            image: self.0.raw(),
            view: self.0.view(),
            extent: self.0.extent(),
            final_layout: vk::ImageLayout::TRANSFER_SRC_OPTIMAL,
            stays: false,
            takes_copies: true,
        }
    }

    /// Returns the image, which is in the layout `TRANSFER_SRC_OPTIMAL` after a frame.
    pub fn image(&self) -> &Image {
        &self.0
    }
}
