//! What a ring shares with the frames that it has handed to Vulkan: the two timelines, and the record of who signals
//! them. This module talks to the GPU. [`crate::ring`] computes slots and values.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ash::vk;

use crate::cuda::{Cuda, Stream, api};
use crate::error::cleanup_error;
use crate::ledger::{Fate, Ledger, Stranded};
use crate::pair::Pair;
use crate::ring::Turn;
use crate::semaphore::submit_info;
use crate::timeline::SharedTimeline;
use crate::{Error, Result};

/// What a ring and its reads share.
pub(crate) struct HandOver {
    /// CUDA signals it: a slot is written.
    ready: SharedTimeline,
    /// Vulkan signals it: a slot was read.
    free: SharedTimeline,
    ledger: Mutex<Ledger>,
}

impl HandOver {
    pub(crate) fn new(pair: &Pair) -> Result<Arc<Self>> {
        let (ready, free) = (SharedTimeline::new(pair)?, SharedTimeline::new(pair)?);
        Ok(Arc::new(Self { ready, free, ledger: Mutex::default() }))
    }

    /// CUDA's stream waits until Vulkan has signalled `value` of `free`. `frames` is the number of frames handed out
    /// so far.
    ///
    /// # Safety
    /// `self` lives until the stream has passed the wait.
    pub(crate) unsafe fn take_back(&self, stream: &dyn Stream, value: u64, frames: u64) -> Result<()> {
        let mut ledger = self.ledger();
        ledger.waits(value, frames);
        self.settle(&mut ledger)?;
        drop(ledger);
        // SAFETY: the caller's promise.
        unsafe { self.free.cuda_wait(stream, value) }
    }

    /// CUDA's stream signals that the frame's slot is written.
    ///
    /// # Safety
    /// `self` lives until the stream has passed the signal.
    pub(crate) unsafe fn hand_out(
        self: &Arc<Self>,
        stream: &dyn Stream,
        frame: u64,
        turn: Turn,
    ) -> Result<Read> {
        // SAFETY: the caller's promise.
        let signalled = unsafe { self.ready.cuda_signal(stream, turn.signal_ready) };
        self.ledger().issue();
        if let Err(error) = signalled {
            self.ledger().ends(turn.signal_free, Fate::GivenUp);
            return Err(error);
        }
        let signal = self.free.vulkan_signal(turn.signal_free)?;
        Ok(Read {
            frame,
            slot: turn.slot,
            wait: (self.ready.semaphore(), turn.wait_ready),
            signal: (signal.semaphore, signal.value),
            open: true,
            hand_over: self.clone(),
        })
    }

    /// Signals from the CPU the values that CUDA has promised to signal.
    ///
    /// # Safety
    /// CUDA signals nothing more.
    pub(crate) unsafe fn abort(&self) -> Result<()> {
        // SAFETY: the caller's promise: CUDA no longer signals it, and nothing else does.
        unsafe { self.ready.signal_from_host(self.ready.promised()) }
    }

