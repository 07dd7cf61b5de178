//! Semaphores that Vulkan exports or CUDA imports. [`crate::timeline`] and [`crate::binary`] pair them.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ash::vk;
use cudarc::driver::sys;

use crate::cuda::{Cuda, Stream, api};
#[cfg(windows)]
use crate::export::Attributes;
use crate::export::{cannot, export_semaphore};
use crate::handle::{ExportType, Operand, SemaphoreHandle};
use crate::vulkan::Vk;
use crate::{Error, Result};

/// A Vulkan semaphore for another process or a third API, which may import it as [`ImportedSemaphore`].
///
/// This crate cannot check what the other side does with it. A timeline's counter may decrease, or never
/// reach a value: check [`ExportedSemaphore::value`] before you submit a wait.
///
/// # Examples
/// ```no_run
/// # use ash::vk;
/// # use vulkan_cuda::ExportedSemaphore;
/// # fn example(vk: vulkan_cuda::Vk) -> vulkan_cuda::Result<()> {
/// let timeline = ExportedSemaphore::new(&vk, vk::SemaphoreType::TIMELINE)?;
/// let handle = timeline.export()?; // send it to the other process
/// if timeline.value()? >= 1 {
///     let wait = timeline.submit_info(1); // for vkQueueSubmit2
/// #   let _ = wait;
/// }
/// # let _ = handle;
/// # Ok(())
/// # }
/// ```
pub struct ExportedSemaphore {
    pub(crate) raw: vk::Semaphore,
    kind: vk::SemaphoreType,
    handle_type: ExportType,
    vk: Vk,
}

