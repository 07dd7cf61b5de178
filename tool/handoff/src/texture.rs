//! Paints level 0 of a mip chain, and makes each level below from the one above, by surface objects.

use std::ffi::c_void;
use std::sync::Arc;

use vulkan_cuda::SharedImage;
use vulkan_cuda::format::ArrayFormat;
use vulkan_cuda::image::picture;
use vulkan_cuda::ownership::SHARED_LAYOUT;
use vulkan_cuda::shared_ring::{Resource, Slot};

use super::scene_kernels::{Destination, SceneKernels, load};
use crate::contents::texture::{self, Texel};
use crate::contents::wave::Grid;
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
    type Scratch = Chain;

    fn new(device: &Device, context: &Cuda, source: &KernelSource, desc: &ProducerDesc) -> Result<Self> {
        let size = desc.grid;
        check_texture(device, size)?;
        let paint = load(context, source, Signature::Texture)?;
        let reduce = Kernel::load(context, &crate::contents::built_in::texture_reduce())?;
        let stamp = desc
            .stamped
            .then(|| Kernel::load(context, &crate::contents::built_in::texture_stamp()))
            .transpose()?;
        Ok(Self { paint, reduce, stamp, size })
    }

    fn slots(&self, device: &Device, context: &Cuda, depth: usize) -> Result<Vec<SharedPicture>> {
        (0..depth).map(|_| SharedPicture::new(device, context, self.size)).collect()
    }

    fn scratch(&self, context: &Cuda) -> Result<Chain> {
        Chain::scratch(context, self.size)
    }

    fn source(slot: &SharedPicture) -> Source {
        let (image, view) = (slot.image.exported().raw(), slot.view.raw());
        Source::Texture(ImageSlot { image, view, layout: SHARED_LAYOUT })
    }

    fn parameters(&self) -> &KernelParameters {
        self.paint.parameters()
    }

    unsafe fn enqueue(
        &self,
        timeline: &CudaTimeline,
        frame: &Frame,
        into: Destination<'_, Self>,
    ) -> Result<()> {
        let chain = match into {
            Destination::Slot(slot) => &slot.chain,
            Destination::Scratch(scratch) => scratch,
        };
        timeline.timed(frame.index, |stream| {
            // SAFETY: (here and below) each kernel has its launch's signature; the rest is as promised.
            unsafe {
                chain.launch(&self.paint, stream, 0, frame)?;
                (1..chain.levels.len()).try_for_each(|level| chain.reduce(&self.reduce, stream, level))
            }
        })?;
        let Some(stamp) = &self.stamp else { return Ok(()) };
        // SAFETY: as above.
        (0..chain.levels.len())
            .try_for_each(|level| unsafe { chain.launch(stamp, timeline.stream(), level, frame) })
    }

    unsafe fn copy(scratch: &Chain, slot: &SharedPicture, stream: &Stream) -> Result<()> {
        // SAFETY: both chains have the same size; the rest is the caller's promise.
        unsafe { scratch.copy_to(stream, &slot.chain) }
    }

    fn read(scratch: &Chain, stream: &Stream, bytes: &mut [u8]) -> Result<()> {
        // SAFETY: only this stream writes it.
        unsafe { scratch.read(stream, bytes) }
    }
}

/// A surface for each level, in a shared slot or in CUDA's own memory.
pub struct Chain {
    levels: Vec<Surface>,
    size: Grid,
}

impl Chain {
    fn new(size: Grid, level: impl Fn(u32) -> vulkan_cuda::Result<Array>) -> Result<Self> {
        let levels = (0..texture::levels(size)).map(|index| level(index)?.surface());
        Ok(Self { levels: levels.collect::<vulkan_cuda::Result<_>>()?, size })
    }

    fn scratch(context: &Cuda, size: Grid) -> Result<Self> {
        let request = picture(TEXTURE_FORMAT, size.cols, size.rows, texture::levels(size))?;
        let format = ArrayFormat::of(request.format)?;
        let desc = request.shape.mipmapped_array(format, request.usage, request.surface);
        let mipmap = MipmappedArray::new(context, &desc.arrayDesc, desc.numLevels)?;
        Self::new(size, |level| mipmap.level(level))
    }

