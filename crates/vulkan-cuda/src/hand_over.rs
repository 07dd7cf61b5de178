//! What a ring and the frames that it has handed to Vulkan share: the two timelines, and who signals them. This is the ring's
//! traffic with the GPU; which slot and which values, [`crate::ring`] says.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ash::vk;

use crate::cuda::{Cuda, Stream, api};
use crate::error::cleanup_error;
use crate::ledger::{Fate, Ledger, Stranded};
use crate::pair::Pair;
use crate::ring::Turn;
use crate::timeline::SharedTimeline;
use crate::{Error, Result};

/// What ring and reads share.
pub(crate) struct HandOver {
    /// CUDA signals: a slot is written.
    ready: SharedTimeline,
    /// Vulkan signals: a slot was read.
    free: SharedTimeline,
    ledger: Mutex<Ledger>,
}

impl HandOver {
    pub(crate) fn new(pair: &Pair) -> Result<Arc<Self>> {
        let (ready, free) = (SharedTimeline::new(pair)?, SharedTimeline::new(pair)?);
        Ok(Arc::new(Self { ready, free, ledger: Mutex::default() }))
    }

    /// CUDA's stream waits until Vulkan has signalled `value` of `free`; `frames` were handed out so far.
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
        let signal = self.free.vulkan_signal(turn.signal_free, vk::PipelineStageFlags2::ALL_COMMANDS)?;
        Ok(Read {
            frame,
            slot: turn.slot,
            wait: (self.ready.semaphore(), turn.wait_ready),
            signal: (signal.semaphore, signal.value),
            open: true,
            hand_over: self.clone(),
        })
    }

    /// Signals from the CPU what CUDA was to signal.
    ///
    /// # Safety
    /// CUDA signals nothing more.
    pub(crate) unsafe fn abort(&self) -> Result<()> {
        // SAFETY: the caller's promise: nobody else signals it any more.
        unsafe { self.ready.signal_from_host(self.ready.promised()) }
    }

    /// Waits, for a few seconds, until the GPU has done everything that it was given: up to a second for each value that the CPU
    /// must signal ([`HandOver::settle`]), one for Vulkan and one for CUDA. `unfinished`: the stream has something to do that no
    /// signal tells of.
    ///
    /// # Errors
    /// It did not, or nobody can tell; worded for the ring's `Drop`, which then leaks what the GPU may use.
    pub(crate) fn come_to_rest(&self, cuda: &Cuda, stream: &dyn Stream, unfinished: bool) -> Result<()> {
        // A fault that nobody has seen here yet is seen by any call.
        // SAFETY: a live stream.
        let _ = cuda
            .bind()
            .and_then(|()| cuda.check("cuStreamQuery", unsafe { api::cuStreamQuery(stream.raw()) }));
        if cuda.has_faulted() {
            // SAFETY: a broken context executes nothing more.
            unsafe { self.abort() }?;
        }
        let mut ledger = self.ledger();
        self.settle(&mut ledger)?;
        let expected = ledger.expected;
        drop(ledger);
        let read = wait(|| Ok(self.free.value()? >= expected))?;
        // After a fault the stream runs nothing, whatever it is asked.
        let written = cuda.has_faulted()
            || wait(|| {
                if !unfinished {
                    return Ok(self.ready.value()? >= self.ready.promised());
                }
                cuda.bind()?;
                // SAFETY: a live stream of the current context.
                match unsafe { api::cuStreamQuery(stream.raw()) } {
                    api::Code::NOT_READY => Ok(false),
                    // After a fault that nobody has seen yet it runs nothing either.
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
        // A poisoned lock only says that another thread panicked; the ledger is whole.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Signals from the CPU what CUDA waits for and no submission signals. Waits up to a second for each such value, until Vulkan
    /// has read what was submitted before.
    fn settle(&self, ledger: &mut Ledger) -> Result<()> {
        while let Some(Stranded { after, value }) = ledger.stranded() {
            // A submission's signal must not come after a greater one.
            if !wait(|| Ok(self.free.value()? >= after))? {
                return Err(Error::Timeout(format!(
                    "Vulkan has not read a frame that it was given a second ago (value {after} of `free`)"
                )));
            }
            // SAFETY: every smaller value that is ever signalled has been; the greater ones that are pending come later, because
            // their frames are behind CUDA's wait for this one.
            unsafe { self.free.signal_from_host(value) }?;
            ledger.signalled_from_host(value);
        }
        Ok(())
    }
}

/// Asks for a second whether something is done.
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

/// A frame that Vulkan is to read: plain numbers for one submission. All reads of a ring go to one queue, in the order of their
/// frames.
///
/// Dropped without [`submitted`](Read::submitted), the frame is given up, and the drop may block the CPU for some seconds: see
/// [`crate::shared_ring`].
#[must_use = "say `submitted` once the submission that reads it has succeeded"]
pub struct Read {
    frame: u64,
    slot: usize,
    wait: (vk::Semaphore, u64),
    signal: (vk::Semaphore, u64),
    open: bool,
    hand_over: Arc<HandOver>,
}

impl Read {
    /// The frame's number, from 0.
    pub fn frame(&self) -> u64 {
        self.frame
    }

    /// The slot's index.
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// What the submission waits for, before all its commands: `ready` and its value.
    ///
    /// The stage must be `ALL_COMMANDS`. No narrower one orders the acquire: see [`crate::ownership`].
    pub fn wait(&self) -> (vk::Semaphore, u64) {
        self.wait
    }

    /// What the submission signals once all its commands are done: `free` and its value.
    pub fn signal(&self) -> (vk::Semaphore, u64) {
        self.signal
    }

    /// [`Read::wait`] for `vkQueueSubmit2`.
    pub fn wait_info(&self) -> vk::SemaphoreSubmitInfo<'static> {
        submit_info(self.wait)
    }

    /// [`Read::signal`] for `vkQueueSubmit2`.
    pub fn signal_info(&self) -> vk::SemaphoreSubmitInfo<'static> {
        submit_info(self.signal)
    }

    /// A submission that waits and signals as this read says was accepted.
    ///
    /// If other reads were dropped, this may block the CPU for some seconds: see [`crate::shared_ring`].
    pub fn submitted(mut self) {
        self.end(Fate::Submitted);
    }

    /// Notes what became of the frame, and sees to those who wait for its slot.
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

/// At `ALL_COMMANDS`: no narrower stage orders the ownership transfers ([`crate::ownership`]).
fn submit_info((semaphore, value): (vk::Semaphore, u64)) -> vk::SemaphoreSubmitInfo<'static> {
    let all = vk::PipelineStageFlags2::ALL_COMMANDS;
    vk::SemaphoreSubmitInfo::default().semaphore(semaphore).value(value).stage_mask(all)
}
