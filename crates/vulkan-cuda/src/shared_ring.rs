//! Step 5: slots that go from CUDA to Vulkan and back, frame by frame. Most programs need only this part of the
//! crate.
//!
//! # Examples
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
//! `examples/03_hand_over.rs` is a whole program.
//!
//! # What goes wrong, and what then
//!
//! - *A [`Write`] is dropped* (a kernel did not start, or a `?` returned early): nothing is signalled, and the
//!   frame's number is not used up. The next write takes the same slot.
//! - *A [`Read`] is dropped* (a submission failed, or the window was minimised): the frame is given up. CUDA gets the
//!   slot back once Vulkan has read the next frame. If CUDA already waits for the slot and no other read can end that
//!   wait, the CPU signals instead.
//! - *CUDA faults* while Vulkan waits for it: call [`SharedRing::abort`], or drop the ring, which does the same.
//!   Otherwise Vulkan waits forever.
//! - *The ring is dropped* while the GPU uses it: the drop waits up to a second for each API, and for each value that
//!   the CPU must signal. If the GPU is still not done, the ring is leaked. Submit or drop every read before you drop
//!   the ring, because CUDA may be waiting for it.
//!
//! # What the CPU waits for
//!
//! Usually for nothing: `write` and `finish` only enqueue. If reads were dropped, the CPU may have to signal in their
//! place. It first waits until Vulkan has read what was submitted earlier, up to a second for each value. This
//! happens in [`SharedRing::write`], [`SharedRing::reserve`], [`Read::submitted`] and the drop of a `Read`.
//!
//! CUDA is at most K frames ahead, where K is the number of slots. A CPU that enqueues faster fills the queues. Limit
//! how far it runs ahead with a fence or a timeline that *Vulkan* signals, as you already do for your frames. Such a
//! signal wakes the CPU at once.
//!
//! # What it costs
//!
//! A GPU runs either CUDA's work or Vulkan's. A switch takes about 160 µs on an H200 (driver 580), for any size of
//! slot. If a frame's work is short, up to K frames share two switches, but a frame may be K frames old when it is
//! drawn. If its work is long, write several frames in a row ([`SharedRing::reserve`]). K remains the limit.
//! [`crate::ring`] explains why.

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

/// A ring of slots that one CUDA stream writes and Vulkan reads, in the same order, with the two timelines that hand
/// them over. It owns the slots and the timelines, and keeps the stream and the pair alive.
///
/// It has the same stream for its whole life. The signals of two streams could overtake each other, and a timeline
/// must only grow.
///
/// [`crate::shared_ring`] has an [example](mod@crate::shared_ring#examples), and tells what the drop does while the
/// GPU still uses a slot.
pub struct SharedRing<S: Slot> {
    // Dropped by hand: see `Drop`.
    parts: ManuallyDrop<Parts<S>>,
    plan: Ring,
    reads: Reads,
    /// The next frame.
    frame: u64,
    /// The stream has waited for the slots of all frames before this one.
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
    /// Makes a ring that hands over `slots` from `stream` to Vulkan. It takes the slots, and creates two timelines.
    /// CUDA owns all slots at first. See the [example](mod@crate::shared_ring#examples).
    ///
    /// # Errors
    /// Fails if there are no slots or more than [`MAX_DEPTH`], if the stream is of another context or is the
    /// per-thread default stream, or if the devices cannot share timelines.
    pub fn new(pair: &Pair, stream: Arc<dyn Stream>, slots: Vec<S>, reads: Reads) -> Result<Self> {
        pair.cuda().require_stream(&*stream, "SharedRing::new")?;
        let depth = u32::try_from(slots.len()).ok().and_then(Ring::new);
        let plan = depth.ok_or_else(|| {
            Error::Rule(format!("a ring has 1 to {MAX_DEPTH} slots, and {} were given", slots.len()))
        })?;
        let parts = Parts { slots, hand_over: HandOver::new(pair)?, stream, pair: pair.clone() };
        Ok(Self { parts: ManuallyDrop::new(parts), plan, reads, frame: 0, reserved: 0, unfinished: false })
    }

    /// Returns the slots. Index them with [`Read::slot`]. See the [example](mod@crate::shared_ring#examples).
    pub fn slots(&self) -> &[S] {
        &self.parts.slots
    }

