//! What timelines and binary semaphores have in common: an exported Vulkan semaphore, and an imported one as CUDA
//! sees it.

use std::time::Duration;

use ash::vk;
use cudarc::driver::sys;

use crate::Result;
use crate::cuda::{Cuda, Stream, api};
use crate::export::{SemaphoreExport, export_semaphore};
use crate::handle::{ExportType, Operand, SemaphoreHandle, SemaphoreKind, Signal, Wait};
use crate::vulkan::Vk;

/// A Vulkan semaphore that can be exported.
pub(crate) struct Exported {
    pub(crate) raw: vk::Semaphore,
    kind: SemaphoreKind,
    handle_type: ExportType,
    vk: Vk,
}

impl Exported {
    /// A timeline starts at 0, a binary semaphore unsignalled.
    pub(crate) fn new(vk: &Vk, kind: SemaphoreKind) -> Result<Self> {
        // ANCHOR: create
        let mut export = SemaphoreExport::new(vk, kind)?;
        let handle_type = export.kind();
        let mut semaphore_type = vk::SemaphoreTypeCreateInfo::default().semaphore_type(kind.vulkan());
        let info = export.chain(vk::SemaphoreCreateInfo::default().push_next(&mut semaphore_type));
        // SAFETY: a live device with timeline semaphores enabled, which grants the export of this kind.
        let raw =
            unsafe { vk.device().create_semaphore(&info, None) }.map_err(vk.failed("vkCreateSemaphore"))?;
        // ANCHOR_END: create
        Ok(Self { raw, kind, handle_type, vk: vk.clone() })
    }

    /// Creates a new handle to the semaphore.
    pub(crate) fn export(&self) -> Result<SemaphoreHandle> {
        export_semaphore(&self.vk, self.raw, self.handle_type, self.kind)
    }

    /// Returns a timeline's current counter, without a wait.
    pub(crate) fn value(&self) -> Result<u64> {
        // SAFETY: a live timeline semaphore of this device.
        unsafe { self.vk.device().get_semaphore_counter_value(self.raw) }
            .map_err(self.vk.failed("vkGetSemaphoreCounterValue"))
    }

    /// Sets a timeline's counter from the CPU, if it has not reached `value` yet.
    ///
    /// # Safety
    /// As for [`crate::SharedTimeline::signal_from_host`].
    pub(crate) unsafe fn signal_from_host(&self, value: u64) -> Result<()> {
        if self.value()? >= value {
            return Ok(());
        }
        let info = vk::SemaphoreSignalInfo::default().semaphore(self.raw).value(value);
        // SAFETY: a live timeline semaphore of this device. The value is greater than the counter's, and the caller promises
        // the rest.
        unsafe { self.vk.device().signal_semaphore(&info) }.map_err(self.vk.failed("vkSignalSemaphore"))
    }

    /// As [`crate::SharedTimeline::wait_from_host`].
    pub(crate) fn wait_from_host(&self, value: u64, limit: Duration) -> Result<bool> {
        let (semaphores, values) = ([self.raw], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        let limit = limit.as_nanos().try_into().unwrap_or(u64::MAX);
        // SAFETY: a live timeline semaphore of this device.
        match unsafe { self.vk.device().wait_semaphores(&info, limit) } {
            Ok(()) => Ok(true),
            Err(vk::Result::TIMEOUT) => Ok(false),
            Err(result) => Err(self.vk.failed("vkWaitSemaphores")(result)),
        }
    }

    /// A wait or a signal for a Vulkan submission.
    pub(crate) fn info(&self, value: u64) -> vk::SemaphoreSubmitInfo<'static> {
        submit_info(self.raw, value)
    }
}

/// A wait or a signal at `ALL_COMMANDS`: no narrower stage orders the ownership transfers ([`crate::ownership`]).
pub(crate) fn submit_info(semaphore: vk::Semaphore, value: u64) -> vk::SemaphoreSubmitInfo<'static> {
    let all = vk::PipelineStageFlags2::ALL_COMMANDS;
    vk::SemaphoreSubmitInfo::default().semaphore(semaphore).value(value).stage_mask(all)
}

impl Drop for Exported {
    fn drop(&mut self) {
        // SAFETY: the GPU is done with it: code that submits work with the semaphore promises to keep it alive until then.
        self.vk.cleanup(|device| unsafe { device.destroy_semaphore(self.raw, None) });
    }
}

