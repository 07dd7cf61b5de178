//! Step 4: semaphores that both APIs wait for and signal, on the GPU.
//!
//! A *timeline* ([`SharedTimeline`]) is a 64-bit counter that only grows. Waiting for a value that nobody has promised yet
//! is allowed, so each side can enqueue its half of a frame without asking the other. Its rule: every signal is above all
//! before it (`VUID-VkSubmitInfo2-semaphore-03882`). That is checked here, because a driver that is told otherwise may do
//! anything. It is also why each timeline of a ring has one signaller: two that run ahead of each other could not keep
//! the order. NVIDIA's simpleVulkan shares one timeline between both, which is valid only because its two sides strictly
//! alternate.
//!
//! A *binary semaphore* ([`SharedBinary`]) has no counter, and three rules: each signal has exactly one wait, a wait is
//! submitted after its signal (`VUID-vkQueueSubmit2-semaphore-03873`), and the next signal after that wait
//! (`VUID-vkQueueSubmit2-semaphore-03868`). Here a signal that was submitted is a value, [`BinarySignal`], which its wait
//! consumes. So a second wait does not compile:
//!
//! ```compile_fail,E0382
//! # fn test(binary: wavefield::interop::SharedBinary, stream: &wavefield::cuda::Stream) -> wavefield::Result<()> {
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
//! # fn test(binary: wavefield::interop::SharedBinary, stream: &wavefield::cuda::Stream) -> wavefield::Result<()> {
//! let (info, signal) = binary.vulkan_signal(ash::vk::PipelineStageFlags2::ALL_COMMANDS)?;
//! signal.cuda_wait(stream)?; // first vkQueueSubmit2 with `info`, then `signal.submitted()`
//! # Ok(())
//! # }
//! ```
//!
//! and a second signal before the wait is an error. What no type can see is the *order on the GPU*: that the work behind
//! the next signal runs after the wait has taken the last one. Two semaphores that answer each other, as in
//! [`crate::handoff`]'s `binary`, give it.
//!
//! Nothing here allocates or makes another driver call each frame than the two enqueues themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ash::vk;
use cudarc::driver::sys;

use super::device::require_same_device;
use super::handle::{
    self, ExportType, Operand, SemaphoreExport, SemaphoreHandle, SemaphoreKind, Signal, Wait,
};
use crate::cuda::{Context, Stream, api};
use crate::vulkan::Device;
use crate::{Error, Result};

/// A Vulkan semaphore in exportable form.
struct Exported {
    raw: vk::Semaphore,
    kind: SemaphoreKind,
    handle_type: ExportType,
    device: Device,
}

impl Exported {
    /// A timeline starts at 0, a binary semaphore unsignalled.
    fn new(device: &Device, kind: SemaphoreKind) -> Result<Self> {
        let mut export = SemaphoreExport::new(device, kind)?;
        let handle_type = export.kind();
        let mut semaphore_type = vk::SemaphoreTypeCreateInfo::default().semaphore_type(kind.vulkan());
        let info = export.chain(vk::SemaphoreCreateInfo::default().push_next(&mut semaphore_type));
        // SAFETY: a live device with timeline semaphores enabled, which grants the export of this kind.
        let raw = unsafe { device.raw().create_semaphore(&info, None) }
            .map_err(device.failed("vkCreateSemaphore"))?;
        Ok(Self { raw, kind, handle_type, device: device.clone() })
    }

    /// A new handle of it.
    fn export(&self) -> Result<SemaphoreHandle> {
        handle::export_semaphore(&self.device, self.raw, self.handle_type, self.kind)
    }

    /// A timeline's counter as it is now; does not wait.
    fn value(&self) -> Result<u64> {
        // SAFETY: a live timeline semaphore of this device.
        unsafe { self.device.raw().get_semaphore_counter_value(self.raw) }
            .map_err(self.device.failed("vkGetSemaphoreCounterValue"))
    }

    /// Sets a timeline's counter from the CPU, where it is not there yet.
    fn signal_from_host(&self, value: u64) -> Result<()> {
        if self.value()? >= value {
            return Ok(());
        }
        let info = vk::SemaphoreSignalInfo::default().semaphore(self.raw).value(value);
        // SAFETY: a live timeline semaphore of this device; the value is above the counter's, and its other signaller
        // has failed, or is gone.
        unsafe { self.device.raw().signal_semaphore(&info) }.map_err(self.device.failed("vkSignalSemaphore"))
    }

