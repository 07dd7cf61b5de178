//! wgpu's device and CUDA's context, and wgpu's turn of a frame.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use ash::vk;
use cudarc::driver::{CudaContext, CudaStream};
use vulkan_cuda::shared_ring::{Resource, Slot};
use vulkan_cuda::{
    Cuda, CudaInfo, Driver, Error, Pair, QueueUse, Result, RingToCuda, SharedRing, Vk, VkInfo, find_twin,
};
use wgpu::hal::vulkan::{Api, CreateDeviceCallbackArgs};
use wgpu::{CommandBuffer, CommandEncoder};

use crate::slot::{WgpuSlot, sealed::Sealed};
use crate::turn::WgpuTurn;

/// How long [`Gpu::shared_ring`] waits for the queue.
const LIMIT: Duration = Duration::from_secs(10);

/// Returns the first of wgpu's adapters that is also a CUDA device: they have the same UUID.
///
/// # Errors
/// Fails if there is no CUDA driver, or if no adapter can share: the error has the last one's reason.
pub async fn find(instance: &wgpu::Instance) -> Result<wgpu::Adapter> {
    let devices = Driver::load()?.devices()?; // Without a driver cudarc would panic.
    let mut reason = Error::SystemLacks("wgpu found no Vulkan device".into());
    for adapter in instance.enumerate_adapters(wgpu::Backends::VULKAN).await {
        match twin(&adapter, &devices) {
            Ok(_) => return Ok(adapter),
            Err(error) => reason = error,
        }
    }
    Err(reason)
}

/// Finds the CUDA device that is the same GPU.
fn twin(adapter: &wgpu::Adapter, devices: &[CudaInfo]) -> Result<(VkInfo, CudaInfo)> {
    // SAFETY: nothing is destroyed.
    let raw = unsafe { adapter.as_hal::<Api>() }.ok_or_else(|| not_vulkan(adapter))?;
    // SAFETY: the physical device belongs to this instance. wgpu asks for the latest version.
    let info = unsafe { VkInfo::query(raw.shared_instance().raw_instance(), raw.raw_physical_device()) }?;
    match find_twin(&info, devices) {
        Ok(twin) => Ok((info, twin.clone())),
        Err(mismatch) => Err(Error::DeviceLacks(format!("{} and CUDA cannot share: {mismatch}", info.name))),
    }
}

fn not_vulkan(adapter: &wgpu::Adapter) -> Error {
    let name = adapter.get_info().name;
    Error::Rule(format!(
        "wgpu's adapter {name} is not one of Vulkan: create the instance with Backends::VULKAN"
    ))
}

/// wgpu's device and queue, and CUDA's context, on one GPU.
pub struct Gpu {
    device: wgpu::Device,
    queue: wgpu::Queue,
    family: u32,
    context: Arc<CudaContext>,
    pair: Pair,
    /// Maps wgpu's formats to Vulkan's.
    adapter: wgpu::Adapter,
    /// Locked from the addition of a turn's semaphores to the queue until their submission.
    submitting: Mutex<()>,
    /// The thread that holds `submitting`.
    submitter: Mutex<Option<ThreadId>>,
}

