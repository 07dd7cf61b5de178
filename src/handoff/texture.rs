//! Images instead of buffers: CUDA paints a texture with its mip chain through surface objects, Vulkan samples it.
//!
//! What orders the two sides is what orders them for buffers, since a semaphore does not know what it guards: a ring and two
//! timelines, or the CPU. What is different is how the memory is reached (see [`crate::interop::image`](mod@crate::interop::image))
//! and that an image has a layout (see [`crate::interop::ownership`]).

use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ash::vk;

use super::timeline::Timelines;
use super::{Fill, Handoff};
use crate::cuda::{BLOCK, Context, Kernel, KernelSource, Stream, Surface, blocks};
use crate::interop::image::picture;
use crate::interop::ownership::{Owner, SHARED_LAYOUT, first_release};
use crate::interop::{MappedImage, Ring, share_image};
use crate::producer::{
    Blocked, Frame, FrameSync, ImageSlot, Producer, TEXTURE_FORMAT, check_texture, no_stamps,
};
use crate::vulkan::{Device, Queue, one_shot, pipeline_barrier};
use crate::wave::Grid;
use crate::{Error, Result, texture};

/// Paints slots with CUDA kernels.
pub struct TextureHandoff {
    // Field order is drop order: the stream before what it uses.
    fill: Fill,
    reduce: Kernel,
    order: Order,
    pictures: Vec<SharedPicture>,
    slots: Vec<ImageSlot>,
    size: Grid,
    ring: Ring,
    device: Device,
    family: u32,
}

/// What keeps the two sides apart.
enum Order {
    Timeline(Timelines),
    CpuSync { blocked: Blocked, timeout: Duration },
}

impl TextureHandoff {
    /// Whether a texture can be handed over like that; else why not.
    pub fn supports(handoff: Handoff) -> Result<(), &'static str> {
        match handoff {
            Handoff::Timeline | Handoff::CpuSync => Ok(()),
            Handoff::Inline => {
                Err("a kernel in Vulkan's command buffer reaches buffers by address and images not at all")
            }
            Handoff::Binary => Err("its ring has one slot, which --ring 1 with timelines has too"),
            Handoff::DeviceCopy | Handoff::HostCopy => {
                Err("it copies buffers; what the copy of an image costs is not measured here")
            }
        }
    }

    /// `context` must be the same GPU as the queue's device: see [`crate::interop::find_twin`]. Waits for the queue.
    ///
    /// # Errors
    /// A hand-off that [`TextureHandoff::supports`] does not have, a texture that is too large, a kernel that does not load,
    /// out of memory.
    pub fn new(
        queue: &mut Queue,
        context: &Arc<Context>,
        source: &KernelSource,
        size: Grid,
        ring: Ring,
        (handoff, timeout): (Handoff, Duration),
    ) -> Result<Self> {
        let device = queue.device().clone();
        check_texture(&device, size)?;
        if let Err(reason) = Self::supports(handoff) {
            return Err(Error::Unsupported(format!(
                "--scene texture has no --handoff {}: {reason}",
                handoff.name()
            )));
        }
        // First the kernels: a bad one should be known before gigabytes are allocated.
        let fill = Fill::new(context, source, size)?;
        let reduce = Kernel::load(context, &KernelSource::texture_reduce())?;
        let (order, ring) = match handoff {
            Handoff::CpuSync => {
                (Order::CpuSync { blocked: Blocked::default(), timeout }, Ring::new(1).unwrap_or_default())
            }
            _ => (Order::Timeline(Timelines::new(&device, context)?), ring),
        };
        let pictures = (0..ring.depth())
            .map(|_| SharedPicture::new(&device, context, size))
            .collect::<Result<Vec<_>>>()?;
        let slots: Vec<_> = pictures.iter().map(SharedPicture::slot).collect();
        let family = queue.family();
        // Before CUDA writes for the first time, not in Vulkan's first acquire: see `ownership`.
        one_shot(queue, |commands| {
            for barrier in slots.iter().flat_map(|slot| first_release(slot.image, family)) {
                // SAFETY: recording; the images outlive the wait in `one_shot`.
                unsafe { pipeline_barrier(&device, commands, &[], &[barrier]) };
            }
        })?;
        Ok(Self { fill, reduce, order, pictures, slots, size, ring, device, family })
    }

    /// CUDA's half: wait for the slots, paint them, say so.
    fn enqueue(&mut self, frame: &Frame) -> Result<()> {
        if let (Order::Timeline(timelines), Some(value)) =
            (&self.order, self.ring.turn(frame.index).wait_free)
        {
            timelines.free.cuda_wait(self.fill.stream(), value)?;
        }
        // One frame, or with `--batch` the next few: those that come later are painted ahead of their time.
        for index in self.ring.batch_from(frame.index) {
            let turn = self.ring.turn(index);
            let ahead = (index - frame.index) as f64;
            let frame = Frame { index, time: frame.time + ahead * frame.step, ..*frame };
            let picture = &self.pictures[turn.slot];
            self.fill.enqueue_with(&frame, |paint, stream| {
                // SAFETY: the wait above and the ring (or, with cpu-sync, the pacer) keep Vulkan out of the slot until
                // the signal below. That the kernel has the documented signature is what `--kernel` asks of its user.
                unsafe { picture.paint(paint, &self.reduce, stream, self.size, &frame) }
            })?;
            match &mut self.order {
                Order::Timeline(timelines) => timelines.cuda_signal(self.fill.stream(), turn)?,
                Order::CpuSync { blocked, timeout } => {
                    let began = Instant::now();
                    self.fill.wait_idle(*timeout)?;
                    blocked.add(began.elapsed());
                }
            }
        }
        Ok(())
    }
}

