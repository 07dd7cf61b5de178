use ash::vk;
use gpu_allocator::MemoryLocation;
use gpu_allocator::vulkan::{AllocationCreateDesc, AllocationScheme};
use vulkan_cuda::{ExportedImage, ownership};

use super::owned::OwnedMemory;
use super::{AutoDestroy, Device, image_barrier, pipeline_barrier};
use crate::Result;

#[derive(Clone, Copy, Debug)]
pub struct ImageDesc {
    pub label: &'static str,
    pub extent: vk::Extent2D,
    pub format: vk::Format,
    pub levels: u32,
    pub samples: vk::SampleCountFlags,
    pub usage: vk::ImageUsageFlags,
    pub aspect: vk::ImageAspectFlags,
}

impl ImageDesc {
    pub fn color(
        label: &'static str,
        extent: vk::Extent2D,
        format: vk::Format,
        usage: vk::ImageUsageFlags,
    ) -> Self {
        let (levels, samples, aspect) = (1, vk::SampleCountFlags::TYPE_1, vk::ImageAspectFlags::COLOR);
        Self { label, extent, format, levels, samples, usage, aspect }
    }
}

pub struct Image {
    // Field order is drop order.
    view: ImageView,
    raw: AutoDestroy<vk::Image>,
    _memory: OwnedMemory,
    desc: ImageDesc,
}

impl Image {
    pub fn format(&self) -> vk::Format {
        self.desc.format
    }

    /// Makes an image in device memory, in the layout `UNDEFINED`.
    pub fn new(device: &Device, desc: &ImageDesc) -> Result<Self> {
        let info = vk::ImageCreateInfo::default()
            .image_type(vk::ImageType::TYPE_2D)
            .format(desc.format)
            .extent(desc.extent.into())
            .mip_levels(desc.levels)
            .array_layers(1)
            .samples(desc.samples)
            .usage(desc.usage);
        // SAFETY: a live device, and a description without pointers.
        let raw = AutoDestroy::new(device, "vkCreateImage", |vk| unsafe { vk.create_image(&info, None) })?;
        let allocation = AllocationCreateDesc {
            name: desc.label,
            // SAFETY: made above.
            requirements: unsafe { device.raw().get_image_memory_requirements(raw.raw()) },
            location: MemoryLocation::GpuOnly,
            linear: false,
            allocation_scheme: AllocationScheme::GpuAllocatorManaged,
        };
        let memory = OwnedMemory::new(device, &allocation)?;
        let (block, offset) = memory.place();
        // SAFETY: the memory was allocated for this image's requirements and is bound once.
        unsafe { device.raw().bind_image_memory(raw.raw(), block, offset) }
            .map_err(device.failed("vkBindImageMemory"))?;
        let range = ownership::whole_image().aspect_mask(desc.aspect);
        let view = view(device, raw.raw(), desc.format, vk::ImageViewType::TYPE_2D, range)?;
        Ok(Self { view, raw, _memory: memory, desc: *desc })
    }

    pub fn raw(&self) -> vk::Image {
        self.raw.raw()
    }

    pub fn view(&self) -> vk::ImageView {
        self.view.raw()
    }

    pub fn extent(&self) -> vk::Extent2D {
        self.desc.extent
    }
}

/// Describes a copy of a whole level between an image and a buffer, at `offset` bytes in the buffer.
pub fn copy_of_level(level: u32, extent: vk::Extent2D, offset: u64) -> vk::BufferImageCopy {
    let place = vk::ImageSubresourceLayers::default()
        .aspect_mask(vk::ImageAspectFlags::COLOR)
        .mip_level(level)
        .layer_count(1);
    vk::BufferImageCopy::default().buffer_offset(offset).image_subresource(place).image_extent(extent.into())
}

/// Records a copy of `levels` from a buffer to an image, and makes it ready for its `next` use: a layout, stages and accesses.
/// Its last use must have ended at these stages.
///
/// # Safety
/// `commands` must be recording, outside a render pass. Buffer and image must be alive and contain `levels`.
pub unsafe fn record_upload(
    device: &Device,
    commands: vk::CommandBuffer,
    staging: vk::Buffer,
    image: vk::Image,
    levels: &[vk::BufferImageCopy],
    next: (vk::ImageLayout, (vk::PipelineStageFlags2, vk::AccessFlags2)),
) {
    let written = (vk::PipelineStageFlags2::ALL_TRANSFER, vk::AccessFlags2::TRANSFER_WRITE);
    let target = (vk::ImageLayout::TRANSFER_DST_OPTIMAL, written);
    // The image's old contents may be lost. The barrier waits for earlier reads.
    let old = (vk::ImageLayout::UNDEFINED, (next.1.0, vk::AccessFlags2::NONE));
    let reuse = image_barrier(image, old, target);
    let ready = image_barrier(image, target, next);
    // SAFETY: recording, and buffer and image are alive and contain `levels` (the caller's promise).
    unsafe {
        pipeline_barrier(device, commands, &[], &[reuse]);
        device.raw().cmd_copy_buffer_to_image(commands, staging, image, target.0, levels);
        pipeline_barrier(device, commands, &[], &[ready]);
    }
}

/// A view that does not own its image. Drop it before the image.
pub type ImageView = AutoDestroy<vk::ImageView>;

pub fn view(
    device: &Device,
    image: vk::Image,
    format: vk::Format,
    kind: vk::ImageViewType,
    range: vk::ImageSubresourceRange,
) -> Result<ImageView> {
    let info = vk::ImageViewCreateInfo::default()
        .image(image)
        .view_type(kind)
        .format(format)
        .subresource_range(range);
    // SAFETY: a live device; the image has this format, and was created for views of this kind.
    AutoDestroy::new(device, "vkCreateImageView", |vk| unsafe { vk.create_image_view(&info, None) })
}

/// Makes a view of all levels and layers of a shared image. The image's shape determines the view type.
pub fn view_of_shared(device: &Device, image: &ExportedImage) -> Result<ImageView> {
    let (format, kind) = (image.format().vulkan, image.shape().view().vulkan());
    view(device, image.raw(), format, kind, ownership::whole_image())
}