impl Gpu {
    /// Opens `adapter` for wgpu and CUDA: like `Adapter::request_device`, with the extensions that export
    /// memory and semaphores. CUDA uses the device's primary context, as its runtime does.
    ///
    /// # Errors
    /// Fails if the adapter is not a CUDA device (see [`find`]), or lacks a feature or a limit of `desc`.
    pub fn open(adapter: &wgpu::Adapter, desc: &wgpu::DeviceDescriptor) -> Result<Self> {
        let (info, twin) = twin(adapter, &Driver::load()?.devices()?)?;
        let lacking = desc.required_features - adapter.features();
        if !lacking.is_empty() || !desc.required_limits.check_limits(&adapter.limits()) {
            return Err(Error::DeviceLacks(format!(
                "{} lacks features ({lacking:?}) or limits that the DeviceDescriptor requires",
                info.name
            )));
        }
        let failed = |error: String| Error::DeviceLacks(format!("wgpu did not open {}: {error}", info.name));
        // wgpu itself enables timelines and the export of memory, but not the export of semaphores.
        let extend = |args: CreateDeviceCallbackArgs| {
            let missing: Vec<_> = info.extensions().filter(|name| !args.extensions.contains(name)).collect();
            args.extensions.extend(missing);
        };
        // SAFETY: the adapter has all that is requested. `Vk` keeps the device alive. wgpu enables timelines.
        let (device, queue, family, vk) = unsafe {
            let raw = adapter.as_hal::<Api>().ok_or_else(|| not_vulkan(adapter))?;
            let (features, limits) = (desc.required_features, &desc.required_limits);
            let opened = raw
                .open_with_callback(features, limits, &desc.memory_hints, Some(Box::new(extend)))
                .map_err(|error| failed(error.to_string()))?;
            let instance = raw.shared_instance().raw_instance().clone();
            let (physical, logical) = (raw.raw_physical_device(), opened.device.raw_device().clone());
            let family = opened.device.queue_family_index();
            let (device, queue) =
                adapter.create_device_from_hal(opened, desc).map_err(|error| failed(error.to_string()))?;
            let vk = Vk::from_raw(instance, physical, logical, Arc::new(device.clone()))?;
            (device, queue, family, vk)
        };
        let context = CudaContext::new(twin.ordinal as usize)
            .map_err(|error| Error::from_cudarc("cuDevicePrimaryCtxRetain", &twin.name, error))?;
        let pair = Pair::new(vk, Cuda::from_cudarc(&context)?)?;
        let (adapter, submitting, submitter) = (adapter.clone(), Mutex::default(), Mutex::default());
        Ok(Self { device, queue, family, context, pair, adapter, submitting, submitter })
    }

    /// Returns wgpu's device.
    pub fn device(&self) -> &wgpu::Device {
        &self.device
    }

    /// Returns wgpu's queue, for your other work.
    pub fn queue(&self) -> &wgpu::Queue {
        &self.queue
    }

    /// Returns CUDA's context, for streams and modules.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// Returns the two devices, for everything else in [`vulkan_cuda`].
    pub fn pair(&self) -> &Pair {
        &self.pair
    }

    pub(crate) fn vulkan_format(&self, format: wgpu::TextureFormat) -> Result<vk::Format> {
        // SAFETY: nothing is destroyed.
        let raw = unsafe { self.adapter.as_hal::<Api>() }.ok_or_else(|| not_vulkan(&self.adapter))?;
        Ok(raw.texture_format_as_raw(format))
    }

    fn queue_use(&self) -> QueueUse {
        QueueUse {
            family: self.family,
            stage: vk::PipelineStageFlags::ALL_COMMANDS,
            access: vk::AccessFlags::MEMORY_READ | vk::AccessFlags::MEMORY_WRITE,
        }
    }

    /// Makes a ring whose slots CUDA writes, on `stream`, and wgpu reads. Waits until the slots are CUDA's.
    ///
    /// # Errors
    /// Fails as [`SharedRing::new`] does, and if the queue is not done within 10 seconds.
    pub fn shared_ring<S: WgpuSlot>(&self, stream: Arc<CudaStream>, slots: Vec<S>) -> Result<SharedRing<S>> {
        let ring = SharedRing::new(&self.pair, stream, slots, self.queue_use())?;
        // SAFETY: records barriers for the ring's family. CUDA writes after the wait below.
        let release = self.raw(|commands| unsafe { ring.record_first_release(commands) });
        let index = self.queue.submit([release]);
        let limit = wgpu::PollType::Wait { submission_index: Some(index), timeout: Some(LIMIT) };
        match self.device.poll(limit) {
            Ok(_) => Ok(ring),
            Err(error) => Err(Error::Timeout(format!("wgpu did not give the slots to CUDA: {error}"))),
        }
    }

    /// Makes a ring whose slots wgpu writes and CUDA reads, on `stream`.
    ///
    /// # Errors
    /// Same as [`RingToCuda::new`].
    pub fn ring_to_cuda<S: WgpuSlot>(&self, stream: Arc<CudaStream>, slots: Vec<S>) -> Result<RingToCuda<S>> {
        RingToCuda::new(&self.pair, stream, slots, self.queue_use())
    }