impl ExportedSemaphore {
    /// Creates the semaphore. A timeline starts at 0, a binary semaphore unsignalled.
    ///
    /// # Errors
    /// Fails if the device cannot export such semaphores, or was created without the extension.
    pub fn new(vk: &Vk, kind: vk::SemaphoreType) -> Result<Self> {
        let reported = vk.info();
        let (handle_type, what) = match kind {
            vk::SemaphoreType::TIMELINE => (reported.timeline_export, "a timeline semaphore"),
            vk::SemaphoreType::BINARY => (reported.binary_export, "a binary semaphore"),
            _ => (None, "a semaphore of an unknown type"),
        };
        let handle_type = handle_type.ok_or_else(|| cannot(&reported.name, what))?;
        vk.semaphore_handles()?;
        // ANCHOR: create
        let mut export = vk::ExportSemaphoreCreateInfo::default().handle_types(handle_type.semaphore());
        let mut semaphore_type = vk::SemaphoreTypeCreateInfo::default().semaphore_type(kind);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut semaphore_type).push_next(&mut export);
        // ANCHOR_END: create
        #[cfg(windows)]
        let mut attributes = Attributes::new()?;
        #[cfg(windows)]
        // Only for NT handles (VUID-VkExportSemaphoreWin32HandleInfoKHR-handleTypes-01125).
        let info = match handle_type {
            ExportType::OpaqueWin32 => info.push_next(&mut attributes.semaphore),
            _ => info,
        };
        // SAFETY: a live device with timeline semaphores enabled. It reports that it exports this kind.
        let raw =
            unsafe { vk.device().create_semaphore(&info, None) }.map_err(vk.failed("vkCreateSemaphore"))?;
        Ok(Self { raw, kind, handle_type, vk: vk.clone() })
    }

    /// Creates a handle, which you own. Unless it is a KMT handle, it keeps the semaphore's payload alive.
    pub fn export(&self) -> Result<SemaphoreHandle> {
        export_semaphore(&self.vk, self.raw, self.handle_type, self.kind)
    }

    /// Returns a wait or a signal for a Vulkan submission: a wait comes before all its commands, a signal
    /// after them. A binary semaphore ignores the value. Nothing checks that a timeline's values increase.
    pub fn submit_info(&self, value: u64) -> vk::SemaphoreSubmitInfo<'static> {
        // No narrower stage orders the ownership transfers (`crate::ownership`).
        let all = vk::PipelineStageFlags2::ALL_COMMANDS;
        vk::SemaphoreSubmitInfo::default().semaphore(self.raw).value(value).stage_mask(all)
    }

    /// Returns a timeline's counter, without waiting.
    ///
    /// # Errors
    /// Fails if the semaphore is binary, or if the device is lost.
    pub fn value(&self) -> Result<u64> {
        if self.kind != vk::SemaphoreType::TIMELINE {
            return Err(Error::Rule("a binary semaphore has no counter".into()));
        }
        // SAFETY: a live timeline semaphore of this device.
        unsafe { self.vk.device().get_semaphore_counter_value(self.raw) }
            .map_err(self.vk.failed("vkGetSemaphoreCounterValue"))
    }

    /// Sets a timeline's counter from the CPU (`vkSignalSemaphore`), if it has not reached `value` yet. This
    /// ends Vulkan's waits after the other side has failed.
    ///
    /// # Safety
    /// - Signals of smaller values that this process enqueued must have happened, or must never happen.
    /// - Every signal that is pending or comes later must have a greater value
    ///   (`VUID-VkSemaphoreSignalInfo-value-03258`, `-03259`).
    pub unsafe fn signal_from_host(&self, value: u64) -> Result<()> {
        // Two threads may call this with the same value, which must be signalled only once.
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        if self.value()? >= value {
            return Ok(());
        }
        let info = vk::SemaphoreSignalInfo::default().semaphore(self.raw).value(value);
        // SAFETY: a live timeline semaphore, as `value` has checked. The caller promises the rest.
        unsafe { self.vk.device().signal_semaphore(&info) }.map_err(self.vk.failed("vkSignalSemaphore"))
    }

    /// Like [`crate::SharedTimeline::wait_from_host`]. Must be called on a timeline only.
    pub(crate) fn wait_from_host(&self, value: u64, limit: Duration) -> Result<bool> {
        let (semaphores, values) = ([self.raw], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        let limit = limit.as_nanos().try_into().unwrap_or(u64::MAX);
        // SAFETY: a live semaphore of this device, and a timeline, as every caller ensures.
        match unsafe { self.vk.device().wait_semaphores(&info, limit) } {
            Ok(()) => Ok(true),
            Err(vk::Result::TIMEOUT) => Ok(false),
            Err(result) => Err(self.vk.failed("vkWaitSemaphores")(result)),
        }
    }
}

impl Drop for ExportedSemaphore {
    fn drop(&mut self) {
        // SAFETY: the GPU is done with the semaphore, as code that submits work with it promises.
        self.vk.cleanup(|device| unsafe { device.destroy_semaphore(self.raw, None) });
    }
}

/// A semaphore, fence or mutex that CUDA imported. Drop it after the GPU has passed its waits and signals.
///
/// # Examples
/// A timeline from another process:
///
/// ```no_run
/// # use vulkan_cuda::{Cuda, ImportedSemaphore, Stream};
/// # use vulkan_cuda::handle::{Fd, Operand, SemaphoreHandle};
/// # fn example(cuda: &Cuda, fd: Fd, stream: &dyn Stream) -> vulkan_cuda::Result<()> {
/// let semaphore = ImportedSemaphore::import(cuda, SemaphoreHandle::TimelineFd(fd))?;
/// // SAFETY: a timeline of this GPU, which outlives the wait and the signal. 2 exceeds all earlier values.
/// unsafe {
///     semaphore.wait(stream, Operand::Value(1))?;
///     semaphore.signal(stream, Operand::Value(2))?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// # A signal may overtake a memset
/// `cuSignalExternalSemaphoresAsync` promises to wait for all earlier work of its stream. But while another
/// stream of the context executes many small memsets, it does not wait for a small memset of its own stream,
/// and Vulkan reads old bytes. No kernel, copy, larger memset or *wait* was seen to be overtaken.
///
/// So [`signal`](ImportedSemaphore::signal) enqueues a guard first.
/// [`signal_after_kernels`](ImportedSemaphore::signal_after_kernels) has none: it is for data from kernels
/// only. The same holds for [`CudaTurn::finish`](crate::CudaTurn::finish) and `finish_after_kernels`.
/// `docs/reports/signal-overtakes-memset` in the repository has the figures and a program.
pub struct ImportedSemaphore {
    pub(crate) raw: sys::CUexternalSemaphore,
    name: &'static str,
    takes: &'static str,
    cuda: Cuda,
}

