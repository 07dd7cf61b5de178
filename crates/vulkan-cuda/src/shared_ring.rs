//! Slots that go from CUDA to Vulkan and back, frame by frame. Most programs need only this module.
//!
//! # Examples
//! One frame. [The crate's page](crate) shows how to create the ring.
//!
//! ```no_run
//! # use vulkan_cuda::{SharedBuffer, SharedRing};
//! # use ash::vk;
//! # use cudarc::driver::{CudaFunction, LaunchConfig, PushKernelArg};
//! # fn draw(_slot: &SharedBuffer) {}
//! # fn example(
//! #     ring: &mut SharedRing<SharedBuffer>, kernel: CudaFunction,
//! #     (device, queue): (ash::Device, vk::Queue), commands: vk::CommandBuffer,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//! // CUDA's stream waits for the slot, without blocking the CPU:
//! let Some(write) = ring.write()? else { return Ok(()) }; // not yet: earlier frames are not submitted
//! let mut out = write.view::<f32>()?;
//! let count = out.len() as u32;
//! let mut launch = write.stream().launch_builder(&kernel);
//! launch.arg(&mut out).arg(&count);
//! // SAFETY: these are the kernel's parameters, and it writes only the slot.
//! unsafe { launch.launch(LaunchConfig::for_num_elems(count)) }?;
//! let read = write.finish_after_kernels()?; // CUDA signals
//!
//! // SAFETY: `commands` is being recorded for a queue of the ring's family.
//! unsafe { read.record(commands, |slot| draw(slot)) };
//! // … end the recording …
//! let submit = |wait, signal| -> Result<(), Box<dyn std::error::Error>> {
//!     let (waits, signals) = ([wait], [signal]); // and your own
//!     let buffers = [vk::CommandBufferSubmitInfo::default().command_buffer(commands)];
//!     let submission = vk::SubmitInfo2::default()
//!         .wait_semaphore_infos(&waits)
//!         .command_buffer_infos(&buffers)
//!         .signal_semaphore_infos(&signals);
//!     Ok(unsafe { device.queue_submit2(queue, &[submission], vk::Fence::null()) }?)
//! };
//! // SAFETY: `submit` makes one submission with both semaphores, and an error means that there was none.
//! unsafe { read.submit(submit) }?;
//! # Ok(())
//! # }
//! ```
//!
//! # When something goes wrong
//! You may drop turns and the ring at any time: [`CudaTurn`], [`VulkanTurn`] and [`SharedRing`] say what
//! happens. After a fault in CUDA, Vulkan waits forever unless you call [`SharedRing::check`]: call it while
//! you wait for Vulkan.
//!
//! # What the CPU waits for
//! The CPU waits only in [`SharedRing::wait_idle`], [`SharedRing::into_slots`] and the ring's drop. Writing,
//! handing over and submitting only enqueue work. If the CPU enqueues faster than the GPU works, queues fill
//! up. Limit the CPU's lead with a fence or a timeline that *Vulkan* signals, as in any renderer.
//!
//! # Two threads
//! The ring and its stream belong to one thread, for example that of the simulation. Send each [`VulkanTurn`]
//! to the thread that uses the queue. If several threads write, put the ring into a mutex, and keep it locked
//! from [`SharedRing::write`] to [`CudaTurn::finish`]. Only one thread at a time may use a Vulkan queue.
//!
//! # Your own memory
//! A slot may be memory of your own: implement [`Slot`] for it. CUDA imports Vulkan's exportable allocation
//! ([`MappedMemory`](crate::MappedMemory), [`crate::allocation`]), or Vulkan imports CUDA's
//! ([`crate::cuda_memory`]). Memory from a plain `cuMemAlloc` or `vkAllocateMemory` cannot be shared.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ash::vk;
use bytemuck::AnyBitPattern;
use cudarc::driver::CudaStream;

use crate::cuda::Stream;
pub use crate::hand_over::Progress;
use crate::hand_over::RingCore;
use crate::pair::Pair;
use crate::slot::Transfer;
pub use crate::slot::{QueueUse, Resource, Slot};
pub use crate::submission::{QueueTurn, submit};
pub use crate::view::SlotView;
pub use crate::vulkan_turn::VulkanTurn;
use crate::{Error, Result};

