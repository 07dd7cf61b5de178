//! A timeline semaphore that both APIs wait for and signal, on the GPU.
//!
//! A *timeline* ([`SharedTimeline`]) is a 64-bit counter that only grows ([Semaphores]). You may wait for a
//! value before its signal is enqueued, so each side can enqueue its half of a frame without the other. The
//! one rule, which this module checks: every signal must be greater than all signals before it
//! (`VUID-VkSubmitInfo2-semaphore-03882`). Breaking it is undefined behaviour.
//!
//! A ring has two timelines, each signalled by one side: CUDA signals `ready`, Vulkan signals `free`. One
//! timeline for both would break the rule: CUDA could signal 5, for a frame that it has just written, before
//! Vulkan has finished reading and signalled 4.
//!
//! If you present a frame, enqueue CUDA's signal before the Vulkan submission that waits for it. A
//! presentation waits for a binary semaphore, and everything on which such a wait depends must have been
//! submitted.
//!
//! [Semaphores]: https://registry.khronos.org/vulkan/specs/latest/html/vkspec.html#synchronization-semaphores

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ash::vk;
use cudarc::driver::sys;

use crate::cuda::Stream;
use crate::handle::Operand;
use crate::pair::Pair;
use crate::semaphore::{ExportedSemaphore, ImportedSemaphore};
use crate::{Error, Result};

/// A timeline that both APIs use. Its counter starts at 0. It owns Vulkan's semaphore and CUDA's import. Drop
/// it after the GPU has passed all waits and signals.
///
/// # Examples
/// CUDA signals 1, Vulkan waits for it and signals 2, and CUDA waits for that:
///
/// ```no_run
/// # fn example(pair: vulkan_cuda::Pair, stream: &dyn vulkan_cuda::Stream) -> vulkan_cuda::Result<()> {
/// let timeline = vulkan_cuda::SharedTimeline::new(&pair)?;
/// // SAFETY: the timeline lives until the stream has passed the signal.
/// unsafe { timeline.cuda_signal(stream, 1) }?;
/// // For vkQueueSubmit2:
/// let wait = timeline.vulkan_wait(1);
/// let signal = timeline.vulkan_signal(2)?;
/// # let _ = (wait, signal);
/// // SAFETY: the timeline lives until the stream has passed the wait.
/// unsafe { timeline.cuda_wait(stream, 2) }?;
/// # Ok(())
/// # }
/// ```
pub struct SharedTimeline {
    // Dropped first, because CUDA must release the semaphore before Vulkan destroys it.
    imported: ImportedSemaphore,
    exported: ExportedSemaphore,
    /// The greatest value that either side was asked to signal.
    promised: AtomicU64,
}

impl SharedTimeline {
    /// Creates the semaphore in Vulkan and imports it into CUDA.
    pub fn new(pair: &Pair) -> Result<Self> {
        let exported = ExportedSemaphore::new(pair.vk(), vk::SemaphoreType::TIMELINE)?;
        let imported = ImportedSemaphore::import(pair.cuda(), exported.export()?)?;
        Ok(Self { imported, exported, promised: AtomicU64::new(0) })
    }

    /// Makes `stream` wait until the counter reaches `value`, without blocking the CPU.
    ///
    /// # Safety
    /// The timeline must live until the stream has passed the wait.
    pub unsafe fn cuda_wait(&self, stream: &dyn Stream, value: u64) -> Result<()> {
        // SAFETY: `new` imported a timeline of this GPU. The caller promises the rest.
        unsafe { self.imported.wait(stream, Operand::Value(value)) }
    }

