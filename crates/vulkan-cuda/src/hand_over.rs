//! What a ring and the frames that it has handed to Vulkan share: the two timelines, and who signals them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ash::vk;

use crate::error::cleanup_error;
use crate::ledger::{Fate, Ledger, Stranded};
use crate::timeline::SharedTimeline;
use crate::{Error, Result};

/// What ring and reads share.
pub(crate) struct HandOver {
    /// CUDA signals: a slot is written.
    pub(crate) ready: SharedTimeline,
    /// Vulkan signals: a slot was read.
    pub(crate) free: SharedTimeline,
    pub(crate) ledger: Mutex<Ledger>,
}

impl HandOver {
    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // A poisoned lock only says that another thread panicked; the ledger is whole.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Signals from the CPU what CUDA waits for and no submission signals.
    pub(crate) fn settle(&self, ledger: &mut Ledger) -> Result<()> {
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
pub(crate) fn wait(mut is_done: impl FnMut() -> Result<bool>) -> Result<bool> {
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
/// Dropped without [`submitted`](Read::submitted), the frame is given up: see [`crate::shared_ring`].
#[must_use = "say `submitted` once the submission that reads it has succeeded"]
pub struct Read {
    pub(crate) frame: u64,
    pub(crate) slot: usize,
    pub(crate) wait: (vk::Semaphore, u64, vk::PipelineStageFlags),
    pub(crate) signal: (vk::Semaphore, u64),
    pub(crate) open: bool,
    pub(crate) hand_over: Arc<HandOver>,
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

    /// What the submission waits for: `ready`, its value, and the stages that must wait.
    pub fn wait(&self) -> (vk::Semaphore, u64, vk::PipelineStageFlags) {
        self.wait
    }

    /// What the submission signals once all its commands are done: `free` and its value.
    pub fn signal(&self) -> (vk::Semaphore, u64) {
        self.signal
    }

    /// [`Read::wait`] for `vkQueueSubmit2`.
    pub fn wait_info(&self) -> vk::SemaphoreSubmitInfo<'static> {
        let (semaphore, value, stage) = self.wait;
        let stage = vk::PipelineStageFlags2::from_raw(stage.as_raw().into());
        vk::SemaphoreSubmitInfo::default().semaphore(semaphore).value(value).stage_mask(stage)
    }

    /// [`Read::signal`] for `vkQueueSubmit2`.
    pub fn signal_info(&self) -> vk::SemaphoreSubmitInfo<'static> {
        let (semaphore, value) = self.signal;
        let all = vk::PipelineStageFlags2::ALL_COMMANDS;
        vk::SemaphoreSubmitInfo::default().semaphore(semaphore).value(value).stage_mask(all)
    }

    /// A submission that waits and signals as this read says was accepted.
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
