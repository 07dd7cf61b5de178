//! Step 5: slots that go from CUDA to Vulkan and back, frame by frame. This is what most programs need of this crate.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use vulkan_cuda::{Pair, Result, SharedBuffer, SharedRing, Stream, shared_ring::Reads};
//! # use ash::vk;
//! # fn launch_kernel(_slot: &SharedBuffer) {}
//! # fn example(pair: Pair, stream: Arc<dyn Stream>, family: u32, commands: vk::CommandBuffer) -> Result<()> {
//! let reads = Reads {
//!     family,
//!     stage: vk::PipelineStageFlags::VERTEX_SHADER,
//!     access: vk::AccessFlags::SHADER_READ,
//! };
//! let slot = |_| SharedBuffer::new(&pair, 1 << 20, vk::BufferUsageFlags::STORAGE_BUFFER);
//! let slots = (0..3).map(slot).collect::<Result<_>>()?;
//! let mut ring = SharedRing::new(&pair, stream, slots, reads)?;
//!
//! // Each frame:
//! let write = ring.write()?; // CUDA waits for the slot, on the GPU
//! launch_kernel(write.slot()); // on the ring's stream
//! let read = write.finish()?; // CUDA signals
//! // SAFETY: `commands` is being recorded for a queue of `family`; the slots are of the pair's device.
//! unsafe { ring.record_acquire(&read, commands) };
//! // … draw from ring.slots()[read.slot()] …
//! unsafe { ring.record_release(&read, commands) }; // SAFETY: as above.
//! // … submit `commands`: wait for read.wait(), signal read.signal() …
//! read.submitted();
//! # Ok(())
//! # }
//! ```
//!
//! # What goes wrong, and what then
//!
//! - *A [`Write`] is dropped* (a kernel did not start, a `?` in between): nothing is signalled, and the frame's number is not
//!   used up. The next write takes the same slot.
//! - *A [`Read`] is dropped* (a submission failed, a window was minimised): the frame is given up. CUDA gets its slot back
//!   once Vulkan has read the next frame. If CUDA waits for it and no read is left that could signal, the CPU signals instead.
//! - *CUDA faults* while Vulkan waits for it: call [`SharedRing::abort`], or drop the ring, which does. Else Vulkan waits for ever.
//! - *The ring is dropped* while the GPU uses it: the drop waits up to a second for each API, and for each value that the CPU
//!   must signal. What is not done by then is leaked: the GPU may still use it. So drop or submit every read before, because
//!   CUDA may wait for one that is open.
//!
//! # What the CPU waits for
//!
//! Nothing: `write` and `finish` only enqueue. The exception: if reads were dropped, the CPU may signal in their place. First it
//! waits until Vulkan has read what was submitted earlier, up to a second for each value. It does so in [`SharedRing::write`],
//! [`SharedRing::reserve`], [`Read::submitted`] and the drop of a `Read`.
//!
//! CUDA is at most K frames ahead, K being the ring's slots. A CPU that enqueues faster fills the queues. Pace it as you pace
//! your frames: on a fence or a timeline that *Vulkan* signals, which wakes the CPU at once.
//!
//! # What it costs
//!
//! A GPU runs CUDA's work or Vulkan's, and a switch takes about 160 µs on an H200 (driver 580), whatever the size of a slot. Where a
//! frame's work is short, up to K frames share two switches, but a frame may be K frames old when it is drawn. Where its work is
//! long, write several in a row ([`SharedRing::reserve`]): K stays the bound. [`crate::ring`] says why.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use ash::vk;

use crate::cuda::Stream;
use crate::error::cleanup_error;
use crate::hand_over::HandOver;
pub use crate::hand_over::Read;
use crate::pair::Pair;
use crate::ring::{MAX_DEPTH, Ring, Turn};
pub use crate::slot::{Reads, Resource, Slot};
use crate::{Error, Result};