    fn info(&self, value: u64, stage: vk::PipelineStageFlags2) -> vk::SemaphoreSubmitInfo<'static> {
        vk::SemaphoreSubmitInfo::default().semaphore(self.raw).value(value).stage_mask(stage)
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        if self.device.is_left_running() {
            return;
        }
        // SAFETY: the GPU is done with it: whoever drops a resource waits first (see the module `vulkan`).
        unsafe { self.device.raw().destroy_semaphore(self.raw, None) };
    }
}

/// A semaphore, fence or mutex of another API as CUDA sees it.
///
/// Before it is dropped, the streams that use it must be idle.
pub struct ImportedSemaphore {
    raw: sys::CUexternalSemaphore,
    name: &'static str,
    operand: Operand,
    context: Arc<Context>,
}

// SAFETY: the driver API is thread-safe, and every use binds the context first.
unsafe impl Send for ImportedSemaphore {}
// SAFETY: as above.
unsafe impl Sync for ImportedSemaphore {}

impl ImportedSemaphore {
    /// Imports any handle that CUDA knows. Consumes it: see [`handle`] for who closes what.
    ///
    /// # Errors
    /// A handle of another system, before CUDA is asked; 304 (`OPERATING_SYSTEM`) under WSL2; 1 (`INVALID_VALUE`) for what
    /// is no such handle.
    pub fn import(context: &Arc<Context>, handle: SemaphoreHandle) -> Result<Self> {
        handle.exists_here()?;
        let desc = handle.descriptor();
        let facts = handle.facts();
        let mut raw = std::ptr::null_mut();
        context.bind()?;
        // SAFETY: `desc` is filled as its type asks, and `handle`, to which it points, is alive.
        let code = unsafe { api::cuImportExternalSemaphore(&mut raw, &desc) };
        context.check("cuImportExternalSemaphore", code)?;
        // Had it failed, dropping `handle` would have closed what is ours.
        handle.imported();
        Ok(Self { raw, name: facts.name, operand: facts.operand, context: context.clone() })
    }

    /// Makes work that is enqueued on `stream` from now on wait, on the GPU.
    ///
    /// # Errors
    /// A wait that is not for this kind of semaphore, or a stream of another context, before CUDA is asked.
    pub fn wait(&self, stream: &Stream, wait: Wait) -> Result<()> {
        self.operand.check(wait.operand(), "wait for", self.name)?;
        let (params, context) = (wait.params(), &self.context);
        context.require_same(stream.context(), "cuWaitExternalSemaphoresAsync")?;
        context.bind()?;
        // SAFETY: semaphore and stream are alive and of one context, checked above; the counts match the arrays.
        let code = unsafe { api::cuWaitExternalSemaphoresAsync(&self.raw, &params, 1, stream.raw()) };
        context.check("cuWaitExternalSemaphoresAsync", code)
    }

    /// Makes `stream` signal once everything enqueued on it so far is done.
    ///
    /// # Errors
    /// As [`ImportedSemaphore::wait`].
    pub fn signal(&self, stream: &Stream, signal: Signal) -> Result<()> {
        self.operand.check(signal.operand(), "signal", self.name)?;
        let (params, context) = (signal.params(), &self.context);
        context.require_same(stream.context(), "cuSignalExternalSemaphoresAsync")?;
        context.bind()?;
        // SAFETY: as in `wait`.
        let code = unsafe { api::cuSignalExternalSemaphoresAsync(&self.raw, &params, 1, stream.raw()) };
        context.check("cuSignalExternalSemaphoresAsync", code)
    }
}

impl Drop for ImportedSemaphore {
    fn drop(&mut self) {
        // SAFETY: imported above; the stream that used it is idle: whoever drops a shared semaphore waits first.
        self.context
            .cleanup("cuDestroyExternalSemaphore", || unsafe { api::cuDestroyExternalSemaphore(self.raw) });
    }
}

