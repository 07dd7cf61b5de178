//! The logical device, its one queue, and the allocator that serves everything that is not shared.

use std::ffi::{CStr, c_char};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ash::{ext, khr, nvx, vk};
use gpu_allocator::vulkan::{Allocator, AllocatorCreateDesc};
use vulkan_cuda::{Cuda, Pair, Vk};

use super::fault::FaultReport;
use super::{Adapter, AdapterInfo, InlineSupport, Instance};
use crate::left_running::leave_running;
use crate::{Error, Result};

/// What a [`Device`] is to be used for.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceDesc {
    /// Draws to a window: enables `VK_KHR_swapchain`.
    pub present: bool,
    /// Shares memory and semaphores with CUDA: enables the external memory and semaphore extensions.
    pub interop: bool,
    /// Launches CUDA kernels from command buffers, where the device can: see [`crate::handoff::InlineHandoff`]
    /// and [`crate::handoff::TextureInlineHandoff`].
    pub inline: bool,
    /// A queue that does not draw: [`AdapterInfo::compute_family`], which must be there.
    pub compute_only: bool,
}

/// A logical device. Cheap to clone; every object that it makes keeps a clone.
#[derive(Clone)]
pub struct Device {
    /// With `interop`: the same device as the library shares it.
    vk: Option<Vk>,
    shared: Arc<Shared>,
}

struct Shared {
    // Dropped by hand, first: its Drop frees VkDeviceMemory.
    allocator: ManuallyDrop<Mutex<Allocator>>,
    raw: ash::Device,
    swapchain: Option<khr::swapchain::Device>,
    calibrated_timestamps: Option<ext::calibrated_timestamps::Device>,
    inline: Option<InlineSupport>,
    image_view_handles: Option<nvx::image_view_handle::Device>,
    fault: Option<FaultReport>,
    /// See [`Device::leave_running`].
    left_running: AtomicBool,
    adapter: Adapter,
}

