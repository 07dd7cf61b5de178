//! The hand-off that this crate exists to show: a ring of shared buffers, two timelines, and a CPU that never waits.

use ash::vk;
use vulkan_cuda::ownership::Owner;
use vulkan_cuda::{Pair, Ring, SharedBuffer, SharedTimeline, Turn};

use crate::Result;
use crate::cuda::{Cuda, KernelSource, Signature, Stream};
use crate::producer::{
    Broken, Fill, Frame, FrameSync, Producer, barrier, check_grid, each_slot, shared_slot,
};
use crate::vulkan::{Device, Queue};
use crate::wave::Grid;

/// Fills slots with a CUDA kernel, ordered with Vulkan by two timelines and nothing else.
pub struct TimelineHandoff {
    // Field order is drop order: the stream before what it uses.
    fill: Fill,
    timelines: Timelines,
    shared: Vec<SharedBuffer>,
    slots: Vec<vk::Buffer>,
    ring: Ring,
    device: Device,
    family: u32,
    /// What `wavefield verify --break` leaves out; `None` in every other run.
    broken: Option<Broken>,
}

impl TimelineHandoff {
    /// `context` must be the same GPU as the queue's device: see [`vulkan_cuda::find_twin`].
    pub fn new(queue: &Queue, context: &Cuda, source: &KernelSource, grid: Grid, ring: Ring) -> Result<Self> {
        let device = queue.device();
        check_grid(device, grid)?;
        // First the kernel: a bad one should be known before gigabytes are allocated.
        let fill = Fill::new(context, source, Signature::Field, grid)?;
        let pair = device.pair(context)?;
        let shared = each_slot(device, Some(context), grid, ring.depth(), || shared_slot(&pair, grid))?;
        Ok(Self {
            fill,
            timelines: Timelines::new(&pair)?,
            slots: shared.iter().map(SharedBuffer::vulkan).collect(),
            shared,
            ring,
            device: device.clone(),
            family: queue.family(),
            broken: None,
        })
    }

    /// CUDA's half: wait for the slots, fill them, say so. Returns before any of it has run.
    fn enqueue(&mut self, frame: &Frame) -> Result<()> {
        let stream = self.fill.stream();
        if let Some(value) = self.ring.turn(frame.index).wait_free
            && self.broken != Some(Broken::Free)
        {
            self.timelines.cuda_wait(stream, value)?;
        }
        // One frame, or with `--batch` the next few: those that come later are filled ahead of their time.
        for index in self.ring.batch_from(frame.index) {
            let turn = self.ring.turn(index);
            let ahead = (index - frame.index) as f64;
            let frame = Frame { index, time: frame.time + ahead * frame.step, ..*frame };
            // SAFETY: the slot has 16 bytes a vertex; the wait above and the ring keep Vulkan out of it until the
            // signal below.
            unsafe { self.fill.enqueue(self.shared[turn.slot].cuda(), &frame) }?;
            self.timelines.cuda_signal(stream, turn)?;
        }
        Ok(())
    }
}

impl Producer for TimelineHandoff {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn slots(&self) -> &[vk::Buffer] {
        &self.slots
    }

    fn produce(&mut self, frame: &Frame) -> Result<()> {
        self.enqueue(frame).map_err(|error| self.fill.blame(error))
    }

    fn record_before_draw(&self, commands: vk::CommandBuffer, frame: &Frame) {
        if self.broken != Some(Broken::Barrier) {
            let slot = self.slots[self.slot_of(frame.index)];
            barrier(&self.device, commands, Owner::External.acquire(slot, self.family, frame.reads));
        }
    }

    fn record_after_draw(&self, commands: vk::CommandBuffer, frame: &Frame) {
        if self.broken != Some(Broken::Barrier) {
            let slot = self.slots[self.slot_of(frame.index)];
            barrier(&self.device, commands, Owner::External.release(slot, self.family, frame.reads));
        }
    }

    fn commands_repeat(&self) -> bool {
        true
    }

    fn sync(&mut self, frame: &Frame) -> Result<FrameSync> {
        let mut sync = self.timelines.vulkan(self.ring.turn(frame.index), frame.reads.stage)?;
        if self.broken == Some(Broken::Ready) {
            sync.wait = None;
        }
        Ok(sync)
    }

    fn owner(&self) -> Owner {
        Owner::External
    }

    fn fill(&self) -> Option<&Fill> {
        Some(&self.fill)
    }

    fn ring(&self) -> Option<Ring> {
        Some(self.ring)
    }

