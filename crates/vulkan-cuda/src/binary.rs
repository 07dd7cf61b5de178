//! Step 3, the other kind of semaphore: a binary one, for those who cannot use timelines.
//!
//! A *binary semaphore* ([`SharedBinary`]) has no counter, and three rules: each signal has exactly one wait, a wait is
//! submitted after its signal (`VUID-vkQueueSubmit2-semaphore-03873`), and the next signal after that wait
//! (`VUID-vkQueueSubmit2-semaphore-03868`). Here a signal that was submitted is a value, [`BinarySignal`], which its wait
//! consumes. So a second wait does not compile:
//!
//! ```compile_fail,E0382
//! # unsafe fn test(binary: vulkan_cuda::SharedBinary, stream: &impl vulkan_cuda::Stream) -> vulkan_cuda::Result<()> {
//! let signal = binary.cuda_signal(stream)?;
//! signal.cuda_wait(stream)?;
//! signal.cuda_wait(stream)?; // nobody would ever wake it
//! # Ok(())
//! # }
//! ```
//!
//! nor does a wait for what was not submitted, because what Vulkan is to signal is a [`SignalToSubmit`] until the
//! submission is made:
//!
//! ```compile_fail,E0599
//! # unsafe fn test(binary: vulkan_cuda::SharedBinary, stream: &impl vulkan_cuda::Stream) -> vulkan_cuda::Result<()> {
//! let (info, signal) = binary.vulkan_signal(ash::vk::PipelineStageFlags2::ALL_COMMANDS)?;
//! signal.cuda_wait(stream)?; // first vkQueueSubmit2 with `info`, then `signal.submitted()`
//! # Ok(())
//! # }
//! ```
//!
//! and a second signal before the wait is an error. What no type can see is the *order on the GPU*: the next signal
//! must happen after the wait for the last one. Two semaphores that answer each other give that order: one that CUDA
//! signals and Vulkan waits for, one the other way round.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ash::vk;

use crate::cuda::Stream;
use crate::handle::{SemaphoreHandle, SemaphoreKind, Signal, Wait};
use crate::pair::Pair;
use crate::semaphore::{Exported, ImportedSemaphore};
use crate::vulkan::Vk;
use crate::{Error, Result};

/// One binary semaphore that both APIs use.
pub struct SharedBinary(Arc<Binary>);

/// Both sides of it, kept alive by every signal and wait under way.
struct Binary {
    // CUDA lets go before Vulkan destroys.
    imported: ImportedSemaphore,
    exported: Exported,
    pending: Pending,
}

/// A signal that was submitted and has no wait yet. Its wait consumes it. Dropped without one, it leaves the semaphore signalled,
/// so every later signal is an error.
#[must_use = "each signal of a binary semaphore needs exactly one wait"]
pub struct BinarySignal(Arc<Binary>);

/// A signal that a Vulkan submission is to make.
///
/// Dropped without [`submitted`](SignalToSubmit::submitted), it blocks the semaphore for good: nobody can tell whether it was
/// submitted, so every later signal is an error. Then make a new [`SharedBinary`].
#[must_use = "say `submitted` once vkQueueSubmit2 has succeeded"]
pub struct SignalToSubmit(Arc<Binary>);

/// A wait that a Vulkan submission is to make.
///
/// Dropped without [`submitted`](WaitToSubmit::submitted), it blocks the semaphore for good, as a [`SignalToSubmit`] does.
#[must_use = "say `submitted` once vkQueueSubmit2 has succeeded"]
pub struct WaitToSubmit(Arc<Binary>);

impl SharedBinary {
    /// Creates in Vulkan, imports into CUDA.
    ///
    /// # Errors
    /// A device that cannot export binary semaphores, or was made without the extension, and what either driver answers.
    pub fn new(pair: &Pair) -> Result<Self> {
        let exported = Exported::new(pair.vk(), SemaphoreKind::Binary)?;
        let imported = ImportedSemaphore::import(pair.cuda(), exported.export()?)?;
        Ok(Self(Arc::new(Binary { imported, exported, pending: Pending::default() })))
    }

