//! Step 4 of the recipe, for textures: the differences.

use std::sync::Arc;

use anyhow::Result;
use ash::vk;
use vulkan_cuda::cuda::Surface;
use vulkan_cuda::shared_ring::{Resource, Slot};
use vulkan_cuda::{ImageRequest, Pair, SharedImage};
use wgpu::hal::vulkan::{Api, TextureMemory};
use wgpu::{TextureUsages, TextureUses};

use super::{Frames, Gpu, VULKAN};

/// A slot: an image, and the surface object through which kernels write its only level.
pub struct Canvas {
    pub surface: Surface,
    image: Arc<SharedImage>,
}

impl Canvas {
    pub fn new(pair: &Pair, request: &ImageRequest) -> Result<Self> {
        let image = SharedImage::new(pair, request)?;
        Ok(Self { surface: image.level(0)?.surface()?, image })
    }
}

// SAFETY: it owns the image.
unsafe impl Slot for Canvas {
    fn resource(&self) -> Resource {
        self.image.resource()
    }
}

/// wgpu's state for the layout that CUDA keeps the images in (`GENERAL`). Neither wgpu nor CUDA uses it for anything else.
const CUDA_HAS_IT: TextureUses = TextureUses::STORAGE_WRITE_ONLY;

/// Slots of `format`, which must be wgpu's name for the request's format.
pub fn textures(
    gpu: &Gpu,
    request: ImageRequest,
    format: wgpu::TextureFormat,
) -> Result<Frames<'_, Canvas, wgpu::Texture>> {
    let canvas = |_| Canvas::new(&gpu.pair, &request);
    let vk::Extent3D { width, height, .. } = request.shape.extent();
    let desc = wgpu::TextureDescriptor {
        label: None,
        size: wgpu::Extent3d { width, height, depth_or_array_layers: 1 },
        mip_level_count: 1,
        sample_count: 1,
        dimension: wgpu::TextureDimension::D2,
        format,
        usage: TextureUsages::TEXTURE_BINDING | TextureUsages::STORAGE_BINDING,
        view_formats: &[],
    };
    let hal_desc = wgpu::hal::TextureDescriptor {
        label: None,
        size: desc.size,
        mip_level_count: desc.mip_level_count,
        sample_count: desc.sample_count,
        dimension: desc.dimension,
        format,
        usage: TextureUses::RESOURCE | TextureUses::STORAGE_WRITE_ONLY,
        memory_flags: wgpu::hal::MemoryFlags::empty(),
        view_formats: Vec::new(),
    };
    // SAFETY: this device's image, as described and in the named layout. It lives until `lent` is dropped. Every state
    // other than "uninitialized" keeps its content.
    let lend = |canvas: &Canvas, lent: Arc<()>| unsafe {
        let hal = gpu.device.as_hal::<Api>().expect(VULKAN);
        let (image, done) = (canvas.image.exported().raw(), Box::new(move || drop(lent)));
        let raw = hal.texture_from_raw(image, &hal_desc, Some(done), TextureMemory::External);
        gpu.device.create_texture_from_hal::<Api>(raw, &desc, CUDA_HAS_IT)
    };
    // wgpu changes a texture to the layout for sampling, and leaves it there unless told otherwise.
    Frames::new(gpu, (0..3).map(canvas).collect::<Result<_>>()?, lend, |texture, encoder| {
        let back = wgpu::TextureTransition { texture, selector: None, state: CUDA_HAS_IT };
        encoder.transition_resources(std::iter::empty(), std::iter::once(back));
    })
}