/// A ring of slots that one CUDA stream writes and Vulkan reads, in the same order, with the two timelines that hand them over.
///
/// It has one stream for good: the signals of two streams could overtake each other, and a timeline must only grow.
pub struct SharedRing<S: Slot> {
    // Given back by hand: see `Drop`.
    parts: ManuallyDrop<Parts<S>>,
    plan: Ring,
    reads: Reads,
    /// The next frame.
    frame: u64,
    /// The stream has waited for the slots of all frames below this one.
    reserved: u64,
    /// A write was dropped, and its kernel may still run.
    unfinished: bool,
}

struct Parts<S> {
    slots: Vec<S>,
    hand_over: Arc<HandOver>,
    stream: Arc<dyn Stream>,
    pair: Pair,
}

impl<S: Slot> SharedRing<S> {
    /// Hands over `slots` from `stream` to Vulkan. CUDA owns all of them at first.
    ///
    /// # Errors
    /// No slots or more than [`MAX_DEPTH`], a stream of another context, or devices that cannot share timelines.
    pub fn new(pair: &Pair, stream: Arc<dyn Stream>, slots: Vec<S>, reads: Reads) -> Result<Self> {
        pair.cuda().require_stream(&*stream, "SharedRing::new")?;
        let depth = u32::try_from(slots.len()).ok().and_then(Ring::new);
        let plan = depth.ok_or_else(|| {
            Error::Rule(format!("a ring has 1 to {MAX_DEPTH} slots, and {} were given", slots.len()))
        })?;
        let parts = Parts { slots, hand_over: HandOver::new(pair)?, stream, pair: pair.clone() };
        Ok(Self { parts: ManuallyDrop::new(parts), plan, reads, frame: 0, reserved: 0, unfinished: false })
    }

    /// The slots, to be indexed by [`Read::slot`].
    pub fn slots(&self) -> &[S] {
        &self.parts.slots
    }

    /// Begins the next frame: CUDA's stream waits, on the GPU, until Vulkan has read what was in its slot.
    ///
    /// # Errors
    /// What either driver answers.
    pub fn write(&mut self) -> Result<Write<'_, S>> {
        self.reserve(1)?;
        self.unfinished = true;
        Ok(Write { turn: self.plan.turn(self.frame), ring: self })
    }

    /// Begins a batch: the stream waits once, now, for the slots of the next `count` frames, except those reserved already. The
    /// next `count` writes wait for nothing more. ([`Ring::batch`] plans batches for a ring that you run yourself.)
    ///
    /// # Errors
    /// More frames than slots, or none; what either driver answers.
    pub fn reserve(&mut self, count: usize) -> Result<()> {
        let depth = self.plan.depth();
        if !(1..=depth).contains(&count) {
            return Err(Error::Rule(format!(
                "a batch of a ring of {depth} has 1 to {depth} frames, not {count}"
            )));
        }
        let end = self.frame + count as u64;
        if end <= self.reserved {
            return Ok(());
        }
        // The stream has something to do that no signal tells of.
        self.unfinished = true;
        // The last of them has the greatest value to wait for: see `Ring::turn`.
        if let Some(value) = self.plan.turn(end - 1).wait_free {
            // SAFETY: the parts live until the stream has passed this: `Drop` sees to it.
            unsafe { self.parts.hand_over.take_back(&*self.parts.stream, value, self.frame) }?;
        }
        self.reserved = end;
        Ok(())
    }

    /// Records the layout of new images and their release to CUDA ([`Resource`]). Submit it, and wait, before the first write.
    ///
    /// # Safety
    /// As [`SharedRing::record_acquire`]; no slot was written yet.
    pub unsafe fn record_first_release(&self, commands: vk::CommandBuffer) {
        for slot in self.slots() {
            // SAFETY: the caller's promise; the slot is alive.
            unsafe { slot.resource().record_first_release(self.device(), commands, self.reads) };
        }
    }

    /// Records Vulkan's way of taking the slot from CUDA, before its first use of it.
    ///
    /// # Safety
    /// - `commands` is being recorded, outside a render pass, for a queue of [`Reads::family`]. The slots are of the ring's device.
    /// - `read` is this ring's. If its submission succeeds, [`Read::submitted`] is called before the read or the ring is dropped.
    /// - All reads of a ring go to one queue, in the order of their frames: `free` must only grow.
    pub unsafe fn record_acquire(&self, read: &Read, commands: vk::CommandBuffer) {
        // SAFETY: the caller's promise; the slot is alive.
        unsafe { self.slots()[read.slot()].resource().record_acquire(self.device(), commands, self.reads) }
    }

    /// Records Vulkan's way of giving the slot back, after its last use of it.
    ///
    /// # Safety
    /// As [`SharedRing::record_acquire`].
    pub unsafe fn record_release(&self, read: &Read, commands: vk::CommandBuffer) {
        // SAFETY: as in `record_acquire`.
        unsafe { self.slots()[read.slot()].resource().record_release(self.device(), commands, self.reads) }
    }

    /// Signals from the CPU what CUDA will never signal, so that Vulkan's submissions end. What they read is not whole.
    ///
    /// # Errors
    /// What Vulkan answers.
    ///
    /// # Safety
    /// The stream executes nothing more: a kernel has faulted, and the context with it.
    pub unsafe fn abort(&self) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.parts.hand_over.abort() }
    }

    fn device(&self) -> &ash::Device {
        self.parts.pair.vk().device()
    }
}

