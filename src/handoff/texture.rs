//! Images instead of buffers: CUDA paints a texture with its mip chain through surface objects, Vulkan samples it.
//!
//! What orders the two sides is what orders them for buffers, since a semaphore does not know what it guards: a ring and two
//! timelines, one slot and two binary semaphores, or the CPU. What is different is how the memory is reached (see
//! [`vulkan_cuda::image`](mod@vulkan_cuda::image)) and that an image has a layout (see [`vulkan_cuda::ownership`]).

use std::time::{Duration, Instant};

use ash::vk;
use vulkan_cuda::ownership::{Owner, first_release};
use vulkan_cuda::{Ring, Turn};

use super::Handoff;
use super::binary::BinaryPair;
use super::chain::{Chain, Painter, SharedPicture};
use super::timeline::Timelines;
use crate::cuda::{Cuda, KernelSource, Signature};
use crate::producer::{Blocked, Broken, Fill, Frame, FrameSync, ImageSlot, Producer, check_texture};
use crate::vulkan::{Device, Queue, one_shot, pipeline_barrier};
use crate::wave::Grid;
use crate::{Error, Result};

/// Paints slots with CUDA kernels.
pub struct TextureHandoff {
    // Field order is drop order: the stream before what it uses.
    fill: Fill,
    painter: Painter,
    order: Order,
    /// With `device-copy`: what the kernels paint; the slots are copies of it.
    own: Option<Chain>,
    pictures: Vec<SharedPicture>,
    slots: Vec<ImageSlot>,
    ring: Ring,
    /// What `wavefield verify --break` leaves out; `None` in every other run.
    broken: Option<Broken>,
    context: Cuda,
    device: Device,
    family: u32,
}

/// What keeps the two sides apart.
enum Order {
    Timeline(Timelines),
    Binary(BinaryPair),
    CpuSync { blocked: Blocked, timeout: Duration },
}

impl Order {
    /// CUDA waits until Vulkan has read the turn's slot.
    fn wait_free(&mut self, fill: &Fill, turn: Turn, broken: Option<Broken>) -> Result<()> {
        match (self, turn.wait_free) {
            (Self::Timeline(timelines), Some(value)) if broken != Some(Broken::Free) => {
                timelines.cuda_wait(fill.stream(), value)
            }
            (Self::Binary(pair), _) => pair.cuda_wait(fill.stream()),
            // With cpu-sync the pacer has waited for the frame before.
            (Self::Timeline(_) | Self::CpuSync { .. }, _) => Ok(()),
        }
    }

    /// CUDA says that the turn's slot is written.
    fn signal_ready(&mut self, fill: &Fill, turn: Turn) -> Result<()> {
        match self {
            Self::Timeline(timelines) => timelines.cuda_signal(fill.stream(), turn),
            Self::Binary(pair) => pair.cuda_signal(fill.stream()),
            Self::CpuSync { blocked, timeout } => {
                let began = Instant::now();
                fill.wait_idle(*timeout)?;
                blocked.add(began.elapsed());
                Ok(())
            }
        }
    }
}

impl TextureHandoff {
    /// `context` must be the same GPU as the queue's device: see [`vulkan_cuda::find_twin`]. Waits for the queue.
    ///
    /// # Errors
    /// A hand-off that is not of shared images (`inline`, `host-copy`), a texture that is too large, a kernel that does not
    /// load, out of memory.
    pub fn new(
        queue: &mut Queue,
        context: &Cuda,
        source: &KernelSource,
        size: Grid,
        ring: Ring,
        (handoff, timeout): (Handoff, Duration),
    ) -> Result<Self> {
        let device = queue.device().clone();
        check_texture(&device, size)?;
        // First the kernels: a bad one should be known before gigabytes are allocated.
        let fill = Fill::new(context, source, Signature::Texture, size)?;
        let painter = Painter::new(context)?;
        let of = |depth: usize| Ring::new(depth as u32).unwrap_or_default();
        let pair = device.pair(context)?;
        let (order, ring) = match handoff {
            Handoff::Timeline => (Order::Timeline(Timelines::new(&pair)?), ring),
            Handoff::DeviceCopy => (Order::Timeline(Timelines::new(&pair)?), of(ring.depth())),
            Handoff::Binary => (Order::Binary(BinaryPair::new(&pair)?), of(1)),
            Handoff::CpuSync => (Order::CpuSync { blocked: Blocked::default(), timeout }, of(1)),
            Handoff::Inline | Handoff::HostCopy => {
                return Err(Error::Unsupported(format!("--handoff {} shares no image", handoff.name())));
            }
        };
        let own = (handoff == Handoff::DeviceCopy).then(|| Chain::own(context, size)).transpose()?;
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
        let context = context.clone();
        Ok(Self { fill, painter, order, own, pictures, slots, ring, broken: None, context, device, family })
    }

