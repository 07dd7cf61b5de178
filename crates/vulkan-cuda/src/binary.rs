//! Step 3, the other kind of semaphore: a binary one, for programs that cannot use timelines.
//!
//! A *binary semaphore* ([`SharedBinary`]) has no counter, and three rules. Each signal has exactly one wait. A wait is
//! submitted after its signal (`VUID-vkQueueSubmit2-semaphore-03873`). The next signal is submitted after that wait
//! (`VUID-vkQueueSubmit2-semaphore-03868`). In this module a submitted signal is a value, [`BinarySignal`], which its wait
//! consumes. So a second wait does not compile:
//!
//! ```compile_fail,E0382
//! # unsafe fn test(binary: vulkan_cuda::SharedBinary, stream: &impl vulkan_cuda::Stream) -> vulkan_cuda::Result<()> {
//! let signal = binary.cuda_signal(stream)?;
//! signal.cuda_wait(stream)?;
//! signal.cuda_wait(stream)?; // this wait would never end
//! # Ok(())
//! # }
//! ```
//!
//! A wait for a signal that was not submitted does not compile either. Until its submission, Vulkan's signal is a
//! [`SignalToSubmit`]:
//!
//! ```compile_fail,E0599
//! # unsafe fn test(binary: vulkan_cuda::SharedBinary, stream: &impl vulkan_cuda::Stream) -> vulkan_cuda::Result<()> {
//! let (info, signal) = binary.vulkan_signal()?;
//! signal.cuda_wait(stream)?; // first vkQueueSubmit2 with `info`, then `signal.submitted()`
//! # Ok(())
//! # }
//! ```
//!
//! A second signal before the wait is an error at run time. No type can check the *order on the GPU*: the next signal
//! must happen after the wait for the previous one. Two semaphores that answer each other give that order: CUDA signals one
//! and Vulkan waits for it, Vulkan signals the other and CUDA waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ash::vk;

use crate::cuda::Stream;
use crate::handle::{SemaphoreHandle, SemaphoreKind, Signal, Wait};
use crate::pair::Pair;
use crate::semaphore::{Exported, ImportedSemaphore};
use crate::vulkan::Vk;
use crate::{Error, Result};

/// One binary semaphore that both APIs use. It owns Vulkan's semaphore and CUDA's import, and shares them with the
/// signals and waits that it has returned.
///
/// # Examples
///
/// CUDA signals, and a Vulkan submission waits:
///
/// ```no_run
/// # fn example(pair: vulkan_cuda::Pair, stream: &dyn vulkan_cuda::Stream) -> vulkan_cuda::Result<()> {
/// use vulkan_cuda::SharedBinary;
///
/// let written = SharedBinary::new(&pair)?;
/// // SAFETY: the semaphore lives until the stream has passed this. It is the first signal.
/// let signal = unsafe { written.cuda_signal(stream) }?;
/// let (info, wait) = signal.vulkan_wait();
/// // … vkQueueSubmit2 with `info` among its waits …
/// # let _ = info;
/// wait.submitted(); // from here on the semaphore can be signalled again
/// # Ok(())
/// # }
/// ```
///
/// Vulkan signals, and CUDA waits:
///
/// ```no_run
/// # fn example(pair: vulkan_cuda::Pair, stream: &dyn vulkan_cuda::Stream) -> vulkan_cuda::Result<()> {
/// # let read = vulkan_cuda::SharedBinary::new(&pair)?;
/// let (info, signal) = read.vulkan_signal()?;
/// // … vkQueueSubmit2 with `info` among its signals …
/// # let _ = info;
/// // SAFETY: the semaphore lives until the stream has passed this.
/// unsafe { signal.submitted().cuda_wait(stream) }?;
/// # Ok(())
/// # }
/// ```
pub struct SharedBinary(Arc<Binary>);

/// Vulkan's semaphore and CUDA's import. Every signal and wait that is under way keeps them alive.
struct Binary {
    // Dropped first: CUDA releases before Vulkan destroys.
    imported: ImportedSemaphore,
    exported: Exported,
    pending: Pending,
}