/// A ring of slots that one CUDA stream writes and Vulkan reads, in the same order, with the two timelines
/// that hand them over. It owns the slots and the timelines, and keeps the stream and the pair alive.
///
/// A ring uses one stream for its whole life: the signals of two streams could overtake each other, and the
/// values of a timeline must only increase. `C` is the type of the stream: cudarc's, or your own [`Stream`].
///
/// Dropping the ring waits for the GPU, for at most the time of [`SharedRing::set_patience`], and leaks the
/// ring if that is not enough. Turns that you still hold keep the slots alive: their last drop waits instead.
pub struct SharedRing<S: Slot, C: Stream = Arc<CudaStream>> {
    /// The frames of [`SharedRing::write_batch`] that [`SharedRing::next_read`] has not taken, oldest first.
    unread: VecDeque<VulkanTurn<S, C>>,
    core: Arc<RingCore<S, C>>,
}

impl<S: Slot, C: Stream> SharedRing<S, C> {
    /// Creates a ring that hands over `slots` from `stream` to Vulkan. CUDA owns all slots at first.
    ///
    /// # Errors
    /// Fails if there are no slots or more than [`MAX_DEPTH`](crate::ring::MAX_DEPTH), if a slot belongs to
    /// another device or CUDA context, if the stream belongs to another context or is the per-thread default,
    /// if `queue` names no stage, no access or no family of the device, or if timelines cannot be shared.
    pub fn new(pair: &Pair, stream: C, slots: Vec<S>, queue: QueueUse) -> Result<Self> {
        let unread = VecDeque::with_capacity(slots.len());
        Ok(Self { unread, core: Arc::new(RingCore::of_ring(pair, stream, slots, queue, false)?) })
    }

    /// Returns the slots. Index them with [`VulkanTurn::index`].
    pub fn slots(&self) -> &[S] {
        &self.core.owned.slots
    }

