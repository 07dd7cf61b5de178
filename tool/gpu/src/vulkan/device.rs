use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ash::{ext, khr, vk};
use gpu_allocator::vulkan::{Allocator, AllocatorCreateDesc};
use vulkan_cuda::{Cuda, Pair, Vk};

use super::{Adapter, AdapterInfo, AutoDestroy, Instance, fault};
use crate::{Error, Result, stuck_gpu};

#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceDesc {
    /// `VK_KHR_swapchain`, to draw to a window.
    pub present: bool,
    /// External memory and semaphores for CUDA, and `sparseBinding` if the device has it.
    pub interop: bool,
    /// CUDA kernels in command buffers, if the device supports them: for `--handoff inline`.
    pub inline: bool,
}

/// A Vulkan device and its allocator. Cheap to clone; every object made from the device keeps a clone.
#[derive(Clone)]
pub struct Device {
    /// The same device for `vulkan_cuda`; only with `interop`.
    vk: Option<Vk>,
    shared: Arc<DeviceInner>,
}

struct DeviceInner {
    // Dropped explicitly before the device, because its Drop frees VkDeviceMemory.
    allocator: ManuallyDrop<Arc<Mutex<Allocator>>>,
    raw: ash::Device,
    swapchain: Option<khr::swapchain::Device>,
    calibrated_timestamps: Option<ext::calibrated_timestamps::Device>,
    inline: bool,
    stuck: AtomicBool,
    adapter: Adapter,
}

impl Device {
    /// Takes ownership of `raw`, even on failure.
    ///
    /// # Safety
    /// `raw` must be made from this adapter with what `desc` asks for. Nothing may have been made from `raw`.
    pub(super) unsafe fn new(adapter: &Adapter, raw: ash::Device, desc: &DeviceDesc) -> Result<Self> {
        let (info, instance) = (adapter.info(), adapter.instance().raw());
        let allocator = Allocator::new(&AllocatorCreateDesc {
            instance: instance.clone(),
            device: raw.clone(),
            physical_device: adapter.raw(),
            debug_settings: Default::default(),
            buffer_device_address: desc.inline,
            allocation_sizes: Default::default(),
        });
        let allocator = allocator.map_err(|source| {
            // SAFETY: nothing has been made from the device yet.
            unsafe { raw.destroy_device(None) };
            let device = info.name.clone();
            Error::Allocation { what: "the allocator itself", bytes: 0, device, source }
        })?;
        let shared = Arc::new(DeviceInner {
            allocator: ManuallyDrop::new(Arc::new(Mutex::new(allocator))),
            swapchain: desc.present.then(|| khr::swapchain::Device::new(instance, &raw)),
            calibrated_timestamps: info
                .calibrated_timestamps
                .then(|| ext::calibrated_timestamps::Device::new(instance, &raw)),
            inline: desc.inline,
            raw,
            stuck: AtomicBool::new(false),
            adapter: adapter.clone(),
        });
        // SAFETY: the handles belong together and live as long as `shared`; the features are enabled.
        let vk = desc.interop.then(|| unsafe {
            Vk::from_raw(instance.clone(), adapter.raw(), shared.raw.clone(), shared.clone())
        });
        Ok(Self { vk: vk.transpose()?, shared })
    }

    /// Leaks the device and everything made from it, because the GPU may still use any of it.
    pub fn mark_stuck(&self) {
        if !self.shared.stuck.swap(true, Ordering::Relaxed) {
            if let Some(vk) = &self.vk {
                vk.abandon();
            }
            stuck_gpu::leak(self.clone());
        }
    }

    /// Returns whether the device is leaked. If so, no `Drop` may destroy any of its objects.
    pub fn is_stuck(&self) -> bool {
        self.shared.stuck.load(Ordering::Relaxed)
    }

    pub fn raw(&self) -> &ash::Device {
        &self.shared.raw
    }

    pub fn adapter(&self) -> &Adapter {
        &self.shared.adapter
    }

    pub fn info(&self) -> &AdapterInfo {
        self.shared.adapter.info()
    }

    pub fn instance(&self) -> &Instance {
        self.shared.adapter.instance()
    }

    /// Returns the allocator for a library that frees all its memory before the last clone is dropped.
    pub fn shared_allocator(&self) -> Arc<Mutex<Allocator>> {
        Arc::clone(&self.shared.allocator)
    }

    pub fn allocator(&self) -> MutexGuard<'_, Allocator> {
        // Ignore poisoning: a panic in another thread leaves the allocator intact.
        self.shared.allocator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails if the device was made without `present`.
    pub(super) fn swapchain(&self) -> Result<&khr::swapchain::Device> {
        self.shared.swapchain.as_ref().ok_or_else(|| self.made_without("present"))
    }

