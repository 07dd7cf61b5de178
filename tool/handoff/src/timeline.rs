//! The hand-off that this program demonstrates: a [`SharedRing`], in which only the GPU waits.

use std::sync::Arc;

use ash::vk;
use vulkan_cuda::ownership::Owner;
use vulkan_cuda::shared_ring::{QueueUse, SharedRing, VulkanTurn};

use super::scene_kernels::{Destination, SceneKernels};
use super::{FieldKernels, HandoffEntry, TextureKernels};
use crate::contents::scene::Scene;
use crate::producer::{
    Batch, CudaTimeline, Frame, FrameSync, Produced, Producer, ProducerDesc, Profile, Source, Submit, reads,
};
use wavefield_gpu::cuda::{Cuda, KernelSource, Stream};
use wavefield_gpu::vulkan::{Queue, one_shot};
use wavefield_gpu::{Error, Result};

pub(super) const TIMELINE: HandoffEntry = HandoffEntry {
    name: "timeline",
    brief: "A ring of buffers, timelines",
    help: "A ring of shared buffers or images, and two timeline semaphores; the GPU waits",
    one_slot: false,
    supports: |_| Ok(()),
    field: make::<FieldKernels, false>,
    texture: Some(make::<TextureKernels, false>),
};

pub(super) const DEVICE_COPY: HandoffEntry = HandoffEntry {
    name: "device-copy",
    brief: "CUDA's memory and a copy",
    help: "CUDA fills its own memory and copies it into the shared slot, on the device; for a texture, all levels",
    field: make::<FieldKernels, true>,
    texture: Some(make::<TextureKernels, true>),
    ..TIMELINE
};

/// Makes the producer, and waits for the queue. Has the requirements and errors of [`SceneKernels::new`].
fn make<K: SceneKernels, const COPIES: bool>(
    queue: &mut Queue,
    context: &Cuda,
    source: &KernelSource,
    desc: &ProducerDesc,
) -> Result<Box<dyn Producer>> {
    let pair = queue.device().pair(context)?;
    let kernels = K::new(queue.device(), context, source, desc)?;
    let slots = kernels.slots(queue.device(), context, desc.ring.depth())?;
    let scratch = COPIES.then(|| kernels.scratch(context)).transpose()?;
    let name = if COPIES { "cuda, device-copy" } else { "cuda" };
    let usual = Profile::of_queue(name, slots.iter().map(K::source).collect());
    let profile = Profile {
        owner: Owner::External,
        max_in_flight: desc.in_flight.unwrap_or(usual.max_in_flight),
        // With `device-copy`, only the copies wait for slots, so a batch would gain nothing.
        longest_batch: if COPIES { 1 } else { slots.len() },
        breakable: !COPIES,
        parameters: kernels.parameters().clone(),
        uses_cuda: true,
        ..usual
    };
    let timeline = CudaTimeline::new(context, &source.name)?;
    // All stages that may read a slot: for a pointer in the window, a compute shader reads too. The older
    // flag type has the same bits for these stages.
    let stage = vk::PipelineStageFlags::from_raw(reads(desc.scene, true).stage.as_raw() as u32);
    let reader = QueueUse { family: queue.family(), stage, access: vk::AccessFlags::SHADER_READ };
    let mut ring = SharedRing::new(&pair, timeline.stream().clone(), slots, reader)?;
    // Only batches need more slots than frames in flight. Single frames so far ahead only add latency.
    ring.set_ahead(profile.max_in_flight);
    if desc.leaves_out_free {
        // SAFETY: frames may then be torn, as the user asked. No memory access depends on their contents.
        unsafe { ring.leave_out_free() };
    }
    if desc.scene == Scene::Texture {
        // SAFETY: recording, for the reader's family. `one_shot` waits, and CUDA writes nothing before.
        one_shot(queue, |commands| unsafe { ring.record_first_release(commands) })?;
    }
    let filled = Batch { first: 0, frames: 0, waits_for: None };
    Ok(Box::new(TimelineHandoff {
        turn: None,
        ring,
        kernels,
        scratch,
        timeline,
        next_batch: 1,
        filled,
        profile,
    }))
}

/// The producer of `timeline` and of `device-copy`. The latter copies frames, as a program must if a library
/// such as Taichi or Warp owns the memory.
struct TimelineHandoff<K: SceneKernels> {
    // Fields are dropped in this order: the ring, whose drop waits for the GPU, before what its stream uses.
    /// The turn of a frame that is produced, but not yet submitted.
    turn: Option<VulkanTurn<K::Slot, Arc<Stream>>>,
    ring: SharedRing<K::Slot, Arc<Stream>>,
    kernels: K,
    /// With `device-copy`, the memory that the kernels write.
    scratch: Option<K::Scratch>,
    timeline: CudaTimeline,
    next_batch: usize,
    filled: Batch,
    profile: Profile,
}

