//! Slots that CUDA and Vulkan share: an [`Order`] applied to a [`Work`].

use std::time::Duration;

use ash::vk;
use vulkan_cuda::ownership::{Owner, first_release};
use vulkan_cuda::{Ring, Turn};

use super::binary::BinaryPair;
use super::cpu_sync::CpuSync;
use super::order::Order;
use super::timeline::Timelines;
use super::work::{Memory, Place, Work, work};
use super::{Handoff, TIMELINE};
use crate::cuda::{Cuda, KernelSource};
use crate::producer::{
    Batch, Fill, Frame, Plan, Produced, Producer, ProducerDesc, Profile, Source, Transfer,
};
use crate::vulkan::{Device, Queue, one_shot, pipeline_barrier};
use crate::{Error, Result};

/// Every hand-off except `inline` and `host-copy`. Only `device-copy` copies anything. Programs whose memory comes from
/// another library's allocator (Taichi and Warp, for example) copy like this.
pub struct SharedHandoff {
    // Field order is drop order: the stream goes before what it uses.
    fill: Fill,
    order: Box<dyn Order>,
    work: Box<dyn Work>,
    /// Whether the kernels write CUDA's own memory, which is copied into the slot.
    copies: bool,
    ring: Ring,
    plan: Plan,
    /// The length of the next batch, in frames.
    next_batch: usize,
    /// The batch that was filled last.
    filled: Batch,
    profile: Profile,
    device: Device,
    family: u32,
}

impl SharedHandoff {
    /// Makes the hand-off, and waits for the queue. `context` must belong to the same GPU as the queue's device: see
    /// [`vulkan_cuda::find_twin`].
    ///
    /// # Errors
    /// Fails if the hand-off shares nothing, if a frame is too large, if the kernel does not load, or if memory has
    /// run out.
    pub fn new(
        handoff: Handoff,
        queue: &mut Queue,
        context: &Cuda,
        source: &KernelSource,
        desc: &ProducerDesc,
    ) -> Result<Self> {
        let device = queue.device().clone();
        let pair = device.pair(context)?;
        let (name, ring, order): (_, _, Box<dyn Order>) = match handoff {
            Handoff::Timeline => (TIMELINE, desc.ring, Box::new(Timelines::new(&pair)?)),
            Handoff::DeviceCopy => ("cuda, device-copy", desc.ring, Box::new(Timelines::new(&pair)?)),
            Handoff::Binary => ("cuda, binary", Ring::ONE, Box::new(BinaryPair::new(&pair)?)),
            Handoff::CpuSync => ("cuda, cpu-sync", Ring::ONE, Box::new(CpuSync { timeout: desc.timeout })),
            Handoff::Inline | Handoff::HostCopy => {
                return Err(Error::Rule(format!("--handoff {} shares nothing", handoff.name())));
            }
        };
        let copies = handoff == Handoff::DeviceCopy;
        let work = work(&device, context, source, desc, Memory { slots: ring.depth(), own: copies })?;
        let slots = work.slots();
        let family = queue.family();
        first_releases(queue, &device, &slots)?;
        let on_gpu = order.is_on_gpu();
        let usual = Profile::of_queue(name, slots);
        let profile = Profile {
            owner: Owner::External,
            // With one frame in flight, the CPU's wait for the previous frame is also the wait for Vulkan.
            max_in_flight: if on_gpu { desc.in_flight.unwrap_or(usual.max_in_flight) } else { 1 },
            // With `device-copy`, only the copy waits for the slot, and a batch would gain nothing.
            longest_batch: if handoff == Handoff::Timeline { ring.depth() } else { 1 },
            parameters: work.parameters().clone(),
            uses_cuda: true,
            ..usual
        };
        let fill = Fill::new(context, &source.name)?;
        let plan = desc.plan;
        let filled = Batch { first: 0, frames: 0, wait_free: None };
        Ok(Self { fill, order, work, copies, ring, plan, next_batch: 1, filled, profile, device, family })
    }

    /// Enqueues CUDA's half of a frame, unless an earlier batch filled it. Except with `cpu-sync`, returns before any of it
    /// has run.
    fn enqueue(&mut self, frame: &Frame) -> Result<Produced> {
        let blocked = if frame.index < self.filled.end() { None } else { self.fill_batch(frame)? };
        let turn = (self.plan)(self.ring.turn(frame.index));
        let sync = self.order.submission(turn)?;
        let source = self.profile.slots[turn.slot];
        Ok(Produced { source, number: frame.index, batch: self.filled, sync, blocked })
    }

