//! A mip chain as CUDA's kernels see it, one surface object a level, and the kernels that paint it.

use std::ffi::c_void;
use std::sync::Arc;

use vulkan_cuda::format::ArrayFormat;
use vulkan_cuda::image::picture;
use vulkan_cuda::ownership::SHARED_LAYOUT;
use vulkan_cuda::{MappedImage, share_image};

use crate::Result;
use crate::cuda::{Array, Cuda, Kernel, KernelSource, MipmappedArray, Stream, Surface};
use crate::producer::{Fill, Frame, ImageSlot, TEXTURE_FORMAT};
use crate::texture::{self, Texel};
use crate::vulkan::{Device, View};
use crate::wave::Grid;

/// A chain of surfaces, in memory of whomever.
///
/// Before it is dropped, the stream that uses it must be idle.
pub(super) struct Chain {
    levels: Vec<Surface>,
    size: Grid,
}

impl Chain {
    fn new(size: Grid, level: impl Fn(u32) -> vulkan_cuda::Result<Array>) -> Result<Self> {
        let levels = (0..texture::levels(size)).map(|index| level(index)?.surface());
        Ok(Self { levels: levels.collect::<vulkan_cuda::Result<_>>()?, size })
    }

    /// In memory of CUDA's own, of the shape of a shared picture.
    pub(super) fn own(context: &Cuda, size: Grid) -> Result<Self> {
        let request = picture(TEXTURE_FORMAT, size.cols, size.rows, texture::levels(size))?;
        let format = ArrayFormat::of(request.format)?;
        let desc = request.shape.mipmapped_array(format, request.usage, request.surface);
        let mipmap = MipmappedArray::new(context, &desc.arrayDesc, desc.numLevels)?;
        Self::new(size, |level| mipmap.level(level))
    }

    /// Enqueues a copy of every level.
    ///
    /// # Safety
    /// `target` is of the same size; nobody else touches either until the stream has passed this point.
    pub(super) unsafe fn copy_to(&self, stream: &Stream, target: &Self) -> Result<()> {
        for (index, (from, to)) in self.levels.iter().zip(&target.levels).enumerate() {
            let Grid { cols, rows } = texture::level(self.size, index as u32);
            let row_bytes = cols as usize * size_of::<Texel>();
            // SAFETY: the caller's promise; both levels have this size.
            unsafe { from.array().copy_to(stream, to.array(), row_bytes, rows as usize) }?;
        }
        Ok(())
    }

    /// Copies every level to the host, one behind the other, and waits for the stream. `bytes` has room for all.
    ///
    /// # Safety
    /// Nobody else writes the chain meanwhile.
    pub(super) unsafe fn read(&self, stream: &Stream, bytes: &mut [u8]) -> Result<()> {
        let mut rest = bytes;
        for (index, level) in self.levels.iter().enumerate() {
            let Grid { cols, rows } = texture::level(self.size, index as u32);
            let row_bytes = cols as usize * size_of::<Texel>();
            let (this, next) = rest.split_at_mut(row_bytes * rows as usize);
            // SAFETY: the caller's promise; `bytes` is borrowed until the wait below, which comes after an error, too.
            let copied = unsafe { level.array().copy_to_host(stream, this, row_bytes) };
            if copied.is_err() {
                // Earlier levels may be under way.
                let _ = stream.synchronize();
                return Ok(copied?);
            }
            rest = next;
        }
        stream.synchronize()
    }
}

/// One texture that both APIs reach: a surface a level on CUDA's side, one view on Vulkan's.
pub(crate) struct SharedPicture {
    // The view and the surfaces go before the image.
    view: View,
    chain: Chain,
    image: Arc<MappedImage>,
}

impl SharedPicture {
    pub(crate) fn new(device: &Device, context: &Cuda, size: Grid) -> Result<Self> {
        let request = picture(TEXTURE_FORMAT, size.cols, size.rows, texture::levels(size))?;
        let image = share_image(&device.pair(context)?, &request)?;
        let chain = Chain::new(size, |level| image.level(level))?;
        Ok(Self { view: View::shared(device, image.exported())?, chain, image })
    }