impl<K: SceneKernels> TimelineHandoff<K> {
    /// Returns the turn of the next frame. Enqueues CUDA's work, unless an earlier batch has already done so.
    fn next(&mut self, frame: &Frame) -> Result<VulkanTurn<K::Slot, Arc<Stream>>> {
        if let Some(turn) = self.ring.next_read() {
            return Ok(turn);
        }
        self.fill_batch(frame)?;
        let held = || Error::Rule("CUDA has no slot to write: an earlier frame was not submitted".into());
        self.ring.next_read().ok_or_else(held)
    }

    /// Enqueues a batch that begins with frame `first`. Later frames are filled ahead of time.
    fn fill_batch(&mut self, first: &Frame) -> Result<()> {
        let Self { ring, kernels, scratch, timeline, next_batch, filled, .. } = self;
        if let Some(scratch) = scratch {
            // The kernels need not wait for the slot; only the copy must.
            // SAFETY: nothing else uses `scratch`.
            unsafe { kernels.enqueue(timeline, first, Destination::Scratch(scratch)) }?;
        }
        // ANCHOR: write
        // The stream waits, on the GPU, until Vulkan has read what was in the slots of the batch.
        ring.write_batch(*next_batch, |write| {
            let index = write.frame();
            *filled = Batch { first: first.index, frames: *next_batch as u64, waits_for: write.waits_for() };
            if let Some(scratch) = scratch {
                // SAFETY: the slot belongs to CUDA until `finish`. `kernels` made it and `scratch`.
                unsafe { K::copy(scratch, write.slot(), timeline.stream()) }?;
                return Ok(write.finish()?);
            }
            let ahead = (index - first.index) as f64;
            let frame = Frame { index, time: first.time + ahead * first.step, ..*first };
            // SAFETY: as above. (With `--break free`, frames may be torn, as the user asked.)
            unsafe { kernels.enqueue(timeline, &frame, Destination::Slot(write.slot())) }?;
            // CUDA signals that the slot is full.
            Ok(write.finish_after_kernels()?)
        })
        .map(drop)
        // ANCHOR_END: write
    }
}

impl<K: SceneKernels> Producer for TimelineHandoff<K> {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn produce(&mut self, frame: &Frame) -> Result<Produced> {
        // Give up a frame that was never submitted, before its slot is needed.
        self.turn = None;
        let turn = self.next(frame).map_err(|error| self.timeline.blame(error))?;
        let source = self.profile.slots[turn.index()];
        self.turn = Some(turn);
        Ok(Produced { source, number: frame.index, batch: self.filled, blocked: None })
    }

    fn set_batch(&mut self, frames: usize) {
        self.next_batch = frames.clamp(1, self.profile.longest_batch);
    }

    fn record_before_draw(&self, commands: vk::CommandBuffer, _frame: &Frame, source: Source) {
        let Some(slot) = self.profile.slots.iter().position(|&slot| slot == source) else { return };
        // This cannot fail, because the ring has this slot.
        // SAFETY: producers record outside a render pass, and a turn of this slot submits the commands.
        let _ = unsafe { self.ring.record_acquire(slot, commands) };
    }

    fn record_after_draw(&self, commands: vk::CommandBuffer, _frame: &Frame, source: Source) {
        let Some(slot) = self.profile.slots.iter().position(|&slot| slot == source) else { return };
        // SAFETY: as above.
        let _ = unsafe { self.ring.record_release(slot, commands) };
    }

    // ANCHOR: submit
    unsafe fn submit(&mut self, submit: Submit<'_>) -> Result<()> {
        let turn = self.turn.take();
        let turn = turn.ok_or_else(|| Error::Rule("Vulkan cannot read what was not produced".into()))?;
        let submit = |wait, signal| {
            submit(FrameSync { wait: Some(wait), signal: Some(signal), ..FrameSync::default() })
        };
        // SAFETY: one submission with both semaphores, or an error and none (the caller's promise).
        unsafe { turn.submit(submit) }
    }
    // ANCHOR_END: submit

    fn cuda_timeline(&self) -> Option<&CudaTimeline> {
        Some(&self.timeline)
    }

    fn progress(&self) -> Option<String> {
        self.ring.progress().ok().map(|progress| progress.to_string())
    }

    fn abandon(&mut self) {
        // Ignore the error, which the caller already has. After a fault, this call ends Vulkan's waits.
        let _ = self.ring.check();
    }
}
