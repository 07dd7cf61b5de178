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
pub use crate::exported_image::{ExportedImage, ImageRequest};
use crate::memory::ImportedMemory;
use crate::pair::Pair;
use crate::shape::{Shape, ViewType};
use crate::{Error, Result};

/// A CUDA mipmapped array in memory that Vulkan allocated.
pub struct MappedImage {
    /// `Drop` destroys it, before any field is dropped.
    mipmap: sys::CUmipmappedArray,
    // Before Vulkan's image.
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
    /// An image of another device; 304 (`OPERATING_SYSTEM`) under WSL2; what CUDA's driver answers if it has no such array.
    pub fn import(pair: &Pair, exported: &Arc<ExportedImage>) -> Result<Arc<Self>> {
        pair.vk().require_same(&exported.vk)?;
        // ANCHOR: import
        let handle = exported.export()?;
        let imported = ImportedMemory::new(pair.cuda(), handle, exported.allocation_size, true)?;
        let ImageRequest { shape, usage, surface, .. } = exported.request;
        let desc = shape.mipmapped_array(exported.format, usage, surface);
        let mut mipmap = std::ptr::null_mut();
        // SAFETY: the description is that of the image that the allocation is dedicated to.
        pair.cuda().check("cuExternalMemoryGetMappedMipmappedArray", unsafe {
            api::cuExternalMemoryGetMappedMipmappedArray(&mut mipmap, imported.raw, &desc)
        })?;
        // ANCHOR_END: import
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