impl Producer for TextureHandoff {
    fn name(&self) -> &'static str {
        match self.order {
            Order::Timeline(_) => "cuda",
            Order::CpuSync { .. } => "cuda, cpu-sync",
        }
    }

    fn slots(&self) -> &[vk::Buffer] {
        &[]
    }

    fn images(&self) -> &[ImageSlot] {
        &self.slots
    }

    fn max_in_flight(&self) -> usize {
        match self.order {
            Order::Timeline(_) => self.slot_count().max(2),
            // The pacer's wait for the frame before is this scheme's wait for Vulkan.
            Order::CpuSync { .. } => 1,
        }
    }

    fn produce(&mut self, frame: &Frame) -> Result<()> {
        self.enqueue(frame).map_err(|error| self.fill.blame(error))
    }

    fn record_before_draw(&self, commands: vk::CommandBuffer, frame: &Frame) {
        let image = self.slots[self.slot_of(frame.index)].image;
        let acquire = Owner::External.acquire_image(image, self.family, frame.reads);
        // SAFETY: producers record outside a render pass; the image is one of this producer's slots.
        unsafe { pipeline_barrier(&self.device, commands, &[], &[acquire]) };
    }

    fn record_after_draw(&self, commands: vk::CommandBuffer, frame: &Frame) {
        let image = self.slots[self.slot_of(frame.index)].image;
        let release = Owner::External.release_image(image, self.family, frame.reads);
        // SAFETY: as above.
        unsafe { pipeline_barrier(&self.device, commands, &[], &[release]) };
    }

    fn commands_repeat(&self) -> bool {
        true
    }

    fn sync(&mut self, frame: &Frame) -> Result<FrameSync> {
        match &self.order {
            Order::Timeline(timelines) => timelines.vulkan(self.ring.turn(frame.index), frame.reads.stage),
            Order::CpuSync { .. } => Ok(FrameSync::default()),
        }
    }

    fn stamp_frames(&mut self) -> Result<()> {
        Err(no_stamps())
    }

    fn owner(&self) -> Owner {
        Owner::External
    }

    fn blocked(&self) -> Blocked {
        match self.order {
            Order::Timeline(_) => Blocked::default(),
            Order::CpuSync { blocked, .. } => blocked,
        }
    }

    fn batch(&self) -> u64 {
        self.ring.batch() as u64
    }

    fn fill(&self) -> Option<&Fill> {
        Some(&self.fill)
    }

    fn ring(&self) -> Option<Ring> {
        matches!(self.order, Order::Timeline(_)).then_some(self.ring)
    }

    fn is_idle(&self) -> Result<bool> {
        self.fill.is_idle()
    }

    fn progress(&self) -> Option<String> {
        match &self.order {
            Order::Timeline(timelines) => timelines.progress(self.ring),
            Order::CpuSync { .. } => None,
        }
    }

    fn abandon(&mut self) {
        if let Order::Timeline(timelines) = &self.order {
            timelines.abandon();
        }
    }
}

/// One texture that both APIs reach: a surface a level on CUDA's side, one view on Vulkan's.
pub(crate) struct SharedPicture {
    // The view and the surfaces go before the image.
    view: View,
    surfaces: Vec<Surface>,
    image: Arc<MappedImage>,
}

impl SharedPicture {
    pub(crate) fn new(device: &Device, context: &Arc<Context>, size: Grid) -> Result<Self> {
        let levels = texture::levels(size);
        let request = picture(TEXTURE_FORMAT, size.cols, size.rows, levels)?;
        let image = share_image(device, context, &request)?;
        let surfaces = (0..levels).map(|level| image.level(level)?.surface()).collect::<Result<_>>()?;
        let view = View { raw: image.exported().create_view()?, device: device.clone() };
        Ok(Self { view, surfaces, image })
    }

    fn slot(&self) -> ImageSlot {
        ImageSlot { image: self.image.exported().raw(), view: self.view.raw, layout: SHARED_LAYOUT }
    }

    /// Enqueues `paint` for level 0, and then a `reduce` for each level below.
    ///
    /// # Safety
    /// `paint` has the signature of `kernels/texture.cu`; nobody else touches the image until the stream has passed this
    /// point.
    pub(crate) unsafe fn paint(
        &self,
        paint: &Kernel,
        reduce: &Kernel,
        stream: &Stream,
        size: Grid,
        frame: &Frame,
    ) -> Result<()> {
        let (mut surface, mut width, mut height) = (self.surfaces[0].raw(), size.cols, size.rows);
        let (mut index, mut time) = (frame.index, frame.time);
        let mut arguments: [*mut c_void; 5] = [
            (&raw mut surface).cast(),
            (&raw mut width).cast(),
            (&raw mut height).cast(),
            (&raw mut index).cast(),
            (&raw mut time).cast(),
        ];
        // SAFETY: the documented signature's types (the caller's promise); the surface lives until the stream is idle.
        unsafe { paint.launch_with(stream, blocks(width, height), BLOCK, &mut arguments) }?;
        for (level, pair) in self.surfaces.windows(2).enumerate() {
            let (from, to) = (texture::level(size, level as u32), texture::level(size, level as u32 + 1));
            let (mut above, mut below) = (pair[0].raw(), pair[1].raw());
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
            // SAFETY: the types of `reduce` in `kernels/texture.cu`; kernels of one stream run one after the other, so the
            // level above is written.
            unsafe { reduce.launch_with(stream, blocks(width, height), BLOCK, &mut arguments) }?;
        }
        Ok(())
    }
}

struct View {
    raw: vk::ImageView,
    device: Device,
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: whoever drops a resource waits first (see the module `vulkan`).
        unsafe { self.device.raw().destroy_image_view(self.raw, None) };
    }
}
