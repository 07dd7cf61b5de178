//! Images that both APIs use: Vulkan allocates and exports an image, and CUDA maps it as a mipmapped array.
//!
//! An image differs from a buffer:
//!
//! - Not every format, type and usage can be exported, so this module asks the driver first.
//! - Its tiling is optimal: only the driver knows where each texel lies. CUDA's driver computes the same
//!   arrangement from the same format, extent, layers and levels. With other parameters, it would read wrong
//!   texels, so a mapping takes the parameters from the exported image.
//! - Kernels get no pointer. They write a level through a surface object and read it through a texture
//!   object. [`Array`] copies a level to linear memory.
//! - An image has a layout, which CUDA does not track: see [`crate::ownership`].
//!
//! # Examples
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
//! let surface = level.surface()?; // kernels write texels through this object
//! println!("a kernel takes the object {}", surface.raw());
//! # Ok(())
//! # }
//! ```
//!
//! These do not compile:
//!
//! ```compile_fail,E0308
//! // Only exported memory can be mapped: a mapping takes the exported image, not a descriptor.
//! fn forged(pair: &vulkan_cuda::Pair, handle: vulkan_cuda::handle::MemoryHandle) {
//!     let _ = vulkan_cuda::SharedImage::import(pair, &handle);
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
//! // Vulkan's image cannot be destroyed before its mapping: a private field keeps it alive.
//! fn too_early(mapped: vulkan_cuda::SharedImage) {
//!     drop(mapped.exported);
//! }
//! ```

use std::sync::Arc;

use ash::vk;
use cudarc::driver::sys;

use crate::cuda::{Array, api};
use crate::export::Memory;
use crate::exportable;
use crate::format::{ArrayFormat, Numeric};
use crate::handle::MemoryHandle;
use crate::memory::ImportedMemory;
use crate::pair::Pair;
use crate::shape::{Shape, ViewType};
use crate::vulkan::Vk;
use crate::{Error, Result};

/// Describes an [`ExportedImage`]. [`picture`] returns the usual one.
#[derive(Clone, Copy, Debug)]
pub struct ImageRequest {
    /// The format of the texels: one of [`crate::format::FORMATS`].
    pub format: vk::Format,
    /// The view type, the extent, and the numbers of layers and levels.
    pub shape: Shape,
    /// The usages in Vulkan. CUDA's array is told whether they include `COLOR_ATTACHMENT`.
    pub usage: vk::ImageUsageFlags,
    /// Whether kernels write the image through surface objects (`CUDA_ARRAY3D_SURFACE_LDST`). Sampling and
    /// copies do not need this.
    pub surface: bool,
}

/// Returns a request for the usual image: a picture with a mip chain, which kernels write and Vulkan samples.
/// `width` and `height` are those of level 0, in texels. Fails as [`Shape::new`] does.
///
/// The usage includes `STORAGE`, except for sRGB formats, for which few drivers allow it. CUDA's surface
/// objects do not need this usage.
pub fn picture(format: vk::Format, width: u32, height: u32, levels: u32) -> Result<ImageRequest> {
    let extent = vk::Extent3D { width, height, depth: 1 };
    let storage = match ArrayFormat::of(format) {
        Ok(ArrayFormat { numeric: Numeric::Srgb, .. }) => vk::ImageUsageFlags::empty(),
        _ => vk::ImageUsageFlags::STORAGE,
    };
    Ok(ImageRequest {
        format,
        shape: Shape::new(ViewType::D2, extent, 1, levels)?,
        usage: vk::ImageUsageFlags::SAMPLED
            | storage
            | vk::ImageUsageFlags::TRANSFER_SRC
            | vk::ImageUsageFlags::TRANSFER_DST,
        surface: true,
    })
}

/// A Vulkan image with optimal tiling, in exportable memory of its own. Owns the image and the memory.
pub struct ExportedImage {
    // Dropped before `memory`.
    image: Image,
    pub(crate) memory: Memory,
    request: ImageRequest,
    format: ArrayFormat,
}

struct Image {
    raw: vk::Image,
    vk: Vk,
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: destroyed once. Code that submits work with the image promises that the GPU has finished.
        self.vk.cleanup(|device| unsafe { device.destroy_image(self.raw, None) });
    }
}

/// The allowed image usages: those that need neither a feature nor an extension, because Vulkan cannot report
/// which are enabled. `TRANSIENT_ATTACHMENT` (0x40) is excluded: such an image may lose its contents.
const USAGES: u32 = 0xff & !0x40;