    /// Submits wgpu's turn: what `record` records, between the barriers that take the slot from CUDA and give
    /// it back, with the turn's wait and signal. Returns at once. The GPU waits.
    ///
    /// In `record`, wgpu may use textures in any state and pass. Work that does not need the slot can be in
    /// other submissions.
    ///
    /// # Errors
    /// Fails if the turn is of another [`Gpu`], as [`VulkanTurn::submit`](vulkan_cuda::VulkanTurn::submit)
    /// does, and if wgpu refuses the commands: its error handler has the reason. Also fails in a callback
    /// that wgpu runs during `submit`, such as `Queue::on_submitted_work_done`. The frame is then given up.
    ///
    /// # Panics
    /// Panics if wgpu panics, as its default error handler does. The next frame is not affected.
    pub fn submit<T: WgpuTurn>(
        &self,
        turn: T,
        record: impl FnOnce(&T::Slot, &mut CommandEncoder),
    ) -> Result<wgpu::SubmissionIndex> {
        // (wgpu's own comparison takes the devices of two instances to be equal.)
        let (Resource::Buffer { device, .. } | Resource::Image { device, .. }) = turn.slot().resource();
        if device != self.pair.vk().device().handle() || turn.queue().family != self.family {
            return Err(Error::Rule("the turn is of a ring that was not made by this Gpu".into()));
        }
        // Three encoders, because wgpu's commands and raw commands cannot share one.
        // SAFETY: (and below) records barriers for the ring's family; the three are submitted once, in order.
        let acquire = self.raw(|commands| unsafe { turn.record_acquire(commands) });
        let mut work = self.device.create_command_encoder(&Default::default());
        record(turn.slot(), &mut work);
        turn.slot().give_back(&mut work);
        let work = work.finish();
        // SAFETY: as above.
        let release = self.raw(|commands| unsafe { turn.record_release(commands) });

        let submit = |wait: vk::SemaphoreSubmitInfo<'static>, signal: vk::SemaphoreSubmitInfo<'static>| {
            // (A poisoned lock only means that another thread panicked.)
            let submitter = || self.submitter.lock().unwrap_or_else(PoisonError::into_inner);
            let this = Some(std::thread::current().id());
            if *submitter() == this {
                let text = "a callback of wgpu called Gpu::submit inside Gpu::submit: submit the next frame after it";
                return Err(Error::Rule(text.into()));
            }
            let _alone = self.submitting.lock().unwrap_or_else(PoisonError::into_inner);
            *submitter() = this;
            // SAFETY: (and below) the queue is not destroyed.
            let queue = || unsafe { self.queue.as_hal::<Api>() }.expect("the device is one of Vulkan");
            // ANCHOR: submit
            // wgpu's next submission takes these two, so submit immediately.
            let all = vk::PipelineStageFlags::ALL_COMMANDS;
            let index = catch_unwind(AssertUnwindSafe(|| {
                queue().add_wait_semaphore(wait.semaphore, Some(wait.value), all);
                queue().add_signal_semaphore(signal.semaphore, Some(signal.value));
                self.queue.submit([acquire, work, release])
            }));
            // ANCHOR_END: submit
            *submitter() = None;
            // wgpu submits nothing if the commands are invalid: then it still has both.
            if queue().remove_signal_semaphore(signal.semaphore) {
                queue().remove_wait_semaphore(wait.semaphore);
                index.unwrap_or_else(|panic| resume_unwind(panic));
                return Err(Error::Rule(
                    "wgpu refused the commands of a frame: see its error handler".into(),
                ));
            }
            Ok(index)
        };
        // SAFETY: makes one submission with both semaphores, to wgpu's only queue, or fails without one.
        unsafe { turn.submit(submit) }?.or_else(|panic| resume_unwind(panic))
    }

    fn raw(&self, record: impl FnOnce(vk::CommandBuffer)) -> CommandBuffer {
        let mut encoder = self.device.create_command_encoder(&Default::default());
        // SAFETY: callers record only barriers, which change nothing that wgpu tracks.
        unsafe {
            encoder.as_hal_mut::<Api, _, _>(|hal| {
                // There is none after an error of wgpu, which then refuses to submit.
                if let Some(hal) = hal {
                    record(hal.raw_handle());
                }
            });
        }
        encoder.finish()
    }
}