/// One timeline that both APIs use.
///
/// Before it is dropped, the Vulkan queue and the CUDA stream that use it must be idle.
pub struct SharedTimeline {
    // CUDA lets go before Vulkan destroys.
    imported: ImportedSemaphore,
    exported: Exported,
    promised: Rising,
}

impl SharedTimeline {
    /// Creates in Vulkan, imports into CUDA. `device` and `context` must be the same GPU: see [`super::find_twin`].
    ///
    /// # Errors
    /// Different GPUs, a device that cannot export timelines, and what either driver answers.
    pub fn new(device: &Device, context: &Arc<Context>) -> Result<Self> {
        require_same_device(device, context)?;
        let exported = Exported::new(device, SemaphoreKind::Timeline)?;
        let imported = ImportedSemaphore::import(context, exported.export()?)?;
        Ok(Self { imported, exported, promised: Rising::default() })
    }

    /// Makes work that is enqueued on `stream` from now on wait, on the GPU, for the counter to reach `value`.
    pub fn cuda_wait(&self, stream: &Stream, value: u64) -> Result<()> {
        self.imported.wait(stream, Wait::Value(value))
    }

    /// Makes `stream` set the counter to `value` once everything enqueued on it so far is done.
    ///
    /// # Errors
    /// A value that is not above all before it, from either side; then nothing is enqueued.
    pub fn cuda_signal(&self, stream: &Stream, value: u64) -> Result<()> {
        self.promised.rise(value)?;
        self.imported.signal(stream, Signal::Value(value))
    }

    /// The same as parameters of a CUDA graph's node; the caller keeps the values rising.
    pub(crate) fn cuda_signal_params(
        &self,
        value: u64,
    ) -> (sys::CUexternalSemaphore, sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS) {
        (self.imported.raw, Signal::Value(value).params())
    }

    /// [`SharedTimeline::cuda_wait`] likewise.
    pub(crate) fn cuda_wait_params(
        &self,
        value: u64,
    ) -> (sys::CUexternalSemaphore, sys::CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS) {
        (self.imported.raw, Wait::Value(value).params())
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
    /// As [`SharedTimeline::cuda_signal`].
    pub fn vulkan_signal(
        &self,
        value: u64,
        stage: vk::PipelineStageFlags2,
    ) -> Result<vk::SemaphoreSubmitInfo<'static>> {
        self.promised.rise(value)?;
        Ok(self.exported.info(value, stage))
    }

    /// The greatest value that either side was asked to signal; 0 before the first.
    pub fn promised(&self) -> u64 {
        self.promised.last()
    }

    /// Sets the counter from the CPU; does nothing where it is there already. For giving up: when CUDA has failed and will
    /// never signal, this lets go what waits in Vulkan.
    pub(crate) fn signal_from_host(&self, value: u64) -> Result<()> {
        self.exported.signal_from_host(value)
    }

    /// Blocks the CPU until the counter has `value`; false after a second without it.
    pub fn wait_from_host(&self, value: u64) -> Result<bool> {
        let device = &self.exported.device;
        let (semaphores, values) = ([self.exported.raw], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: a live timeline semaphore of this device.
        match unsafe { device.raw().wait_semaphores(&info, 1_000_000_000) } {
            Ok(()) => Ok(true),
            Err(vk::Result::TIMEOUT) => Ok(false),
            Err(result) => Err(device.failed("vkWaitSemaphores")(result)),
        }
    }

    /// The counter as it is now; does not wait.
    pub fn value(&self) -> Result<u64> {
        self.exported.value()
    }
}

/// A timeline of Vulkan's for another process, which imports it by [`ImportedSemaphore`] or by whatever it has.
///
/// What the other process signals cannot be checked here: its values may go down, or never come. So a wait for them belongs
/// behind a look at [`ExportedTimeline::value`]: see `wavefield::serve`.
///
/// Before it is dropped, the Vulkan queue must be done with it.
pub struct ExportedTimeline(Exported);

impl ExportedTimeline {
    /// Its counter starts at 0.
    ///
    /// # Errors
    /// A device that cannot export timelines.
    pub fn new(device: &Device) -> Result<Self> {
        Exported::new(device, SemaphoreKind::Timeline).map(Self)
    }

    /// A new handle to it; it keeps the semaphore's payload alive by itself.
    pub fn export(&self) -> Result<SemaphoreHandle> {
        self.0.export()
    }

