//! The recipe for textures with mip levels: the differences.

use std::rc::Rc;
use std::sync::Arc;

use anyhow::Result;
use ash::vk;
use glow::HasContext;
use vulkan_cuda::cuda::Surface;
use vulkan_cuda::ownership::first_release;
use vulkan_cuda::{SharedImage, image};

use super::{Gpu, Slot};
use crate::gl::{Gl, Name, Named};
use crate::readback;

/// A format, with its names in Vulkan and in GL.
#[derive(Clone, Copy)]
pub struct Format {
    pub vulkan: vk::Format,
    pub gl: u32,
}

/// One image with three names, and the surface objects through which CUDA's kernels write its levels.
pub struct Texture {
    pub gl: glow::Texture,
    pub levels: Vec<Surface>,
    memory: Name,
    context: Rc<Gl>,
    _image: Arc<SharedImage>,
}

impl Texture {
    /// Step 2, for an image with all its levels. [`SharedImage::new`] exports it for CUDA; GL's descriptor is
    /// a second export.
    pub fn new(gpu: &Gpu, format: Format, (width, height): (u32, u32)) -> Result<Self> {
        let count = width.max(height).ilog2() + 1;
        let image =
            SharedImage::new(&gpu.vulkan.pair, &image::picture(format.vulkan, width, height, count)?)?;
        let exported = image.exported();
        // A new image has no layout, and must get one before it is written. This is the only work for
        // Vulkan's queue.
        readback::Target::new(&gpu.vulkan, 16)?.run(&gpu.vulkan, |device, commands| {
            for barrier in first_release(exported.raw(), gpu.vulkan.family) {
                let barriers = [barrier];
                let info = vk::DependencyInfo::default().image_memory_barriers(&barriers);
                // SAFETY: the commands are being recorded, and the image lives until the queue is idle.
                unsafe { device.cmd_pipeline_barrier2(commands, &info) };
            }
        })?;
        let memory = gpu.gl.import_memory(exported.export()?, exported.allocation_size())?;
        let gl = gpu.gl.texture_on(memory, format.gl, (width, height), count)?;
        let levels = (0..count).map(|level| image.level(level)?.surface());
        let levels = levels.collect::<vulkan_cuda::Result<_>>()?;
        Ok(Self { gl, levels, memory, context: gpu.gl.clone(), _image: image })
    }
}

impl Slot for Texture {
    /// A hand-off of a texture also names the layout that CUDA uses: the general one.
    fn named(&self) -> Named {
        Named::Texture(self.gl)
    }
}

impl Drop for Texture {
    fn drop(&mut self) {
        // SAFETY: GL has finished with it.
        unsafe { self.context.raw.delete_texture(self.gl) };
        self.context.delete_memory(self.memory);
    }
}
