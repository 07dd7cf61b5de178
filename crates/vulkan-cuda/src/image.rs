//! One image, two views of it: Vulkan allocates and exports, CUDA maps the mip chain as a mipmapped array.
//!
//! What is different from a buffer:
//!
//! - The *image* is created with `VkExternalMemoryImageCreateInfo`, and whether a format, type and usage can be exported at
//!   all is asked first (`vkGetPhysicalDeviceImageFormatProperties2`, in [`crate::exportable`]).
//! - Its tiling stays optimal: nobody but the driver knows how the texels lie. CUDA's driver finds out by being told the
//!   same format, extent, layers and levels ([`crate::format`], [`crate::shape`]); told anything else it would read
//!   nonsense, so a mapping is made from the exported image and not from numbers.
//! - Kernels do not get a pointer. They write a level through a surface object and read it through a texture object.
//! - An image has a layout, which CUDA does not know of: see [`crate::ownership`].
//!
//! ```compile_fail,E0308
//! // Nothing maps what was not exported: a mapping takes the exported image, not a descriptor.
//! use vulkan_cuda::{MappedImage, Pair};
//! fn forged(pair: &Pair, handle: vulkan_cuda::handle::MemoryHandle) {
//!     let _ = MappedImage::import(pair, &handle);
//! }
//! ```
//!
//! ```compile_fail,E0061
//! // Nor can it be mapped a second time with other parameters: there is no place for them.
//! use std::sync::Arc;
//! use vulkan_cuda::{ExportedImage, MappedImage, Pair, Shape};
//! fn otherwise(pair: &Pair, image: &Arc<ExportedImage>, other: Shape) {
//!     let _ = MappedImage::import(pair, image, other);
//! }
//! ```
//!
//! ```compile_fail,E0616
//! // Vulkan's image cannot be destroyed below its mapping: the mapping owns a share of it.
//! use std::sync::Arc;
//! use vulkan_cuda::{ExportedImage, MappedImage};
//! fn too_early(mapped: Arc<MappedImage>) {
//!     let image: ExportedImage = mapped.exported;
//!     drop(image);
//! }
//! ```

use std::sync::Arc;

use ash::vk;
use cudarc::driver::sys;

use crate::cuda::{Array, api};
use crate::export::{MemoryExport, export_memory};
use crate::exportable;
use crate::format::ArrayFormat;
use crate::handle::ExportType;
use crate::memory::ImportedMemory;
use crate::pair::Pair;
use crate::shape::{Shape, ViewType};
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
    image: vk::Image,
    memory: vk::DeviceMemory,
    allocation_size: u64,
    request: ImageRequest,
    format: ArrayFormat,
    kind: ExportType,
    vk: Vk,
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
        let export = MemoryExport::of(vk, kind)?;
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
        let requirements = unsafe { vk.device().get_image_memory_requirements(image) };
        // Always dedicated: some drivers export images in no other way, and none minds.
        let dedicated = vk::MemoryDedicatedAllocateInfo::default().image(image);
        // SAFETY: the size and types are those that the image requires.
        exported.memory = unsafe {
            export.allocate(
                vk,
                requirements.size,
                requirements.memory_type_bits,
                Default::default(),
                Some(dedicated),
            )
        }?;
        exported.allocation_size = requirements.size;
        // SAFETY: the memory is dedicated to this image and is bound once.
        unsafe { vk.device().bind_image_memory(image, exported.memory, 0) }
            .map_err(vk.failed("vkBindImageMemory"))?;
        Ok(exported)
    }

    /// The image.
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
        if self.vk.is_abandoned() {
            return;
        }
        // SAFETY: the GPU is done with it: whoever submitted work that uses it has promised to keep it alive so long.
        unsafe {
            self.vk.device().destroy_image(self.image, None);
            self.vk.device().free_memory(self.memory, None);
        }
    }
}