/// A signal that was submitted and has no wait yet. Its wait consumes it. If it is dropped without a wait, the
/// semaphore stays signalled, and every later signal is an error.
///
/// See the [example](SharedBinary#examples).
#[must_use = "each signal of a binary semaphore needs exactly one wait"]
pub struct BinarySignal(Arc<Binary>);

/// A signal that a Vulkan submission will make.
///
/// If it is dropped without [`submitted`](SignalToSubmit::submitted), the semaphore cannot be used any more: it is
/// unknown whether the signal was submitted, so every later signal is an error. Make a new [`SharedBinary`] then.
#[must_use = "call `submitted` once vkQueueSubmit2 has succeeded"]
pub struct SignalToSubmit(Arc<Binary>);

/// A wait that a Vulkan submission will make.
///
/// If it is dropped without [`submitted`](WaitToSubmit::submitted), the semaphore cannot be used any more, as for a
/// [`SignalToSubmit`].
#[must_use = "call `submitted` once vkQueueSubmit2 has succeeded"]
pub struct WaitToSubmit(Arc<Binary>);

impl SharedBinary {
    /// Creates the semaphore in Vulkan (`vkCreateSemaphore`) and imports it into CUDA (`cuImportExternalSemaphore`). It
    /// is unsignalled.
    ///
    /// # Errors
    /// Fails if the device cannot export binary semaphores or was created without the extension, or if either driver
    /// reports an error.
    pub fn new(pair: &Pair) -> Result<Self> {
        let exported = Exported::new(pair.vk(), SemaphoreKind::Binary)?;
        let imported = ImportedSemaphore::import(pair.cuda(), exported.export()?)?;
        Ok(Self(Arc::new(Binary { imported, exported, pending: Pending::default() })))
    }

    /// Makes `stream` signal once everything enqueued on it so far is done. Calls `cuSignalExternalSemaphoresAsync`,
    /// after a [guard](crate::ImportedSemaphore#a-signal-may-overtake-a-memset).
    ///
    /// # Errors
    /// Fails if the previous signal has no wait yet, if the stream is of another context or is being captured, or if the
    /// driver reports an error. In the first three cases nothing is enqueued.
    ///
    /// # Safety
    /// - The semaphore, or a signal or wait that it returned, must live until the stream has passed the signal.
    /// - On the GPU, the signal must come after the wait for the previous signal
    ///   (`VUID-vkQueueSubmit2-semaphore-03868`).
    pub unsafe fn cuda_signal(&self, stream: &dyn Stream) -> Result<BinarySignal> {
        // SAFETY: the caller's promise.
        self.signal_once(|imported| unsafe { imported.signal(stream, Signal::Binary) })
    }

    /// As [`SharedBinary::cuda_signal`], without the guard: see [`ImportedSemaphore::signal_after_kernels`].
    ///
    /// # Errors
    /// Fails as [`SharedBinary::cuda_signal`] does.
    ///
    /// # Safety
    /// As for [`SharedBinary::cuda_signal`].
    pub unsafe fn cuda_signal_after_kernels(&self, stream: &dyn Stream) -> Result<BinarySignal> {
        // SAFETY: the caller's promise.
        self.signal_once(|imported| unsafe { imported.signal_after_kernels(stream, Signal::Binary) })
    }

    fn signal_once(&self, signal: impl FnOnce(&ImportedSemaphore) -> Result<()>) -> Result<BinarySignal> {
        self.0.pending.begin()?;
        if let Err(error) = signal(&self.0.imported) {
            self.0.pending.end();
            return Err(error);
        }
        Ok(BinarySignal(self.0.clone()))
    }

