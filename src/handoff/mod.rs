//! Ways to hand CUDA's vertices to Vulkan, one small file each, made to be compared.
//!
//! | file | what orders the two sides | what is copied |
//! |---|---|---|
//! | [`timeline`](TimelineHandoff) | two timelines and a ring: the GPU waits, the CPU never | nothing |
//! | [`inline`](InlineHandoff) | one command buffer: the CUDA kernel is launched *by Vulkan* | nothing |
//! | [`binary`](BinaryHandoff) | one buffer, two binary semaphores: the classic scheme | nothing |
//! | [`cpu_sync`](CpuSyncHandoff) | the CPU waits for each side in turn | nothing |
//! | [`device_copy`](DeviceCopyHandoff) | as `timeline` | device to device, as Taichi and Warp do |
//! | [`host_copy`](HostCopyHandoff) | the CPU | device → host → device: life without interop |
//!
//! [`TextureHandoff`] hands over images instead, in each of these ways but two: [`TextureHostCopyHandoff`] has the last, and
//! [`TextureInlineHandoff`] has `inline`.
//!
//! All of them are [`Producer`]s and share [`Fill`](crate::producer::Fill), which is the kernel on its stream.
//! [`Broken`](crate::producer::Broken) is what `wavefield verify --break` leaves out of the first, to show that it is needed.

mod binary;
mod chain;
mod cpu_sync;
mod device_copy;
mod host_copy;
mod inline;
mod module;
mod texture;
mod texture_host_copy;
mod texture_inline;
mod timeline;

use std::time::Duration;

use vulkan_cuda::Ring;

use crate::cuda::{Cuda, KernelSource};
use crate::producer::Producer;
use crate::vulkan::{AdapterInfo, Device, Queue};
use crate::wave::Grid;
use crate::{Error, Result};

pub use binary::BinaryHandoff;
pub(crate) use chain::{Painter, SharedPicture};
pub use cpu_sync::CpuSyncHandoff;
pub use device_copy::DeviceCopyHandoff;
pub use host_copy::HostCopyHandoff;
pub use inline::InlineHandoff;
pub use texture::TextureHandoff;
pub use texture_host_copy::TextureHostCopyHandoff;
pub use texture_inline::TextureInlineHandoff;
pub use timeline::TimelineHandoff;

/// How a frame gets from CUDA to Vulkan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Handoff {
    /// A ring of shared buffers or images and two timeline semaphores; the GPU waits.
    #[default]
    Timeline,
    /// The CUDA kernel inside Vulkan's command buffer (VK_NV_cuda_kernel_launch or VK_NVX_binary_import; for a texture
    /// VK_NVX_binary_import and VK_NVX_image_view_handle); falls back to timeline. A kernel that faults there stops drawing on
    /// this GPU for every process: see --risk-the-gpu.
    Inline,
    /// One shared buffer or image and two binary semaphores: the classic scheme.
    Binary,
    /// A shared buffer or image; the CPU waits for each side.
    CpuSync,
    /// CUDA fills memory of its own and copies it on the device into the shared slot: all levels of a texture.
    DeviceCopy,
    /// Device to host to device, as without interop.
    HostCopy,
}

impl Handoff {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Timeline => "timeline",
            Self::Inline => "inline",
            Self::Binary => "binary",
            Self::CpuSync => "cpu-sync",
            Self::DeviceCopy => "device-copy",
            Self::HostCopy => "host-copy",
        }
    }

    /// This one, or what stands in for it on `device`.
    pub fn on(self, device: &Device) -> Self {
        match self {
            Self::Inline if device.info().inline.is_none() => Self::Timeline,
            handoff => handoff,
        }
    }

    /// Why a texture cannot be handed over like that on a device, if it cannot.
    pub fn supports_texture(self, info: &AdapterInfo) -> Result<(), &'static str> {
        match self {
            Self::Inline => TextureInlineHandoff::supports(info),
            _ => Ok(()),
        }
    }

    /// Makes the producer; `timeout` bounds the waits of those that make the CPU wait. `context` must be the same GPU as the queue's device: see [`vulkan_cuda::find_twin`].
    pub fn make(
        self,
        queue: &Queue,
        context: &Cuda,
        source: &KernelSource,
        grid: Grid,
        ring: Ring,
        timeout: Duration,
    ) -> Result<Box<dyn Producer>> {
        Ok(match self {
            Self::Timeline => Box::new(TimelineHandoff::new(queue, context, source, grid, ring)?),
            Self::Inline => Box::new(InlineHandoff::new(queue, context, source, grid, ring)?),
            Self::Binary => Box::new(BinaryHandoff::new(queue, context, source, grid)?),
            Self::CpuSync => Box::new(CpuSyncHandoff::new(queue, context, source, grid, timeout)?),
            Self::DeviceCopy => Box::new(DeviceCopyHandoff::new(queue, context, source, grid, ring)?),
            Self::HostCopy => Box::new(HostCopyHandoff::new(queue, context, source, grid, timeout)?),
        })
    }

    /// The same for `--scene texture`; waits for the queue.
    ///
    /// # Errors
    /// Where [`Handoff::supports_texture`] is one, and those of the hand-off.
    pub fn make_texture(
        self,
        queue: &mut Queue,
        context: &Cuda,
        source: &KernelSource,
        size: Grid,
        ring: Ring,
        timeout: Duration,
    ) -> Result<Box<dyn Producer>> {
        let info = queue.device().info();
        if let Err(reason) = self.supports_texture(info) {
            return Err(Error::Unsupported(format!(
                "--scene texture has no --handoff {} on {}: {reason}",
                self.name(),
                info.name
            )));
        }
        Ok(match self {
            Self::Inline => Box::new(TextureInlineHandoff::new(queue, context, source, size, ring)?),
            Self::HostCopy => Box::new(TextureHostCopyHandoff::new(queue, context, source, size, timeout)?),
            _ => Box::new(TextureHandoff::new(queue, context, source, size, ring, (self, timeout))?),
        })
    }
}
