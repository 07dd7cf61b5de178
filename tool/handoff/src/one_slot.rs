//! One slot that CUDA and Vulkan share, without copies or overlap: a [`SlotSync`] around [`SceneKernels`].

use std::time::Duration;

use ash::vk;
use vulkan_cuda::ownership::{Owner, first_release};

use super::scene_kernels::{Destination, SceneKernels};
use super::{FieldKernels, HandoffEntry, TextureKernels};
use crate::producer::OwnershipTransfer::{Acquire, Release};
use crate::producer::{
    CudaTimeline, Frame, FrameSync, Produced, Producer, ProducerDesc, Profile, Source, Submit,
};
use wavefield_gpu::cuda::{Cuda, KernelSource};
use wavefield_gpu::vulkan::{Device, Queue, one_shot, pipeline_barrier};
use wavefield_gpu::{Error, Result};

/// Makes CUDA and Vulkan take turns in the slot. `binary` and `cpu_sync` implement it, for comparison.
///
/// For each frame, `wait_free` and `signal_ready` are called around the work that fills the slot. Then
/// `submit` makes the Vulkan submission that reads the slot.
pub(super) trait SlotSync: Sized + 'static {
    /// The profile's name, which begins with `cuda`.
    const NAME: &'static str;

    /// Whether only the GPU waits. Otherwise the CPU waits, and at most one frame is in flight.
    const ON_GPU: bool;

    fn new(queue: &Queue, context: &Cuda, desc: &ProducerDesc) -> Result<Self>;

    /// Makes CUDA's later work, which writes the slot, wait until Vulkan has read it.
    fn wait_free(&mut self, timeline: &CudaTimeline) -> Result<()>;

    /// Signals that the slot is full once CUDA's earlier work is done. Returns the CPU's waiting time, if
    /// any.
    fn signal_ready(&mut self, timeline: &CudaTimeline) -> Result<Option<Duration>>;

    /// Makes the submission in which Vulkan reads the slot.
    ///
    /// # Safety
    /// As for [`Producer::submit`].
    unsafe fn submit(&mut self, submit: Submit<'_>) -> Result<()> {
        submit(FrameSync::default())
    }
}

pub(super) const fn entry<S: SlotSync>(
    name: &'static str,
    brief: &'static str,
    help: &'static str,
) -> HandoffEntry {
    HandoffEntry {
        name,
        help,
        brief,
        one_slot: true,
        supports: |_| Ok(()),
        field: OneSlot::<FieldKernels, S>::make,
        texture: Some(OneSlot::<TextureKernels, S>::make),
    }
}

pub(super) struct OneSlot<K: SceneKernels, S: SlotSync> {
    // Fields are dropped in this order: the stream before what it uses.
    timeline: CudaTimeline,
    sync: S,
    kernels: K,
    slot: K::Slot,
    profile: Profile,
    device: Device,
    family: u32,
}

impl<K: SceneKernels, S: SlotSync> OneSlot<K, S> {
    /// Makes the producer, and waits for the queue. Has the requirements and errors of [`SceneKernels::new`].
    pub(super) fn make(
        queue: &mut Queue,
        context: &Cuda,
        source: &KernelSource,
        desc: &ProducerDesc,
    ) -> Result<Box<dyn Producer>> {
        let sync = S::new(queue, context, desc)?;
        let (device, family) = (queue.device().clone(), queue.family());
        let kernels = K::new(&device, context, source, desc)?;
        let slot = kernels.slots(&device, context, 1)?.pop();
        let slot = slot.ok_or_else(|| Error::Rule("a hand-off needs a slot".into()))?;
        if let Source::Texture(slot) = K::source(&slot) {
            // A new image must get its layout and be released to CUDA before CUDA's first write (see
            // `vulkan_cuda::ownership`). A buffer need not.
            one_shot(queue, |commands| {
                // The second barrier depends on the first, so record them separately.
                for barrier in first_release(slot.image, family) {
                    // SAFETY: recording, outside a render pass; the image outlives the wait in `one_shot`.
                    unsafe { pipeline_barrier(&device, commands, &[], &[barrier]) };
                }
            })?;
        }
        let usual = Profile::of_queue(S::NAME, vec![K::source(&slot)]);
        let profile = Profile {
            owner: Owner::External,
            // If the CPU must wait for Vulkan, one frame in flight makes it wait for the previous frame.
            max_in_flight: if S::ON_GPU { usual.max_in_flight } else { 1 },
            parameters: kernels.parameters().clone(),
            uses_cuda: true,
            ..usual
        };
        let timeline = CudaTimeline::new(context, &source.name)?;
        Ok(Box::new(Self { timeline, sync, kernels, slot, profile, device, family }))
    }

    fn enqueue(&mut self, frame: &Frame) -> Result<Option<Duration>> {
        let Self { timeline, sync, kernels, slot, .. } = self;
        sync.wait_free(timeline)?;
        // SAFETY: between `wait_free` and `signal_ready`, the slot belongs to CUDA.
        unsafe { kernels.enqueue(timeline, frame, Destination::Slot(slot)) }?;
        sync.signal_ready(timeline)
    }
}

impl<K: SceneKernels, S: SlotSync> Producer for OneSlot<K, S> {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn produce(&mut self, frame: &Frame) -> Result<Produced> {
        let blocked = self.enqueue(frame).map_err(|error| self.timeline.blame(error))?;
        Ok(Produced { blocked, ..self.profile.produced(frame) })
    }

    fn record_before_draw(&self, commands: vk::CommandBuffer, frame: &Frame, source: Source) {
        // SAFETY: producers record outside a render pass, and `source` is the slot.
        unsafe { Acquire.record(&self.device, commands, self.family, source, frame.reads) };
    }

    fn record_after_draw(&self, commands: vk::CommandBuffer, frame: &Frame, source: Source) {
        // SAFETY: as above.
        unsafe { Release.record(&self.device, commands, self.family, source, frame.reads) };
    }

    unsafe fn submit(&mut self, submit: Submit<'_>) -> Result<()> {
        // SAFETY: `submit` submits this frame once, or fails (the caller's promise).
        unsafe { self.sync.submit(submit) }
    }

    fn cuda_timeline(&self) -> Option<&CudaTimeline> {
        Some(&self.timeline)
    }

    fn progress(&self) -> Option<String> {
        S::ON_GPU.then(|| self.timeline.late_side())
    }
}