    /// Begins the next frame: CUDA's stream waits, on the GPU, until Vulkan has read the previous frame in that slot
    /// ([`cuWaitExternalSemaphoresAsync`]). See the [example](mod@crate::shared_ring#examples).
    ///
    /// If reads were dropped, this may block the CPU for some seconds: see [what the CPU waits
    /// for](mod@crate::shared_ring#what-the-cpu-waits-for).
    ///
    /// # Errors
    /// Fails if either driver reports an error, or if Vulkan does not read an earlier frame within a second.
    ///
    /// [`cuWaitExternalSemaphoresAsync`]: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__EXTRES__INTEROP.html
    pub fn write(&mut self) -> Result<Write<'_, S>> {
        self.reserve(1)?;
        self.unfinished = true;
        Ok(Write { turn: self.plan.turn(self.frame), ring: self })
    }

    /// Begins a batch: the stream waits once, now, for the slots of the next `count` frames. The next `count` writes
    /// then wait for nothing more. Frames that are already reserved count as part of the batch. ([`Ring::batch`]
    /// plans batches for a ring that you run yourself, and has an example.)
    ///
    /// # Errors
    /// Fails if `count` is 0 or greater than the number of slots, and otherwise as [`SharedRing::write`] does.
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
        // From here on the stream has work after its last signal.
        self.unfinished = true;
        // The last frame has the greatest value to wait for: see `Ring::turn`.
        if let Some(value) = self.plan.turn(end - 1).wait_free {
            // SAFETY: `Drop` keeps the parts alive until the stream has passed this.
            unsafe { self.parts.hand_over.take_back(&*self.parts.stream, value, self.frame) }?;
        }
        self.reserved = end;
        Ok(())
    }

    /// Records the layout of new images and their release to CUDA: see
    /// [`first_release`](crate::ownership::first_release). Does nothing for buffers ([`Resource`]). Submit the
    /// commands, and wait for them, before the first write.
    ///
    /// # Safety
    /// As for [`SharedRing::record_acquire`]. Also, CUDA must not have written any slot yet.
    pub unsafe fn record_first_release(&self, commands: vk::CommandBuffer) {
        for slot in self.slots() {
            // SAFETY: the caller's promise; the slot is alive.
            unsafe { slot.resource().record_first_release(self.device(), commands, self.reads) };
        }
    }

    /// Records the barrier with which Vulkan takes the slot from CUDA ([`vkCmdPipelineBarrier`]). Record it before
    /// Vulkan's first use of the slot. See the [example](mod@crate::shared_ring#examples) and [`crate::ownership`].
    ///
    /// # Safety
    /// - `commands` must be in the recording state, outside a render pass, for a queue of [`Reads::family`].
    /// - The slots must be of the ring's device, and `read` must be this ring's.
    /// - If the submission succeeds, you must call [`Read::submitted`] before you drop the read or the ring.
    /// - All reads of a ring must go to one queue, in the order of their frames, because the timeline `free` must
    ///   only grow.
    ///
    /// [`vkCmdPipelineBarrier`]: https://registry.khronos.org/vulkan/specs/latest/man/html/vkCmdPipelineBarrier.html
    pub unsafe fn record_acquire(&self, read: &Read, commands: vk::CommandBuffer) {
        // SAFETY: the caller's promise; the slot is alive.
        unsafe { self.slots()[read.slot()].resource().record_acquire(self.device(), commands, self.reads) }
    }

    /// Records the barrier with which Vulkan gives the slot back ([`vkCmdPipelineBarrier`]). Record it after Vulkan's
    /// last use of the slot. See the [example](mod@crate::shared_ring#examples) and [`crate::ownership`].
    ///
    /// # Safety
    /// As for [`SharedRing::record_acquire`].
    ///
    /// [`vkCmdPipelineBarrier`]: https://registry.khronos.org/vulkan/specs/latest/man/html/vkCmdPipelineBarrier.html
    pub unsafe fn record_release(&self, read: &Read, commands: vk::CommandBuffer) {
        // SAFETY: as in `record_acquire`.
        unsafe { self.slots()[read.slot()].resource().record_release(self.device(), commands, self.reads) }
    }

    /// Ends Vulkan's waits after CUDA has failed: the CPU signals what CUDA no longer signals
    /// ([`vkSignalSemaphore`]). The frames that Vulkan then reads may be incomplete. `examples/03_hand_over.rs` calls
    /// it after an error of the stream.
    ///
    /// # Errors
    /// Fails if Vulkan reports an error.
    ///
    /// # Safety
    /// The stream must execute nothing more: a kernel has faulted, and the context cannot be used any longer.
    ///
    /// [`vkSignalSemaphore`]: https://registry.khronos.org/vulkan/specs/latest/man/html/vkSignalSemaphore.html
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

/// A frame that CUDA writes. [`Write::finish`] hands it to Vulkan. If it is dropped before that, the frame never
/// began, and the next write takes the same slot.
///
/// See the [example](mod@crate::shared_ring#examples).
#[must_use = "nothing is handed over before `finish`"]
pub struct Write<'a, S: Slot> {
    ring: &'a mut SharedRing<S>,
    turn: Turn,
}

impl<S: Slot> Write<'_, S> {
    /// Returns the slot to write to, on the ring's stream. See the [example](mod@crate::shared_ring#examples).
    pub fn slot(&self) -> &S {
        &self.ring.slots()[self.turn.slot]
    }

    /// Returns the frame's number, which counts from 0. See [`Turn`].
    pub fn frame(&self) -> u64 {
        self.ring.frame
    }

    /// Returns the ring's stream: the one that was passed to [`SharedRing::new`].
    pub fn stream(&self) -> &dyn Stream {
        &*self.ring.parts.stream
    }

    /// Hands the frame to Vulkan: CUDA's stream signals once everything enqueued on it so far is done
    /// ([`cuSignalExternalSemaphoresAsync`]). When this returns, the signal is enqueued, and you can submit the
    /// Vulkan work that waits for it. See the [example](mod@crate::shared_ring#examples).
    ///
    /// # Errors
    /// Fails if CUDA reports an error. The frame is then lost, and the next write takes the next slot.
    ///
    /// [`cuSignalExternalSemaphoresAsync`]: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__EXTRES__INTEROP.html
    pub fn finish(self) -> Result<Read> {
        let Self { ring, turn } = self;
        let (frame, Parts { hand_over, stream, .. }) = (ring.frame, &*ring.parts);
        ring.frame += 1;
        // SAFETY: the ring's `Drop` keeps the parts alive until the stream has passed this.
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

    /// A renderer may own these values, on any thread.
    #[test]
    fn everything_may_change_threads() {
        fn owned<T: Send + Sync + 'static>() {}
        owned::<SharedRing<SharedBuffer>>();
        owned::<SharedRing<Arc<MappedImage>>>();
        owned::<Read>();
        owned::<SharedTimeline>();
    }
}