impl<S: Slot> Drop for SharedRing<S> {
    fn drop(&mut self) {
        let Parts { hand_over, stream, pair, .. } = &*self.parts;
        match hand_over.come_to_rest(pair.cuda(), &**stream, self.unfinished) {
            // SAFETY: never touched again.
            Ok(()) => unsafe { ManuallyDrop::drop(&mut self.parts) },
            // Leaked: the GPU may still use them.
            Err(error) => cleanup_error(&error),
        }
    }
}

/// A frame that CUDA is to write. Dropped, it is as if it had never begun.
#[must_use = "nothing is handed over before `finish`"]
pub struct Write<'a, S: Slot> {
    ring: &'a mut SharedRing<S>,
    turn: Turn,
}

impl<S: Slot> Write<'_, S> {
    /// What to write to, on the ring's stream.
    pub fn slot(&self) -> &S {
        &self.ring.slots()[self.turn.slot]
    }

    /// The frame's number, from 0.
    pub fn frame(&self) -> u64 {
        self.ring.frame
    }

    /// The ring's stream.
    pub fn stream(&self) -> &dyn Stream {
        &*self.ring.parts.stream
    }

    /// Hands the frame to Vulkan: CUDA's stream signals once everything enqueued on it so far is done. The signal is enqueued
    /// when this returns, as it must be before Vulkan submits the wait for it.
    ///
    /// # Errors
    /// What CUDA answers. The frame is then lost, and the next write takes the next slot.
    pub fn finish(self) -> Result<Read> {
        let Self { ring, turn } = self;
        let (frame, Parts { hand_over, stream, .. }) = (ring.frame, &*ring.parts);
        ring.frame += 1;
        // SAFETY: the parts live until the stream has passed this: `Drop` of the ring sees to it.
        let read = unsafe { hand_over.hand_out(&**stream, frame, turn) }?;
        ring.unfinished = false;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::MappedImage;
    use crate::memory::SharedBuffer;
    use crate::timeline::SharedTimeline;

    /// A renderer may own them, on any thread.
    #[test]
    fn everything_may_change_threads() {
        fn owned<T: Send + Sync + 'static>() {}
        owned::<SharedRing<SharedBuffer>>();
        owned::<SharedRing<Arc<MappedImage>>>();
        owned::<Read>();
        owned::<SharedTimeline>();
    }
}