impl ExportedImage {
    /// Creates the image, in the layout `UNDEFINED`. Record a
    /// [`first_release`](crate::ownership::first_release) before CUDA's first write.
    ///
    /// # Errors
    /// Fails if CUDA has no counterpart of the format, if there is no usage or one that is not allowed, if
    /// the device does not export such an image (the error says why) or was created without the extension, or
    /// if memory has run out.
    pub fn new(vk: &Vk, request: &ImageRequest) -> Result<Self> {
        let format = ArrayFormat::of(request.format)?;
        let shape = request.shape;
        if request.usage.as_raw() & !USAGES != 0 {
            return Err(Error::Rule(format!(
                "an image with the usage {:?} cannot be shared: use only those of Vulkan 1.0 that keep what the image holds",
                vk::ImageUsageFlags::from_raw(request.usage.as_raw() & !USAGES)
            )));
        }
        let refused = |reason: String| {
            let (device, view, format) = (&vk.info().name, shape.view().name(), format.name());
            format!("{device} does not export a {view} image of {format}: {reason}")
        };
        if request.usage.is_empty() {
            return Err(Error::Rule(refused("an image needs a usage".into())));
        }
        // SAFETY: `vk` keeps both handles alive, and its physical device belongs to its instance.
        let kind =
            unsafe { exportable::image(vk.instance(), vk.physical(), request.format, &shape, request.usage) }
                .map_err(|reason| Error::DeviceLacks(refused(reason)))?;
        vk.memory_handles()?;
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
        let raw = unsafe { vk.device().create_image(&info, None) }.map_err(vk.failed("vkCreateImage"))?;
        // From here on, `Drop` destroys the image.
        let image = Image { raw, vk: vk.clone() };
        // SAFETY: the image was created above.
        let required = unsafe { vk.device().get_image_memory_requirements(raw) };
        // Always dedicated: some drivers export images in no other way, and every driver accepts it.
        let dedicated = vk::MemoryDedicatedAllocateInfo::default().image(raw);
        let flags = vk::MemoryAllocateFlags::empty();
        // SAFETY: the requirements are the image's own. It is unbound, and the driver offers `kind` for it.
        let memory = unsafe { Memory::allocate(vk, kind, flags, &required, Some(dedicated)) }?;
        // SAFETY: the memory is dedicated to this image and is bound once.
        unsafe { vk.device().bind_image_memory(raw, memory.raw, 0) }
            .map_err(vk.failed("vkBindImageMemory"))?;
        Ok(Self { image, memory, request: *request, format })
    }

    /// Returns Vulkan's image. It is destroyed with `self`.
    pub fn raw(&self) -> vk::Image {
        self.image.raw
    }

    /// Returns the image's view type, extent, layers and levels.
    pub fn shape(&self) -> Shape {
        self.request.shape
    }

    /// Returns the image's format, in the terms of both APIs.
    pub fn format(&self) -> ArrayFormat {
        self.format
    }

    /// Creates a handle to the memory: see [`ExportedBuffer::export`](crate::ExportedBuffer::export).
    pub fn export(&self) -> Result<MemoryHandle> {
        self.memory.export()
    }

    /// Returns the size of the allocation in bytes, which every importer must specify.
    pub fn allocation_size(&self) -> u64 {
        self.memory.size
    }
}

/// A Vulkan image, and CUDA's mipmapped array in the same memory. Owns the array, and keeps the image alive.
pub struct SharedImage {
    /// Destroyed in `drop`, before the fields are dropped.
    mipmap: sys::CUmipmappedArray,
    // Dropped before Vulkan's image.
    pub(crate) imported: ImportedMemory,
    exported: Arc<ExportedImage>,
}

// SAFETY: the driver API is thread-safe, and every method that calls it binds the context first.
unsafe impl Send for SharedImage {}
// SAFETY: as for `Send`: no method relies on the calling thread.
unsafe impl Sync for SharedImage {}

impl SharedImage {
    /// Creates an image in Vulkan and maps it into CUDA. Fails as [`ExportedImage::new`] and
    /// [`SharedImage::import`] do.
    pub fn new(pair: &Pair, request: &ImageRequest) -> Result<Arc<Self>> {
        Self::import(pair, &Arc::new(ExportedImage::new(pair.vk(), request)?))
    }

    /// Exports the image's memory, imports it into CUDA and maps all levels. Fails if the pair has another
    /// Vulkan device, or if CUDA's driver does not support such an array.
    pub fn import(pair: &Pair, exported: &Arc<ExportedImage>) -> Result<Arc<Self>> {
        pair.vk().require_same(&exported.memory.vk)?;
        // ANCHOR: import
        let handle = exported.export()?;
        let imported = ImportedMemory::new(pair.cuda(), handle, exported.memory.size, true)?;
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

    /// Returns a level of the mip chain. Level 0 is the largest. Fails if there is no such level.
    pub fn level(self: &Arc<Self>, level: u32) -> Result<Array> {
        let levels = self.exported.shape().levels();
        if level >= levels {
            return Err(Error::Rule(format!("there is no level {level} in an image of {levels} levels")));
        }
        // SAFETY: `self` owns the mipmapped array, and destroys it when the last `Arc` is dropped.
        unsafe { Array::of_level(self.mipmap, level, &self.imported.cuda, self.clone()) }
    }

    /// Returns CUDA's mipmapped array, for texture objects (`cuTexObjectCreate`). Valid while `self` lives.
    ///
    /// To read one level, create the object from the whole array, and set both level clamps to that level. An
    /// object created from one level's array reads wrong texels from the second layer on (H200, driver 580).
    pub fn cuda(&self) -> sys::CUmipmappedArray {
        self.mipmap
    }

    /// Returns the Vulkan image.
    pub fn exported(&self) -> &ExportedImage {
        &self.exported
    }
}

impl Drop for SharedImage {
    fn drop(&mut self) {
        // SAFETY: mapped in `import`, destroyed once. Code that launches work on the array promises that the
        // GPU has finished. No `Array` or `Surface` is left, because each holds an `Arc` of this image.
        self.imported
            .cuda
            .cleanup("cuMipmappedArrayDestroy", || unsafe { api::cuMipmappedArrayDestroy(self.mipmap) });
    }
}