// SAFETY: the driver API is thread-safe, and every use binds the context first.
unsafe impl Send for ImportedSemaphore {}
// SAFETY: as above.
unsafe impl Sync for ImportedSemaphore {}

impl ImportedSemaphore {
    /// Imports a handle (`cuImportExternalSemaphore`). [`crate::handle`] says which side closes it.
    ///
    /// # Errors
    /// Fails if this system has no handles of that kind. CUDA's driver fails with 304 (`OPERATING_SYSTEM`)
    /// under WSL2, and with 1 (`INVALID_VALUE`) if the handle does not stand for a semaphore.
    pub fn import(cuda: &Cuda, handle: SemaphoreHandle) -> Result<Self> {
        let (name, _, form, _, takes) = handle.row();
        form.exists_here(name)?;
        let desc = handle.descriptor();
        let mut raw = std::ptr::null_mut();
        cuda.bind()?;
        cuda.prepare_guard()?;
        // SAFETY: `desc` is filled as its type requires, and `handle`, to which it points, is alive.
        let code = unsafe { api::cuImportExternalSemaphore(&mut raw, &desc) };
        cuda.check("cuImportExternalSemaphore", code)?;
        // A file descriptor now belongs to CUDA, so this gives it up. An NT handle is still ours, so this
        // closes it. After a failure, every handle is still ours, and its drop closes it.
        handle.imported();
        Ok(Self { raw, name, takes, cuda: cuda.clone() })
    }

    /// Fails if the semaphore takes another kind of operand, because the driver would read the wrong field.
    fn require(&self, operand: Operand, verb: &str) -> Result<()> {
        let (Self { name, takes, .. }, given) = (self, operand.words());
        match *takes == given {
            true => Ok(()),
            false => Err(Error::Rule(format!("to {verb} {name} takes {takes}, but {given} was given"))),
        }
    }

    /// Makes `stream` wait for the semaphore, without blocking the CPU (`cuWaitExternalSemaphoresAsync`).
    /// Later work on the stream runs after the signal.
    ///
    /// # Errors
    /// Fails, and enqueues nothing, if the operand is for another kind of semaphore, or if the stream belongs
    /// to another context, is being captured, or is the per-thread default stream.
    ///
    /// # Safety
    /// - The handle that was imported must have had its declared kind, and must be from this GPU.
    /// - The semaphore must live until the stream has passed the wait (`cuDestroyExternalSemaphore`:
    ///   outstanding waits and signals must have completed).
    pub unsafe fn wait(&self, stream: &dyn Stream, operand: Operand) -> Result<()> {
        self.require(operand, "wait for")?;
        let (params, cuda) = (operand.wait_params(), &self.cuda);
        cuda.require_uncaptured(stream, "cuWaitExternalSemaphoresAsync")?;
        // SAFETY: a live semaphore and stream of one context (checked above). The caller promises the rest.
        let code = unsafe { api::cuWaitExternalSemaphoresAsync(&self.raw, &params, 1, stream.raw()) };
        cuda.check("cuWaitExternalSemaphoresAsync", code)
    }