impl Device {
    pub(super) fn new(adapter: &Adapter, desc: &DeviceDesc) -> Result<(Self, Queue)> {
        let _span = tracing::trace_span!("Vulkan device").entered();
        let info = adapter.info();
        adapter.can_draw(None).map_err(|reason| Error::Unsupported(format!("{} {reason}", info.name)))?;
        let family = match desc.compute_only {
            false => info.queue_family.unwrap_or(0),
            true => info.compute_family.ok_or_else(|| {
                Error::Unsupported(format!("{} has no queue that only computes and keeps time", info.name))
            })?,
        };
        let failed = |call| {
            let device = info.name.clone();
            move |result| Error::Vulkan { call, device, result }
        };

        let mut extensions: Vec<*const c_char> = Vec::new();
        if desc.present {
            extensions.push(khr::swapchain::NAME.as_ptr());
        }
        if desc.interop {
            // What CUDA imports from has both; a device that exports memory alone can still show what that costs a draw.
            extensions.extend(info.sharing.extensions().map(CStr::as_ptr));
        }
        if info.calibrated_timestamps {
            extensions.push(ext::calibrated_timestamps::NAME.as_ptr());
        }
        if info.memory_budget {
            extensions.push(ext::memory_budget::NAME.as_ptr());
        }
        let inline = info.inline.filter(|_| desc.inline);
        if let Some(support) = inline {
            extensions.push(support.extension().as_ptr());
        }
        let inline_images = desc.inline && info.inline_images;
        if inline_images {
            extensions.push(nvx::image_view_handle::NAME.as_ptr());
            let launches = InlineSupport::BinaryImport;
            extensions.extend((inline != Some(launches)).then(|| launches.extension().as_ptr()));
        }
        if info.device_fault {
            extensions.push(ext::device_fault::NAME.as_ptr());
        }
        let priorities = [1.0];
        let queues =
            [vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&priorities)];
        let mut timeline = vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
        let mut sync2 = vk::PhysicalDeviceSynchronization2Features::default().synchronization2(true);
        let mut rendering = vk::PhysicalDeviceDynamicRenderingFeatures::default().dynamic_rendering(true);
        let mut addresses =
            vk::PhysicalDeviceBufferDeviceAddressFeatures::default().buffer_device_address(true);
        let mut launches =
            vk::PhysicalDeviceCudaKernelLaunchFeaturesNV::default().cuda_kernel_launch_features(true);
        let mut fault = vk::PhysicalDeviceFaultFeaturesEXT::default().device_fault(true);
        let mut create = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&extensions)
            .push_next(&mut timeline)
            .push_next(&mut sync2)
            .push_next(&mut rendering);
        if inline.is_some() {
            create = create.push_next(&mut addresses);
        }
        if inline == Some(InlineSupport::KernelLaunch) {
            create = create.push_next(&mut launches);
        }
        if info.device_fault {
            create = create.push_next(&mut fault);
        }
        let instance = adapter.instance().raw();
        let alone = (inline.is_some() || inline_images).then(cuda_inside_vulkan);
        // SAFETY: the adapter belongs to this instance; `create` points to locals; the features were checked.
        let raw = unsafe { instance.create_device(adapter.raw(), &create, None) }
            .map_err(failed("vkCreateDevice"))?;
        drop(alone);

        let allocator = Allocator::new(&AllocatorCreateDesc {
            instance: instance.clone(),
            device: raw.clone(),
            physical_device: adapter.raw(),
            debug_settings: Default::default(),
            buffer_device_address: inline.is_some(),
            allocation_sizes: Default::default(),
        });
        let allocator = match allocator {
            Ok(allocator) => ManuallyDrop::new(Mutex::new(allocator)),
            Err(source) => {
                // SAFETY: nothing was made from the device yet.
                unsafe { raw.destroy_device(None) };
                return Err(Error::Allocation {
                    what: "the allocator itself",
                    bytes: 0,
                    device: info.name.clone(),
                    source,
                });
            }
        };
        let shared = Arc::new(Shared {
            allocator,
            swapchain: desc.present.then(|| khr::swapchain::Device::new(instance, &raw)),
            calibrated_timestamps: info
                .calibrated_timestamps
                .then(|| ext::calibrated_timestamps::Device::new(instance, &raw)),
            inline,
            image_view_handles: inline_images.then(|| nvx::image_view_handle::Device::new(instance, &raw)),
            fault: info.device_fault.then(|| FaultReport::new(instance, &raw)),
            raw,
            left_running: AtomicBool::new(false),
            adapter: adapter.clone(),
        });
        let vk = match desc.interop {
            // SAFETY: the three belong together, and live as long as `shared`; both features were enabled above.
            true => Some(unsafe {
                Vk::from_raw(instance.clone(), adapter.raw(), shared.raw.clone(), shared.clone())
            }?),
            false => None,
        };
        let device = Self { vk, shared };
        // SAFETY: one queue of this family was asked for above.
        let raw = unsafe { device.raw().get_device_queue(family, 0) };
        let queue = Queue { device: device.clone(), raw, family, patience: PATIENCE };
        Ok((device, queue))
    }

    /// Leaves the device, and all that was made from it, to the end of the process: its queue did not come to rest, so the GPU
    /// may use any of it for ever. From now on nothing of it is destroyed.
    pub(crate) fn leave_running(&self) {
        if !self.shared.left_running.swap(true, Ordering::Relaxed) {
            if let Some(vk) = &self.vk {
                vk.abandon();
            }
            leave_running(self.clone());
        }
    }

    /// Whether nothing of it may be destroyed any more: every `Drop` asks.
    pub(crate) fn is_left_running(&self) -> bool {
        self.shared.left_running.load(Ordering::Relaxed)
    }

    /// ash's device.
    pub fn raw(&self) -> &ash::Device {
        &self.shared.raw
    }

    /// The physical device that it was made from.
    pub fn adapter(&self) -> &Adapter {
        &self.shared.adapter
    }

    /// What that physical device says of itself.
    pub fn info(&self) -> &AdapterInfo {
        self.shared.adapter.info()
    }

    /// The instance below it.
    pub fn instance(&self) -> &Instance {
        self.shared.adapter.instance()
    }

    /// The allocator of everything that is not exported.
    pub(crate) fn allocator(&self) -> MutexGuard<'_, Allocator> {
        // A poisoned lock only says that another thread panicked; the allocator itself is still whole.
        self.shared.allocator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Swapchain functions; an error on a device that was made without `present`.
    pub(super) fn swapchain(&self) -> Result<&khr::swapchain::Device> {
        self.shared.swapchain.as_ref().ok_or_else(|| self.made_without("present"))
    }

    /// How it launches CUDA kernels; an error where it cannot, and on a device that was made without `inline`.
    pub(crate) fn inline(&self) -> Result<InlineSupport> {
        match (self.shared.inline, self.info().inline) {
            (Some(support), _) => Ok(support),
            (None, Some(_)) => Err(self.made_without("inline")),
            (None, None) => Err(Error::Unsupported(format!(
                "{} launches no CUDA kernels from Vulkan: it has neither VK_NV_cuda_kernel_launch nor \
                 VK_NVX_binary_import",
                self.info().name
            ))),
        }
    }

    /// What gives kernels of [`InlineSupport::BinaryImport`] their images; an error where they reach none, and on a device that
    /// was made without `inline`.
    pub(crate) fn image_view_handles(&self) -> Result<&nvx::image_view_handle::Device> {
        self.shared.image_view_handles.as_ref().ok_or_else(|| match self.info().inline_images {
            true => self.made_without("inline"),
            false => Error::Unsupported(format!(
                "{} lets no CUDA kernel in a command buffer reach images: that takes VK_NVX_binary_import and \
                 VK_NVX_image_view_handle",
                self.info().name
            )),
        })
    }

    /// The device as the library shares it; an error on a device that was made without `interop`.
    pub fn sharing(&self) -> Result<&Vk> {
        self.vk.as_ref().ok_or_else(|| self.made_without("interop"))
    }

    /// This device and a CUDA context of the same GPU.
    ///
    /// # Errors
    /// Different GPUs, and a device that was made without `interop`.
    pub fn pair(&self, cuda: &Cuda) -> Result<Pair> {
        Ok(Pair::new(self.sharing()?.clone(), cuda.clone())?)
    }

    /// What reads the device's clock, where it can be read.
    pub(crate) fn calibrated_timestamps(&self) -> Option<&ext::calibrated_timestamps::Device> {
        self.shared.calibrated_timestamps.as_ref()
    }

    fn made_without(&self, what: &str) -> Error {
        Error::Unsupported(format!("the device on {} was made without `{what}`", self.info().name))
    }

    /// For `map_err`: names the call and this device in the error, and asks a lost device what it was.
    pub(crate) fn failed(&self, call: &'static str) -> impl FnOnce(vk::Result) -> Error + '_ {
        move |result| {
            let device = self.info().name.clone();
            match result {
                vk::Result::ERROR_DEVICE_LOST => {
                    let fault = self.shared.fault.as_ref().and_then(FaultReport::words);
                    Error::DeviceLost { call, device, fault }
                }
                result => Error::Vulkan { call, device, result },
            }
        }
    }

    /// Bytes of the device's own memory that this process can still have, as the driver estimates; `None` where it does not
    /// say.
    pub(crate) fn free_memory(&self) -> Option<u64> {
        self.budget(|budget, heap| budget.heap_budget[heap].saturating_sub(budget.heap_usage[heap]))
    }

    /// Bytes that this process uses of the device's own memory, by the driver's account; `None` where it keeps none.
    pub fn memory_used(&self) -> Option<u64> {
        self.budget(|budget, heap| budget.heap_usage[heap])
    }

    /// The sum of `ask` over the heaps of the device's own memory, where `VK_EXT_memory_budget` tells.
    fn budget(
        &self,
        ask: impl Fn(&vk::PhysicalDeviceMemoryBudgetPropertiesEXT<'_>, usize) -> u64,
    ) -> Option<u64> {
        if !self.info().memory_budget {
            return None;
        }
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut memory = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
        let (instance, adapter) = (self.instance().raw(), self.adapter().raw());
        // SAFETY: a live physical device, which has the extension; the chain is of local structures.
        unsafe { instance.get_physical_device_memory_properties2(adapter, &mut memory) };
        let heaps = memory.memory_properties;
        let local = |heap: &vk::MemoryHeap| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL);
        let heaps = heaps.memory_heaps_as_slice().iter().enumerate().filter(|(_, heap)| local(heap));
        Some(heaps.map(|(index, _)| ask(&budget, index)).sum())
    }

    /// What the offset of a storage buffer must be a multiple of (`minStorageBufferOffsetAlignment`).
    pub fn storage_alignment(&self) -> u64 {
        // SAFETY: a live physical device.
        let properties =
            unsafe { self.instance().raw().get_physical_device_properties(self.adapter().raw()) };
        properties.limits.min_storage_buffer_offset_alignment
    }
}

