//! Slots that are wgpu's buffers and textures.

use std::sync::Arc;

use ash::vk;
use vulkan_cuda::cuda::Surface;
use vulkan_cuda::shared_ring::{Resource, Slot};
use vulkan_cuda::{Error, ImageRequest, Result, Shape, SharedBuffer, SharedImage, ViewType};
use wgpu::hal::vulkan::{Api, Buffer, TextureMemory};
use wgpu::{BufferUsages, TextureUsages, TextureUses};

use crate::gpu::Gpu;

/// A slot that wgpu can use: [`WgpuBuffer`] or [`WgpuTexture`].
pub trait WgpuSlot: Slot + sealed::Sealed {}

pub(crate) mod sealed {
    pub trait Sealed {
        /// Records the transition to the state in which CUDA has the slot.
        fn give_back(&self, encoder: &mut wgpu::CommandEncoder);
    }
}

/// A buffer that wgpu and CUDA share.
pub struct WgpuBuffer {
    wgpu: wgpu::Buffer,
    shared: Arc<SharedBuffer>,
}

impl WgpuBuffer {
    /// Returns wgpu's buffer.
    pub fn wgpu(&self) -> &wgpu::Buffer {
        &self.wgpu
    }

    /// Returns the address of the same bytes for CUDA. It is valid while `self` lives.
    pub fn cuda(&self) -> cudarc::driver::sys::CUdeviceptr {
        self.shared.cuda()
    }
}

// SAFETY: it owns the buffer, and nothing else is a slot with its bytes.
unsafe impl Slot for WgpuBuffer {
    fn resource(&self) -> Resource {
        self.shared.resource()
    }
}

impl WgpuSlot for WgpuBuffer {}

impl sealed::Sealed for WgpuBuffer {
    fn give_back(&self, _: &mut wgpu::CommandEncoder) {}
}

/// Describes the usual texture: a picture of one level, as [`Gpu::texture`] and wgpu take it.
pub fn picture(
    (width, height): (u32, u32),
    format: wgpu::TextureFormat,
    usage: TextureUsages,
) -> wgpu::TextureDescriptor<'static> {
    wgpu::TextureDescriptor {
        label: None,
        size: wgpu::Extent3d { width, height, depth_or_array_layers: 1 },
        mip_level_count: 1,
        sample_count: 1,
        dimension: wgpu::TextureDimension::D2,
        format,
        usage,
        view_formats: &[],
    }
}

/// A texture that wgpu and CUDA share.
pub struct WgpuTexture {
    wgpu: wgpu::Texture,
    surface: Surface,
    image: Arc<SharedImage>,
}

/// wgpu's state for the layout of images that CUDA has (`GENERAL`).
const CUDA_HAS_IT: TextureUses = TextureUses::STORAGE_WRITE_ONLY;

impl WgpuTexture {
    /// Returns wgpu's texture.
    pub fn wgpu(&self) -> &wgpu::Texture {
        &self.wgpu
    }

    /// Returns the surface object through which kernels read and write the first level.
    pub fn surface(&self) -> &Surface {
        &self.surface
    }

    /// Returns the image, for CUDA's copies and for texture objects.
    pub fn image(&self) -> &Arc<SharedImage> {
        &self.image
    }
}

// SAFETY: it owns the image, and nothing else is a slot with it.
unsafe impl Slot for WgpuTexture {
    fn resource(&self) -> Resource {
        self.image.resource()
    }
}

impl WgpuSlot for WgpuTexture {}

impl sealed::Sealed for WgpuTexture {
    fn give_back(&self, encoder: &mut wgpu::CommandEncoder) {
        // wgpu leaves a texture in the layout of its last use.
        let back = wgpu::TextureTransition { texture: &self.wgpu, selector: None, state: CUDA_HAS_IT };
        encoder.transition_resources(std::iter::empty(), std::iter::once(back));
    }
}

