//! A two-dimensional image with its view, in memory from gpu-allocator.

use std::ops::Range;

use ash::vk;
use gpu_allocator::MemoryLocation;
use gpu_allocator::vulkan::{Allocation, AllocationCreateDesc, AllocationScheme};
use vulkan_cuda::{ExportedImage, ownership};

use super::Device;
use crate::{Error, Result};

/// How to make an [`Image`].
#[derive(Clone, Copy, Debug)]
pub struct ImageDesc {
    /// For errors and debuggers.
    pub label: &'static str,
    /// Width and height in pixels.
    pub extent: vk::Extent2D,
    /// The pixel format.
    pub format: vk::Format,
    /// The number of mip levels; 1 for no mip chain.
    pub levels: u32,
    /// Samples per pixel.
    pub samples: vk::SampleCountFlags,
    /// What the GPU does with it.
    pub usage: vk::ImageUsageFlags,
    /// Colour or depth.
    pub aspect: vk::ImageAspectFlags,
}

/// An image, its memory and a view of the whole image.
pub struct Image {
    view: vk::ImageView,
    raw: vk::Image,
    allocation: Option<Allocation>,
    desc: ImageDesc,
    device: Device,
}

impl Image {
    /// The pixel format.
    pub fn format(&self) -> vk::Format {
        self.desc.format
    }

    /// Makes an image in device memory; its layout is undefined.
    pub fn new(device: &Device, desc: &ImageDesc) -> Result<Self> {
        let info = vk::ImageCreateInfo::default()
            .image_type(vk::ImageType::TYPE_2D)
            .format(desc.format)
            .extent(vk::Extent3D { width: desc.extent.width, height: desc.extent.height, depth: 1 })
            .mip_levels(desc.levels)
            .array_layers(1)
            .samples(desc.samples)
            .tiling(vk::ImageTiling::OPTIMAL)
            .usage(desc.usage)
            .sharing_mode(vk::SharingMode::EXCLUSIVE)
            .initial_layout(vk::ImageLayout::UNDEFINED);
        // SAFETY: a live device and a plain description.
        let raw =
            unsafe { device.raw().create_image(&info, None) }.map_err(device.failed("vkCreateImage"))?;
        // From here on Drop cleans up; destroying a null view is allowed and does nothing.
        let mut image =
            Self { view: vk::ImageView::null(), raw, allocation: None, desc: *desc, device: device.clone() };
        // SAFETY: made above.
        let requirements = unsafe { device.raw().get_image_memory_requirements(raw) };
        let allocation = device
            .allocator()
            .allocate(&AllocationCreateDesc {
                name: desc.label,
                requirements,
                location: MemoryLocation::GpuOnly,
                linear: false,
                allocation_scheme: AllocationScheme::GpuAllocatorManaged,
            })
            .map_err(|source| Error::Allocation {
                what: desc.label,
                bytes: requirements.size,
                device: device.info().name.clone(),
                source,
            })?;
        let allocation = image.allocation.insert(allocation);
        // SAFETY: the memory was allocated for this image's requirements and is bound once.
        unsafe { device.raw().bind_image_memory(raw, allocation.memory(), allocation.offset()) }
            .map_err(device.failed("vkBindImageMemory"))?;
        let range = levels_of(desc.aspect, 0..desc.levels);
        image.view = create_view(device, raw, desc.format, vk::ImageViewType::TYPE_2D, range)?;
        Ok(image)
    }

    /// The raw handle.
    pub fn raw(&self) -> vk::Image {
        self.raw
    }

    /// A view of the whole image.
    pub fn view(&self) -> vk::ImageView {
        self.view
    }

    /// The number of mip levels.
    pub fn levels(&self) -> u32 {
        self.desc.levels
    }

    /// Width and height in pixels.
    pub fn extent(&self) -> vk::Extent2D {
        self.desc.extent
    }
}

/// The range of some mip levels of layer 0.
pub(crate) fn levels_of(aspect: vk::ImageAspectFlags, levels: Range<u32>) -> vk::ImageSubresourceRange {
    vk::ImageSubresourceRange::default()
        .aspect_mask(aspect)
        .base_mip_level(levels.start)
        .level_count(levels.end - levels.start)
        .layer_count(1)
}

/// Makes a view of a part of an image.
pub(crate) fn create_view(
    device: &Device,
    image: vk::Image,
    format: vk::Format,
    kind: vk::ImageViewType,
    range: vk::ImageSubresourceRange,
) -> Result<vk::ImageView> {
    let info = vk::ImageViewCreateInfo::default()
        .image(image)
        .view_type(kind)
        .format(format)
        .subresource_range(range);
    // SAFETY: a live device; the image has this format, and was created for views of this kind.
    unsafe { device.raw().create_image_view(&info, None) }.map_err(device.failed("vkCreateImageView"))
}

/// A view of an image that it does not own. It must be dropped before the image.
pub(crate) struct View {
    raw: vk::ImageView,
    device: Device,
}

impl View {
    /// As [`create_view`].
    pub(crate) fn new(
        device: &Device,
        image: vk::Image,
        format: vk::Format,
        kind: vk::ImageViewType,
        range: vk::ImageSubresourceRange,
    ) -> Result<Self> {
        Ok(Self { raw: create_view(device, image, format, kind, range)?, device: device.clone() })
    }

    /// A view of all levels and layers of a shared image; the image's shape gives the view type.
    pub(crate) fn shared(device: &Device, image: &ExportedImage) -> Result<Self> {
        let (format, kind) = (image.format().vulkan, image.shape().view().vulkan());
        Self::new(device, image.raw(), format, kind, ownership::whole_image())
    }

    /// The raw handle.
    pub(crate) fn raw(&self) -> vk::ImageView {
        self.raw
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if self.device.is_left_running() {
            return;
        }
        // SAFETY: the GPU is done with it, as the module `vulkan` demands.
        unsafe { self.device.raw().destroy_image_view(self.raw, None) };
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if self.device.is_left_running() {
            return;
        }
        // SAFETY: the GPU is done with it, as the module `vulkan` demands.
        unsafe {
            self.device.raw().destroy_image_view(self.view, None);
            self.device.raw().destroy_image(self.raw, None);
        }
        if let Some(allocation) = self.allocation.take() {
            // It fails only for a block that the allocator does not know, and this one is its own.
            let _ = self.device.allocator().free(allocation);
        }
    }
}
