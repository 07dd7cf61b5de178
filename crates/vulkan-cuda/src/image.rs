//! One image, two views of it: Vulkan allocates and exports, CUDA maps the mip chain as a mipmapped array.
//!
//! An image differs from a buffer:
//!
//! - The *image* is created with `VkExternalMemoryImageCreateInfo`. Not every format, type and usage can be exported, so the
//!   driver is asked first (`vkGetPhysicalDeviceImageFormatProperties2`, in [`crate::exportable`]).
//! - Its tiling stays optimal: only the driver knows where each texel lies. CUDA's driver computes the same places from the
//!   same format, extent, layers and levels ([`crate::format`], [`crate::shape`]). With other parameters it would read
//!   wrong texels, so a mapping is made from the exported image and not from numbers.
//! - Kernels do not get a pointer. They write a level through a surface object and read it through a texture object.
//! - An image has a layout, which CUDA does not know: see [`crate::ownership`].
//!
//! # Examples
//!
//! ```no_run
//! # fn example(pair: vulkan_cuda::Pair) -> vulkan_cuda::Result<()> {
//! use ash::vk;
//! use vulkan_cuda::{SharedImage, image::picture};
//!
//! // 512 x 512 texels and a mip chain of 10 levels, down to one texel.
//! let image = SharedImage::new(&pair, &picture(vk::Format::R8G8B8A8_UNORM, 512, 512, 10)?)?;
//! println!("Vulkan's side is {:?}", image.exported().raw());
//!
//! let level = image.level(0)?;
//! let surface = level.surface()?; // kernels write through it
//! println!("a kernel takes the object {}", surface.raw());
//! # Ok(())
//! # }
//! ```
//!
//! # What does not compile
//!
//! ```compile_fail,E0308
//! // Only exported memory can be mapped: a mapping takes the exported image, not a descriptor.
//! use vulkan_cuda::{SharedImage, Pair};
//! fn forged(pair: &Pair, handle: vulkan_cuda::handle::MemoryHandle) {
//!     let _ = SharedImage::import(pair, &handle);
//! }
//! ```
//!
//! ```compile_fail,E0061
//! // An image cannot be mapped a second time with other parameters: the function takes none.
//! use std::sync::Arc;
//! use vulkan_cuda::{ExportedImage, SharedImage, Pair, Shape};
//! fn otherwise(pair: &Pair, image: &Arc<ExportedImage>, other: Shape) {
//!     let _ = SharedImage::import(pair, image, other);
//! }
//! ```
//!
//! ```compile_fail,E0616
//! // Vulkan's image cannot be destroyed before its mapping: the mapping owns a share of it.
//! use std::sync::Arc;
//! use vulkan_cuda::{ExportedImage, SharedImage};
//! fn too_early(mapped: Arc<SharedImage>) {
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

/// One image in memory that Vulkan allocated: a CUDA mipmapped array and Vulkan's image. It owns the array and the import,
/// and keeps Vulkan's image alive.
///
/// No stream may still use the array when it is dropped.
pub struct SharedImage {
    /// `Drop` destroys it, before any field is dropped.
    mipmap: sys::CUmipmappedArray,
    // Dropped before Vulkan's image.
    imported: ImportedMemory,
    exported: Arc<ExportedImage>,
}

// SAFETY: the driver API is thread-safe, and every use binds the context first.
unsafe impl Send for SharedImage {}
// SAFETY: as above.
unsafe impl Sync for SharedImage {}

impl SharedImage {
    /// Creates an image in Vulkan and maps it into CUDA.
    ///
    /// # Errors
    /// Fails as [`ExportedImage::new`] and [`SharedImage::import`] do.
    pub fn new(pair: &Pair, request: &ImageRequest) -> Result<Arc<Self>> {
        Self::import(pair, &Arc::new(ExportedImage::new(pair.vk(), request)?))
    }

    /// Exports the image's memory, imports it into CUDA (`cuImportExternalMemory`) and maps all levels
    /// (`cuExternalMemoryGetMappedMipmappedArray`).
    ///
    /// # Errors
    /// Fails if the image is of another device or if CUDA's driver has no such array. Under WSL2 the driver reports
    /// 304 (`OPERATING_SYSTEM`).
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

    /// Returns one level of the mip chain, from which you make a surface object. Level 0 is the largest.
    /// Calls `cuMipmappedArrayGetLevel`.
    ///
    /// # Errors
    /// Fails if the image has no such level, or if the driver reports an error.
    pub fn level(self: &Arc<Self>, level: u32) -> Result<Array> {
        let levels = self.exported.shape().levels();
        if level >= levels {
            return Err(Error::Rule(format!("there is no level {level} in an image of {levels} levels")));
        }
        // SAFETY: the mipmapped array is `self`'s.
        unsafe { Array::of_level(self.mipmap, level, &self.imported.cuda, self.clone()) }
    }

    /// Returns CUDA's mipmapped array, for texture objects (`cuTexObjectCreate`). It is valid while `self` lives.
    ///
    /// To read one level, make the object of the whole array, and set both level clamps to that level. An object of the
    /// level's array reads wrong texels from the second layer on (H200, driver 580).
    pub fn cuda(&self) -> sys::CUmipmappedArray {
        self.mipmap
    }

    /// Returns Vulkan's half.
    pub fn exported(&self) -> &ExportedImage {
        &self.exported
    }
}

impl Drop for SharedImage {
    fn drop(&mut self) {
        // SAFETY: mapped above. No stream uses it any more: code that launches work on it promises that. No surface or
        // texture object is left: each holds an `Arc` of this.
        self.imported
            .cuda
            .cleanup("cuMipmappedArrayDestroy", || unsafe { api::cuMipmappedArrayDestroy(self.mipmap) });
    }
}

/// Describes the usual image: a picture with its mip chain, which kernels write and Vulkan samples. `width` and
/// `height` are the texels of level 0.
///
/// # Errors
/// Fails as [`Shape::new`] does.
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
