//! What is drawn on where there is no window, and with how many samples a pixel.

use ash::vk;

use crate::Result;
use crate::vulkan::{Device, Image, ImageDesc};

/// Samples a pixel. Every device has 1 and 4 for colour and depth ("Required Limits", `framebufferColorSampleCounts`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Samples {
    /// One: quick, and edges are jagged.
    #[value(name = "1")]
    One,
    /// Four: smooth edges.
    #[default]
    #[value(name = "4")]
    Four,
}

impl Samples {
    /// As Vulkan has it.
    pub fn flags(self) -> vk::SampleCountFlags {
        match self {
            Self::One => vk::SampleCountFlags::TYPE_1,
            Self::Four => vk::SampleCountFlags::TYPE_4,
        }
    }

    /// As a number.
    pub fn count(self) -> u32 {
        self.flags().as_raw()
    }
}

/// An image to draw on without a window, and to read back.
pub struct OffscreenTarget {
    image: Image,
}

impl OffscreenTarget {
    /// The pixel format: 8 bits a channel, sRGB, as a PNG wants them.
    pub const FORMAT: vk::Format = vk::Format::R8G8B8A8_SRGB;

    /// Makes the image.
    ///
    /// # Errors
    /// A size beyond the device's `maxImageDimension2D`, or out of memory.
    pub fn new(device: &Device, extent: vk::Extent2D) -> Result<Self> {
        Self::with_format(device, extent, Self::FORMAT)
    }

    /// The same with another format.
    pub(crate) fn with_format(device: &Device, extent: vk::Extent2D, format: vk::Format) -> Result<Self> {
        Ok(Self {
            image: Image::new(
                device,
                &ImageDesc {
                    label: "the picture",
                    extent,
                    format,
                    levels: 1,
                    samples: vk::SampleCountFlags::TYPE_1,
                    usage: vk::ImageUsageFlags::COLOR_ATTACHMENT | vk::ImageUsageFlags::TRANSFER_SRC,
                    aspect: vk::ImageAspectFlags::COLOR,
                },
            )?,
        })
    }

    /// The image; after a frame it is in the layout `TRANSFER_SRC_OPTIMAL`.
    pub fn image(&self) -> &Image {
        &self.image
    }
}