/// A semaphore, fence or mutex of another API as CUDA sees it. It owns CUDA's import, and keeps the context alive.
///
/// Drop it after the GPU has passed all its waits and signals.
///
/// # Examples
///
/// A timeline from another process, by its file descriptor:
///
/// ```no_run
/// # #[cfg(unix)]
/// # fn example(
/// #     cuda: &vulkan_cuda::Cuda,
/// #     fd: std::os::fd::OwnedFd,
/// #     stream: &dyn vulkan_cuda::Stream,
/// # ) -> vulkan_cuda::Result<()> {
/// use vulkan_cuda::ImportedSemaphore;
/// use vulkan_cuda::handle::{SemaphoreHandle, Signal, Wait};
///
/// let semaphore = ImportedSemaphore::import(cuda, SemaphoreHandle::TimelineFd(fd.into()))?;
/// // SAFETY: it is a timeline of this GPU, and lives until the stream has passed both. No greater value was signalled.
/// unsafe {
///     semaphore.wait(stream, Wait::Value(1))?;
///     semaphore.signal(stream, Signal::Value(2))?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// # A signal may overtake a memset
///
/// `cuSignalExternalSemaphoresAsync` promises to wait for all earlier work of its stream. But while another stream of
/// the context executes many small memsets, it does not wait for a small memset of its own stream, and Vulkan reads old
/// bytes. Kernels, copies and larger memsets were never overtaken, and a *wait* never was. A guard between the memset
/// and the signal helps. `docs/reports/signal-overtakes-memset` in the repository has the figures, and a program that
/// shows it.
pub struct ImportedSemaphore {
    raw: sys::CUexternalSemaphore,
    name: &'static str,
    operand: Operand,
    cuda: Cuda,
}

// SAFETY: the driver API is thread-safe, and every use binds the context first.
unsafe impl Send for ImportedSemaphore {}
// SAFETY: as above.
unsafe impl Sync for ImportedSemaphore {}

impl ImportedSemaphore {
    /// Imports a handle of any kind that CUDA supports, with `cuImportExternalSemaphore`. Consumes the handle: see
    /// [`crate::handle`] for who closes it.
    ///
    /// # Errors
    /// Fails if this system has no handles of that kind (CUDA is then not called). CUDA's driver fails with 304
    /// (`OPERATING_SYSTEM`) under WSL2, and with 1 (`INVALID_VALUE`) if the handle does not stand for a semaphore.
    pub fn import(cuda: &Cuda, handle: SemaphoreHandle) -> Result<Self> {
        handle.exists_here()?;
        let desc = handle.descriptor();
        let (name, operand) = (handle.name(), handle.operand());
        let mut raw = std::ptr::null_mut();
        cuda.bind()?;
        cuda.prepare_guard()?;
        // SAFETY: `desc` is filled as its type requires, and `handle`, to which it points, is alive.
        let code = unsafe { api::cuImportExternalSemaphore(&mut raw, &desc) };
        cuda.check("cuImportExternalSemaphore", code)?;
        // CUDA now owns a file descriptor, so this gives it up. An NT handle is still ours, so this closes it. After a failure
        // every handle is still ours, and dropping it closes it.
        handle.imported();
        Ok(Self { raw, name, operand, cuda: cuda.clone() })
    }

    /// Checks that `stream` may signal this semaphore.
    ///
    /// # Errors
    /// Fails if the stream is of another context or is being captured, or if it is the per-thread default stream.
    pub(crate) fn can_signal(&self, stream: &dyn Stream) -> Result<()> {
        self.cuda.require_uncaptured(stream, "cuSignalExternalSemaphoresAsync")
    }

    /// CUDA's handle of it.
    pub(crate) fn raw(&self) -> sys::CUexternalSemaphore {
        self.raw
    }

    /// Makes `stream` wait on the GPU: work enqueued on it later runs only after the semaphore is signalled. Calls
    /// `cuWaitExternalSemaphoresAsync`.
    ///
    /// # Errors
    /// Fails if the wait is for another kind of semaphore, if the stream is of another context or is being captured, or
    /// if the driver reports an error. In the first three cases nothing is enqueued.
    ///
    /// # Safety
    /// - The handle that was imported must have been of its declared kind, and of this GPU.
    /// - The semaphore must live until the stream has passed the wait (`cuDestroyExternalSemaphore`: outstanding
    ///   waits and signals must have completed).
    pub unsafe fn wait(&self, stream: &dyn Stream, wait: Wait) -> Result<()> {
        self.operand.check(wait.operand(), "wait for", self.name)?;
        let (params, cuda) = (wait.params(), &self.cuda);
        cuda.require_uncaptured(stream, "cuWaitExternalSemaphoresAsync")?;
        // SAFETY: semaphore and stream are alive and of one context, checked above; the counts match the arrays.
        let code = unsafe { api::cuWaitExternalSemaphoresAsync(&self.raw, &params, 1, stream.raw()) };
        cuda.check("cuWaitExternalSemaphoresAsync", code)
    }