    /// Enqueues a kernel with the signature of `paint` over one level.
    ///
    /// # Safety
    /// `kernel` has that signature; nobody else touches the level until the stream has passed this point.
    unsafe fn launch(&self, kernel: &Kernel, stream: &Stream, level: usize, frame: &Frame) -> Result<()> {
        let Grid { cols, rows } = texture::level(self.size, level as u32);
        let surface = self.levels[level].raw();
        // SAFETY: the caller's promise; the surface lives until the stream is idle.
        unsafe { kernel.launch(stream, surface, [cols, rows], frame.index, frame.time, &frame.parameters) }
    }

    /// Enqueues `reduce` of `handoff/kernels/texture.cu`, which makes `level` from the one above.
    ///
    /// # Safety
    /// `kernel` is `reduce`; nobody else touches either level until the stream has passed this point.
    unsafe fn reduce(&self, kernel: &Kernel, stream: &Stream, level: usize) -> Result<()> {
        let (from, to) =
            (texture::level(self.size, level as u32 - 1), texture::level(self.size, level as u32));
        let (mut above, mut below) = (self.levels[level - 1].raw(), self.levels[level].raw());
        let (mut from_width, mut from_height) = (from.cols, from.rows);
        let (mut width, mut height) = (to.cols, to.rows);
        let mut arguments: [*mut c_void; 6] = [
            (&raw mut above).cast(),
            (&raw mut below).cast(),
            (&raw mut from_width).cast(),
            (&raw mut from_height).cast(),
            (&raw mut width).cast(),
            (&raw mut height).cast(),
        ];
        let block = kernel.block();
        // SAFETY: the types of `reduce`; a stream runs its kernels in order, so the level above is written.
        unsafe { kernel.launch_with(stream, blocks(to.count(), block), block, &mut arguments) }
    }

    /// # Safety
    /// `target` has the same size; nobody else touches either chain until the stream has passed this point.
    unsafe fn copy_to(&self, stream: &Stream, target: &Self) -> Result<()> {
        for (index, (from, to)) in self.levels.iter().zip(&target.levels).enumerate() {
            let Grid { cols, rows } = texture::level(self.size, index as u32);
            let row_bytes = cols as usize * size_of::<Texel>();
            // SAFETY: both levels have this size; the rest is the caller's promise.
            unsafe { from.array().copy_to_array(stream, to.array(), [row_bytes, rows as usize]) }?;
        }
        Ok(())
    }

    /// Copies the levels to the host, one after another. Waits for the stream. `bytes` has room for all.
    ///
    /// # Safety
    /// Nobody else writes the chain in the meantime.
    unsafe fn read(&self, stream: &Stream, bytes: &mut [u8]) -> Result<()> {
        let mut rest = bytes;
        for (index, level) in self.levels.iter().enumerate() {
            let Grid { cols, rows } = texture::level(self.size, index as u32);
            let row_bytes = cols as usize * size_of::<Texel>();
            let (this, next) = rest.split_at_mut(row_bytes * rows as usize);
            // SAFETY: the caller's promise; `bytes` is borrowed until a wait, also after an error.
            let copied = unsafe { level.array().copy_to_host(stream, this, row_bytes) };
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

/// CUDA reaches the texture through a surface for each level, Vulkan through one view.
pub struct SharedPicture {
    // The view and the surfaces go before the image.
    view: ImageView,
    chain: Chain,
    image: Arc<SharedImage>,
}

impl SharedPicture {
    fn new(device: &Device, context: &Cuda, size: Grid) -> Result<Self> {
        let request = picture(TEXTURE_FORMAT, size.cols, size.rows, texture::levels(size))?;
        let image = SharedImage::new(&device.pair(context)?, &request)?;
        let chain = Chain::new(size, |level| image.level(level))?;
        Ok(Self { view: view_of_shared(device, image.exported())?, chain, image })
    }
}

// SAFETY: it owns the image alone; the surfaces are ways to it.
unsafe impl Slot for SharedPicture {
    fn resource(&self) -> Resource {
        self.image.resource()
    }
}