    /// Begins the next frame: CUDA's stream waits, on the GPU, until Vulkan has read the previous frame in
    /// that slot (`cuWaitExternalSemaphoresAsync`), or a later frame if [`SharedRing::set_ahead`] requires
    /// it.
    ///
    /// Returns `None` while the previous frame in that slot is *held*, that is, neither submitted nor given
    /// up: you have its [`VulkanTurn`], or have not taken it from [`SharedRing::next_read`]. Submit it first.
    ///
    /// # Errors
    /// Fails if the slots are images that were not [released](SharedRing::record_first_release) to CUDA, or
    /// if the stream is being captured into a graph.
    pub fn write(&mut self) -> Result<Option<CudaTurn<'_, S, C>>> {
        Ok(if self.begin(1)? { Some(CudaTurn { ring: self }) } else { None })
    }

    /// Writes `count` frames without interruption: the stream waits once, for all their slots. Calls `write`
    /// for each frame, and `write` must return what [`CudaTurn::finish`] returned. Take the frames from
    /// [`SharedRing::next_read`]. A later batch may have a different length.
    ///
    /// Returns `false`, and writes nothing, if one of the slots is held (see [`SharedRing::write`]).
    ///
    /// # Errors
    /// Fails if `count` is 0 or greater than the number of slots, and as [`SharedRing::write`] does. If
    /// `write` fails, the earlier frames of the batch can still be taken, and the failed frame never began.
    /// Also fails if `write` returns the turn of another frame or ring, and drops that turn.
    ///
    /// # Examples
    /// ```no_run
    /// # use vulkan_cuda::{CudaTurn, Error, SharedBuffer, SharedRing, VulkanTurn};
    /// # fn launch(_: &CudaTurn<'_, SharedBuffer>) -> Result<(), Error> { Ok(()) }
    /// # fn draw(_: VulkanTurn<SharedBuffer>) {}
    /// # fn example(ring: &mut SharedRing<SharedBuffer>) -> Result<(), Error> {
    /// let is_written = ring.write_batch(2, |write| {
    ///     launch(&write)?; // your kernel writes write.slot(), on write.stream()
    ///     write.finish_after_kernels()
    /// })?;
    /// assert!(is_written, "every frame is submitted before the next batch");
    /// while let Some(read) = ring.next_read() {
    ///     draw(read); // record and submit it, now or in a later frame
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn write_batch<E: From<Error>>(
        &mut self,
        count: usize,
        mut write: impl FnMut(CudaTurn<'_, S, C>) -> Result<VulkanTurn<S, C>, E>,
    ) -> Result<bool, E> {
        self.core.check_batch(count)?;
        if !self.begin(count)? {
            return Ok(false);
        }
        for _ in 0..count {
            // The previous frame ended with a signal, so note that the stream gets more work after it.
            self.core.ledger().begins();
            let frame = self.core.ledger().frame;
            let written = write(CudaTurn { ring: self })?;
            if written.frame != frame || !Arc::ptr_eq(&written.core, &self.core) {
                let text = format!(
                    "frame {frame} of a batch returned another turn than its own: return what `finish` returned"
                );
                return Err(Error::Rule(text).into());
            }
            self.unread.push_back(written);
        }
        Ok(true)
    }

    /// Takes the oldest frame of [`SharedRing::write_batch`] that was not taken before, if any.
    pub fn next_read(&mut self) -> Option<VulkanTurn<S, C>> {
        self.unread.pop_front()
    }

    /// Limits how many frames CUDA may be ahead of Vulkan, on the GPU. `frames` is clamped between 1 and the
    /// number of slots, which is the default. A batch longer than `frames` may be ahead by its own length.
    /// With a smaller limit, drawn frames are newer, but the GPU switches more often: see [`crate::ring`].
    pub fn set_ahead(&mut self, frames: usize) {
        self.core.ledger().set_ahead(frames);
    }

    /// Makes the stream wait for the slots of the next `count` frames. Returns `false` if a slot is held.
    fn begin(&mut self, count: usize) -> Result<bool> {
        let Some(value) = self.core.ledger().wait_for(count) else { return Ok(false) };
        if !self.core.ledger().released {
            return Err(Error::Rule(
                "the ring's images were not released to CUDA: submit SharedRing::record_first_release, and wait, before the first write".into(),
            ));
        }
        self.core.begin_cuda(value, "SharedRing::write")?;
        Ok(true)
    }

    /// Records the barriers that give new images their layout and release them to CUDA: see
    /// [`first_release`](crate::ownership::first_release). Does nothing for buffers ([`Resource`]). Submit
    /// the commands, and wait for them, before the first write.
    ///
    /// # Safety
    /// - `commands` must be in the recording state, outside a render pass, for a queue of
    ///   [`QueueUse::family`].
    /// - CUDA must not have written any slot yet, and must write none before the commands are done.
    pub unsafe fn record_first_release(&self, commands: vk::CommandBuffer) {
        let images = self.slots().iter().filter(|slot| matches!(slot.resource(), Resource::Image { .. }));
        for image in images {
            for half in [Transfer::Layout, Transfer::Release] {
                // SAFETY: the caller's promise.
                unsafe { self.core.record(image, commands, half) };
            }
        }
        self.core.ledger().released = true;
    }

    /// Records the barrier that acquires a slot from CUDA ([`crate::ownership`]).
    ///
    /// [`VulkanTurn::record`] is simpler. Use this for commands that are recorded once and submitted in many
    /// frames, or that are in several command buffers.
    ///
    /// # Errors
    /// Fails if there is no such slot.
    ///
    /// # Safety
    /// - `commands` must be in the recording state, outside a render pass, for a queue of
    ///   [`QueueUse::family`].
    /// - Submit the commands only while you hold the slot's [`VulkanTurn`], and the release after the
    ///   acquire: see [several submissions](VulkanTurn#several-submissions).
    pub unsafe fn record_acquire(&self, slot: usize, commands: vk::CommandBuffer) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.record(slot, commands, Transfer::Acquire) }
    }

    /// Records the barrier that releases a slot to CUDA. Otherwise like [`SharedRing::record_acquire`].
    ///
    /// # Safety
    /// Same as [`SharedRing::record_acquire`].
    pub unsafe fn record_release(&self, slot: usize, commands: vk::CommandBuffer) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.record(slot, commands, Transfer::Release) }
    }

    /// # Safety
    /// Same as [`SharedRing::record_acquire`].
    unsafe fn record(&self, slot: usize, commands: vk::CommandBuffer, transfer: Transfer) -> Result<()> {
        let depth = self.slots().len();
        let none = || Error::Rule(format!("a ring of {depth} has no slot {slot}"));
        // SAFETY: the slot is this ring's. The caller promises the rest.
        unsafe { self.core.record(self.slots().get(slot).ok_or_else(none)?, commands, transfer) };
        Ok(())
    }

    /// Returns CUDA's error if CUDA has failed, without waiting. Call it while the CPU waits for Vulkan:
    /// after a kernel has faulted, CUDA signals nothing more, and Vulkan waits forever. This function then
    /// signals in CUDA's place, so that Vulkan's queue can finish. Vulkan may then read incomplete frames.
    ///
    /// # Examples
    /// ```no_run
    /// # use ash::vk;
    /// # use vulkan_cuda::{SharedBuffer, SharedRing};
    /// # type Result = std::result::Result<(), Box<dyn std::error::Error>>;
    /// # fn example(ring: &SharedRing<SharedBuffer>, device: &ash::Device, fence: [vk::Fence; 1]) -> Result {
    /// // SAFETY: your own fence. Each wait ends after 100 ms.
    /// while let Err(result) = unsafe { device.wait_for_fences(&fence, true, 100_000_000) } {
    ///     ring.check()?;
    ///     if result != vk::Result::TIMEOUT { return Err(result.into()) }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn check(&self) -> Result<()> {
        self.core.check()
    }

    /// Returns the progress of both sides.
    pub fn progress(&self) -> Result<Progress> {
        self.core.progress()
    }

    /// Blocks the CPU until CUDA has written all frames that were begun, and Vulkan has read all that were
    /// submitted. Does not wait for turns that you still hold.
    ///
    /// # Errors
    /// Fails as [`SharedRing::check`] does, and if the GPU is not done after `limit`. The text then has
    /// [`SharedRing::progress`].
    pub fn wait_idle(&mut self, limit: Duration) -> Result<()> {
        self.core.wait_idle(limit)
    }

    /// Sets how long dropping the ring, or its last turn, waits for the GPU: 5 seconds by default. If that is
    /// not enough, the ring is leaked, and [`on_cleanup_error`](crate::on_cleanup_error) gets the reason.
    pub fn set_patience(&mut self, limit: Duration) {
        self.core.ledger().patience = limit;
    }

    /// Waits for the GPU, for at most `limit`, and returns the slots, for example for a ring of another size.
    /// The new ring counts frames from 0, and may have the same stream. Images need
    /// [`SharedRing::record_first_release`] again. Frames not taken from [`SharedRing::next_read`] are given
    /// up.
    ///
    /// # Errors
    /// Fails if you hold a [`VulkanTurn`], and as [`SharedRing::wait_idle`] does. The ring is then dropped.
    pub fn into_slots(mut self, limit: Duration) -> Result<Vec<S>> {
        self.unread.clear();
        self.wait_idle(limit)?;
        let held = self.core.ledger().held();
        let core = Arc::get_mut(&mut self.core).ok_or_else(|| {
            Error::InUse(format!(
                "the slots of a ring are in use: submit or drop the turns of frames {held:?} first"
            ))
        })?;
        Ok(std::mem::take(&mut core.owned.slots))
    }

    /// Ends Vulkan's waits although CUDA has not failed: the CPU signals in CUDA's place. The frames that
    /// Vulkan then reads may be incomplete. Dropping the ring leaks it, because the stream may still use the
    /// slots. After a fault, [`SharedRing::check`] is enough.
    ///
    /// # Safety
    /// The stream must never reach its signals, for example because a kernel does not end.
    pub unsafe fn abort(&self) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.core.abort() }
    }

    /// Stops CUDA from waiting for Vulkan, for tests and for `wavefield verify --break free`.
    ///
    /// # Safety
    /// The contents of the slots are then undefined, and the caller must not rely on them.
    #[doc(hidden)]
    pub unsafe fn leave_out_free(&mut self) {
        self.core.ledger().leave_out_free = true;
    }
}