    /// Makes `stream` signal once everything enqueued on it so far is done. Calls `cuSignalExternalSemaphoresAsync`.
    ///
    /// On its own, that call [may overtake a small memset](#a-signal-may-overtake-a-memset). So this function enqueues
    /// a guard before it, with `cuStreamWriteValue32`.
    ///
    /// # Errors
    /// Fails as [`ImportedSemaphore::wait`] does.
    ///
    /// # Safety
    /// As for [`ImportedSemaphore::wait`], for the signal. Also, a timeline's value must be greater than all values
    /// that are signalled before it on the GPU, by any side (`VUID-VkSubmitInfo2-semaphore-03882`).
    pub unsafe fn signal(&self, stream: &dyn Stream, signal: Signal) -> Result<()> {
        self.operand.check(signal.operand(), "signal", self.name)?;
        self.can_signal(stream)?;
        // SAFETY: the caller's promise; checked above.
        unsafe { self.enqueue_signal(stream, signal, true) }
    }

    /// As [`ImportedSemaphore::signal`], without the guard. Use it if nothing but kernels has written what you hand over:
    /// [no signal was seen to overtake them](#a-signal-may-overtake-a-memset). If the signal does overtake something, the
    /// other side reads old data; nothing worse can happen.
    ///
    /// # Errors
    /// Fails as [`ImportedSemaphore::wait`] does.
    ///
    /// # Safety
    /// As for [`ImportedSemaphore::signal`].
    pub unsafe fn signal_after_kernels(&self, stream: &dyn Stream, signal: Signal) -> Result<()> {
        self.operand.check(signal.operand(), "signal", self.name)?;
        self.can_signal(stream)?;
        // SAFETY: the caller's promise; checked above.
        unsafe { self.enqueue_signal(stream, signal, false) }
    }

    /// # Safety
    /// As for [`ImportedSemaphore::signal`]. Also, [`ImportedSemaphore::can_signal`] has just succeeded for the stream, and
    /// the semaphore takes such a signal.
    pub(crate) unsafe fn enqueue_signal(
        &self,
        stream: &dyn Stream,
        signal: Signal,
        guarded: bool,
    ) -> Result<()> {
        if guarded {
            // SAFETY: the stream is alive and of this context, which `can_signal` made current.
            unsafe { self.cuda.guard(stream) }?;
        }
        let params = signal.params();
        // SAFETY: as in `wait`.
        let code = unsafe { api::cuSignalExternalSemaphoresAsync(&self.raw, &params, 1, stream.raw()) };
        self.cuda.check("cuSignalExternalSemaphoresAsync", code)
    }
}

impl Drop for ImportedSemaphore {
    fn drop(&mut self) {
        // SAFETY: imported above. No stream uses it any more: the callers of `wait` and `signal` promise that.

        self.cuda
            .cleanup("cuDestroyExternalSemaphore", || unsafe { api::cuDestroyExternalSemaphore(self.raw) });
    }
}

#[cfg(test)]
mod tests {
    use std::mem::ManuallyDrop;

    use super::*;
    use crate::cuda::tests::unreal;

    #[test]
    fn a_stream_of_another_context_never_reaches_the_driver() {
        let [ours, theirs] = [1, 2].map(unreal);
        let semaphore = ManuallyDrop::new(ImportedSemaphore {
            raw: std::ptr::null_mut(),
            name: "TIMELINE_SEMAPHORE_FD",
            operand: Operand::Value,
            cuda: ours.0.clone(),
        });
        // SAFETY: both are refused before the driver is called.
        let answers = unsafe {
            [
                ("cuWaitExternalSemaphoresAsync", semaphore.wait(&theirs.1, Wait::Value(1))),
                ("cuSignalExternalSemaphoresAsync", semaphore.signal(&theirs.1, Signal::Value(1))),
            ]
        };
        for (call, answer) in answers {
            let text = answer.unwrap_err().to_string();
            assert!(text.contains(call) && text.contains("one CUDA context"), "{text}");
        }
    }
}