    /// Makes `stream` set the counter to `value` once everything enqueued on it so far is done, after a
    /// [guard](crate::ImportedSemaphore#a-signal-may-overtake-a-memset).
    ///
    /// # Errors
    /// Fails, and enqueues nothing, if `value` is not greater than all values promised by either side, or if
    /// [`ImportedSemaphore::wait`] would refuse the stream. After a driver error, the value is used up.
    ///
    /// # Safety
    /// - The timeline must live until the stream has passed the signal.
    /// - The GPU must signal in the order of these calls, as it does on one stream, and on streams and queues
    ///   that wait for one another.
    pub unsafe fn cuda_signal(&self, stream: &dyn Stream, value: u64) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.signal(stream, value, true) }
    }

    /// Like [`SharedTimeline::cuda_signal`], without the guard ([`ImportedSemaphore::signal_after_kernels`]).
    ///
    /// # Safety
    /// Same as [`SharedTimeline::cuda_signal`].
    pub unsafe fn cuda_signal_after_kernels(&self, stream: &dyn Stream, value: u64) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.signal(stream, value, false) }
    }

    /// # Safety
    /// Same as [`SharedTimeline::cuda_signal`].
    pub(crate) unsafe fn signal(&self, stream: &dyn Stream, value: u64, guarded: bool) -> Result<()> {
        let promise = || rise(&self.promised, value);
        // SAFETY: `new` imported a timeline of this GPU. `promise` checks that the value is greater than all
        // before it. The caller promises the rest.
        unsafe { self.imported.enqueue_signal(stream, Operand::Value(value), guarded, promise) }
    }

    /// Returns CUDA's semaphore, which is destroyed with `self`. Use it for nodes of CUDA graphs, with
    /// [`Operand::signal_params`] and [`Operand::wait_params`]. The values that they signal are not checked.
    pub fn cuda(&self) -> sys::CUexternalSemaphore {
        self.imported.raw
    }

    /// Returns a wait before all commands of a submission, as [`crate::ownership`] requires.
    pub fn vulkan_wait(&self, value: u64) -> vk::SemaphoreSubmitInfo<'static> {
        self.exported.submit_info(value)
    }

    /// Returns a signal for a Vulkan submission, after all its commands.
    ///
    /// # Errors
    /// Fails if `value` is not greater than all values promised before, by either side.
    pub fn vulkan_signal(&self, value: u64) -> Result<vk::SemaphoreSubmitInfo<'static>> {
        rise(&self.promised, value)?;
        Ok(self.exported.submit_info(value))
    }

    /// Returns Vulkan's semaphore, which is destroyed with `self`. Use it for submissions with
    /// `VkTimelineSemaphoreSubmitInfo`. The values that they signal are not checked.
    pub fn semaphore(&self) -> vk::Semaphore {
        self.exported.raw
    }

    /// Returns the greatest value that either side was asked to signal, 0 at first.
    pub fn promised(&self) -> u64 {
        self.promised.load(Ordering::Relaxed)
    }

    /// Sets the counter from the CPU after CUDA has failed: see [`ExportedSemaphore::signal_from_host`].
    ///
    /// # Safety
    /// Same as [`ExportedSemaphore::signal_from_host`], for the signals of both sides.
    pub unsafe fn signal_from_host(&self, value: u64) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.exported.signal_from_host(value) }
    }

    /// Blocks the CPU until the counter reaches `value` (`vkWaitSemaphores`). Returns `false` after `limit`.
    ///
    /// May return late for *CUDA's* signals: NVIDIA's driver polls every 10 ms (H200, driver 580).
    pub fn wait_from_host(&self, value: u64, limit: Duration) -> Result<bool> {
        self.exported.wait_from_host(value, limit)
    }

    /// Returns the counter's current value, without waiting.
    pub fn value(&self) -> Result<u64> {
        self.exported.value()
    }
}

/// Promises `value`, which must be greater than all values promised before. They begin at 0, as a timeline.
fn rise(promised: &AtomicU64, value: u64) -> Result<()> {
    let before = promised.fetch_max(value, Ordering::Relaxed);
    if value > before {
        return Ok(());
    }
    Err(Error::Rule(format!(
        "a timeline's values strictly increase: {value} cannot be signalled after {before}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timelines_values_strictly_increase() {
        let promised = AtomicU64::new(0);
        assert!(rise(&promised, 0).is_err(), "0 is the counter's start");
        assert!(rise(&promised, 1).is_ok() && rise(&promised, 5).is_ok());
        for value in [5, 4, 1] {
            let text = rise(&promised, value).unwrap_err().to_string();
            assert_eq!(
                text,
                format!("a timeline's values strictly increase: {value} cannot be signalled after 5")
            );
        }
        assert_eq!(promised.load(Ordering::Relaxed), 5);
        assert!(rise(&promised, 6).is_ok() && rise(&promised, u64::MAX).is_ok());
    }
}
