//! Slots that go from Vulkan to CUDA and back, frame by frame: Vulkan draws or computes, CUDA reads. See
//! [`crate::shared_ring`] for the other direction, and for more about threads and your own memory.
//!
//! # Examples
//! One frame. The slots may be buffers or images, colour attachments and storage images included.
//!
//! ```no_run
//! # use vulkan_cuda::{QueueUse, RingToCuda, SharedBuffer};
//! # use ash::vk;
//! # use cudarc::driver::{CudaFunction, LaunchConfig, PushKernelArg};
//! # fn draw(_slot: &SharedBuffer) {}
//! # fn example(
//! #     ring: &mut RingToCuda<SharedBuffer>, kernel: CudaFunction,
//! #     submit: fn(vk::SemaphoreSubmitInfo, vk::SemaphoreSubmitInfo) -> Result<(), vulkan_cuda::Error>,
//! #     commands: vk::CommandBuffer,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//! let Some(write) = ring.write() else { return Ok(()) }; // not yet: CUDA must read first
//! // SAFETY: `commands` is being recorded for a queue of the ring's family.
//! unsafe { write.record(commands, |slot| draw(slot)) };
//! // … end the recording …
//! // SAFETY: `submit` makes one submission with both semaphores, and an error means that there was none.
//! // (The page of `shared_ring` has such a function.)
//! unsafe { write.submit(submit) }?;
//!
//! while let Some(read) = ring.next_read()? { // CUDA's stream waits, on the GPU
//!     let seen = read.view::<u32>()?;
//!     let count = seen.len() as u32;
//!     let mut launch = read.stream().launch_builder(&kernel);
//!     launch.arg(&seen).arg(&count);
//!     // SAFETY: these are the kernel's parameters, and it only reads the slot.
//!     unsafe { launch.launch(LaunchConfig::for_num_elems(count)) }?;
//!     read.finish_after_kernels()?; // CUDA signals
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A slot that is an image: CUDA copies it to linear memory, where kernels and other libraries can read it.
//!
//! ```no_run
//! # use vulkan_cuda::cuda::Array;
//! # use vulkan_cuda::{RingToCuda, Slot};
//! # use cudarc::driver::{CudaSlice, DevicePtrMut};
//! # fn example<S: Slot>(
//! #     ring: &mut RingToCuda<S>, levels: &[Array], pixels: &mut CudaSlice<u8>,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//! if let Some(read) = ring.next_read()? {
//!     let (address, record) = pixels.device_ptr_mut(read.stream());
//!     // SAFETY: `pixels` has 64 rows of 256 bytes, and lives until the stream has passed the copy.
//!     unsafe { levels[read.index()].copy_to(read.stream(), address, 256, [256, 64]) }?;
//!     drop(record); // `record` borrows the turn.
//!     read.finish()?; // with a guard, because a copy reads the slot
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A batch: Vulkan waits once, and CUDA waits once.
//!
//! ```no_run
//! # use vulkan_cuda::{Error, RingToCuda, SharedBuffer, WriteTurn};
//! # fn submit(_: WriteTurn<'_, SharedBuffer>) -> Result<(), Error> { Ok(()) }
//! # fn example(ring: &mut RingToCuda<SharedBuffer>) -> Result<(), Error> {
//! if ring.write_batch(8, |write| submit(write))? { // record and submit, as above
//!     while let Some(read) = ring.next_read()? {
//!         read.finish()?; // after your kernels
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # When something goes wrong
//! You may drop a turn at any time. If you drop a [`WriteTurn`], its frame never began. If you drop a
//! [`ReadTurn`], its frame is treated as read, and the slot goes back once everything enqueued on the stream
//! so far is done, as after [`ReadTurn::finish`]. So Vulkan never waits for a value that CUDA has not been
//! asked to signal. After a fault in CUDA, Vulkan waits forever unless you call [`RingToCuda::check`]: call
//! it while the CPU waits for Vulkan. You cannot call it while a turn borrows the ring, so wait for your
//! fences before you begin a turn.
//!
//! The ring does not own your command buffers and other objects. Wait for your fence or queue before you
//! destroy them. If that wait times out after an error, leak the device with
//! [`Vk::abandon`](crate::Vk::abandon) instead.

use std::sync::Arc;
use std::time::Duration;

use ash::vk;
use bytemuck::AnyBitPattern;
use cudarc::driver::CudaStream;

