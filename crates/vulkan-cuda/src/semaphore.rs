//! What timelines and binary semaphores have in common: a Vulkan semaphore that is exported, and an imported one as CUDA
//! sees it.

use ash::vk;
use cudarc::driver::sys;

use crate::Result;
use crate::cuda::{Cuda, Stream, api};
use crate::export::{SemaphoreExport, export_semaphore};
use crate::handle::{ExportType, Operand, SemaphoreHandle, SemaphoreKind, Signal, Wait};
use crate::vulkan::Vk;

/// A Vulkan semaphore in exportable form.
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

    /// A new handle of it.
    pub(crate) fn export(&self) -> Result<SemaphoreHandle> {
        export_semaphore(&self.vk, self.raw, self.handle_type, self.kind)
    }

    /// A timeline's counter as it is now; does not wait.
    pub(crate) fn value(&self) -> Result<u64> {
        // SAFETY: a live timeline semaphore of this device.
        unsafe { self.vk.device().get_semaphore_counter_value(self.raw) }
            .map_err(self.vk.failed("vkGetSemaphoreCounterValue"))
    }

    /// Sets a timeline's counter from the CPU, where it is not there yet.
    ///
    /// # Safety
    /// As [`crate::SharedTimeline::signal_from_host`].
    pub(crate) unsafe fn signal_from_host(&self, value: u64) -> Result<()> {
        if self.value()? >= value {
            return Ok(());
        }
        let info = vk::SemaphoreSignalInfo::default().semaphore(self.raw).value(value);
        // SAFETY: a live timeline semaphore of this device; the value is above the counter's, and what else is pending is the
        // caller's promise.
        unsafe { self.vk.device().signal_semaphore(&info) }.map_err(self.vk.failed("vkSignalSemaphore"))
    }

    /// As [`crate::SharedTimeline::wait_from_host`].
    pub(crate) fn wait_from_host(&self, value: u64) -> Result<bool> {
        let (semaphores, values) = ([self.raw], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: a live timeline semaphore of this device.
        match unsafe { self.vk.device().wait_semaphores(&info, 1_000_000_000) } {
            Ok(()) => Ok(true),
            Err(vk::Result::TIMEOUT) => Ok(false),
            Err(result) => Err(self.vk.failed("vkWaitSemaphores")(result)),
        }
    }

    /// As a wait or a signal of a Vulkan submission.
    pub(crate) fn info(
        &self,
        value: u64,
        stage: vk::PipelineStageFlags2,
    ) -> vk::SemaphoreSubmitInfo<'static> {
        vk::SemaphoreSubmitInfo::default().semaphore(self.raw).value(value).stage_mask(stage)
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        // SAFETY: the GPU is done with it: whoever submitted work that uses it has promised to keep it alive so long.
        self.vk.cleanup(|device| unsafe { device.destroy_semaphore(self.raw, None) });
    }
}

/// A semaphore, fence or mutex of another API as CUDA sees it.
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
    /// Imports any handle that CUDA knows. Consumes it: see [`crate::handle`] for who closes what.
    ///
    /// # Errors
    /// A handle of another system, before CUDA is asked; 304 (`OPERATING_SYSTEM`) under WSL2; 1 (`INVALID_VALUE`) for what
    /// is no such handle.
    pub fn import(cuda: &Cuda, handle: SemaphoreHandle) -> Result<Self> {
        handle.exists_here()?;
        let desc = handle.descriptor();
        let facts = handle.facts();
        let mut raw = std::ptr::null_mut();
        cuda.bind()?;
        // SAFETY: `desc` is filled as its type asks, and `handle`, to which it points, is alive.
        let code = unsafe { api::cuImportExternalSemaphore(&mut raw, &desc) };
        cuda.check("cuImportExternalSemaphore", code)?;
        // Gives up what CUDA has taken over, and closes what it has not (an NT handle). After a failure nothing is taken over, and
        // dropping the handle closes it.
        handle.imported();
        Ok(Self { raw, name: facts.name, operand: facts.operand, cuda: cuda.clone() })
    }

    /// # Errors
    /// A stream that cannot be used with it.
    pub(crate) fn require(&self, stream: &dyn Stream) -> Result<()> {
        self.cuda.require_stream(stream, "cuSignalExternalSemaphoresAsync")
    }

    /// CUDA's handle of it.
    pub(crate) fn raw(&self) -> sys::CUexternalSemaphore {
        self.raw
    }

    /// Makes `stream` wait on the GPU: work that is enqueued on it later runs only once the semaphore is signalled.
    ///
    /// # Errors
    /// A wait that is not for this kind of semaphore, or a stream of another context, before CUDA is asked; what the driver answers.
    ///
    /// # Safety
    /// The handle that was imported is of the kind that it said, and of this GPU. The semaphore lives until the stream has passed
    /// the wait (`cuDestroyExternalSemaphore`: outstanding waits and signals must have completed).
    pub unsafe fn wait(&self, stream: &dyn Stream, wait: Wait) -> Result<()> {
        self.operand.check(wait.operand(), "wait for", self.name)?;
        let (params, cuda) = (wait.params(), &self.cuda);
        cuda.require_stream(stream, "cuWaitExternalSemaphoresAsync")?;
        cuda.bind()?;
        // SAFETY: semaphore and stream are alive and of one context, checked above; the counts match the arrays.
        let code = unsafe { api::cuWaitExternalSemaphoresAsync(&self.raw, &params, 1, stream.raw()) };
        cuda.check("cuWaitExternalSemaphoresAsync", code)
    }

    /// Makes `stream` signal once everything enqueued on it so far is done.
    ///
    /// **A memset may still run then.** On an NVIDIA H200 (driver 580.159.04), while another stream of the same context was busy with
    /// thousands of memsets, the signal overtook a `cuMemsetD32Async` of 4 KiB on its own stream, and Vulkan read old words: in 14 of 16
    /// runs. An event in between did not help (2 of 8); an empty kernel, or `cuStreamWriteValue32`, did (0 of 8, 0 of 16). Kernels and
    /// copies were never overtaken (0 of 16, 0 of 48), nor was a memset with `CUDA_DEVICE_MAX_CONNECTIONS=1` (0 of 8). So fill what
    /// you hand over with a kernel or a copy, or enqueue one of these two behind a memset.
    ///
    /// # Errors
    /// As [`ImportedSemaphore::wait`].
    ///
    /// # Safety
    /// As [`ImportedSemaphore::wait`], of the signal. A timeline's value is above all that anybody signals before it on the GPU (`VUID-VkSubmitInfo2-semaphore-03882`).
    pub unsafe fn signal(&self, stream: &dyn Stream, signal: Signal) -> Result<()> {
        self.operand.check(signal.operand(), "signal", self.name)?;
        let (params, cuda) = (signal.params(), &self.cuda);
        cuda.require_stream(stream, "cuSignalExternalSemaphoresAsync")?;
        cuda.bind()?;
        // SAFETY: as in `wait`.
        let code = unsafe { api::cuSignalExternalSemaphoresAsync(&self.raw, &params, 1, stream.raw()) };
        cuda.check("cuSignalExternalSemaphoresAsync", code)
    }
}

impl Drop for ImportedSemaphore {
    fn drop(&mut self) {
        // SAFETY: imported above; no stream uses it any more, which the callers of `wait` and `signal` have promised.
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
        // SAFETY: both are refused before the driver is asked.
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
