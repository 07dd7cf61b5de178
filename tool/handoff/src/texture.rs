//! Paints level 0 of a mip chain and computes each level below from the one above, through surface objects.

use std::ffi::c_void;
use std::sync::Arc;

use vulkan_cuda::SharedImage;
use vulkan_cuda::format::ArrayFormat;
use vulkan_cuda::image::{ImageRequest, picture};
use vulkan_cuda::ownership::SHARED_LAYOUT;
use vulkan_cuda::shared_ring::{Resource, Slot};

use super::scene_kernels::{Destination, SceneKernels, load};
use crate::contents::texture::{self, Texel};
use crate::contents::{built_in, wave::Grid};
use crate::producer::{CudaTimeline, Frame, ImageSlot, ProducerDesc, Source, TEXTURE_FORMAT, check_texture};
use wavefield_gpu::Result;
use wavefield_gpu::cuda::{
    Array, Cuda, Kernel, KernelParameters, KernelSource, MipmappedArray, Signature, Stream, Surface, blocks,
};
use wavefield_gpu::vulkan::{Device, ImageView, view_of_shared};

pub struct TextureKernels {
    paint: Kernel,
    reduce: Kernel,
    stamp: Option<Kernel>,
    size: Grid,
}

impl SceneKernels for TextureKernels {
    type Slot = SharedPicture;
    type Scratch = Vec<Level>;

    fn new(device: &Device, context: &Cuda, source: &KernelSource, desc: &ProducerDesc) -> Result<Self> {
        let size = desc.grid;
        check_texture(device, size)?;
        let paint = load(context, source, Signature::Texture)?;
        let reduce = Kernel::load(context, &built_in::texture_reduce())?;
        let stamp = desc.stamped.then(|| Kernel::load(context, &built_in::texture_stamp())).transpose()?;
        Ok(Self { paint, reduce, stamp, size })
    }

    fn slots(&self, device: &Device, context: &Cuda, depth: usize) -> Result<Vec<SharedPicture>> {
        let request = self.request()?;
        let slot = |_| {
            let image = SharedImage::new(&device.pair(context)?, &request)?;
            let levels = levels(self.size, |level| image.level(level))?;
            Ok(SharedPicture { view: view_of_shared(device, image.exported())?, levels, image })
        };
        (0..depth).map(slot).collect()
    }

    fn scratch(&self, context: &Cuda) -> Result<Vec<Level>> {
        let request = self.request()?;
        let format = ArrayFormat::of(request.format)?;
        let desc = request.shape.mipmapped_array(format, request.usage, request.surface);
        let mipmap = MipmappedArray::new(context, &desc.arrayDesc, desc.numLevels)?;
        levels(self.size, |level| mipmap.level(level))
    }

    fn source(slot: &SharedPicture) -> Source {
        let (image, view) = (slot.image.exported().raw(), slot.view.raw());
        Source::Texture(ImageSlot { image, view, layout: SHARED_LAYOUT })
    }

    fn parameters(&self) -> &KernelParameters {
        &self.paint.parameters
    }

    unsafe fn enqueue(
        &self,
        timeline: &CudaTimeline,
        frame: &Frame,
        into: Destination<'_, Self>,
    ) -> Result<()> {
        let levels = match into {
            Destination::Slot(slot) => &slot.levels,
            Destination::Scratch(scratch) => scratch,
        };
        let launch = |kernel: &Kernel, stream: &Stream, level: &Level| {
            let (surface, Grid { cols, rows }) = (level.surface.raw(), level.size);
            // SAFETY: `paint` and the stamp have this signature. The surface lives until the stream is idle;
            // the rest is the caller's promise.
            unsafe {
                kernel.launch(stream, surface, [cols, rows], frame.index, frame.time, &frame.parameters)
            }
        };
        timeline.timed(frame.index, |stream| {
            launch(&self.paint, stream, &levels[0])?;
            // SAFETY: the caller's promise.
            levels.windows(2).try_for_each(|pair| unsafe { self.reduce(stream, &pair[0], &pair[1]) })
        })?;
        let Some(stamp) = &self.stamp else { return Ok(()) };
        levels.iter().try_for_each(|level| launch(stamp, timeline.stream(), level))
    }

    unsafe fn copy(scratch: &Vec<Level>, slot: &SharedPicture, stream: &Stream) -> Result<()> {
        for (from, to) in scratch.iter().zip(&slot.levels) {
            let extent = [from.row_bytes(), from.size.rows as usize];
            // SAFETY: both levels have this size; the rest is the caller's promise.
            unsafe { from.surface.array().copy_to_array(stream, to.surface.array(), extent) }?;
        }
        Ok(())
    }

    fn read(scratch: &Vec<Level>, stream: &Stream, bytes: &mut [u8]) -> Result<()> {
        let mut rest = bytes;
        for level in scratch {
            let (this, next) = rest.split_at_mut(level.row_bytes() * level.size.rows as usize);
            // SAFETY: only this stream writes the level. `bytes` is borrowed until after `synchronize`.
            let copied = unsafe { level.surface.array().copy_to_host(stream, this, level.row_bytes()) };
            if copied.is_err() {
                // Copies of earlier levels may still be running.
                let _ = stream.synchronize();
                return Ok(copied?);
            }
            rest = next;
        }
        stream.synchronize()
    }
}

impl TextureKernels {
    fn request(&self) -> vulkan_cuda::Result<ImageRequest> {
        let Grid { cols, rows } = self.size;
        picture(TEXTURE_FORMAT, cols, rows, texture::levels(self.size))
    }

    /// Enqueues `reduce` of `handoff/kernels/texture.cu`, which computes `to` from `from`, the level above.
    ///
    /// # Safety
    /// Nothing else may use either level until the stream has passed this point.
    unsafe fn reduce(&self, stream: &Stream, from: &Level, to: &Level) -> Result<()> {
        let (mut above, mut below) = (from.surface.raw(), to.surface.raw());
        let (mut from_size, mut to_size) = (from.size, to.size);
        let mut arguments: [*mut c_void; 6] = [
            (&raw mut above).cast(),
            (&raw mut below).cast(),
            (&raw mut from_size.cols).cast(),
            (&raw mut from_size.rows).cast(),
            (&raw mut to_size.cols).cast(),
            (&raw mut to_size.rows).cast(),
        ];
        let block = self.reduce.block;
        // SAFETY: the arguments are those of `reduce`. The stream has written the level above by then. The
        // rest is the caller's promise.
        unsafe { self.reduce.launch_with(stream, blocks(to.size.count(), block), block, &mut arguments) }
    }
}

/// One level of a mip chain, in a shared slot or in CUDA's own memory.
pub struct Level {
    surface: Surface,
    size: Grid,
}

impl Level {
    fn row_bytes(&self) -> usize {
        self.size.cols as usize * size_of::<Texel>()
    }
}

fn levels(size: Grid, array: impl Fn(u32) -> vulkan_cuda::Result<Array>) -> Result<Vec<Level>> {
    let level = |index| Ok(Level { surface: array(index)?.surface()?, size: texture::level(size, index) });
    (0..texture::levels(size)).map(level).collect()
}

/// A shared texture. CUDA accesses it through one surface per level, Vulkan through one view.
pub struct SharedPicture {
    // The view and the surfaces are dropped before the image.
    view: ImageView,
    levels: Vec<Level>,
    image: Arc<SharedImage>,
}

// SAFETY: it is the only owner of the image, and the surfaces refer to that image.
unsafe impl Slot for SharedPicture {
    fn resource(&self) -> Resource {
        self.image.resource()
    }
}