    /// Waits until the GPU has done all its work, at most a few seconds: one second for each value that the CPU must
    /// signal ([`HandOver::settle`]), one for Vulkan and one for CUDA. `unfinished` means that the stream has work
    /// after its last signal.
    ///
    /// # Errors
    /// Fails if the GPU is not done in time, or if a driver cannot tell. The text is for the ring's `Drop`, which
    /// then leaks what the GPU may use.
    pub(crate) fn come_to_rest(&self, cuda: &Cuda, stream: &dyn Stream, unfinished: bool) -> Result<()> {
        // There may be a fault that no call has returned yet. Any call returns it, so make one.
        // SAFETY: a live stream.
        let _ = cuda
            .bind()
            .and_then(|()| cuda.check("cuStreamQuery", unsafe { api::cuStreamQuery(stream.raw()) }));
        if cuda.has_faulted() {
            // SAFETY: after a fault a context executes nothing more.
            unsafe { self.abort() }?;
        }
        let mut ledger = self.ledger();
        self.settle(&mut ledger)?;
        let expected = ledger.expected;
        drop(ledger);
        let read = wait(|| Ok(self.free.value()? >= expected))?;
        // After a fault the stream runs nothing more.
        let written = cuda.has_faulted()
            || wait(|| {
                if !unfinished {
                    return Ok(self.ready.value()? >= self.ready.promised());
                }
                cuda.bind()?;
                // SAFETY: a live stream of the current context.
                match unsafe { api::cuStreamQuery(stream.raw()) } {
                    api::Code::NOT_READY => Ok(false),
                    // A fault counts as done too, even if this call is the first to return it.
                    code => Ok(cuda.check("cuStreamQuery", code).is_ok() || cuda.has_faulted()),
                }
            })?;
        if read && written {
            return Ok(());
        }
        Err(Error::Timeout(
            "a ring was dropped while the GPU used it, and was leaked: wait for the queue and the stream first".into(),
        ))
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // A poisoned lock only means that another thread panicked; the ledger is intact.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Signals from the CPU each value that CUDA waits for but no submission will signal. Before each such signal,
    /// waits up to a second until Vulkan has read what was submitted before.
    fn settle(&self, ledger: &mut Ledger) -> Result<()> {
        while let Some(Stranded { after, value }) = ledger.stranded() {
            // A submission's signal must not come after a greater one.
            if !wait(|| Ok(self.free.value()? >= after))? {
                return Err(Error::Timeout(format!(
                    "Vulkan has not read a submitted frame within a second (value {after} of `free`)"
                )));
            }
            // SAFETY: no smaller value will be signalled any more. The greater ones that are pending come later, because
            // CUDA writes their frames after its wait for this one.
            unsafe { self.free.signal_from_host(value) }?;
            ledger.signalled_from_host(value);
        }
        Ok(())
    }
}

/// Checks for up to a second whether something is done.
fn wait(mut is_done: impl FnMut() -> Result<bool>) -> Result<bool> {
    let begin = Instant::now();
    while !is_done()? {
        if begin.elapsed() > Duration::from_secs(1) {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    Ok(true)
}

/// A frame that Vulkan reads: the numbers for one submission. All reads of a ring go to one queue, in the order of
/// their frames.
///
/// If it is dropped without [`submitted`](Read::submitted), the frame is given up, and the drop may block the CPU for
/// some seconds: see [what the CPU waits for](mod@crate::shared_ring#what-the-cpu-waits-for).
///
/// # Examples
///
/// A submission with [`vkQueueSubmit2`]:
///
/// ```no_run
/// use ash::vk;
/// use vulkan_cuda::shared_ring::Read;
///
/// /// # Safety
/// /// `commands` acquires, reads and releases the slot of `read`; `queue` is one of `device`.
/// unsafe fn submit(
///     device: &ash::Device,
///     queue: vk::Queue,
///     commands: vk::CommandBuffer,
///     read: Read,
/// ) -> Result<(), vk::Result> {
///     let (waits, signals) = ([read.wait_info()], [read.signal_info()]);
///     let buffers = [vk::CommandBufferSubmitInfo::default().command_buffer(commands)];
///     let submission = vk::SubmitInfo2::default()
///         .wait_semaphore_infos(&waits)
///         .command_buffer_infos(&buffers)
///         .signal_semaphore_infos(&signals);
///     // SAFETY: the caller's promise.
///     unsafe { device.queue_submit2(queue, &[submission], vk::Fence::null()) }?; // drops `read` if it fails
///     read.submitted();
///     Ok(())
/// }
/// ```
///
/// [`vkQueueSubmit2`]: https://registry.khronos.org/vulkan/specs/latest/man/html/vkQueueSubmit2.html
#[must_use = "call `submitted` once the submission that reads it has succeeded"]
pub struct Read {
    frame: u64,
    slot: usize,
    wait: (vk::Semaphore, u64),
    signal: (vk::Semaphore, u64),
    open: bool,
    hand_over: Arc<HandOver>,
}

impl Read {
    /// Returns the frame's number, which counts from 0. See [`Turn`].
    pub fn frame(&self) -> u64 {
        self.frame
    }

    /// Returns the slot's index in [`SharedRing::slots`](crate::SharedRing::slots).
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// Returns what the submission must wait for, before all its commands: the semaphore `ready` and its value. This is for
    /// [`vkQueueSubmit`] with [`VkTimelineSemaphoreSubmitInfo`]. The stage must be `ALL_COMMANDS`, because no narrower stage
    /// orders the acquire ([`crate::ownership`]).
    ///
    /// [`vkQueueSubmit`]: https://registry.khronos.org/vulkan/specs/latest/man/html/vkQueueSubmit.html
    /// [`VkTimelineSemaphoreSubmitInfo`]: https://registry.khronos.org/vulkan/specs/latest/man/html/VkTimelineSemaphoreSubmitInfo.html
    pub fn wait(&self) -> (vk::Semaphore, u64) {
        self.wait
    }

    /// Returns what the submission must signal once all its commands are done: the semaphore `free` and its value.
    /// This is for [`vkQueueSubmit`] with [`VkTimelineSemaphoreSubmitInfo`].
    ///
    /// [`vkQueueSubmit`]: https://registry.khronos.org/vulkan/specs/latest/man/html/vkQueueSubmit.html
    /// [`VkTimelineSemaphoreSubmitInfo`]: https://registry.khronos.org/vulkan/specs/latest/man/html/VkTimelineSemaphoreSubmitInfo.html
    pub fn signal(&self) -> (vk::Semaphore, u64) {
        self.signal
    }

    /// Returns the same as [`Read::wait`], for `vkQueueSubmit2`. See the [example](Read#examples).
    pub fn wait_info(&self) -> vk::SemaphoreSubmitInfo<'static> {
        submit_info(self.wait.0, self.wait.1)
    }

    /// Returns the same as [`Read::signal`], for `vkQueueSubmit2`. See the [example](Read#examples).
    pub fn signal_info(&self) -> vk::SemaphoreSubmitInfo<'static> {
        submit_info(self.signal.0, self.signal.1)
    }

    /// Notes that a submission with this read's wait and signal was accepted. See the [example](Read#examples).
    ///
    /// If other reads were dropped, this may block the CPU for some seconds: see [what the CPU waits
    /// for](mod@crate::shared_ring#what-the-cpu-waits-for).
    pub fn submitted(mut self) {
        self.end(Fate::Submitted);
    }

    /// Notes what became of the frame, and signals from the CPU if a wait for a slot needs it.
    fn end(&mut self, fate: Fate) {
        self.open = false;
        let mut ledger = self.hand_over.ledger();
        ledger.ends(self.signal.1, fate);
        let settled = self.hand_over.settle(&mut ledger);
        drop(ledger);
        if let Err(error) = settled {
            cleanup_error(&error);
        }
    }
}

impl Drop for Read {
    fn drop(&mut self) {
        if self.open {
            self.end(Fate::GivenUp);
        }
    }
}