use crate::cuda::Stream;
use crate::error::cleanup_error;
use crate::frames::Frames;
use crate::hand_over::{Progress, RingCore};
use crate::pair::Pair;
use crate::slot::{QueueUse, Slot, Transfer};
use crate::submission::{self, QueueTurn, Semaphores};
use crate::view::SlotView;
use crate::{Error, Result};

/// A ring of slots that Vulkan writes and one CUDA stream reads, in the same order. It owns the slots and the
/// two timelines, and keeps the stream and the pair alive.
///
/// Dropping the ring waits for the GPU, for at most the time of [`RingToCuda::set_patience`], and leaks the
/// ring if that is not enough. Frames that CUDA has not read are given up.
pub struct RingToCuda<S: Slot, C: Stream = Arc<CudaStream>> {
    frames: Frames,
    core: RingCore<S, C>,
}

impl<S: Slot, C: Stream> RingToCuda<S, C> {
    /// Creates a ring that hands over `slots` from Vulkan to `stream`. Vulkan owns all slots at first: do not
    /// [release](crate::ownership::first_release) new images to CUDA. [`WriteTurn::record`] gives them a
    /// layout.
    ///
    /// # Errors
    /// Same as [`SharedRing::new`](crate::SharedRing::new).
    pub fn new(pair: &Pair, stream: C, slots: Vec<S>, queue: QueueUse) -> Result<Self> {
        let core = RingCore::of_ring(pair, stream, slots, queue, true)?;
        Ok(Self { frames: Frames::new(core.ring), core })
    }

    /// Returns the slots. Index them with [`WriteTurn::index`] or [`ReadTurn::index`].
    pub fn slots(&self) -> &[S] {
        &self.core.owned.slots
    }

    /// Begins the next frame, or returns `None` if CUDA has not read the previous frame in its slot: call
    /// [`RingToCuda::next_read`] first.
    pub fn write(&mut self) -> Option<WriteTurn<'_, S, C>> {
        self.frames.wait_to_write(1).map(|wait| WriteTurn { wait, ring: self })
    }

    /// Writes `count` frames without interruption: Vulkan waits once, until CUDA has read all their slots,
    /// and CUDA then waits once, for the last. Calls `write` for each frame, and `write` must submit it.
    ///
    /// Returns `false`, and writes nothing, if CUDA has not read one of the slots.
    ///
    /// # Errors
    /// Fails if `count` is 0 or greater than the number of slots, or if `write` returns without a submission.
    /// If `write` fails, the frames that were already submitted must still be read; the rest never began.
    pub fn write_batch<E: From<Error>>(
        &mut self,
        count: usize,
        mut write: impl FnMut(WriteTurn<'_, S, C>) -> Result<(), E>,
    ) -> Result<bool, E> {
        self.core.check_batch(count)?;
        let Some(wait) = self.frames.wait_to_write(count) else { return Ok(false) };
        for _ in 0..count {
            let frame = self.frames.written;
            write(WriteTurn { wait, ring: self })?;
            if self.frames.written == frame {
                return Err(Error::Rule(format!("frame {frame} of a batch was not submitted")).into());
            }
        }
        self.frames.join(count);
        Ok(true)
    }

    /// Begins to read the oldest frame that CUDA has not read: the stream waits, on the GPU, until Vulkan has
    /// written it (`cuWaitExternalSemaphoresAsync`). Returns `None` if there is no such frame.
    ///
    /// # Errors
    /// Fails if CUDA does, or if the stream is being captured. The next call tries the frame again.
    pub fn next_read(&mut self) -> Result<Option<ReadTurn<'_, S, C>>> {
        let waited = self.core.ledger().waited();
        let Some(value) = self.frames.wait_to_read(waited) else { return Ok(None) };
        self.core.begin_cuda(value, "RingToCuda::next_read")?;
        Ok(Some(ReadTurn { ring: self }))
    }

    /// Returns the number of submitted frames that CUDA has not read.
    pub fn unread(&self) -> usize {
        self.frames.unread.len()
    }

    /// Makes the stream signal that it has read the oldest frame.
    fn end_read(&mut self, guarded: bool) -> Result<()> {
        let value = self.core.signal_cuda(guarded)?;
        self.core.ledger().unfinished = false;
        self.frames.read(value);
        Ok(())
    }

    /// Returns CUDA's error if CUDA has failed: see [`SharedRing::check`](crate::SharedRing::check).
    pub fn check(&self) -> Result<()> {
        self.core.check()
    }

    /// Returns how far both sides have signalled, without waiting.
    pub fn progress(&self) -> Result<Progress> {
        self.core.progress()
    }

    /// Blocks the CPU until Vulkan has written all submitted frames, and CUDA has finished all that it began.
    ///
    /// # Errors
    /// Fails as [`RingToCuda::check`] does, and if the GPU is not done after `limit`. The text then has
    /// [`RingToCuda::progress`].
    pub fn wait_idle(&mut self, limit: Duration) -> Result<()> {
        self.core.wait_idle(limit)
    }

    /// Sets how long dropping the ring waits for the GPU: 5 seconds by default. If the GPU is not done by
    /// then, the ring is leaked, and [`on_cleanup_error`](crate::on_cleanup_error) gets the reason.
    pub fn set_patience(&mut self, limit: Duration) {
        self.core.ledger().patience = limit;
    }

    /// Waits for the GPU, for at most `limit`, and returns the slots, for example for a ring of another size.
    /// Frames that CUDA has not read are given up. A new ring gives images their layout again, and discards
    /// their contents.
    ///
    /// # Errors
    /// Fails as [`RingToCuda::wait_idle`] does. The ring is then dropped.
    pub fn into_slots(mut self, limit: Duration) -> Result<Vec<S>> {
        self.wait_idle(limit)?;
        Ok(std::mem::take(&mut self.core.owned.slots))
    }

    /// Ends the waits of both sides: the CPU signals in their place, for example because the device is lost
    /// or a kernel does not end. Either side may then read incomplete frames. Dropping the ring then leaks
    /// it, unless CUDA has faulted.
    ///
    /// # Safety
    /// Neither the stream nor the queue may reach its signals any more.
    pub unsafe fn abort(&self) -> Result<()> {
        let submitted = self.core.ledger().submitted;
        // SAFETY: the caller's promise.
        let vulkan = unsafe { self.core.owned.vulkan.signal_from_host(submitted) };
        // SAFETY: as above.
        unsafe { self.core.abort() }.and(vulkan)
    }
}