    pub(super) fn slot(&self) -> ImageSlot {
        ImageSlot { image: self.image.exported().raw(), view: self.view.raw(), layout: SHARED_LAYOUT }
    }

    pub(super) fn chain(&self) -> &Chain {
        &self.chain
    }

    /// As [`Painter::paint`].
    ///
    /// # Safety
    /// Nobody else touches the image until the stream has passed this point.
    pub(crate) unsafe fn paint(&self, painter: &Painter, fill: &Fill, frame: &Frame) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { painter.paint(fill, &self.chain, frame) }
    }
}

/// The kernels behind the one that paints level 0.
pub(crate) struct Painter {
    reduce: Kernel,
    /// Where frames are stamped: runs behind all others, on every level. See [`crate::stamp::texel`].
    stamp: Option<Kernel>,
}

impl Painter {
    pub(crate) fn new(context: &Cuda) -> Result<Self> {
        Ok(Self { reduce: Kernel::load(context, &KernelSource::texture_reduce())?, stamp: None })
    }

    /// From the next frame on, every texel carries its frame's number.
    pub(super) fn stamp_frames(&mut self, context: &Cuda) -> Result<()> {
        self.stamp = Some(Kernel::load(context, &KernelSource::texture_stamp())?);
        Ok(())
    }

    /// Enqueues `fill`'s kernel for level 0, and then a `reduce` for each level below, between the frame's events.
    ///
    /// # Safety
    /// Nobody else touches the chain until the stream has passed this point; `fill` was made for [`Signature::Texture`](crate::cuda::Signature).
    pub(super) unsafe fn paint(&self, fill: &Fill, chain: &Chain, frame: &Frame) -> Result<()> {
        fill.enqueue_with(frame, |paint, stream| {
            // SAFETY: the caller's promise; a chain has a first level.
            unsafe { launch(paint, stream, chain, 0, frame) }?;
            (1..chain.levels.len()).try_for_each(|level| self.reduce(stream, chain, level))
        })?;
        let Some(stamp) = &self.stamp else { return Ok(()) };
        // SAFETY: the caller's promise; the stamp has the signature of `paint`.
        (0..chain.levels.len())
            .try_for_each(|level| unsafe { launch(stamp, fill.stream(), chain, level, frame) })
    }

    fn reduce(&self, stream: &Stream, chain: &Chain, level: usize) -> Result<()> {
        let (from, to) =
            (texture::level(chain.size, level as u32 - 1), texture::level(chain.size, level as u32));
        let (mut above, mut below) = (chain.levels[level - 1].raw(), chain.levels[level].raw());
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
        // SAFETY: the types of `reduce` in `kernels/texture.cu`; kernels of one stream run one after the other, so the level
        // above is written.
        unsafe { self.reduce.launch_for(stream, to.vertices(), &mut arguments) }
    }
}

/// Enqueues a kernel with the signature of `paint` over one level.
///
/// # Safety
/// It has that signature; nobody else touches the level until the stream has passed this point.
unsafe fn launch(kernel: &Kernel, stream: &Stream, chain: &Chain, level: usize, frame: &Frame) -> Result<()> {
    let size = texture::level(chain.size, level as u32);
    let Grid { cols: mut width, rows: mut height } = size;
    let mut surface = chain.levels[level].raw();
    let (mut index, mut time) = (frame.index, frame.time);
    let mut arguments: [*mut c_void; 5] = [
        (&raw mut surface).cast(),
        (&raw mut width).cast(),
        (&raw mut height).cast(),
        (&raw mut index).cast(),
        (&raw mut time).cast(),
    ];
    // SAFETY: the documented signature's types (the caller's promise); the surface lives until the stream is idle.
    unsafe { kernel.launch_for(stream, size.vertices(), &mut arguments) }
}
