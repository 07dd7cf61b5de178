//! Step 4: a timeline semaphore that both APIs wait for and signal, on the GPU.
//!
//! A timeline is a 64-bit counter that only grows. Waiting for a value that nobody has promised yet is allowed, so each
//! side can enqueue its half of a frame without asking the other. Each timeline here has one signaller, and the other
//! side waits: with two signallers that run ahead of each other the values could not be strictly increasing
//! (`VUID-VkSubmitInfo2-semaphore-03882`). NVIDIA's simpleVulkan shares one timeline between both, which is valid only
//! because its two sides strictly alternate.
//!
//! A binary semaphore has no counter: each signal is for one wait, which must be enqueued after it. [`SharedBinary`] is
//! here for comparison.
//!
//! Both kinds are exported as the same `OPAQUE_FD`; which kind the descriptor stands for is what CUDA must be told.

use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;

use ash::vk;
use cudarc::driver::sys;

use super::handle;
use crate::Result;
use crate::cuda::{Context, Stream};
use crate::vulkan::Device;

/// The two kinds of semaphore, on both sides.
#[derive(Clone, Copy)]
enum Kind {
    Timeline,
    Binary,
}

impl Kind {
    fn vulkan(self) -> vk::SemaphoreType {
        match self {
            Self::Timeline => vk::SemaphoreType::TIMELINE,
            Self::Binary => vk::SemaphoreType::BINARY,
        }
    }

    fn cuda(self) -> sys::CUexternalSemaphoreHandleType {
        use sys::CUexternalSemaphoreHandleType::*;
        match self {
            Self::Timeline => CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD,
            Self::Binary => CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD,
        }
    }
}

/// A Vulkan semaphore in exportable form.
struct Exported {
    raw: vk::Semaphore,
    device: Device,
}

impl Exported {
    /// A timeline starts at 0, a binary semaphore unsignalled.
    fn new(device: &Device, kind: Kind) -> Result<Self> {
        let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(kind.vulkan());
        let mut export = vk::ExportSemaphoreCreateInfo::default().handle_types(handle::SEMAPHORE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind).push_next(&mut export);
        // SAFETY: a live device with timeline semaphores enabled, whose export was asked for and granted.
        let raw = unsafe { device.raw().create_semaphore(&info, None) }
            .map_err(device.failed("vkCreateSemaphore"))?;
        Ok(Self { raw, device: device.clone() })
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        // SAFETY: the GPU is done with it: whoever drops a resource waits first (see the module `vulkan`).
        unsafe { self.device.raw().destroy_semaphore(self.raw, None) };
    }
}

/// The same semaphore as CUDA sees it.
struct Imported {
    raw: sys::CUexternalSemaphore,
    context: Arc<Context>,
}

impl Imported {
    fn new(context: &Arc<Context>, handle: OwnedFd, kind: Kind) -> Result<Self> {
        let desc = sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC {
            type_: kind.cuda(),
            handle: sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_st__bindgen_ty_1 { fd: handle.as_raw_fd() },
            flags: 0,
            reserved: [0; 16],
        };
        let mut raw = std::ptr::null_mut();
        context.bind()?;
        // SAFETY: `desc` is filled as its type asks, and `handle` is open.
        let code = unsafe { sys::cuImportExternalSemaphore(&mut raw, &desc) };
        context.check("cuImportExternalSemaphore", code)?;
        // The import succeeded, so the descriptor is CUDA's now. Had it failed, `handle` would have closed it.
        let _ = handle.into_raw_fd();
        Ok(Self { raw, context: context.clone() })
    }

    /// `value` is for timelines; CUDA ignores it for binary semaphores.
    fn wait(&self, stream: &Stream, value: u64) -> Result<()> {
        // SAFETY: a plain C structure of integers and unused pointers, for which all zeros is "nothing asked".
        let mut params: sys::CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS = unsafe { std::mem::zeroed() };
        params.params.fence.value = value;
        let context = stream.context();
        context.bind()?;
        // SAFETY: semaphore and stream are alive and of one context; the counts match the arrays.
        let code = unsafe { sys::cuWaitExternalSemaphoresAsync(&self.raw, &params, 1, stream.raw()) };
        context.check("cuWaitExternalSemaphoresAsync", code)
    }

