//! A Vulkan device that your program created and owns.

use std::any::Any;
use std::ffi::CStr;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use ash::vk;

use crate::vulkan_info::{MEMORY_EXTENSION, MemoryFns, SEMAPHORE_EXTENSION, SemaphoreFns, VkInfo};
use crate::{Error, Result};

/// A Vulkan device that your program created, with ash, wgpu-hal or vulkano. Cloning is cheap. Every shared
/// object holds a clone, so the owner that you pass to [`Vk::from_raw`] outlives them all.
///
/// # Examples
/// ```no_run
/// use std::sync::Arc;
///
/// use ash::vk;
/// use vulkan_cuda::{Result, Vk};
///
/// /// Destroys the device, then the instance, then unloads libvulkan.
/// struct Owner {
///     device: ash::Device,
///     instance: ash::Instance,
///     _entry: ash::Entry,
/// }
///
/// impl Drop for Owner {
///     fn drop(&mut self) {
///         // SAFETY: `Vk` drops this last, so nothing uses the device any more.
///         unsafe {
///             self.device.destroy_device(None);
///             self.instance.destroy_instance(None);
///         }
///     }
/// }
///
/// fn adopt(owner: Arc<Owner>, physical: vk::PhysicalDevice) -> Result<Vk> {
///     let (instance, device) = (owner.instance.clone(), owner.device.clone());
///     // SAFETY: the three belong together and live as long as `owner`; the device has `timelineSemaphore`.
///     unsafe { Vk::from_raw(instance, physical, device, owner) }
/// }
/// ```
#[derive(Clone)]
pub struct Vk(Arc<Shared>);

