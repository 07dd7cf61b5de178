//! Binary semaphores, for programs that cannot use timelines.
//!
//! A *binary semaphore* ([`SharedBinary`]) has no counter. Each signal has exactly one wait, which is
//! submitted after the signal (`VUID-vkQueueSubmit2-semaphore-03873`). The next signal is submitted after
//! that wait (`VUID-vkQueueSubmit2-semaphore-03868`). A call that breaks one of these rules fails and
//! enqueues nothing.
//!
//! This module cannot check the *order on the GPU*: the next signal must happen after the wait for the
//! previous one. Two semaphores in opposite directions ensure that order: CUDA signals one and Vulkan waits
//! for it, then Vulkan signals the other and CUDA waits for it.

use std::sync::{Mutex, PoisonError};

use ash::vk;

use crate::cuda::Stream;
use crate::handle::Operand;
use crate::pair::Pair;
use crate::semaphore::{ExportedSemaphore, ImportedSemaphore};
use crate::{Error, Result};

/// A binary semaphore that both APIs use. Drop it after the GPU has passed all waits and signals.
///
/// # Examples
/// CUDA signals, and a Vulkan submission waits:
///
/// ```no_run
/// # fn example(pair: vulkan_cuda::Pair, stream: &dyn vulkan_cuda::Stream) -> vulkan_cuda::Result<()> {
/// use vulkan_cuda::SharedBinary;
///
/// let written = SharedBinary::new(&pair)?;
/// // SAFETY: the semaphore lives until the stream has passed the signal, which is the first one.
/// unsafe { written.cuda_signal(stream) }?;
/// let wait = written.vulkan_wait()?;
/// // … vkQueueSubmit2 with `wait` among its waits …
/// # let _ = wait;
/// written.submitted(); // afterwards, the semaphore can be signalled again
/// # Ok(())
/// # }
/// ```
pub struct SharedBinary {
    // Dropped first, so that CUDA releases its import before Vulkan destroys the semaphore.
    imported: ImportedSemaphore,
    exported: ExportedSemaphore,
    steps: Steps,
}

impl SharedBinary {
    /// Creates the semaphore in Vulkan, unsignalled, and imports it into CUDA.
    pub fn new(pair: &Pair) -> Result<Self> {
        let exported = ExportedSemaphore::new(pair.vk(), vk::SemaphoreType::BINARY)?;
        let imported = ImportedSemaphore::import(pair.cuda(), exported.export()?)?;
        Ok(Self { imported, exported, steps: Steps::default() })
    }

    /// Makes `stream` signal the semaphore after all work that was enqueued on it earlier. Enqueues a
    /// [guard](crate::ImportedSemaphore#a-signal-may-overtake-a-memset) before the signal.
    ///
    /// # Errors
    /// Fails if the previous signal has no wait yet, and as [`ImportedSemaphore::wait`] does.
    ///
    /// # Safety
    /// - The semaphore must live until the stream has passed the signal.
    /// - On the GPU, the signal must come after the wait for the previous signal
    ///   (`VUID-vkQueueSubmit2-semaphore-03868`).
    pub unsafe fn cuda_signal(&self, stream: &dyn Stream) -> Result<()> {
        // SAFETY: `new` imported the semaphore from this GPU, as binary. The caller promises the rest.
        let signal = || unsafe { self.imported.signal(stream, Operand::Binary) };
        self.steps.step(BinaryState::Unsignalled, BinaryState::Signalled, signal)
    }

    /// Like [`SharedBinary::cuda_signal`], without the guard ([`ImportedSemaphore::signal_after_kernels`]).
    ///
    /// # Safety
    /// Same as [`SharedBinary::cuda_signal`].
    pub unsafe fn cuda_signal_after_kernels(&self, stream: &dyn Stream) -> Result<()> {
        // SAFETY: as in `cuda_signal`.
        let signal = || unsafe { self.imported.signal_after_kernels(stream, Operand::Binary) };
        self.steps.step(BinaryState::Unsignalled, BinaryState::Signalled, signal)
    }

    /// Makes `stream` wait for the semaphore, without blocking the CPU. Later work on the stream runs after
    /// the signal. The wait resets the semaphore.
    ///
    /// # Errors
    /// Fails if there is no signal to wait for, and as [`ImportedSemaphore::wait`] does.
    ///
    /// # Safety
    /// The semaphore must live until the stream has passed the wait.
    pub unsafe fn cuda_wait(&self, stream: &dyn Stream) -> Result<()> {
        // SAFETY: as in `cuda_signal`.
        let wait = || unsafe { self.imported.wait(stream, Operand::Binary) };
        self.steps.step(BinaryState::Signalled, BinaryState::Unsignalled, wait)
    }

