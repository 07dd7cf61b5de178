//! The order that this program exists to show: two timelines over a ring of slots, and a CPU that never waits.

use std::time::Duration;

use ash::vk;
use vulkan_cuda::{Pair, Ring, SharedTimeline, Turn};

use super::order::Order;
use crate::Result;
use crate::producer::{Fill, FrameSync};

/// The two timelines of a ring. Each has one signaller only, so that its values strictly increase.
pub(super) struct Timelines {
    /// Set by CUDA: the slot is written.
    ready: SharedTimeline,
    /// Set by Vulkan: the slot was read.
    free: SharedTimeline,
    ring: Ring,
}

impl Timelines {
    pub(super) fn new(pair: &Pair, ring: Ring) -> Result<Self> {
        Ok(Self { ready: SharedTimeline::new(pair)?, free: SharedTimeline::new(pair)?, ring })
    }
}

impl Order for Timelines {
    fn wait_free(&mut self, fill: &Fill, turn: Turn) -> Result<()> {
        // Not in a slot's first frame, and in a batch only once for all of it.
        let Some(value) = turn.wait_free else { return Ok(()) };
        // SAFETY: the stream comes to rest before the timelines go.
        Ok(unsafe { self.free.cuda_wait(fill.stream(), value) }?)
    }

    fn signal_ready(&mut self, fill: &Fill, turn: Turn) -> Result<Option<Duration>> {
        // SAFETY: as above.
        unsafe { self.ready.cuda_signal(fill.stream(), turn.signal_ready) }?;
        Ok(None)
    }

    fn submission(&mut self, turn: Turn, reads: vk::PipelineStageFlags2) -> Result<FrameSync> {
        Ok(FrameSync {
            signal_before: None,
            // Only what reads waits; what comes before it (and the frame before) goes on.
            wait: Some(self.ready.vulkan_wait(turn.wait_ready, reads)),
            // All commands, because the release barrier must be done too.
            signal: Some(self.free.vulkan_signal(turn.signal_free, vk::PipelineStageFlags2::ALL_COMMANDS)?),
        })
    }

    fn late_side(&self, _fill: &Fill) -> Option<String> {
        let (ready, free) = (self.ready.value().ok()?, self.free.value().ok()?);
        // The last value that the stream was asked to signal.
        let promised = self.ready.promised();
        let late = late_side(self.ring, ready, promised, free);
        Some(format!(
            "{late} did not signal: CUDA's `ready` is at {ready} of {promised}, Vulkan's `free` at {free}"
        ))
    }

    fn abandon(&self) {
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