/// A frame that Vulkan writes. [`WriteTurn::submit`] hands it to CUDA. If it is dropped before that, the
/// frame never began, and the next write takes the same slot.
#[must_use = "nothing is handed over before `submit`"]
pub struct WriteTurn<'a, S: Slot, C: Stream = Arc<CudaStream>> {
    wait: u64,
    ring: &'a mut RingToCuda<S, C>,
}

impl<S: Slot, C: Stream> WriteTurn<'_, S, C> {
    /// Returns the frame's number. Frames are numbered from 0, without gaps.
    pub fn frame(&self) -> u64 {
        self.ring.frames.written
    }

    /// Returns the slot's index in [`RingToCuda::slots`].
    pub fn index(&self) -> usize {
        self.ring.core.index(self.frame())
    }

    /// Returns the slot.
    pub fn slot(&self) -> &S {
        self.ring.core.slot(self.frame())
    }

    /// Returns how Vulkan uses the ring's slots.
    pub fn queue(&self) -> QueueUse {
        self.ring.core.owned.queue
    }

    /// Records the barrier that acquires the slot for Vulkan, what `write` records, and the barrier that
    /// releases the slot to CUDA ([`crate::ownership`]). Does not need `synchronization2`. An image is in
    /// [`SHARED_LAYOUT`](crate::ownership::SHARED_LAYOUT) when `write` begins.
    ///
    /// # Safety
    /// - `commands` must be in the recording state, outside a render pass, for a queue of the ring's
    ///   [`QueueUse`], which must describe that queue.
    /// - `write` must end a render pass that it begins, and must leave an image in the layout that it found.
    /// - Submit the commands in [`WriteTurn::submit`] only, once.
    pub unsafe fn record<R>(&self, commands: vk::CommandBuffer, write: impl FnOnce(&S) -> R) -> R {
        // SAFETY: the caller's promise.
        unsafe { self.record_acquire(commands) };
        let done = write(self.slot());
        // SAFETY: as above.
        unsafe { self.record_release(commands) };
        done
    }

    /// Records only the first barrier of [`WriteTurn::record`], for work in several command buffers.
    ///
    /// # Safety
    /// Same as [`WriteTurn::record`]; the release must follow, in the same submission.
    pub unsafe fn record_acquire(&self, commands: vk::CommandBuffer) {
        // The first frame in each slot has nothing to acquire: the slot was never released to CUDA.
        let first = self.frame() < self.ring.core.ring.depth() as u64;
        let transfer = if first { Transfer::FirstUse } else { Transfer::Acquire };
        // SAFETY: the caller's promise.
        unsafe { self.ring.core.record(self.slot(), commands, transfer) };
    }

    /// Records only the last barrier of [`WriteTurn::record`].
    ///
    /// # Safety
    /// Same as [`WriteTurn::record`]; the acquire must come before, in the same submission.
    pub unsafe fn record_release(&self, commands: vk::CommandBuffer) {
        // SAFETY: the caller's promise.
        unsafe { self.ring.core.record(self.slot(), commands, Transfer::Release) };
    }

    /// Calls `submit` with a wait and a signal. `submit` submits the work that writes the slot, with both.
    /// For the older `vkQueueSubmit`, use their semaphores and values, and wait at `ALL_COMMANDS`.
    ///
    /// If `submit` fails, the frame never began. [`shared_ring::submit`](crate::shared_ring::submit())
    /// submits several turns at once.
    ///
    /// # Safety
    /// - If `submit` returns `Ok`, it must have made one submission with this wait and this signal. If it
    ///   returns an error or panics, it must have made none, unless the device is lost.
    /// - All submissions must go to one queue of [`QueueUse::family`], one after the other.
    pub unsafe fn submit<R, E: From<Error>>(
        self,
        submit: impl FnOnce(vk::SemaphoreSubmitInfo<'static>, vk::SemaphoreSubmitInfo<'static>) -> Result<R, E>,
    ) -> Result<R, E> {
        // SAFETY: the caller's promise.
        unsafe { submission::submit(self, |waits, signals| submit(waits[0], signals[0])) }
    }
}