/// One thread at a time makes or destroys what has CUDA inside Vulkan: a device that launches CUDA kernels, and their modules.
///
/// `vkCreateDevice` with `VK_NVX_binary_import` holds a lock of NVIDIA's Vulkan driver and takes one of libcuda, and
/// `vkCreateCuModuleNVX` takes them in the opposite order. Seen in a debugger on driver 580.159.04: two threads that make
/// such a device and such a module at the same time wait for each other for ever, and so does every thread that needs either lock.
pub(crate) fn cuda_inside_vulkan() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _alone = (self.inline.is_some() || self.image_view_handles.is_some()).then(cuda_inside_vulkan);
        // SAFETY: every object made from the device holds a clone of it, so none is left; the allocator goes
        // before the device because it frees its blocks through it, and is not touched again.
        unsafe {
            ManuallyDrop::drop(&mut self.allocator);
            self.raw.destroy_device(None);
        }
    }
}

/// The device's queue. Not `Clone`, and used through `&mut`: Vulkan demands that its use is externally synchronized.
pub struct Queue {
    device: Device,
    raw: vk::Queue,
    family: u32,
    patience: Duration,
}

/// How long a queue may take to come to rest where nobody said so.
const PATIENCE: Duration = Duration::from_secs(10);

impl Queue {
    /// Its family.
    pub fn family(&self) -> u32 {
        self.family
    }