    pub fn require_inline(&self) -> Result<()> {
        self.shared.inline.then_some(()).ok_or_else(|| self.made_without("inline"))
    }

    /// Fails if the device was made without `interop`.
    pub fn sharing(&self) -> Result<&Vk> {
        self.vk.as_ref().ok_or_else(|| self.made_without("interop"))
    }

    pub fn pair(&self, cuda: &Cuda) -> Result<Pair> {
        Ok(Pair::new(self.sharing()?.clone(), cuda.clone())?)
    }

    /// Reads the device's clock, in nanoseconds; `None` without timestamps or `VK_EXT_calibrated_timestamps`.
    pub fn calibrated_time(&self) -> Result<Option<f64>> {
        let (Some(functions), Some(period)) =
            (&self.shared.calibrated_timestamps, self.info().timestamp_period)
        else {
            return Ok(None);
        };
        let domain = [vk::CalibratedTimestampInfoEXT::default().time_domain(vk::TimeDomainEXT::DEVICE)];
        // SAFETY: the extension is enabled, and every device with it has its own time domain.
        let (times, _deviation) = unsafe { functions.get_calibrated_timestamps(&domain) }
            .map_err(self.failed("vkGetCalibratedTimestampsEXT"))?;
        Ok(times.first().map(|&ticks| ticks as f64 * period))
    }

    pub fn semaphore(&self) -> Result<AutoDestroy<vk::Semaphore>> {
        let info = vk::SemaphoreCreateInfo::default();
        // SAFETY: a live device and a plain description.
        AutoDestroy::new(self, "vkCreateSemaphore", |vk| unsafe { vk.create_semaphore(&info, None) })
    }

    pub fn timeline(&self, value: u64) -> Result<AutoDestroy<vk::Semaphore>> {
        let mut kind = vk::SemaphoreTypeCreateInfo::default()
            .semaphore_type(vk::SemaphoreType::TIMELINE)
            .initial_value(value);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: a live device with timeline semaphores enabled.
        AutoDestroy::new(self, "vkCreateSemaphore", |vk| unsafe { vk.create_semaphore(&info, None) })
    }

    /// Waits at most `limit` for the timeline to reach `value`. Returns whether it did.
    pub(super) fn wait(
        &self,
        timeline: &AutoDestroy<vk::Semaphore>,
        value: u64,
        limit: Duration,
    ) -> Result<bool> {
        let (semaphores, values) = ([timeline.raw()], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: a live timeline semaphore of this device.
        match unsafe { self.raw().wait_semaphores(&info, limit.as_nanos() as u64) } {
            Ok(()) => Ok(true),
            Err(vk::Result::TIMEOUT) => Ok(false),
            Err(result) => Err(self.failed("vkWaitSemaphores")(result)),
        }
    }

    fn made_without(&self, what: &str) -> Error {
        Error::Unsupported(format!("the device on {} was made without `{what}`", self.info().name))
    }

    /// Returns a closure for `map_err` that adds the driver's fault report if the device was lost.
    pub fn failed(&self, call: &'static str) -> impl FnOnce(vk::Result) -> Error + '_ {
        move |result| {
            let reports = result == vk::Result::ERROR_DEVICE_LOST && self.info().device_fault;
            let fault = reports.then(|| fault::report(self.instance().raw(), self.raw())).flatten();
            Error::Vulkan { call, device: self.info().name.clone(), result, fault }
        }
    }

    /// Estimates the bytes of device memory that this process can still allocate, by the driver's report.
    pub fn free_memory(&self) -> Option<u64> {
        self.budget(|budget, heap| budget.heap_budget[heap].saturating_sub(budget.heap_usage[heap]))
    }

    /// Returns the bytes of device memory that this process uses, as reported by the driver.
    pub fn memory_used(&self) -> Option<u64> {
        self.budget(|budget, heap| budget.heap_usage[heap])
    }

    /// Sums `ask` over the device-local heaps; `None` without `VK_EXT_memory_budget`.
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
}

/// Locks out other threads that create or destroy devices with `inline`, or CUDA modules of such devices.
///
/// Without this, NVIDIA's driver (580.159.04) can deadlock. `vkCreateDevice` with `VK_NVX_binary_import`
/// holds a lock of the Vulkan driver and takes one of libcuda; `vkCreateCuModuleNVX` takes them in the
/// opposite order. If two threads do these at once, both hang, and so do all threads that need either lock.
pub fn cuda_inside_vulkan() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for DeviceInner {
    fn drop(&mut self) {
        let _alone = self.inline.then(cuda_inside_vulkan);
        // SAFETY: every object of the device holds a clone of it, so none is left. The allocator goes first,
        // because it frees its blocks through the device.
        unsafe {
            ManuallyDrop::drop(&mut self.allocator);
            self.raw.destroy_device(None);
        }
    }
}
