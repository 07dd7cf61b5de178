//! A Vulkan device that somebody else made and owns.

use std::any::Any;
use std::ffi::CStr;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ash::vk;

use crate::exportable::{self, BufferSupport};
use crate::handle::ExportType;
use crate::vulkan_info::{
    MEMORY_EXTENSION, MEMORY_FUNCTION, MemoryFns, SEMAPHORE_EXTENSION, SEMAPHORE_FUNCTION, SemaphoreFns,
    VkInfo,
};
use crate::{Error, Result};

/// A Vulkan device that somebody else owns: ash, wgpu-hal, vulkano. Cloning is cheap; every shared object holds a clone, so the
/// device outlives them all.
#[derive(Clone)]
pub struct Vk(Arc<Shared>);

struct Shared {
    instance: ash::Instance,
    physical: vk::PhysicalDevice,
    device: ash::Device,
    info: VkInfo,
    memory_handles: Option<MemoryFns>,
    semaphore_handles: Option<SemaphoreFns>,
    abandoned: AtomicBool,
    keep: ManuallyDrop<Arc<dyn Any + Send + Sync>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !*self.abandoned.get_mut() {
            // SAFETY: never touched again.
            unsafe { ManuallyDrop::drop(&mut self.keep) };
        }
    }
}

impl Vk {
    /// Adopts a device. Nothing of it is ever destroyed here; `keep` owns it, and is dropped last.
    ///
    /// # Errors
    /// What the driver answers to queries. A device that lacks an extension is adopted all the same: making what needs the
    /// extension then fails, and names it.
    ///
    /// # Safety
    /// - `device` was made from `physical`, and `physical` is `instance`'s. All three live until `keep` is dropped.
    /// - The device was created with the feature `timelineSemaphore`, even if only memory is to be shared: Vulkan has no way to
    ///   ask whether it was, so everything here relies on it.
    pub unsafe fn from_raw(
        instance: ash::Instance,
        physical: vk::PhysicalDevice,
        device: ash::Device,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self> {
        // SAFETY: the caller's promise.
        let info = unsafe { VkInfo::query(&instance, physical) }?;
        // A function of an extension that was not enabled is null (`vkGetDeviceProcAddr`), so this tells whether it was.
        let enabled = |function: &CStr| {
            // SAFETY: a live device and a terminated name.
            unsafe { instance.get_device_proc_addr(device.handle(), function.as_ptr()) }.is_some()
        };
        let memory_handles = enabled(MEMORY_FUNCTION).then(|| MemoryFns::new(&instance, &device));
        let semaphore_handles = enabled(SEMAPHORE_FUNCTION).then(|| SemaphoreFns::new(&instance, &device));
        Ok(Self(Arc::new(Shared {
            instance,
            physical,
            device,
            info,
            memory_handles,
            semaphore_handles,
            abandoned: AtomicBool::new(false),
            keep: ManuallyDrop::new(keep),
        })))
    }

    /// The adopted device.
    pub fn device(&self) -> &ash::Device {
        &self.0.device
    }

    /// The physical device below it.
    pub fn physical(&self) -> vk::PhysicalDevice {
        self.0.physical
    }

    /// The instance below that.
    pub fn instance(&self) -> &ash::Instance {
        &self.0.instance
    }

    /// What the physical device says of itself.
    pub fn info(&self) -> &VkInfo {
        &self.0.info
    }

    /// From now on no Vulkan object that was made from this device is destroyed, nor the device (`keep` is leaked): for a GPU that
    /// did not come to rest, and may use any of it for ever. CUDA's imports of them are closed all the same when they are dropped;
    /// leak those too (`std::mem::forget`) if CUDA's stream is what did not come to rest.
    pub fn abandon(&self) {
        self.0.abandoned.store(true, Ordering::Relaxed);
    }

    /// For `Drop`: destroys what was made from the device, unless the device was abandoned.
    pub(crate) fn cleanup(&self, destroy: impl FnOnce(&ash::Device)) {
        if !self.0.abandoned.load(Ordering::Relaxed) {
            destroy(self.device());
        }
    }

    /// For what was made on a device and is to be imported for it.
    ///
    /// # Errors
    /// `other` is not this device.
    pub(crate) fn require_same(&self, other: &Self) -> Result<()> {
        match self.device().handle() == other.device().handle() {
            true => Ok(()),
            false => Err(Error::Rule(format!(
                "what was exported from a device of {} cannot be imported for another device, of {}",
                other.info().name,
                self.info().name
            ))),
        }
    }

    /// Whether buffers of this usage are exported as `handle`.
    ///
    /// # Errors
    /// They are not.
    pub(crate) fn exports_buffer(
        &self,
        usage: vk::BufferUsageFlags,
        handle: ExportType,
    ) -> Result<BufferSupport> {
        // SAFETY: the adopted device's own.
        unsafe { exportable::buffer(self.instance(), self.physical(), &self.info().name, usage, handle) }
            .map_err(Error::Unsupported)
    }

    /// The functions that export memory.
    ///
    /// # Errors
    /// The device was made without the extension.
    pub(crate) fn memory_handles(&self) -> Result<&MemoryFns> {
        self.0.memory_handles.as_ref().ok_or_else(|| self.made_without(MEMORY_EXTENSION))
    }

    /// The functions that export semaphores.
    ///
    /// # Errors
    /// As [`Vk::memory_handles`].
    pub(crate) fn semaphore_handles(&self) -> Result<&SemaphoreFns> {
        self.0.semaphore_handles.as_ref().ok_or_else(|| self.made_without(SEMAPHORE_EXTENSION))
    }

    fn made_without(&self, extension: &CStr) -> Error {
        Error::Unsupported(format!(
            "the device on {} was made without {}",
            self.info().name,
            extension.to_string_lossy()
        ))
    }

    /// For `map_err`: names the call and this device in the error.
    pub(crate) fn failed(&self, call: &'static str) -> impl FnOnce(vk::Result) -> Error + '_ {
        move |result| Error::Vulkan { call, device: self.info().name.clone(), result }
    }

    /// The index of a memory type of `allowed` with all of `wanted`.
    pub(crate) fn memory_type(&self, allowed: u32, wanted: vk::MemoryPropertyFlags) -> Option<u32> {
        // SAFETY: a live physical device.
        let memory = unsafe { self.instance().get_physical_device_memory_properties(self.physical()) };
        memory
            .memory_types_as_slice()
            .iter()
            .enumerate()
            .find(|(index, kind)| allowed & (1 << index) != 0 && kind.property_flags.contains(wanted))
            .map(|(index, _)| index as u32)
    }
}
