//! Vulkan's half of [`crate::image`](mod@crate::image).

use ash::vk;

use crate::export::{MemoryExport, export_memory};
use crate::exportable;
use crate::format::ArrayFormat;
use crate::handle::{ExportType, MemoryHandle};
use crate::shape::Shape;
use crate::vulkan::Vk;
use crate::{Error, Result};

/// What an [`ExportedImage`] is to be.
#[derive(Clone, Copy, Debug)]
pub struct ImageRequest {
    /// The texels' format, one of [`crate::format::FORMATS`].
    pub format: vk::Format,
    /// Its dimensions.
    pub shape: Shape,
    /// What Vulkan does with it. `COLOR_ATTACHMENT` is passed on to CUDA, which must know.
    pub usage: vk::ImageUsageFlags,
    /// Whether CUDA's kernels write it (`CUDA_ARRAY3D_SURFACE_LDST`), or only sample it.
    pub surface: bool,
}

/// A Vulkan image, optimally tiled, in exportable memory of its own.
pub struct ExportedImage {
    pub(crate) image: vk::Image,
    pub(crate) memory: vk::DeviceMemory,
    pub(crate) allocation_size: u64,
    pub(crate) request: ImageRequest,
    pub(crate) format: ArrayFormat,
    pub(crate) kind: ExportType,
    pub(crate) vk: Vk,
}

impl ExportedImage {
    /// Makes the image; its layout is `UNDEFINED`, as Vulkan demands of an external one.
    ///
    /// # Errors
    /// A format without a counterpart in CUDA, an image that this device does not have or does not export (with the
    /// driver's words), a device that was made without the extension, or out of memory.
    pub fn new(vk: &Vk, request: &ImageRequest) -> Result<Self> {
        let format = ArrayFormat::of(request.format)?;
        let shape = request.shape;
        // SAFETY: the adopted device's own.
        let support = unsafe {
            exportable::image(vk.instance(), vk.physical(), request.format, shape.view(), request.usage)
        };
        let kind =
            support.and_then(|support| support.holds(&shape).map(|()| support.handle)).map_err(|reason| {
                Error::Unsupported(format!(
                    "{} does not export a {} image of {}: {reason}",
                    vk.info().name,
                    shape.view().name(),
                    format.name()
                ))
            })?;
        let export = MemoryExport::new(vk, kind)?;
        let mut external = vk::ExternalMemoryImageCreateInfo::default().handle_types(kind.memory());
        let info = vk::ImageCreateInfo::default()
            .flags(shape.view().create_flags())
            .image_type(shape.view().image_type())
            .format(request.format)
            .extent(shape.extent())
            .mip_levels(shape.levels())
            .array_layers(shape.layers())
            .samples(vk::SampleCountFlags::TYPE_1)
            .tiling(vk::ImageTiling::OPTIMAL)
            .usage(request.usage)
            .sharing_mode(vk::SharingMode::EXCLUSIVE)
            // The only one that an external image may begin with (VUID-VkImageCreateInfo-pNext-01443).
            .initial_layout(vk::ImageLayout::UNDEFINED)
            .push_next(&mut external);
        // SAFETY: a live device and a plain description.
        let image = unsafe { vk.device().create_image(&info, None) }.map_err(vk.failed("vkCreateImage"))?;
        // From here on Drop cleans up; freeing a null memory is allowed and does nothing.
        let mut exported = Self {
            image,
            memory: vk::DeviceMemory::null(),
            allocation_size: 0,
            request: *request,
            format,
            kind,
            vk: vk.clone(),
        };
        // SAFETY: made above.
        let required = unsafe { vk.device().get_image_memory_requirements(image) };
        exported.allocation_size = required.size;
        // Always dedicated: some drivers export images in no other way, and none minds.
        let dedicated = vk::MemoryDedicatedAllocateInfo::default().image(image);
        // SAFETY: the image's own requirements; it was made above.
        exported.memory = unsafe { export.allocate(vk, &required, Some(dedicated)) }?;
        // SAFETY: the memory is dedicated to this image and is bound once.
        unsafe { vk.device().bind_image_memory(image, exported.memory, 0) }
            .map_err(vk.failed("vkBindImageMemory"))?;
        Ok(exported)
    }

    /// Vulkan's image. It is destroyed with `self`.
    pub fn raw(&self) -> vk::Image {
        self.image
    }

    /// Its dimensions.
    pub fn shape(&self) -> Shape {
        self.request.shape
    }

    /// Its format, in both APIs' terms.
    pub fn format(&self) -> ArrayFormat {
        self.format
    }

    /// A new handle to its memory, for another importer. It keeps the memory alive by itself, unless it is a KMT handle.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn export(&self) -> Result<MemoryHandle> {
        export_memory(&self.vk, self.memory, self.kind)
    }

    /// The size of the allocation behind it: what an importer must name.
    pub fn allocation_size(&self) -> u64 {
        self.allocation_size
    }

    /// The device it was made on.
    pub fn vk(&self) -> &Vk {
        &self.vk
    }
}

impl Drop for ExportedImage {
    fn drop(&mut self) {
        // SAFETY: the GPU is done with it: whoever submitted work that uses it has promised to keep it alive so long.
        self.vk.cleanup(|device| unsafe {
            device.destroy_image(self.image, None);
            device.free_memory(self.memory, None);
        });
    }
}