    /// CUDA's half: wait for the slots, paint them, say so. Returns before any of it has run, but for `cpu-sync`.
    fn enqueue(&mut self, frame: &Frame) -> Result<()> {
        let fill = &self.fill;
        // What is painted in memory of CUDA's own need not wait for the slot: only the copy must.
        if self.own.is_none() {
            self.order.wait_free(fill, self.ring.turn(frame.index), self.broken)?;
        }
        // One frame, or with `--batch` the next few: those that come later are painted ahead of their time.
        for index in self.ring.batch_from(frame.index) {
            let turn = self.ring.turn(index);
            let ahead = (index - frame.index) as f64;
            let frame = Frame { index, time: frame.time + ahead * frame.step, ..*frame };
            let slot = self.pictures[turn.slot].chain();
            if let Some(own) = &self.own {
                // SAFETY: CUDA's own memory, touched by this stream alone.
                unsafe { self.painter.paint(fill, own, &frame) }?;
                self.order.wait_free(fill, turn, self.broken)?;
                // SAFETY: of the same size; the wait keeps Vulkan out of the slot until the signal below.
                unsafe { own.copy_to(fill.stream(), slot) }?;
            } else {
                // SAFETY: the wait above and the ring (or, with cpu-sync, the pacer) keep Vulkan out of the slot until the
                // signal below.
                unsafe { self.painter.paint(fill, slot, &frame) }?;
            }
            self.order.signal_ready(fill, turn)?;
        }
        Ok(())
    }

    fn barrier(&self, commands: vk::CommandBuffer, barrier: vk::ImageMemoryBarrier2<'_>) {
        if self.broken != Some(Broken::Barrier) {
            // SAFETY: producers record outside a render pass; the barrier names one of this producer's slots.
            unsafe { pipeline_barrier(&self.device, commands, &[], &[barrier]) };
        }
    }
}

impl Producer for TextureHandoff {
    fn name(&self) -> &'static str {
        match (&self.order, &self.own) {
            (Order::Timeline(_), None) => "cuda",
            (Order::Timeline(_), Some(_)) => "cuda, device-copy",
            (Order::Binary(_), _) => "cuda, binary",
            (Order::CpuSync { .. }, _) => "cuda, cpu-sync",
        }
    }

    fn slots(&self) -> &[vk::Buffer] {
        &[]
    }

    fn images(&self) -> &[ImageSlot] {
        &self.slots
    }

    fn max_in_flight(&self) -> usize {
        let usual = self.slot_count().max(2);
        match (&self.order, self.broken) {
            // The pacer's bound is K frames too: the CPU's wait would stand in for the one that is left out.
            (_, Some(Broken::Free)) => 2 * usual,
            // The pacer's wait for the frame before is this scheme's wait for Vulkan.
            (Order::CpuSync { .. }, _) => 1,
            _ => usual,
        }
    }

    fn produce(&mut self, frame: &Frame) -> Result<()> {
        self.enqueue(frame).map_err(|error| self.fill.blame(error))
    }

    fn record_before_draw(&self, commands: vk::CommandBuffer, frame: &Frame) {
        let image = self.slots[self.slot_of(frame.index)].image;
        self.barrier(commands, Owner::External.acquire_image(image, self.family, frame.reads));
    }

    fn record_after_draw(&self, commands: vk::CommandBuffer, frame: &Frame) {
        let image = self.slots[self.slot_of(frame.index)].image;
        self.barrier(commands, Owner::External.release_image(image, self.family, frame.reads));
    }

    fn commands_repeat(&self) -> bool {
        true
    }

    fn sync(&mut self, frame: &Frame) -> Result<FrameSync> {
        match &mut self.order {
            Order::Timeline(timelines) => {
                let mut sync = timelines.vulkan(self.ring.turn(frame.index), frame.reads.stage)?;
                if self.broken == Some(Broken::Ready) {
                    sync.wait = None;
                }
                Ok(sync)
            }
            Order::Binary(pair) => pair.vulkan(frame.reads.stage),
            Order::CpuSync { .. } => Ok(FrameSync::default()),
        }
    }

    fn submitted(&mut self) {
        if let Order::Binary(pair) = &mut self.order {
            pair.submitted();
        }
    }

    fn stamp_frames(&mut self) -> Result<()> {
        self.painter.stamp_frames(&self.context)
    }

    fn break_sync(&mut self, broken: Broken) -> Result<()> {
        if !matches!((&self.order, &self.own), (Order::Timeline(_), None)) {
            return Err(broken.not_for(self.name()));
        }
        self.broken = Some(broken);
        Ok(())
    }

    fn owner(&self) -> Owner {
        Owner::External
    }

    fn blocked(&self) -> Blocked {
        match self.order {
            Order::CpuSync { blocked, .. } => blocked,
            Order::Timeline(_) | Order::Binary(_) => Blocked::default(),
        }
    }

    fn batch(&self) -> u64 {
        self.ring.batch() as u64
    }

    fn fill(&self) -> Option<&Fill> {
        Some(&self.fill)
    }

    fn ring(&self) -> Option<Ring> {
        (!matches!(self.order, Order::CpuSync { .. })).then_some(self.ring)
    }

    fn is_idle(&self) -> Result<bool> {
        self.fill.is_idle()
    }

    fn progress(&self) -> Option<String> {
        match &self.order {
            Order::Timeline(timelines) => timelines.progress(self.ring),
            Order::Binary(_) => Some(self.fill.late_side()),
            Order::CpuSync { .. } => None,
        }
    }

    fn abandon(&mut self) {
        if let Order::Timeline(timelines) = &self.order {
            timelines.abandon();
        }
    }
}
