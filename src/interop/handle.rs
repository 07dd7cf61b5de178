//! Step 2: what travels between the two APIs.
//!
//! On Linux both memory and semaphores are exported as *opaque file descriptors*. Each call of `vkGet…FdKHR` makes a
//! new descriptor, owned by the caller. A successful CUDA import takes it over; a failed one leaves it to be closed.

use std::ffi::CStr;
use std::os::fd::{FromRawFd, OwnedFd};

use ash::{khr, vk};

use crate::Result;
use crate::vulkan::Device;

/// The handle type of exported memory.
pub const MEMORY: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;
/// The handle type of exported semaphores.
pub const SEMAPHORE: vk::ExternalSemaphoreHandleTypeFlags = vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD;
/// The name for people.
pub const NAME: &str = "OPAQUE_FD";
/// The device extension that hands out memory.
pub const MEMORY_EXTENSION: &CStr = khr::external_memory_fd::NAME;
/// The device extension that hands out semaphores.
pub const SEMAPHORE_EXTENSION: &CStr = khr::external_semaphore_fd::NAME;

/// The functions of the extension that exports memory.
pub(crate) type MemoryFns = khr::external_memory_fd::Device;
/// The functions of the extension that exports semaphores.
pub(crate) type SemaphoreFns = khr::external_semaphore_fd::Device;

/// A new descriptor of `memory`, which was allocated with `VkExportMemoryAllocateInfo`.
pub(super) fn export_memory(device: &Device, memory: vk::DeviceMemory) -> Result<OwnedFd> {
    let info = vk::MemoryGetFdInfoKHR::default().memory(memory).handle_type(MEMORY);
    // SAFETY: the memory belongs to this device and was allocated as exportable with this handle type.
    let fd = unsafe { device.memory_handles()?.get_memory_fd(&info) }
        .map_err(device.failed("vkGetMemoryFdKHR"))?;
    // SAFETY: the call made a new descriptor, and it is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A new descriptor of `semaphore`, which was created with `VkExportSemaphoreCreateInfo`.
pub(super) fn export_semaphore(device: &Device, semaphore: vk::Semaphore) -> Result<OwnedFd> {
    let info = vk::SemaphoreGetFdInfoKHR::default().semaphore(semaphore).handle_type(SEMAPHORE);
    // SAFETY: the semaphore belongs to this device and was created as exportable with this handle type.
    let fd = unsafe { device.semaphore_handles()?.get_semaphore_fd(&info) }
        .map_err(device.failed("vkGetSemaphoreFdKHR"))?;
    // SAFETY: the call made a new descriptor, and it is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