    fn is_idle(&self) -> Result<bool> {
        self.fill.is_idle()
    }

    fn stamp_frames(&mut self) -> Result<()> {
        self.fill.stamp_frames()
    }

    fn batch(&self) -> u64 {
        self.ring.batch() as u64
    }

    fn max_in_flight(&self) -> usize {
        let usual = self.slots.len().max(2);
        match self.broken {
            // The pacer's bound is K frames too: the CPU's wait would stand in for the one that is left out.
            Some(Broken::Free) => 2 * usual,
            _ => usual,
        }
    }

    fn break_sync(&mut self, broken: Broken) -> Result<()> {
        self.broken = Some(broken);
        Ok(())
    }

    fn progress(&self) -> Option<String> {
        self.timelines.progress(self.ring)
    }

    fn abandon(&mut self) {
        self.timelines.abandon();
    }
}

/// The two timelines of a ring. Each has one signaller only, so that its values strictly increase.
pub(super) struct Timelines {
    /// Set by CUDA: the slot is written.
    ready: SharedTimeline,
    /// Set by Vulkan: the slot was read.
    free: SharedTimeline,
}

impl Timelines {
    pub(super) fn new(pair: &Pair) -> Result<Self> {
        Ok(Self { ready: SharedTimeline::new(pair)?, free: SharedTimeline::new(pair)? })
    }

    /// CUDA: what is enqueued from now on waits until Vulkan has signalled `value`.
    pub(super) fn cuda_wait(&self, stream: &Stream, value: u64) -> Result<()> {
        // SAFETY: the stream comes to rest before the timelines go.
        Ok(unsafe { self.free.cuda_wait(stream, value) }?)
    }

    /// CUDA: everything enqueued so far fills this turn's slot.
    pub(super) fn cuda_signal(&self, stream: &Stream, turn: Turn) -> Result<()> {
        // SAFETY: as in `cuda_wait`.
        Ok(unsafe { self.ready.cuda_signal(stream, turn.signal_ready) }?)
    }

    /// Vulkan: what the turn's submission, whose stages `reads` read the slot, waits for and signals.
    pub(super) fn vulkan(&self, turn: Turn, reads: vk::PipelineStageFlags2) -> Result<FrameSync> {
        Ok(FrameSync {
            signal_before: None,
            // Only what reads waits; what comes before it (and the frame before) goes on.
            wait: Some(self.ready.vulkan_wait(turn.wait_ready, reads)),
            // All commands, because the release barrier must be done too.
            signal: Some(self.free.vulkan_signal(turn.signal_free, vk::PipelineStageFlags2::ALL_COMMANDS)?),
        })
    }

    pub(super) fn progress(&self, ring: Ring) -> Option<String> {
        let (ready, free) = (self.ready.value().ok()?, self.free.value().ok()?);
        // The last value that the stream was asked to signal.
        let promised = self.ready.promised();
        let late = late_side(ring, ready, promised, free);
        Some(format!(
            "{late} did not signal: CUDA's `ready` is at {ready} of {promised}, Vulkan's `free` at {free}"
        ))
    }

    pub(super) fn abandon(&self) {
        // Nothing can be returned, and without it the queue only stays busy.
        // SAFETY: CUDA has failed, and signals nothing more.
        let _ = unsafe { self.ready.signal_from_host(self.ready.promised()) };
    }
}

/// Who keeps the other waiting. CUDA's next frame is number `ready`; it may itself wait for a slot.
fn late_side(ring: Ring, ready: u64, promised: u64, free: u64) -> &'static str {
    let first_of_batch = ready - ready % ring.batch() as u64;
    let waits = ring.turn(first_of_batch).wait_free.is_some_and(|value| free < value);
    if ready < promised && !waits { "CUDA" } else { "Vulkan" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_late_side_is_the_one_that_the_other_waits_for() {
        let ring = Ring::new(3).unwrap();
        // Nothing written yet; everything written, nothing read; CUDA waits for a slot; CUDA has its slot.
        assert_eq!(late_side(ring, 0, 3, 0), "CUDA");
        assert_eq!(late_side(ring, 3, 3, 0), "Vulkan");
        assert_eq!(late_side(ring, 3, 4, 0), "Vulkan");
        assert_eq!(late_side(ring, 3, 4, 1), "CUDA");
        // A batch waits for its last slot.
        let batched = ring.with_batch(3).unwrap();
        assert_eq!(late_side(batched, 3, 6, 2), "Vulkan");
        assert_eq!(late_side(batched, 4, 6, 3), "CUDA");
    }
}