impl<S: Slot, C: Stream> QueueTurn for WriteTurn<'_, S, C> {
    fn begin(&self, semaphores: &mut Semaphores) -> Result<()> {
        let owned = &self.ring.core.owned;
        let signal = owned.vulkan.vulkan_signal(owned.vulkan.promised() + 1)?;
        semaphores.add(owned.cuda.vulkan_wait(self.wait), signal);
        Ok(())
    }

    fn submitted(self, _: &Semaphores) {
        let RingToCuda { core, frames } = self.ring;
        let (value, mut ledger) = (core.owned.vulkan.promised(), core.ledger());
        (ledger.submitted, ledger.busy) = (value, true);
        frames.submitted(value);
    }
}

/// A frame that CUDA reads. [`ReadTurn::finish`] and dropping the turn both give the slot back to Vulkan.
#[must_use = "the slot goes back when this is dropped"]
pub struct ReadTurn<'a, S: Slot, C: Stream = Arc<CudaStream>> {
    ring: &'a mut RingToCuda<S, C>,
}

impl<S: Slot, C: Stream> ReadTurn<'_, S, C> {
    /// Returns the frame's number.
    pub fn frame(&self) -> u64 {
        self.ring.frames.reading()
    }

    /// Returns the slot's index in [`RingToCuda::slots`].
    pub fn index(&self) -> usize {
        self.ring.core.index(self.frame())
    }

    /// Returns the slot. Read it on the ring's stream only.
    pub fn slot(&self) -> &S {
        self.ring.core.slot(self.frame())
    }

    /// Returns the ring's stream.
    pub fn stream(&self) -> &C {
        &self.ring.core.owned.stream
    }

    /// Returns the slot's elements, for cudarc's launches and copies.
    ///
    /// # Errors
    /// Fails if the slot is an image (copy it with [`Array::copy_to`](crate::cuda::Array::copy_to)), has no
    /// CUDA address, is misaligned for `T` or not a whole number of `T`, or if the stream is being captured.
    pub fn view<T: AnyBitPattern>(&self) -> Result<SlotView<'_, T, C>> {
        SlotView::new(&self.ring.core, self.slot())
    }

    /// Gives the slot back: the stream signals once all kernels and copies enqueued on it so far are done. A
    /// [guard](crate::ImportedSemaphore#a-signal-may-overtake-a-memset) ensures this.
    ///
    /// # Errors
    /// Fails if CUDA does, or if the stream is being captured. [`RingToCuda::next_read`] then returns the
    /// frame again.
    pub fn finish(self) -> Result<()> {
        self.end(true)
    }

    /// Like [`ReadTurn::finish`], without the guard, for frames that only kernels read.
    pub fn finish_after_kernels(self) -> Result<()> {
        self.end(false)
    }

    fn end(self, guarded: bool) -> Result<()> {
        let ended = self.ring.end_read(guarded);
        // Dropping the turn would end the read again.
        std::mem::forget(self);
        ended
    }
}

impl<S: Slot, C: Stream> Drop for ReadTurn<'_, S, C> {
    fn drop(&mut self) {
        if let Err(error) = self.ring.end_read(true) {
            cleanup_error(&error);
        }
    }
}