    /// Returns a signal for a Vulkan submission (`VkSemaphoreSubmitInfo`), after all its commands. You can wait for the
    /// signal once it is [`submitted`](SignalToSubmit::submitted).
    ///
    /// # Errors
    /// Fails if the previous signal has no wait yet.
    pub fn vulkan_signal(&self) -> Result<(vk::SemaphoreSubmitInfo<'static>, SignalToSubmit)> {
        self.0.pending.begin()?;
        Ok((self.0.exported.info(0), SignalToSubmit(self.0.clone())))
    }
}

impl SignalToSubmit {
    /// Notes that `vkQueueSubmit2` accepted the submission with this signal.
    pub fn submitted(self) -> BinarySignal {
        BinarySignal(self.0)
    }
}

impl BinarySignal {
    /// Makes `stream` wait on the GPU: work enqueued on it later runs only after the signal. The wait resets the
    /// semaphore. Calls `cuWaitExternalSemaphoresAsync`.
    ///
    /// # Errors
    /// Fails if the stream is of another context or is being captured, or if the driver reports an error. The semaphore
    /// cannot be used any more then, as if the signal had been dropped.
    ///
    /// # Safety
    /// The [`SharedBinary`] must live until the stream has passed the wait.
    pub unsafe fn cuda_wait(self, stream: &dyn Stream) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.0.imported.wait(stream, Wait::Binary) }?;
        self.0.pending.end();
        Ok(())
    }

    /// Returns a wait for a Vulkan submission (`VkSemaphoreSubmitInfo`), before all its commands. The semaphore can be
    /// signalled again once the wait is [`submitted`](WaitToSubmit::submitted).
    pub fn vulkan_wait(self) -> (vk::SemaphoreSubmitInfo<'static>, WaitToSubmit) {
        (self.0.exported.info(0), WaitToSubmit(self.0))
    }
}

impl WaitToSubmit {
    /// Notes that `vkQueueSubmit2` accepted the submission with this wait.
    pub fn submitted(self) {
        self.0.pending.end();
    }
}

/// A binary semaphore that Vulkan creates and two other APIs use, OpenGL and CUDA for example. Each imports its own
/// handle. It owns Vulkan's semaphore.
///
/// Nothing here can check what the other APIs do with it. They must give each signal one wait, and keep the order.
///
/// # Examples
/// ```no_run
/// # fn example(vk: vulkan_cuda::Vk, cuda: vulkan_cuda::Cuda) -> vulkan_cuda::Result<()> {
/// use vulkan_cuda::{ExportedBinary, ImportedSemaphore};
///
/// let semaphore = ExportedBinary::new(&vk)?;
/// let in_cuda = ImportedSemaphore::import(&cuda, semaphore.export()?)?;
/// let for_opengl = semaphore.export()?;
/// # let _ = (in_cuda, for_opengl);
/// # Ok(())
/// # }
/// ```
///
/// `examples/opengl` in the repository is a whole program.
pub struct ExportedBinary(Exported);

impl ExportedBinary {
    /// Creates the semaphore, unsignalled (`vkCreateSemaphore`).
    ///
    /// # Errors
    /// Fails if the device cannot export binary semaphores, or was created without the extension.
    pub fn new(vk: &Vk) -> Result<Self> {
        Exported::new(vk, SemaphoreKind::Binary).map(Self)
    }

    /// Creates a new handle to the semaphore, with `vkGetSemaphoreFdKHR` or `vkGetSemaphoreWin32HandleKHR`. You own the
    /// handle. It keeps the semaphore's payload alive by itself, unless it is a KMT handle.
    ///
    /// # Errors
    /// Fails if the driver reports an error.
    pub fn export(&self) -> Result<SemaphoreHandle> {
        self.0.export()
    }
}

/// Enforces the rule of a binary semaphore: no signal while the previous one has no wait.
#[derive(Default)]
struct Pending(AtomicBool);

impl Pending {
    fn begin(&self) -> Result<()> {
        match self.0.swap(true, Ordering::Relaxed) {
            false => Ok(()),
            true => Err(Error::Rule(
                "a binary semaphore that is signalled cannot be signalled again before its wait is submitted"
                    .into(),
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