    /// For a Vulkan submission: as a wait, `stage` is the first stage that must wait; as a signal, the last stage whose
    /// work must be done.
    pub fn vulkan(&self, value: u64, stage: vk::PipelineStageFlags2) -> vk::SemaphoreSubmitInfo<'static> {
        self.0.info(value, stage)
    }

    /// The counter as it is now; does not wait.
    pub fn value(&self) -> Result<u64> {
        self.0.value()
    }

    /// Sets the counter from the CPU; does nothing where it is there already. For giving up on whoever should have.
    #[cfg(target_os = "linux")]
    pub(crate) fn signal_from_host(&self, value: u64) -> Result<()> {
        self.0.signal_from_host(value)
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

/// One binary semaphore that both APIs use.
///
/// Before it is dropped, with all that it gave out, the Vulkan queue and the CUDA stream that use it must be idle.
pub struct SharedBinary(Arc<Binary>);

/// Both sides of it, kept alive by every signal and wait under way.
struct Binary {
    // CUDA lets go before Vulkan destroys.
    imported: ImportedSemaphore,
    exported: Exported,
    pending: Pending,
}

/// A signal that was submitted and has no wait yet. Its wait consumes it.
#[must_use = "each signal of a binary semaphore needs exactly one wait"]
pub struct BinarySignal(Arc<Binary>);

/// A signal that a Vulkan submission is to make.
#[must_use = "say `submitted` once vkQueueSubmit2 has succeeded"]
pub struct SignalToSubmit(Arc<Binary>);

/// A wait that a Vulkan submission is to make.
#[must_use = "say `submitted` once vkQueueSubmit2 has succeeded"]
pub struct WaitToSubmit(Arc<Binary>);

impl SharedBinary {
    /// Creates in Vulkan, imports into CUDA. `device` and `context` must be the same GPU: see [`super::find_twin`].
    ///
    /// # Errors
    /// Different GPUs, a device that cannot export binary semaphores, and what either driver answers.
    pub fn new(device: &Device, context: &Arc<Context>) -> Result<Self> {
        require_same_device(device, context)?;
        let exported = Exported::new(device, SemaphoreKind::Binary)?;
        let imported = ImportedSemaphore::import(context, exported.export()?)?;
        Ok(Self(Arc::new(Binary { imported, exported, pending: Pending::default() })))
    }

    /// Makes `stream` signal once everything enqueued on it so far is done.
    ///
    /// # Errors
    /// The signal before has no wait yet; then nothing is enqueued.
    pub fn cuda_signal(&self, stream: &Stream) -> Result<BinarySignal> {
        self.0.pending.begin()?;
        self.0.imported.signal(stream, Signal::Binary)?;
        Ok(BinarySignal(self.0.clone()))
    }

    /// A signal of a Vulkan submission; `stage` is the last stage whose work must be done. It can be waited for once it is
    /// [`submitted`](SignalToSubmit::submitted).
    ///
    /// # Errors
    /// As [`SharedBinary::cuda_signal`].
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
    /// Makes work that is enqueued on `stream` from now on wait, on the GPU, for the signal, and takes it.
    pub fn cuda_wait(self, stream: &Stream) -> Result<()> {
        self.0.imported.wait(stream, Wait::Binary)?;
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
    use std::mem::ManuallyDrop;

    use super::*;
    use crate::cuda::tests::unreal;

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

    #[test]
    fn a_stream_of_another_context_never_reaches_the_driver() {
        let [ours, theirs] = [1, 2].map(unreal);
        let semaphore = ManuallyDrop::new(ImportedSemaphore {
            raw: std::ptr::null_mut(),
            name: "TIMELINE_SEMAPHORE_FD",
            operand: Operand::Value,
            context: ours.0.clone(),
        });
        for (call, answer) in [
            ("cuWaitExternalSemaphoresAsync", semaphore.wait(&theirs.1, Wait::Value(1))),
            ("cuSignalExternalSemaphoresAsync", semaphore.signal(&theirs.1, Signal::Value(1))),
        ] {
            let text = answer.unwrap_err().to_string();
            assert!(text.contains(call) && text.contains("one CUDA context"), "{text}");
        }
    }

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