    /// Makes `stream` signal once everything on it so far is done (`cuSignalExternalSemaphoresAsync`), after
    /// a [guard](#a-signal-may-overtake-a-memset).
    ///
    /// # Safety
    /// Same as [`ImportedSemaphore::wait`], for the signal. Also, a timeline's value must be greater than all
    /// values that are signalled before it on the GPU, by any side (`VUID-VkSubmitInfo2-semaphore-03882`).
    pub unsafe fn signal(&self, stream: &dyn Stream, operand: Operand) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.enqueue_signal(stream, operand, true, || Ok(())) }
    }

    /// Like [`ImportedSemaphore::signal`], without the [guard](#a-signal-may-overtake-a-memset): for data
    /// from kernels only. If the signal overtakes work, the other side reads old data, nothing worse.
    ///
    /// # Safety
    /// Same as [`ImportedSemaphore::signal`].
    pub unsafe fn signal_after_kernels(&self, stream: &dyn Stream, operand: Operand) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.enqueue_signal(stream, operand, false, || Ok(())) }
    }

    /// Checks operand and stream, calls `promise`, and enqueues the signal, after a guard if `guarded`.
    ///
    /// # Safety
    /// Same as [`ImportedSemaphore::signal`].
    pub(crate) unsafe fn enqueue_signal(
        &self,
        stream: &dyn Stream,
        operand: Operand,
        guarded: bool,
        promise: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.require(operand, "signal")?;
        self.cuda.require_uncaptured(stream, "cuSignalExternalSemaphoresAsync")?;
        promise()?;
        if guarded {
            // SAFETY: a live stream of this context, which is current. `import` allocated the guard word.
            unsafe { self.cuda.guard(stream) }?;
        }
        let params = operand.signal_params();
        // SAFETY: as in `wait`.
        let code = unsafe { api::cuSignalExternalSemaphoresAsync(&self.raw, &params, 1, stream.raw()) };
        self.cuda.check("cuSignalExternalSemaphoresAsync", code)
    }
}

impl Drop for ImportedSemaphore {
    fn drop(&mut self) {
        // SAFETY: imported in `import`; no stream uses it, as the callers of `wait` and `signal` promise.
        self.cuda
            .cleanup("cuDestroyExternalSemaphore", || unsafe { api::cuDestroyExternalSemaphore(self.raw) });
    }
}

#[cfg(test)]
mod tests {
    use std::mem::ManuallyDrop;

    use super::*;
    use crate::cuda::tests::unreal;

    /// It is never dropped, because that would call CUDA.
    fn fence(name: &'static str, cuda: &Cuda) -> ManuallyDrop<ImportedSemaphore> {
        let (raw, takes) = (std::ptr::null_mut(), Operand::Value(0).words());
        ManuallyDrop::new(ImportedSemaphore { raw, name, takes, cuda: cuda.clone() })
    }

    #[test]
    fn a_stream_of_another_context_never_reaches_the_driver() {
        let [ours, theirs] = [1, 2].map(unreal);
        let semaphore = fence("TIMELINE_SEMAPHORE_FD", &ours.0);
        // SAFETY: both are refused before the driver is called.
        let answers = unsafe {
            [
                ("cuWaitExternalSemaphoresAsync", semaphore.wait(&theirs.1, Operand::Value(1))),
                ("cuSignalExternalSemaphoresAsync", semaphore.signal(&theirs.1, Operand::Value(1))),
            ]
        };
        for (call, answer) in answers {
            let text = answer.unwrap_err().to_string();
            assert!(text.contains(call) && text.contains("one CUDA context"), "{text}");
        }
    }

    #[test]
    fn a_wrong_operand_is_an_error_that_says_both() {
        let ours = unreal(1);
        let fence = fence("D3D12_FENCE", &ours.0);
        assert!(fence.require(Operand::Value(1), "wait for").is_ok());
        let given = Operand::Key { key: 1, timeout_ms: 0 };
        let text = fence.require(given, "wait for").unwrap_err().to_string();
        assert_eq!(text, "to wait for D3D12_FENCE takes a fence value, but a key was given");
    }
}
