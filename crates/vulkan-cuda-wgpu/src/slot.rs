//! wgpu's buffers and textures as slots.

use std::sync::Arc;

use vulkan_cuda::cuda::Surface;
use vulkan_cuda::shared_ring::{Resource, Slot};
use vulkan_cuda::{SharedBuffer, SharedImage};
use wgpu::{TextureUsages, TextureUses};

/// A slot that wgpu can use: [`WgpuBuffer`] or [`WgpuTexture`].
pub trait WgpuSlot: Slot + sealed::Sealed {}

impl<T: Slot + sealed::Sealed> WgpuSlot for T {}

pub(crate) mod sealed {
    pub trait Sealed {
        /// Records the transition to the state that the slot has while CUDA owns it. A buffer needs none.
        fn give_back(&self, _: &mut wgpu::CommandEncoder) {}
    }
}

/// A buffer that wgpu and CUDA share.
pub struct WgpuBuffer {
    pub(crate) wgpu: wgpu::Buffer,
    pub(crate) shared: Arc<SharedBuffer>,
}

impl WgpuBuffer {
    /// Returns wgpu's buffer.
    pub fn wgpu(&self) -> &wgpu::Buffer {
        &self.wgpu
    }

    /// Returns the address of the same bytes in CUDA's address space. It is valid while `self` lives.
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

impl sealed::Sealed for WgpuBuffer {}

/// Returns the usual descriptor for [`Gpu::texture`](crate::Gpu::texture): a 2D texture of one level.
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
    pub(crate) wgpu: wgpu::Texture,
    pub(crate) surface: Surface,
    pub(crate) image: Arc<SharedImage>,
}

/// wgpu's texture state for the layout `GENERAL`, which an image has while CUDA owns it.
pub(crate) const CUDA_HAS_IT: TextureUses = TextureUses::STORAGE_WRITE_ONLY;

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

impl sealed::Sealed for WgpuTexture {
    fn give_back(&self, encoder: &mut wgpu::CommandEncoder) {
        // wgpu leaves a texture in the layout of its last use.
        let back = wgpu::TextureTransition { texture: &self.wgpu, selector: None, state: CUDA_HAS_IT };
        encoder.transition_resources(std::iter::empty(), std::iter::once(back));
    }
}
