//! What the field is drawn on: the samples and depth behind a picture, and a picture of our own for headless runs.

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

pub(super) const DEPTH_FORMAT: vk::Format = vk::Format::D32_SFLOAT;

/// Multisampled colour, where there is more than one sample, and depth; one pair serves every frame, since frames on one queue draw one after the other.
pub(super) struct Attachments {
    pub(super) color: Option<Image>,
    pub(super) depth: Image,
}

impl Attachments {
    pub(super) fn new(
        device: &Device,
        extent: vk::Extent2D,
        format: vk::Format,
        samples: Samples,
    ) -> Result<Self> {
        // Transient: the contents never outlive the render pass, and a tiling GPU need not store them at all.
        let transient = vk::ImageUsageFlags::TRANSIENT_ATTACHMENT;
        let multisampled = || {
            Image::new(
                device,
                &ImageDesc {
                    label: "multisampled colour",
                    extent,
                    format,
                    levels: 1,
                    samples: samples.flags(),
                    usage: vk::ImageUsageFlags::COLOR_ATTACHMENT | transient,
                    aspect: vk::ImageAspectFlags::COLOR,
                },
            )
        };
        Ok(Self {
            color: (samples != Samples::One).then(multisampled).transpose()?,
            depth: Image::new(
                device,
                &ImageDesc {
                    label: "depth",
                    extent,
                    format: DEPTH_FORMAT,
                    levels: 1,
                    samples: samples.flags(),
                    usage: vk::ImageUsageFlags::DEPTH_STENCIL_ATTACHMENT | transient,
                    aspect: vk::ImageAspectFlags::DEPTH,
                },
            )?,
        })
    }

    pub(super) fn extent(&self) -> vk::Extent2D {
        self.depth.extent()
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
