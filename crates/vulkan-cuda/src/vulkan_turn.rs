//! Vulkan's half of a frame.

use std::sync::Arc;

use ash::vk;
use cudarc::driver::CudaStream;

use crate::cuda::Stream;
use crate::hand_over::RingCore;
use crate::slot::{QueueUse, Slot, Transfer};
use crate::submission::{self, QueueTurn, Semaphores};
use crate::{Error, Result};

/// A frame that Vulkan reads. [`VulkanTurn::submit`] gives its slot back to CUDA. The turn keeps the slots
/// and timelines alive, even if the ring is dropped, and can be sent to another thread.
///
/// If the turn is dropped instead (because a window is minimised, or a `?` returns early), the frame is given
/// up, and CUDA gets the slot back at once. No other frame gets its number. Submit all turns of a ring to one
/// queue, in the order of their frames.
///
/// # Several submissions
/// A slot may be read by several submissions to that queue, and drawn again in later frames, for as long as
/// you hold the turn. Each submission waits for [`wait_info`](VulkanTurn::wait_info). The first begins with
/// [`record_acquire`](crate::SharedRing::record_acquire). The last one ends with
/// [`record_release`](crate::SharedRing::record_release), and must be made in [`submit`](VulkanTurn::submit).
/// Meanwhile, the other slots of the ring stay usable.
#[must_use = "`submit` it, or the frame is given up"]
pub struct VulkanTurn<S: Slot, C: Stream = Arc<CudaStream>> {
    pub(crate) frame: u64,
    /// The value that CUDA signals for the frame.
    pub(crate) ready: u64,
    pub(crate) submitted: bool,
    pub(crate) core: Arc<RingCore<S, C>>,
}

impl<S: Slot, C: Stream> VulkanTurn<S, C> {
    /// Returns the frame's number: see [`CudaTurn::frame`](crate::CudaTurn::frame).
    pub fn frame(&self) -> u64 {
        self.frame
    }

    /// Returns the slot.
    pub fn slot(&self) -> &S {
        self.core.slot(self.frame)
    }

    /// Returns the slot's index in [`SharedRing::slots`](crate::SharedRing::slots).
    pub fn index(&self) -> usize {
        self.core.index(self.frame)
    }

    /// Returns how Vulkan uses the ring's slots.
    pub fn queue(&self) -> QueueUse {
        self.core.owned.queue
    }

    /// Records the barrier that acquires the slot for Vulkan, what `read` records, and the barrier that
    /// releases the slot to CUDA ([`crate::ownership`]). Does not need `synchronization2`.
    ///
    /// # Safety
    /// - `commands` must be in the recording state, outside a render pass, for a queue of the ring's
    ///   [`QueueUse`], which must describe that queue. `read` may begin a render pass, and must end it.
    /// - Submit the commands in [`VulkanTurn::submit`] only.
    pub unsafe fn record<R>(&self, commands: vk::CommandBuffer, read: impl FnOnce(&S) -> R) -> R {
        // SAFETY: the caller's promise.
        unsafe { self.record_acquire(commands) };
        let done = read(self.slot());
        // SAFETY: the caller's promise.
        unsafe { self.record_release(commands) };
        done
    }

    /// Records only the first barrier of [`VulkanTurn::record`], for work in several command buffers.
    ///
    /// # Safety
    /// Same as [`VulkanTurn::record`]; the release must follow, later in the same queue.
    pub unsafe fn record_acquire(&self, commands: vk::CommandBuffer) {
        // SAFETY: the caller's promise.
        unsafe { self.core.record(self.slot(), commands, Transfer::Acquire) };
    }

    /// Records only the last barrier of [`VulkanTurn::record`].
    ///
    /// # Safety
    /// Same as [`VulkanTurn::record`]; the acquire must come before, in the same queue.
    pub unsafe fn record_release(&self, commands: vk::CommandBuffer) {
        // SAFETY: the caller's promise.
        unsafe { self.core.record(self.slot(), commands, Transfer::Release) };
    }

    /// Returns the wait for CUDA's signal, which comes before all commands of a submission. You need it only
    /// for [several submissions](VulkanTurn#several-submissions).
    pub fn wait_info(&self) -> vk::SemaphoreSubmitInfo<'static> {
        self.core.owned.cuda.vulkan_wait(self.ready)
    }

    /// Calls `submit` with a wait and a signal. `submit` submits the work that reads the slot, with both. For
    /// the older `vkQueueSubmit`, use their semaphores and values, and wait at `ALL_COMMANDS`.
    ///
    /// [`shared_ring::submit`](crate::shared_ring::submit()) submits several turns at once.
    ///
    /// # Errors
    /// Fails if `submit` does. Fails without calling `submit` if a later frame was already submitted. The
    /// frame is given up in both cases.
    ///
    /// # Safety
    /// - If `submit` returns `Ok`, it must have made one submission that signals the second argument. If it
    ///   returns an error or panics, it must have made none, unless the device is lost.
    /// - That submission, and every earlier one that reads the slot, must wait for the first argument. All of
    ///   them, for all turns of the ring, must go to one queue of
    ///   [`QueueUse::family`](crate::shared_ring::QueueUse::family), never from two threads at once.
    /// - If the turn is dropped or `submit` fails, no submission may still read the slot: wait for earlier
    ///   ones.
    ///
    /// [The module](mod@crate::shared_ring#examples) has an example. A turn cannot be submitted twice:
    ///
    /// ```compile_fail,E0382
    /// # use vulkan_cuda::{SharedBuffer, shared_ring::VulkanTurn};
    /// fn twice(read: VulkanTurn<SharedBuffer>) {
    ///     let submit = |_, _| Ok::<_, vulkan_cuda::Error>(());
    ///     let _ = unsafe { read.submit(submit) };
    ///     let _ = unsafe { read.submit(submit) };
    /// }
    /// ```
    pub unsafe fn submit<R, E: From<Error>>(
        self,
        submit: impl FnOnce(vk::SemaphoreSubmitInfo<'static>, vk::SemaphoreSubmitInfo<'static>) -> Result<R, E>,
    ) -> Result<R, E> {
        // SAFETY: the caller's promise.
        unsafe { submission::submit(self, |waits, signals| submit(waits[0], signals[0])) }
    }
}

impl<S: Slot, C: Stream> QueueTurn for VulkanTurn<S, C> {
    fn begin(&self, semaphores: &mut Semaphores) -> Result<()> {
        let (frame, core) = (self.frame, &self.core);
        // After a later frame was submitted, this frame's smaller value can no longer be signalled.
        core.ledger().try_submit(frame).map_err(|later| {
            Error::Rule(format!(
                "frame {frame} of a ring was submitted after frame {later}: submit them in order, to one queue"
            ))
        })?;
        let end = core.ring.turn(frame).signal_free;
        semaphores.add(self.wait_info(), core.owned.vulkan.vulkan_signal(end)?);
        Ok(())
    }

    fn submitted(mut self, _: &Semaphores) {
        self.core.ledger().submitted(self.frame);
        self.submitted = true;
    }
}

impl<S: Slot, C: Stream> Drop for VulkanTurn<S, C> {
    fn drop(&mut self) {
        if !self.submitted {
            self.core.ledger().give_up(self.frame);
        }
    }
}
