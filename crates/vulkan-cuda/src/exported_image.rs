//! Vulkan's half of [`crate::image`](mod@crate::image).

use ash::vk;

use crate::export::{MemoryExport, export_memory};
use crate::exportable;
use crate::format::ArrayFormat;
use crate::handle::{ExportType, MemoryHandle};
use crate::shape::Shape;
use crate::vulkan::Vk;
use crate::{Error, Result};

/// What an [`ExportedImage`] should be. [`picture`](crate::image::picture) makes the usual one.
#[derive(Clone, Copy, Debug)]
pub struct ImageRequest {
    /// The texels' format. It must be one of [`crate::format::FORMATS`].
    pub format: vk::Format,
    /// View type, extent, layers and levels.
    pub shape: Shape,
    /// What Vulkan does with it. CUDA is told about `COLOR_ATTACHMENT`.
    pub usage: vk::ImageUsageFlags,
    /// Whether CUDA's kernels write it (`CUDA_ARRAY3D_SURFACE_LDST`). If not, they can only sample it.
    pub surface: bool,
}

/// A Vulkan image with optimal tiling, in exportable memory of its own. It owns both.
pub struct ExportedImage {
    pub(crate) image: vk::Image,
    pub(crate) memory: vk::DeviceMemory,
    pub(crate) allocation_size: u64,
    pub(crate) request: ImageRequest,
    pub(crate) format: ArrayFormat,
    pub(crate) kind: ExportType,
    pub(crate) vk: Vk,
}

/// The image usages that need neither a feature nor an extension. Vulkan cannot tell which ones a device was created with.
const USAGES_OF_1_0: u32 = 0xff;

impl ExportedImage {
    /// Creates the image, in the layout `UNDEFINED`. Before CUDA's first write it must be released to CUDA: see
    /// [`first_release`](crate::ownership::first_release).
    ///
    /// # Errors
    /// Fails if CUDA has no counterpart of the format, if the device does not export such an image (the error has the
    /// driver's reason), if it was created without the extension, or if memory has run out.
    pub fn new(vk: &Vk, request: &ImageRequest) -> Result<Self> {
        let format = ArrayFormat::of(request.format)?;
        let shape = request.shape;
        if request.usage.as_raw() & !USAGES_OF_1_0 != 0 {
            return Err(Error::Unsupported(format!(
                "an image with the usage {:?} cannot be shared: some of it needs a feature or an extension",
                request.usage
            )));
        }
        // SAFETY: the adopted device's own.
        let support = unsafe {
            exportable::image(vk.instance(), vk.physical(), request.format, &shape, request.usage)
        };
        let (kind, _) = support.map_err(|reason| {
            let (device, view, format) = (&vk.info().name, shape.view().name(), format.name());
            Error::Unsupported(format!("{device} does not export a {view} image of {format}: {reason}"))
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
            // The only initial layout that an external image may have (VUID-VkImageCreateInfo-pNext-01443).
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
        // Always dedicated: some drivers export images in no other way, and every driver accepts it.
        let dedicated = vk::MemoryDedicatedAllocateInfo::default().image(image);
        // SAFETY: the image's own requirements; it was made above.
        exported.memory = unsafe { export.allocate(vk, &required, Some(dedicated)) }?;
        // SAFETY: the memory is dedicated to this image and is bound once.
        unsafe { vk.device().bind_image_memory(image, exported.memory, 0) }
            .map_err(vk.failed("vkBindImageMemory"))?;
        Ok(exported)
    }

    /// Returns Vulkan's image. It is destroyed with `self`.
    pub fn raw(&self) -> vk::Image {
        self.image
    }

    /// Returns the image's dimensions.
    pub fn shape(&self) -> Shape {
        self.request.shape
    }

    /// Returns the image's format, in the terms of both APIs.
    pub fn format(&self) -> ArrayFormat {
        self.format
    }

    /// Creates a handle to the memory, for an importer of your own: see [`ExportedBuffer::export`].
    ///
    /// [`ExportedBuffer::export`]: crate::ExportedBuffer::export
    ///
    /// # Errors
    /// Fails if the driver reports an error.
    pub fn export(&self) -> Result<MemoryHandle> {
        export_memory(&self.vk, self.memory, self.kind)
    }

    /// Returns the size of the allocation in bytes, which every importer must specify (`VkMemoryAllocateInfo`).
    pub fn allocation_size(&self) -> u64 {
        self.allocation_size
    }

    /// Returns the device that the image was created on.
    pub fn vk(&self) -> &Vk {
        &self.vk
    }
}

impl Drop for ExportedImage {
    fn drop(&mut self) {
        // SAFETY: the GPU is done with it: code that submits work with the image promises to keep it alive until then.
        self.vk.cleanup(|device| unsafe {
            device.destroy_image(self.image, None);
            device.free_memory(self.memory, None);
        });
    }
}