    /// The device it belongs to.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// How long [`Queue::wait_idle`] waits from now on.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// The raw handle, for presenting.
    pub(super) fn raw(&mut self) -> vk::Queue {
        self.raw
    }

    /// Submits one batch.
    ///
    /// # Safety
    /// The rules of `vkQueueSubmit2`: the command buffers are recorded and not pending, and every object that they
    /// or the semaphores name lives until the GPU is done with it.
    pub unsafe fn submit(&mut self, batch: &vk::SubmitInfo2<'_>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.submit_all(std::slice::from_ref(batch)) }
    }

    /// Submits several batches in one call, in order.
    ///
    /// # Safety
    /// As [`Queue::submit`], for each.
    pub unsafe fn submit_all(&mut self, batches: &[vk::SubmitInfo2<'_>]) -> Result<()> {
        // SAFETY: the caller's promise; `&mut self` is the external synchronization.
        unsafe { self.device.raw().queue_submit2(self.raw, batches, vk::Fence::null()) }
            .map_err(self.device.failed("vkQueueSubmit2"))
    }

    /// Blocks until everything submitted is done; presents are no submissions.
    ///
    /// # Errors
    /// [`Error::Stuck`] where that takes longer than [`Queue::set_patience`] allows (10 s if nobody said so). Then nothing of
    /// the device is destroyed any more, since the GPU may use it for ever.
    pub fn wait_idle(&mut self) -> Result<()> {
        // SAFETY: nothing is submitted but a signal.
        unsafe { self.submit_and_wait(&[]) }
    }

    /// Submits commands, and blocks until they, and all before them, are done. After an error of the submission or the wait
    /// they are not pending either, or nothing of the device is destroyed any more: see [`Queue::wait_idle`].
    ///
    /// # Safety
    /// As [`Queue::submit`].
    pub(crate) unsafe fn submit_and_wait(
        &mut self,
        commands: &[vk::CommandBufferSubmitInfo<'_>],
    ) -> Result<()> {
        let device = self.device.clone();
        let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: a live device with timeline semaphores enabled.
        let done = unsafe { device.raw().create_semaphore(&info, None) }
            .map_err(device.failed("vkCreateSemaphore"))?;
        let signal = [vk::SemaphoreSubmitInfo::default()
            .semaphore(done)
            .value(1)
            .stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)];
        let batch = vk::SubmitInfo2::default().command_buffer_infos(commands).signal_semaphore_infos(&signal);
        // SAFETY: the caller's promise; the semaphore lives until this is done, or for ever.
        let outcome = unsafe { self.submit(&batch) }.and_then(|()| self.wait_for(done));
        if let Err(Error::Stuck { .. }) = outcome {
            device.leave_running();
            return outcome;
        }
        if outcome.is_err() {
            // The wait failed, not what it waited for.
            let _ = self.wait_presented();
        }
        // SAFETY: nothing is pending that signals it.
        unsafe { device.raw().destroy_semaphore(done, None) };
        outcome
    }

    /// Waits for a timeline to reach 1, with a limit, which `vkQueueWaitIdle` does not have.
    fn wait_for(&self, done: vk::Semaphore) -> Result<()> {
        let (semaphores, values) = ([done], [1]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: a live timeline semaphore of this device.
        match unsafe { self.device.raw().wait_semaphores(&info, self.patience.as_nanos() as u64) } {
            Ok(()) => Ok(()),
            Err(vk::Result::TIMEOUT) => Err(Error::Stuck {
                device: self.device.info().name.clone(),
                seconds: self.patience.as_secs_f64(),
                progress: "Vulkan's queue did not come to rest".into(),
            }),
            Err(result) => Err(self.device.failed("vkWaitSemaphores")(result)),
        }
    }

    /// Blocks until presents are done too, which signal nothing. Without a limit: whoever calls it has waited for all that was
    /// submitted.
    pub(crate) fn wait_presented(&mut self) -> Result<()> {
        // SAFETY: `&mut self` is the external synchronization.
        unsafe { self.device.raw().queue_wait_idle(self.raw) }.map_err(self.device.failed("vkQueueWaitIdle"))
    }
}