/// A CUDA mipmapped array in memory that Vulkan allocated. It goes before its import, the import before Vulkan's image: the
/// field order is that order.
pub struct MappedImage {
    mipmap: sys::CUmipmappedArray,
    imported: ImportedMemory,
    exported: Arc<ExportedImage>,
}

// SAFETY: the driver API is thread-safe, and every use binds the context first.
unsafe impl Send for MappedImage {}
// SAFETY: as above.
unsafe impl Sync for MappedImage {}

impl MappedImage {
    /// Exports the image's memory, imports it into CUDA and maps all levels.
    ///
    /// # Errors
    /// An image of another device; 304 (`OPERATING_SYSTEM`) under WSL2; whatever CUDA's driver says of an array that it does not have.
    pub fn import(pair: &Pair, exported: &Arc<ExportedImage>) -> Result<Arc<Self>> {
        pair.vk().require_same(&exported.vk)?;
        let handle = export_memory(&exported.vk, exported.memory, exported.kind)?;
        let imported = ImportedMemory::new(pair.cuda(), handle, exported.allocation_size, true)?;
        let ImageRequest { shape, usage, surface, .. } = exported.request;
        let desc = shape.mipmapped_array(exported.format, usage, surface);
        let mut mipmap = std::ptr::null_mut();
        // SAFETY: the description is that of the image that the allocation is dedicated to.
        pair.cuda().check("cuExternalMemoryGetMappedMipmappedArray", unsafe {
            api::cuExternalMemoryGetMappedMipmappedArray(&mut mipmap, imported.raw, &desc)
        })?;
        Ok(Arc::new(Self { mipmap, imported, exported: exported.clone() }))
    }

    /// One level of the mip chain, of which surface and texture objects are made.
    ///
    /// # Errors
    /// The image has no such level.
    pub fn level(self: &Arc<Self>, level: u32) -> Result<Array> {
        let levels = self.exported.shape().levels();
        if level >= levels {
            return Err(Error::Rule(format!("there is no level {level} in an image of {levels}")));
        }
        // SAFETY: the mipmapped array is `self`'s.
        unsafe { Array::of_level(self.mipmap, level, &self.imported.cuda, self.clone()) }
    }

    /// CUDA's mipmapped array, for texture objects of your own; valid as long as `self`.
    pub fn cuda(&self) -> sys::CUmipmappedArray {
        self.mipmap
    }

    /// Vulkan's side.
    pub fn exported(&self) -> &ExportedImage {
        &self.exported
    }
}

impl Drop for MappedImage {
    fn drop(&mut self) {
        // SAFETY: mapped above; no stream uses it any more, which whoever launched work on it has promised. No surface or
        // texture object is left: each holds an `Arc` of this.
        self.imported
            .cuda
            .cleanup("cuMipmappedArrayDestroy", || unsafe { api::cuMipmappedArrayDestroy(self.mipmap) });
    }
}

/// Allocates an image in Vulkan and maps it into CUDA.
///
/// # Errors
/// As [`ExportedImage::new`] and [`MappedImage::import`].
pub fn share_image(pair: &Pair, request: &ImageRequest) -> Result<Arc<MappedImage>> {
    MappedImage::import(pair, &Arc::new(ExportedImage::new(pair.vk(), request)?))
}

/// The usual case: a picture with its mip chain, written by kernels and sampled by Vulkan.
///
/// # Errors
/// As [`Shape::new`].
pub fn picture(format: vk::Format, width: u32, height: u32, levels: u32) -> Result<ImageRequest> {
    let extent = vk::Extent3D { width, height, depth: 1 };
    Ok(ImageRequest {
        format,
        shape: Shape::new(ViewType::D2, extent, 1, levels)?,
        usage: vk::ImageUsageFlags::SAMPLED
            | vk::ImageUsageFlags::STORAGE
            | vk::ImageUsageFlags::TRANSFER_SRC
            | vk::ImageUsageFlags::TRANSFER_DST,
        surface: true,
    })
}