/// A frame that CUDA writes. [`CudaTurn::finish`] hands it to Vulkan. If it is dropped before that, the frame
/// never began, and the next write takes the same slot.
#[must_use = "nothing is handed over before `finish`"]
pub struct CudaTurn<'a, S: Slot, C: Stream = Arc<CudaStream>> {
    ring: &'a mut SharedRing<S, C>,
}

impl<S: Slot, C: Stream> CudaTurn<'_, S, C> {
    /// Returns the slot. Write to it on the ring's stream only.
    pub fn slot(&self) -> &S {
        self.ring.core.slot(self.frame())
    }

    /// Returns the slot's index in [`SharedRing::slots`].
    pub fn index(&self) -> usize {
        self.ring.core.index(self.frame())
    }

    /// Returns the frame's number. Frames are numbered from 0, without gaps.
    pub fn frame(&self) -> u64 {
        self.ring.core.ledger().frame
    }

    /// Returns the number of the last frame that Vulkan must have read before CUDA writes this frame, for
    /// example for a trace. Returns `None` if the stream has not waited yet.
    pub fn waits_for(&self) -> Option<u64> {
        self.ring.core.ledger().waited().checked_sub(1)
    }

    /// Returns the ring's stream.
    pub fn stream(&self) -> &C {
        &self.ring.core.owned.stream
    }

    /// Returns the slot's elements, for cudarc's launches and copies.
    ///
    /// # Errors
    /// Fails if the slot is an image, has no CUDA address, is misaligned for `T` or not a whole number of
    /// `T`, or if the stream is being captured.
    ///
    /// # Examples
    /// `T` must accept any bytes, because CUDA may have left any in the slot. `bool` does not:
    ///
    /// ```compile_fail,E0277
    /// fn look(write: &vulkan_cuda::CudaTurn<'_, vulkan_cuda::SharedBuffer>) {
    ///     let _ = write.view::<bool>();
    /// }
    /// ```
    pub fn view<T: AnyBitPattern>(&self) -> Result<SlotView<'_, T, C>> {
        SlotView::new(&self.ring.core, self.slot())
    }

    /// Hands the frame to Vulkan: the stream signals once all kernels, copies and memsets enqueued on it so
    /// far are done. A [guard](crate::ImportedSemaphore#a-signal-may-overtake-a-memset) ensures this. After
    /// this call, you can submit the Vulkan work that waits for the signal.
    ///
    /// # Errors
    /// Fails if CUDA does, or if the stream is being captured into a graph. The frame then never began.
    pub fn finish(self) -> Result<VulkanTurn<S, C>> {
        self.hand_over(true)
    }

    /// Like [`CudaTurn::finish`], without the guard, for frames that only kernels wrote. If something else
    /// wrote the slot, Vulkan may read old data; nothing worse can happen.
    pub fn finish_after_kernels(self) -> Result<VulkanTurn<S, C>> {
        self.hand_over(false)
    }

    fn hand_over(self, guarded: bool) -> Result<VulkanTurn<S, C>> {
        let core = self.ring.core.clone();
        let ready = core.signal_cuda(guarded)?;
        let frame = core.ledger().hand_over();
        Ok(VulkanTurn { frame, ready, submitted: false, core })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::SharedBuffer;
    use crate::timeline::SharedTimeline;

    /// A renderer may own these values, on any thread.
    #[test]
    fn everything_may_change_threads() {
        fn owned<T: Send + Sync + 'static>() {}
        owned::<SharedRing<SharedBuffer>>();
        owned::<VulkanTurn<SharedBuffer>>();
        owned::<SharedRing<SharedBuffer, Arc<dyn Stream>>>();
        owned::<SharedTimeline>();
    }
}