    /// As [`Imported::wait`].
    fn signal(&self, stream: &Stream, value: u64) -> Result<()> {
        // SAFETY: as in `wait`.
        let mut params: sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS = unsafe { std::mem::zeroed() };
        params.params.fence.value = value;
        let context = stream.context();
        context.bind()?;
        // SAFETY: semaphore and stream are alive and of one context; the counts match the arrays.
        let code = unsafe { sys::cuSignalExternalSemaphoresAsync(&self.raw, &params, 1, stream.raw()) };
        context.check("cuSignalExternalSemaphoresAsync", code)
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        // SAFETY: imported above; the stream that used it is idle: whoever drops a shared semaphore waits first.
        self.context
            .cleanup("cuDestroyExternalSemaphore", || unsafe { sys::cuDestroyExternalSemaphore(self.raw) });
    }
}

/// One binary semaphore that both APIs use: each signal is waited for exactly once, and is submitted before its wait.
///
/// Before it is dropped, the Vulkan queue and the CUDA stream that use it must be idle.
pub struct SharedBinary {
    // CUDA lets go before Vulkan destroys.
    imported: Imported,
    exported: Exported,
}

impl SharedBinary {
    /// Creates in Vulkan, imports into CUDA. `device` and `context` must be the same GPU: see [`super::find_twin`].
    pub fn new(device: &Device, context: &Arc<Context>) -> Result<Self> {
        let exported = Exported::new(device, Kind::Binary)?;
        let imported = Imported::new(context, handle::export_semaphore(device, exported.raw)?, Kind::Binary)?;
        Ok(Self { imported, exported })
    }

    /// Makes work that is enqueued on `stream` from now on wait, on the GPU, for the signal, and takes it.
    pub fn cuda_wait(&self, stream: &Stream) -> Result<()> {
        self.imported.wait(stream, 0)
    }

    /// Makes `stream` signal once everything enqueued on it so far is done.
    pub fn cuda_signal(&self, stream: &Stream) -> Result<()> {
        self.imported.signal(stream, 0)
    }

    /// The same for a Vulkan submission; `stage` as for [`SharedTimeline::vulkan`].
    pub fn vulkan(&self, stage: vk::PipelineStageFlags2) -> vk::SemaphoreSubmitInfo<'static> {
        vk::SemaphoreSubmitInfo::default().semaphore(self.exported.raw).stage_mask(stage)
    }
}

/// One timeline that both APIs use.
///
/// Before it is dropped, the Vulkan queue and the CUDA stream that use it must be idle.
pub struct SharedTimeline {
    // CUDA lets go before Vulkan destroys.
    imported: Imported,
    exported: Exported,
}

impl SharedTimeline {
    /// Creates in Vulkan, imports into CUDA. `device` and `context` must be the same GPU: see [`super::find_twin`].
    pub fn new(device: &Device, context: &Arc<Context>) -> Result<Self> {
        let exported = Exported::new(device, Kind::Timeline)?;
        let imported =
            Imported::new(context, handle::export_semaphore(device, exported.raw)?, Kind::Timeline)?;
        Ok(Self { imported, exported })
    }

    /// Makes work that is enqueued on `stream` from now on wait, on the GPU, for the counter to reach `value`.
    pub fn cuda_wait(&self, stream: &Stream, value: u64) -> Result<()> {
        self.imported.wait(stream, value)
    }

    /// Makes `stream` set the counter to `value` once everything enqueued on it so far is done.
    pub fn cuda_signal(&self, stream: &Stream, value: u64) -> Result<()> {
        self.imported.signal(stream, value)
    }

    /// The same for a Vulkan submission: as a wait, `stage` is the first stage that must wait; as a signal, the last
    /// stage whose work must be done.
    pub fn vulkan(&self, value: u64, stage: vk::PipelineStageFlags2) -> vk::SemaphoreSubmitInfo<'static> {
        vk::SemaphoreSubmitInfo::default().semaphore(self.exported.raw).value(value).stage_mask(stage)
    }

    /// Sets the counter from the CPU; does nothing where it is there already. For giving up: when CUDA has failed and will
    /// never signal, this lets go what waits in Vulkan.
    pub(crate) fn signal_from_host(&self, value: u64) -> Result<()> {
        let device = &self.exported.device;
        if self.value()? >= value {
            return Ok(());
        }
        let info = vk::SemaphoreSignalInfo::default().semaphore(self.exported.raw).value(value);
        // SAFETY: a live timeline semaphore of this device; the value is above the counter's, and CUDA, its only other
        // signaller, has failed.
        unsafe { device.raw().signal_semaphore(&info) }.map_err(device.failed("vkSignalSemaphore"))
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
        let device = &self.exported.device;
        // SAFETY: a live timeline semaphore of this device.
        unsafe { device.raw().get_semaphore_counter_value(self.exported.raw) }
            .map_err(device.failed("vkGetSemaphoreCounterValue"))
    }
}