    /// Returns a signal for a Vulkan submission, which happens after all commands of the submission. Call
    /// [`SharedBinary::submitted`] after `vkQueueSubmit2` succeeds. If it fails, make a new semaphore: `self`
    /// is unusable then.
    ///
    /// # Errors
    /// Fails if the previous signal has no wait yet.
    pub fn vulkan_signal(&self) -> Result<vk::SemaphoreSubmitInfo<'static>> {
        self.steps.step(BinaryState::Unsignalled, BinaryState::SignalToSubmit, || Ok(()))?;
        Ok(self.exported.submit_info(0))
    }

    /// Returns a wait for a Vulkan submission, whose commands all run after the wait. Proceed as for
    /// [`SharedBinary::vulkan_signal`].
    ///
    /// # Errors
    /// Fails if there is no signal to wait for.
    pub fn vulkan_wait(&self) -> Result<vk::SemaphoreSubmitInfo<'static>> {
        self.steps.step(BinaryState::Signalled, BinaryState::WaitToSubmit, || Ok(()))?;
        Ok(self.exported.submit_info(0))
    }

    /// Records that `vkQueueSubmit2` accepted what `vulkan_signal` or `vulkan_wait` returned last.
    pub fn submitted(&self) {
        self.steps.submitted();
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum BinaryState {
    #[default]
    Unsignalled,
    /// `vulkan_signal` has returned a signal, and `submitted` has not been called since.
    SignalToSubmit,
    Signalled,
    WaitToSubmit,
}

#[derive(Default)]
struct Steps(Mutex<BinaryState>);

impl Steps {
    /// Calls `enqueue` if the state is `from`, and sets it to `to` on success.
    fn step(&self, from: BinaryState, to: BinaryState, enqueue: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *state != from {
            let text = match from {
                BinaryState::Unsignalled => "signalled again before its wait is submitted",
                _ => "waited for: each submitted signal has one wait, and there is no such signal now",
            };
            return Err(Error::Rule(format!("a binary semaphore cannot be {text}")));
        }
        enqueue()?;
        *state = to;
        Ok(())
    }

    fn submitted(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = match *state {
            BinaryState::SignalToSubmit => BinaryState::Signalled,
            BinaryState::WaitToSubmit => BinaryState::Unsignalled,
            other => other,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every order of six calls. A semaphore that has one more signal than waits is signalled.
    #[test]
    fn a_binary_semaphore_has_one_wait_for_each_signal() {
        use BinaryState::{SignalToSubmit, Signalled, Unsignalled, WaitToSubmit};
        const CALLS: [(BinaryState, BinaryState); 4] = [
            (Unsignalled, Signalled),
            (Signalled, Unsignalled),
            (Unsignalled, SignalToSubmit),
            (Signalled, WaitToSubmit),
        ];
        for order in 0..5_usize.pow(6) {
            let steps = Steps::default();
            // Those that were submitted, and the one that was not yet: 1 is a signal, -1 is a wait.
            let (mut signalled, mut open) = (0, 0);
            for call in (0..6).map(|place| order / 5_usize.pow(place) % 5) {
                let Some(&(from, to)) = CALLS.get(call) else {
                    steps.submitted();
                    signalled += std::mem::take(&mut open);
                    continue;
                };
                let is_signal = from == Unsignalled;
                let answer = steps.step(from, to, || Ok(()));
                assert_eq!(
                    answer.is_ok(),
                    open == 0 && signalled == i32::from(!is_signal),
                    "{order}: {call}"
                );
                match answer {
                    Ok(()) if call < 2 => signalled += if is_signal { 1 } else { -1 },
                    Ok(()) => open = if is_signal { 1 } else { -1 },
                    Err(error) => {
                        let why =
                            if is_signal { "before its wait is submitted" } else { "no such signal now" };
                        assert!(error.to_string().contains(why), "{error}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_call_that_fails_changes_nothing() {
        let steps = Steps::default();
        let refused = || Err(Error::Rule("refused".into()));
        assert!(steps.step(BinaryState::Unsignalled, BinaryState::Signalled, refused).is_err());
        assert!(steps.step(BinaryState::Unsignalled, BinaryState::Signalled, || Ok(())).is_ok());
    }
}
