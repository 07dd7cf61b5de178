//! Step 3: a timeline semaphore that both APIs wait for and signal, on the GPU.
//!
//! A *timeline* ([`SharedTimeline`]) is a 64-bit counter that only grows. Waiting for a value that nobody has promised yet
//! is allowed, so each side can enqueue its half of a frame without asking the other. Its rule: every signal is above all
//! before it (`VUID-VkSubmitInfo2-semaphore-03882`). This module checks the rule, because breaking it is undefined behaviour.
//!
//! A ring has two timelines, each with one signaller: CUDA signals `ready`, Vulkan signals `free`. One timeline for both would
//! break the rule: CUDA could signal 5, for a frame that it has just written, while Vulkan still reads and has yet to signal 4.
//! (NVIDIA's simpleVulkan shares one timeline, which is valid only because its two sides strictly alternate.)
//!
//! The GPU may meet a wait before its signal is enqueued. The CPU should still enqueue CUDA's signal first, and then the Vulkan
//! submission that waits for it. Presentation needs that order: it waits for a binary semaphore, and everything that such a wait
//! depends on must have been submitted. So do renderers that relay the signal by a binary semaphore.
//!
//! Nothing here allocates. Each call is one enqueue, with CUDA's context made current before it.

use std::sync::atomic::{AtomicU64, Ordering};

use ash::vk;
use cudarc::driver::sys;

use crate::cuda::Stream;
use crate::handle::{SemaphoreHandle, SemaphoreKind, Signal, Wait};
use crate::pair::Pair;
use crate::semaphore::{Exported, ImportedSemaphore};
use crate::vulkan::Vk;
use crate::{Error, Result};

/// One timeline that both APIs use. Its counter starts at 0.
pub struct SharedTimeline {
    // CUDA lets go before Vulkan destroys.
    imported: ImportedSemaphore,
    exported: Exported,
    promised: Rising,
}

impl SharedTimeline {
    /// Creates in Vulkan, imports into CUDA.
    ///
    /// # Errors
    /// A device that cannot export timelines, or was made without the extension, and what either driver answers.
    pub fn new(pair: &Pair) -> Result<Self> {
        let exported = Exported::new(pair.vk(), SemaphoreKind::Timeline)?;
        let imported = ImportedSemaphore::import(pair.cuda(), exported.export()?)?;
        Ok(Self { imported, exported, promised: Rising::default() })
    }

    /// Makes `stream` wait on the GPU: work that is enqueued on it later runs only once the counter has reached `value`.
    ///
    /// # Errors
    /// A stream of another context, before CUDA is asked; what the driver answers.
    ///
    /// # Safety
    /// The timeline lives until the stream has passed the wait.
    pub unsafe fn cuda_wait(&self, stream: &dyn Stream, value: u64) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.imported.wait(stream, Wait::Value(value)) }
    }

    /// Makes `stream` set the counter to `value` once everything enqueued on it so far is done.
    ///
    /// # Errors
    /// A value that is not above all before it, from either side, or a stream of another context; then nothing is enqueued. After
    /// an error of the driver the value is used up.
    ///
    /// # Safety
    /// The timeline lives until the stream has passed the signal. Signals happen on the GPU in the order of these calls: that is
    /// so on one stream, and between streams and queues that wait for one another.
    pub unsafe fn cuda_signal(&self, stream: &dyn Stream, value: u64) -> Result<()> {
        self.imported.require(stream)?;
        self.promised.rise(value)?;
        // SAFETY: the caller's promise; the value is above all before it.
        unsafe { self.imported.signal(stream, Signal::Value(value)) }
    }

    /// The same as parameters of a CUDA graph's node; the caller keeps the values rising.
    pub fn cuda_signal_params(
        &self,
        value: u64,
    ) -> (sys::CUexternalSemaphore, sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS) {
        (self.imported.raw(), Signal::Value(value).params())
    }

    /// [`SharedTimeline::cuda_wait`] likewise.
    pub fn cuda_wait_params(
        &self,
        value: u64,
    ) -> (sys::CUexternalSemaphore, sys::CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS) {
        (self.imported.raw(), Wait::Value(value).params())
    }

    /// A wait of a Vulkan submission; `stage` is the first stage that must wait.
    pub fn vulkan_wait(
        &self,
        value: u64,
        stage: vk::PipelineStageFlags2,
    ) -> vk::SemaphoreSubmitInfo<'static> {
        self.exported.info(value, stage)
    }

    /// A signal of a Vulkan submission; `stage` is the last stage whose work must be done.
    ///
    /// # Errors
    /// A value that is not above all before it, from either side.
    pub fn vulkan_signal(
        &self,
        value: u64,
        stage: vk::PipelineStageFlags2,
    ) -> Result<vk::SemaphoreSubmitInfo<'static>> {
        self.promised.rise(value)?;
        Ok(self.exported.info(value, stage))
    }

    /// The semaphore, for submissions that take no `VkSemaphoreSubmitInfo`. What they signal is not checked here.
    pub fn semaphore(&self) -> vk::Semaphore {
        self.exported.raw
    }

    /// The greatest value that either side was asked to signal; 0 before the first.
    pub fn promised(&self) -> u64 {
        self.promised.last()
    }

    /// Sets the counter from the CPU; does nothing where it is there already. For giving up: when CUDA has failed and will
    /// never signal, this lets go what waits in Vulkan.
    ///
    /// # Errors
    /// What the driver answers.
    ///
    /// # Safety
    /// Every smaller value that is to be signalled has been; whatever else is pending, or comes later, signals a greater one
    /// (`VUID-VkSemaphoreSignalInfo-value-03258`, `-03259`).
    pub unsafe fn signal_from_host(&self, value: u64) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.exported.signal_from_host(value) }
    }

    /// Blocks the CPU until the counter has `value`; false after a second without it. For a value that *CUDA* signals it may
    /// return late: NVIDIA's driver polls (10 ms on an H200, driver 580).
    ///
    /// # Errors
    /// What the driver answers.
    pub fn wait_from_host(&self, value: u64) -> Result<bool> {
        self.exported.wait_from_host(value)
    }

    /// The counter as it is now; does not wait.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn value(&self) -> Result<u64> {
        self.exported.value()
    }
}

