//! One slot that CUDA and Vulkan share, without copies or overlap: an [`Order`] applied to a [`Work`].

use std::time::Duration;

use ash::vk;
use vulkan_cuda::ownership::{Owner, first_release};

use super::order::Order;
use super::work::{Place, Work};
use super::{Entry, FieldWork, TextureWork};
use crate::producer::{Fill, Frame, Produced, Producer, ProducerDesc, Profile, Source, Submit, Transfer};
use wavefield_gpu::cuda::{Cuda, KernelSource};
use wavefield_gpu::vulkan::{Device, Queue, one_shot, pipeline_barrier};
use wavefield_gpu::{Error, Result};

pub(super) const fn entry<O: Order>(name: &'static str, brief: &'static str, help: &'static str) -> Entry {
    Entry {
        name,
        help,
        brief,
        one_slot: true,
        supports: |_| Ok(()),
        field: OneSlot::<FieldWork, O>::make,
        texture: Some(OneSlot::<TextureWork, O>::make),
    }
}

pub(super) struct OneSlot<W: Work, O: Order> {
    // Field order is drop order: the stream goes before what it uses.
    fill: Fill,
    order: O,
    work: W,
    slot: W::Slot,
    profile: Profile,
    device: Device,
    family: u32,
}

impl<W: Work, O: Order> OneSlot<W, O> {
    /// Waits for the queue. For the device and the errors, see [`Work::new`].
    pub(super) fn make(
        queue: &mut Queue,
        context: &Cuda,
        source: &KernelSource,
        desc: &ProducerDesc,
    ) -> Result<Box<dyn Producer>> {
        let order = O::new(queue, context, desc)?;
        let (device, family) = (queue.device().clone(), queue.family());
        let work = W::new(&device, context, source, desc)?;
        let slot = work.slots(&device, context, 1)?.pop();
        let slot = slot.ok_or_else(|| Error::Rule("a hand-off needs a slot".into()))?;
        if let Source::Texture(slot) = W::source(&slot) {
            // Gives the new image to CUDA before its first write, for which Vulkan's first acquire would be
            // too late: see `vulkan_cuda::ownership`. A buffer needs nothing.
            one_shot(queue, |commands| {
                // The second barrier needs the result of the first.
                for barrier in first_release(slot.image, family) {
                    // SAFETY: recording; the image outlives the wait in `one_shot`.
                    unsafe { pipeline_barrier(&device, commands, &[], &[barrier]) };
                }
            })?;
        }
        let usual = Profile::of_queue(O::NAME, vec![W::source(&slot)]);
        let profile = Profile {
            owner: Owner::External,
            // With one frame in flight, the CPU's wait for the previous frame is also the wait for Vulkan.
            max_in_flight: if O::ON_GPU { usual.max_in_flight } else { 1 },
            parameters: work.parameters().clone(),
            uses_cuda: true,
            ..usual
        };
        let fill = Fill::new(context, &source.name)?;
        Ok(Box::new(Self { fill, order, work, slot, profile, device, family }))
    }

    fn enqueue(&mut self, frame: &Frame) -> Result<Option<Duration>> {
        let Self { fill, order, work, slot, .. } = self;
        order.wait_free(fill)?;
        // SAFETY: between the order's two calls the slot is CUDA's.
        unsafe { work.enqueue(fill, frame, Place::Slot(slot)) }?;
        order.signal_ready(fill)
    }
}

impl<W: Work, O: Order> Producer for OneSlot<W, O> {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn produce(&mut self, frame: &Frame) -> Result<Produced> {
        let blocked = self.enqueue(frame).map_err(|error| self.fill.blame(error))?;
        Ok(Produced { blocked, ..self.profile.produced(frame) })
    }

    fn record_before_draw(&self, commands: vk::CommandBuffer, frame: &Frame, source: Source) {
        // SAFETY: producers record outside a render pass, and `source` is the slot.
        unsafe { Transfer::Acquire.record(&self.device, commands, self.family, source, frame.reads) };
    }

    fn record_after_draw(&self, commands: vk::CommandBuffer, frame: &Frame, source: Source) {
        // SAFETY: as above.
        unsafe { Transfer::Release.record(&self.device, commands, self.family, source, frame.reads) };
    }

    unsafe fn submit(&mut self, submit: Submit<'_>) -> Result<()> {
        // SAFETY: `submit` submits this frame once, or fails (the caller's promise).
        unsafe { self.order.submit(submit) }
    }

    fn fill(&self) -> Option<&Fill> {
        Some(&self.fill)
    }

    fn progress(&self) -> Option<String> {
        self.order.late_side(&self.fill)
    }
}
