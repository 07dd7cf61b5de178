//! The order that this program exists to show: two timelines over a ring of slots. The GPU waits for each hand-off. The CPU
//! waits only to stay at most a few frames ahead.

use std::time::Duration;

use vulkan_cuda::ring::MAX_DEPTH;
use vulkan_cuda::{Pair, SharedTimeline, Turn};

use super::order::Order;
use crate::Result;
use crate::producer::{Fill, FrameSync};

/// The two timelines of a ring. Each has one signaller only, so that its values strictly increase.
pub(super) struct Timelines {
    /// Signalled by CUDA when the slot is written.
    ready: SharedTimeline,
    /// Signalled by Vulkan when the slot has been read.
    free: SharedTimeline,
    /// The value of `free` that CUDA waits for before it fills a frame, for the last [`REMEMBERED`] frames.
    waits: [u64; REMEMBERED],
}

/// The most frames that can be enqueued and not yet signalled: a ring's frames in flight, and a batch.
const REMEMBERED: usize = 2 * MAX_DEPTH as usize;

impl Timelines {
    pub(super) fn new(pair: &Pair) -> Result<Self> {
        let (ready, free) = (SharedTimeline::new(pair)?, SharedTimeline::new(pair)?);
        Ok(Self { ready, free, waits: [0; REMEMBERED] })
    }
}

impl Order for Timelines {
    fn wait_free(&mut self, fill: &Fill, turn: Turn) -> Result<()> {
        let frame = turn.signal_ready - 1;
        // The stream is in order, so this frame also waits for everything that the previous frame waits for.
        let before = if frame == 0 { 0 } else { self.waits[remembered(frame - 1)] };
        self.waits[remembered(frame)] = turn.wait_free.unwrap_or(before);
        // ANCHOR: wait
        // A slot's first frame needs no wait, and a batch waits only once.
        let Some(value) = turn.wait_free else { return Ok(()) };
        // SAFETY: the stream is idle before the timelines are dropped.
        Ok(unsafe { self.free.cuda_wait(fill.stream(), value) }?)
        // ANCHOR_END: wait
    }

    fn signal_ready(&mut self, fill: &Fill, turn: Turn) -> Result<Option<Duration>> {
        // ANCHOR: signal
        // SAFETY: as above.
        unsafe { self.ready.cuda_signal_after_kernels(fill.stream(), turn.signal_ready) }?;
        // ANCHOR_END: signal
        Ok(None)
    }

    fn submission(&mut self, turn: Turn) -> Result<FrameSync> {
        // ANCHOR: submission
        Ok(FrameSync {
            signal_before: None,
            wait: Some(self.ready.vulkan_wait(turn.wait_ready)),
            signal: Some(self.free.vulkan_signal(turn.signal_free)?),
        })
        // ANCHOR_END: submission
    }

    fn late_side(&self, _fill: &Fill) -> Option<String> {
        let (ready, free) = (self.ready.value().ok()?, self.free.value().ok()?);
        // The last value that the stream was asked to signal.
        let promised = self.ready.promised();
        let late = late_side(ready, promised, free, self.waits[remembered(ready)]);
        Some(format!(
            "{late} did not signal: CUDA's `ready` is at {ready} of {promised}, Vulkan's `free` at {free}"
        ))
    }

    fn abandon(&self) {
        // Ignore an error: there is no caller to tell, and if the signal fails, the queue only stays busy.
        // SAFETY: CUDA has failed and signals nothing more.
        let _ = unsafe { self.ready.signal_from_host(self.ready.promised()) };
    }
}

/// A frame's index in [`Timelines::waits`].
fn remembered(frame: u64) -> usize {
    (frame % REMEMBERED as u64) as usize
}

/// Which side keeps the other waiting. CUDA's next frame is number `ready`; CUDA fills it once `free` is `wait`.
fn late_side(ready: u64, promised: u64, free: u64, wait: u64) -> &'static str {
    if ready < promised && free >= wait { "CUDA" } else { "Vulkan" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_late_side_is_the_one_that_the_other_waits_for() {
        // Nothing written yet; everything written, nothing read; CUDA waits for a slot; CUDA has its slot.
        assert_eq!(late_side(0, 3, 0, 0), "CUDA");
        assert_eq!(late_side(3, 3, 0, 0), "Vulkan");
        assert_eq!(late_side(3, 4, 0, 1), "Vulkan");
        assert_eq!(late_side(3, 4, 1, 1), "CUDA");
        // All frames of a batch wait for its last slot.
        assert_eq!(late_side(3, 6, 2, 3), "Vulkan");
        assert_eq!(late_side(4, 6, 3, 3), "CUDA");
    }
}