/// A timeline of Vulkan's for another process, which imports it by [`ImportedSemaphore`] or by whatever it has.
///
/// What the other process signals cannot be checked here: its values may go down, or never come. So a wait for them belongs
/// behind a look at [`ExportedTimeline::value`].
pub struct ExportedTimeline(Exported);

impl ExportedTimeline {
    /// Its counter starts at 0.
    ///
    /// # Errors
    /// A device that cannot export timelines.
    pub fn new(vk: &Vk) -> Result<Self> {
        Exported::new(vk, SemaphoreKind::Timeline).map(Self)
    }

    /// A new handle to it; it keeps the semaphore's payload alive by itself.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn export(&self) -> Result<SemaphoreHandle> {
        self.0.export()
    }

    /// For a Vulkan submission: as a wait, `stage` is the first stage that must wait; as a signal, the last stage whose
    /// work must be done.
    pub fn vulkan(&self, value: u64, stage: vk::PipelineStageFlags2) -> vk::SemaphoreSubmitInfo<'static> {
        self.0.info(value, stage)
    }

    /// The counter as it is now; does not wait.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn value(&self) -> Result<u64> {
        self.0.value()
    }

    /// Sets the counter from the CPU; does nothing where it is there already. For giving up on whoever should have.
    ///
    /// # Errors
    /// What the driver answers.
    ///
    /// # Safety
    /// As [`SharedTimeline::signal_from_host`], of this process's signals.
    pub unsafe fn signal_from_host(&self, value: u64) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.0.signal_from_host(value) }
    }
}

/// The rule of a timeline: each promised value is above all before it. Starts at 0, as a timeline does.
#[derive(Default)]
struct Rising(AtomicU64);

impl Rising {
    fn rise(&self, value: u64) -> Result<()> {
        let before = self.0.fetch_max(value, Ordering::Relaxed);
        if value > before {
            return Ok(());
        }
        Err(Error::Rule(format!(
            "a timeline's values strictly increase: {value} cannot be signalled after {before}"
        )))
    }

    fn last(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timelines_values_strictly_increase() {
        let rising = Rising::default();
        assert!(rising.rise(0).is_err(), "0 is the counter's start");
        assert!(rising.rise(1).is_ok() && rising.rise(5).is_ok());
        for value in [5, 4, 1] {
            let text = rising.rise(value).unwrap_err().to_string();
            assert_eq!(
                text,
                format!("a timeline's values strictly increase: {value} cannot be signalled after 5")
            );
        }
        assert_eq!(rising.last(), 5);
        assert!(rising.rise(6).is_ok() && rising.rise(u64::MAX).is_ok());
    }
}