    /// Fills a batch that begins with frame `first`; the later frames are filled ahead of time. Returns how long the CPU
    /// waited, if it did.
    fn fill_batch(&mut self, first: &Frame) -> Result<Option<Duration>> {
        let Self { fill, order, work, .. } = self;
        let mut blocked = None;
        let mut wait_free = None;
        for (turn, index) in
            turns(self.ring, self.profile.max_in_flight, first.index, self.next_batch).zip(first.index..)
        {
            let turn = (self.plan)(turn);
            wait_free = wait_free.or(turn.wait_free);
            let ahead = (index - first.index) as f64;
            let frame = Frame { index, time: first.time + ahead * first.step, ..*first };
            if self.copies {
                // SAFETY: nobody else touches CUDA's own memory.
                unsafe { work.enqueue(fill, &frame, Place::Own) }?;
                // Only the copy must wait for the slot.
                order.wait_free(fill, turn)?;
                // SAFETY: between the order's two calls the slot is CUDA's. (A plan without the wait tears frames, nothing worse.)
                unsafe { work.copy_to_slot(fill.stream(), turn.slot) }?;
            } else {
                order.wait_free(fill, turn)?;
                // SAFETY: between the order's two calls the slot is CUDA's.
                unsafe { work.enqueue(fill, &frame, Place::Slot(turn.slot)) }?;
            }
            if let Some(waited) = order.signal_ready(fill, turn)? {
                blocked = Some(blocked.unwrap_or_default() + waited);
            }
        }
        self.filled = Batch { first: first.index, frames: self.next_batch as u64, wait_free };
        Ok(blocked)
    }
}

/// The turns of a batch. They wait as in a ring that is only as deep as the batch and the frames in flight need. A
/// deeper ring would only add latency.
fn turns(ring: Ring, in_flight: usize, first: u64, frames: usize) -> impl Iterator<Item = Turn> {
    let depth = in_flight.max(frames).min(ring.depth());
    let near = Ring::new(depth as u32).unwrap_or(ring);
    let waits = near.batch(first, frames).map(|turn| turn.wait_free);
    ring.batch(first, frames).zip(waits).map(|(turn, wait_free)| Turn { wait_free, ..turn })
}

impl Producer for SharedHandoff {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn produce(&mut self, frame: &Frame) -> Result<Produced> {
        self.enqueue(frame).map_err(|error| self.fill.blame(error))
    }

    fn set_batch(&mut self, frames: usize) {
        self.next_batch = frames.clamp(1, self.profile.longest_batch);
    }

    fn record_before_draw(&self, commands: vk::CommandBuffer, frame: &Frame, source: Source) {
        // SAFETY: producers record outside a render pass, and `source` is one of the slots.
        unsafe { Transfer::Acquire.record(&self.device, commands, self.family, source, frame.reads) };
    }

    fn record_after_draw(&self, commands: vk::CommandBuffer, frame: &Frame, source: Source) {
        // SAFETY: as above.
        unsafe { Transfer::Release.record(&self.device, commands, self.family, source, frame.reads) };
    }

    fn submitted(&mut self) {
        self.order.submitted();
    }

    fn fill(&self) -> Option<&Fill> {
        Some(&self.fill)
    }

    fn progress(&self) -> Option<String> {
        self.order.late_side(&self.fill)
    }

    fn abandon(&mut self) {
        self.order.abandon();
    }
}

/// Gives new images to CUDA before its first write. Vulkan's first acquire would be too late: see
/// [`vulkan_cuda::ownership`]. Buffers need nothing.
fn first_releases(queue: &mut Queue, device: &Device, slots: &[Source]) -> Result<()> {
    let family = queue.family();
    let images = slots.iter().filter_map(|slot| match slot {
        Source::Vertices(_) => None,
        Source::Texture(slot) => Some(slot.image),
    });
    let barriers: Vec<_> = images.flat_map(|image| first_release(image, family)).collect();
    if barriers.is_empty() {
        return Ok(());
    }
    one_shot(queue, |commands| {
        // One at a time: an image's second barrier needs the result of its first.
        for barrier in barriers {
            // SAFETY: recording; the images outlive the wait in `one_shot`.
            unsafe { pipeline_barrier(device, commands, &[], &[barrier]) };
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deep_ring_is_used_no_deeper_than_it_must_be() {
        let ring = Ring::new(16).unwrap();
        let wait = |in_flight, frames| turns(ring, in_flight, 100, frames).next().unwrap().wait_free;
        // With 3 frames in flight, a frame waits for the third before it; with 16, for the previous frame in its slot.
        assert_eq!((wait(3, 1), wait(16, 1)), (Some(98), Some(85)));
        assert_eq!((wait(3, 3), wait(3, 16), wait(16, 16)), (Some(100), Some(100), Some(100)));
        assert_eq!(wait(99, 1), Some(85), "never deeper than the ring is");
        for (turn, frame) in turns(ring, 3, 100, 5).zip(100..) {
            assert_eq!(turn.slot, ring.turn(frame).slot);
        }
    }
}