struct Shared {
    instance: ash::Instance,
    physical: vk::PhysicalDevice,
    device: ash::Device,
    info: VkInfo,
    memory_handles: Option<MemoryFns>,
    semaphore_handles: Option<SemaphoreFns>,
    /// The allowed buffer usages: see [`Vk::allow_usages`].
    usages: AtomicU32,
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

const FUNCTIONS: [&CStr; 2] = if cfg!(windows) {
    [c"vkGetMemoryWin32HandleKHR", c"vkGetSemaphoreWin32HandleKHR"]
} else {
    [c"vkGetMemoryFdKHR", c"vkGetSemaphoreFdKHR"]
};

/// The buffer usages of Vulkan 1.0, which need neither a feature nor an extension.
const USAGES_OF_1_0: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(0x1ff);

impl Vk {
    /// Adopts a device. This crate never destroys any part of it: `keep` owns it, and is dropped last.
    ///
    /// # Errors
    /// Fails if [`VkInfo::query`] does, or if the instance or the device is older than Vulkan 1.2. A device
    /// without an extension is still adopted. Functions that need the extension then fail, and name it.
    ///
    /// # Safety
    /// - `device` must have been created from `physical`, and `physical` must belong to `instance`. All
    ///   three, and the loader's library (`ash::Entry`), must live until `keep` is dropped.
    /// - The device must have been created with the feature `timelineSemaphore`, even if you share only
    ///   memory. Vulkan cannot tell whether it was, so this crate relies on your promise everywhere.
    pub unsafe fn from_raw(
        instance: ash::Instance,
        physical: vk::PhysicalDevice,
        device: ash::Device,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self> {
        // `vkGetDeviceProcAddr` returns null for a function of an extension that was not enabled, and for one
        // of a later version than the instance's. ash aborts when such a function is called.
        let enabled = |function: &CStr| {
            // SAFETY: a live device and a terminated name.
            unsafe { instance.get_device_proc_addr(device.handle(), function.as_ptr()) }.is_some()
        };
        if !enabled(c"vkGetSemaphoreCounterValue") {
            return Err(Error::NotEnabled(
                "the device has no timeline semaphores of Vulkan 1.2: create the instance with the apiVersion 1.2 or later \
                 (VkApplicationInfo), and choose a device that has it"
                    .into(),
            ));
        }
        // SAFETY: the instance is of Vulkan 1.2 or later (checked above). The caller promises the rest.
        let info = unsafe { VkInfo::query(&instance, physical) }?;
        let [memory, semaphore] = FUNCTIONS;
        let memory_handles = enabled(memory).then(|| MemoryFns::new(&instance, &device));
        let semaphore_handles = enabled(semaphore).then(|| SemaphoreFns::new(&instance, &device));
        Ok(Self(Arc::new(Shared {
            instance,
            physical,
            device,
            info,
            memory_handles,
            semaphore_handles,
            usages: AtomicU32::new(USAGES_OF_1_0.as_raw()),
            abandoned: AtomicBool::new(false),
            keep: ManuallyDrop::new(keep),
        })))
    }

    /// Returns the adopted device.
    pub fn device(&self) -> &ash::Device {
        &self.0.device
    }

    /// Returns the physical device that the device was created from.
    pub fn physical(&self) -> vk::PhysicalDevice {
        self.0.physical
    }

    /// Returns the instance that the physical device belongs to.
    pub fn instance(&self) -> &ash::Instance {
        &self.0.instance
    }

    /// Returns what the physical device reports about sharing.
    pub fn info(&self) -> &VkInfo {
        &self.0.info
    }

    /// Allows buffers with these usages. Otherwise only the usages of Vulkan 1.0 are allowed: every other
    /// usage, such as `SHADER_DEVICE_ADDRESS`, needs a feature or an extension.
    ///
    /// # Safety
    /// The device must have been created with the features and extensions that these usages need: see
    /// `VkBufferUsageFlagBits`. Vulkan cannot tell whether it was.
    pub unsafe fn allow_usages(&self, usages: vk::BufferUsageFlags) {
        self.0.usages.fetch_or(usages.as_raw(), Ordering::Relaxed);
    }

    pub(crate) fn require_usage(&self, usage: vk::BufferUsageFlags) -> Result<()> {
        if usage.is_empty() {
            return Err(Error::Rule("a buffer needs a usage".into()));
        }
        let allowed = vk::BufferUsageFlags::from_raw(self.0.usages.load(Ordering::Relaxed));
        match allowed.contains(usage) {
            true => Ok(()),
            false => Err(Error::Rule(format!(
                "a buffer with the usage {:?} needs a device with a feature or an extension for it: promise that with Vk::allow_usages",
                usage & !allowed
            ))),
        }
    }

    /// Leaks the device, its `keep`, and every Vulkan object made from it: none of them is ever destroyed.
    ///
    /// Call this if the GPU may use any of them forever, for example if a queue still waits for a semaphore
    /// after a timeout: `vkDestroyDevice` requires idle queues. CUDA's imports are still closed when you drop
    /// them. If CUDA's stream did not finish, leak them too, with [`std::mem::forget`].
    pub fn abandon(&self) {
        self.0.abandoned.store(true, Ordering::Relaxed);
    }

    /// Calls `destroy`, unless the device was abandoned. For `Drop` implementations.
    pub(crate) fn cleanup(&self, destroy: impl FnOnce(&ash::Device)) {
        if !self.0.abandoned.load(Ordering::Relaxed) {
            destroy(self.device());
        }
    }

    /// Checks that an object exported from `other` may be imported for this device.
    pub(crate) fn require_same(&self, other: &Self) -> Result<()> {
        let (from, to) = (&other.info().name, &self.info().name);
        match self.device().handle() == other.device().handle() {
            true => Ok(()),
            false => Err(Error::Rule(format!(
                "an object exported from a device on {from} cannot be imported for another device, on {to}"
            ))),
        }
    }

    pub(crate) fn memory_handles(&self) -> Result<&MemoryFns> {
        self.0.memory_handles.as_ref().ok_or_else(|| self.made_without(MEMORY_EXTENSION))
    }

    pub(crate) fn semaphore_handles(&self) -> Result<&SemaphoreFns> {
        self.0.semaphore_handles.as_ref().ok_or_else(|| self.made_without(SEMAPHORE_EXTENSION))
    }

    fn made_without(&self, extension: &CStr) -> Error {
        let (device, extension) = (&self.info().name, extension.to_string_lossy());
        Error::NotEnabled(format!("the device on {device} was made without {extension}"))
    }

    /// Returns a function for `map_err` that adds the call and this device's name to an error.
    pub(crate) fn failed(&self, call: &'static str) -> impl FnOnce(vk::Result) -> Error + '_ {
        move |result| Error::Vulkan { call, device: self.info().name.clone(), result }
    }

    /// Returns the index of the first device-local memory type that `required` allows.
    pub(crate) fn memory_type(&self, required: &vk::MemoryRequirements) -> u32 {
        // SAFETY: a live physical device.
        let memory = unsafe { self.instance().get_physical_device_memory_properties(self.physical()) };
        let (types, local) = (required.memory_type_bits, vk::MemoryPropertyFlags::DEVICE_LOCAL);
        let fits = |(index, kind): &(u32, &vk::MemoryType)| {
            types & (1 << index) != 0 && kind.property_flags.contains(local)
        };
        let found = (0..).zip(memory.memory_types_as_slice()).find(fits);
        // Every buffer and image has at least one memory type. If none is device-local, any of them will do.
        found.map_or(types.trailing_zeros(), |(index, _)| index)
    }
}