impl Gpu {
    /// Makes a buffer in Vulkan, imports it into CUDA, and gives it to wgpu.
    ///
    /// # Errors
    /// Fails if the buffer is to be mapped, is empty, or has no usage or one that cannot be shared.
    pub fn buffer(&self, desc: &wgpu::BufferDescriptor) -> Result<WgpuBuffer> {
        const USAGES: [(BufferUsages, vk::BufferUsageFlags); 7] = [
            (BufferUsages::COPY_SRC, vk::BufferUsageFlags::TRANSFER_SRC),
            (BufferUsages::COPY_DST, vk::BufferUsageFlags::TRANSFER_DST),
            (BufferUsages::INDEX, vk::BufferUsageFlags::INDEX_BUFFER),
            (BufferUsages::VERTEX, vk::BufferUsageFlags::VERTEX_BUFFER),
            (BufferUsages::UNIFORM, vk::BufferUsageFlags::UNIFORM_BUFFER),
            (BufferUsages::STORAGE, vk::BufferUsageFlags::STORAGE_BUFFER),
            (BufferUsages::INDIRECT, vk::BufferUsageFlags::INDIRECT_BUFFER),
        ];
        let known = USAGES.iter().fold(BufferUsages::empty(), |all, (known, _)| all | *known);
        if desc.mapped_at_creation || !known.contains(desc.usage) {
            let text = format!("a shared buffer cannot be mapped, or have usages other than {known:?}");
            return Err(Error::Rule(text));
        }
        let wanted = USAGES.iter().filter(|(wanted, _)| desc.usage.contains(*wanted));
        let usage = wanted.fold(vk::BufferUsageFlags::empty(), |all, (_, usage)| all | *usage);
        let shared = Arc::new(SharedBuffer::new(self.pair(), desc.size, usage)?);
        let keep = shared.clone();
        // SAFETY: this device's buffer, with this size and usage, which lives as long as the closure.
        let wgpu = unsafe {
            let raw = Buffer::from_raw_externally_owned(shared.vulkan(), Box::new(move || drop(keep)));
            self.device().create_buffer_from_hal::<Api>(raw, desc)
        };
        Ok(WgpuBuffer { wgpu, shared })
    }

    /// Makes a texture in Vulkan, imports it into CUDA, and gives it to wgpu. It is two-dimensional, with any
    /// number of levels. Its format is one of [`vulkan_cuda::FORMATS`].
    ///
    /// # Errors
    /// Fails if the texture has layers, samples or other formats for views, or if a driver has no such image.
    pub fn texture(&self, desc: &wgpu::TextureDescriptor) -> Result<WgpuTexture> {
        use vk::ImageUsageFlags as Usage;
        const STORAGE: TextureUses = TextureUses::STORAGE_READ_ONLY
            .union(TextureUses::STORAGE_WRITE_ONLY)
            .union(TextureUses::STORAGE_READ_WRITE);
        const USAGES: [(TextureUsages, Usage, TextureUses); 5] = [
            (TextureUsages::COPY_SRC, Usage::TRANSFER_SRC, TextureUses::COPY_SRC),
            (TextureUsages::COPY_DST, Usage::TRANSFER_DST, TextureUses::COPY_DST),
            (TextureUsages::TEXTURE_BINDING, Usage::SAMPLED, TextureUses::RESOURCE),
            (TextureUsages::STORAGE_BINDING, Usage::STORAGE, STORAGE),
            (TextureUsages::RENDER_ATTACHMENT, Usage::COLOR_ATTACHMENT, TextureUses::COLOR_TARGET),
        ];
        let known = USAGES.iter().fold(TextureUsages::empty(), |all, (known, ..)| all | *known);
        if !known.contains(desc.usage) {
            return Err(Error::Rule(format!("a shared texture has no usages other than {known:?}")));
        }
        let wanted = USAGES.iter().filter(|(wanted, ..)| desc.usage.contains(*wanted));
        let (usage, uses) = wanted.fold((Usage::empty(), TextureUses::empty()), |all, (_, usage, uses)| {
            (all.0 | *usage, all.1 | *uses)
        });
        let wgpu::Extent3d { width, height, depth_or_array_layers } = desc.size;
        let flat = desc.dimension == wgpu::TextureDimension::D2 && depth_or_array_layers == 1;
        if !flat || desc.sample_count != 1 || !desc.view_formats.is_empty() {
            return Err(Error::Rule(
                "a shared texture has two dimensions, one layer, one sample and no view formats".into(),
            ));
        }
        let extent = vk::Extent3D { width, height, depth: 1 };
        let request = ImageRequest {
            format: self.vulkan_format(desc.format)?,
            shape: Shape::new(ViewType::D2, extent, 1, desc.mip_level_count)?,
            usage,
            surface: true,
        };
        let image = SharedImage::new(self.pair(), &request)?;
        let surface = image.level(0)?.surface()?;
        let hal_desc = wgpu::hal::TextureDescriptor {
            label: None,
            size: desc.size,
            mip_level_count: desc.mip_level_count,
            sample_count: desc.sample_count,
            dimension: desc.dimension,
            format: desc.format,
            usage: uses,
            memory_flags: wgpu::hal::MemoryFlags::empty(),
            view_formats: Vec::new(),
        };
        let keep = image.clone();
        // SAFETY: this device's image, as described, which lives as long as the closure. A barrier sets its
        // layout.
        let wgpu = unsafe {
            let hal = self.device().as_hal::<Api>().expect("the device is one of Vulkan");
            let (raw, done) = (image.exported().raw(), Box::new(move || drop(keep)));
            let raw = hal.texture_from_raw(raw, &hal_desc, Some(done), TextureMemory::External);
            self.device().create_texture_from_hal::<Api>(raw, desc, CUDA_HAS_IT)
        };
        Ok(WgpuTexture { wgpu, surface, image })
    }
}