    /// Makes `stream` signal once everything enqueued on it so far is done.
    ///
    /// # Errors
    /// The signal before has no wait yet, or a stream of another context; then nothing is enqueued. What the driver answers.
    ///
    /// # Safety
    /// The semaphore, or a value that it gave out, lives until the stream has passed the signal. On the GPU that comes after the
    /// wait for the signal before (`VUID-vkQueueSubmit2-semaphore-03868`).
    pub unsafe fn cuda_signal(&self, stream: &dyn Stream) -> Result<BinarySignal> {
        self.0.pending.begin()?;
        // SAFETY: the caller's promise.
        let signalled = unsafe { self.0.imported.signal(stream, Signal::Binary) };
        if let Err(error) = signalled {
            self.0.pending.end();
            return Err(error);
        }
        Ok(BinarySignal(self.0.clone()))
    }

    /// A signal of a Vulkan submission; `stage` is the last stage whose work must be done. It can be waited for once it is
    /// [`submitted`](SignalToSubmit::submitted).
    ///
    /// # Errors
    /// The signal before has no wait yet.
    pub fn vulkan_signal(
        &self,
        stage: vk::PipelineStageFlags2,
    ) -> Result<(vk::SemaphoreSubmitInfo<'static>, SignalToSubmit)> {
        self.0.pending.begin()?;
        Ok((self.0.exported.info(0, stage), SignalToSubmit(self.0.clone())))
    }
}

impl SignalToSubmit {
    /// The submission that makes this signal was accepted by `vkQueueSubmit2`.
    pub fn submitted(self) -> BinarySignal {
        BinarySignal(self.0)
    }
}

impl BinarySignal {
    /// Makes `stream` wait on the GPU: work that is enqueued on it later runs only after the signal. The wait resets the semaphore.
    ///
    /// # Errors
    /// A stream of another context, before CUDA is asked; what the driver answers. The semaphore is then blocked for good, as if
    /// the signal had been dropped.
    ///
    /// # Safety
    /// The [`SharedBinary`] lives until the stream has passed the wait.
    pub unsafe fn cuda_wait(self, stream: &dyn Stream) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.0.imported.wait(stream, Wait::Binary) }?;
        self.0.pending.end();
        Ok(())
    }

    /// A wait of a Vulkan submission; `stage` is the first stage that must wait. The semaphore can be signalled again once
    /// it is [`submitted`](WaitToSubmit::submitted).
    pub fn vulkan_wait(
        self,
        stage: vk::PipelineStageFlags2,
    ) -> (vk::SemaphoreSubmitInfo<'static>, WaitToSubmit) {
        (self.0.exported.info(0, stage), WaitToSubmit(self.0))
    }
}

impl WaitToSubmit {
    /// The submission that makes this wait was accepted by `vkQueueSubmit2`.
    pub fn submitted(self) {
        self.0.pending.end();
    }
}

/// A binary semaphore that Vulkan creates and two other APIs use, OpenGL and CUDA for instance. Each imports a handle of its own.
///
/// What they do with it cannot be checked here. They must see to it that each signal has one wait, and to the order.
pub struct ExportedBinary(Exported);

impl ExportedBinary {
    /// It is not signalled.
    ///
    /// # Errors
    /// A device that cannot export binary semaphores, or was made without the extension.
    pub fn new(vk: &Vk) -> Result<Self> {
        Exported::new(vk, SemaphoreKind::Binary).map(Self)
    }

    /// A new handle to it; it keeps the semaphore's payload alive by itself.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn export(&self) -> Result<SemaphoreHandle> {
        self.0.export()
    }
}

/// The rule of a binary semaphore: no signal while one is without its wait.
#[derive(Default)]
struct Pending(AtomicBool);

impl Pending {
    fn begin(&self) -> Result<()> {
        match self.0.swap(true, Ordering::Relaxed) {
            false => Ok(()),
            true => Err(Error::Rule(
                "a binary semaphore that is signalled cannot be signalled again before its wait was submitted".into(),
            )),
        }
    }

    fn end(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_semaphore_has_one_wait_for_each_signal() {
        let pending = Pending::default();
        for _ in 0..3 {
            assert!(pending.begin().is_ok());
            let text = pending.begin().unwrap_err().to_string();
            assert!(text.contains("before its wait"), "{text}");
            pending.end();
        }
    }
}
