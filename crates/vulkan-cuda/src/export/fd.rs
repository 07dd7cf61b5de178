//! Exports on Linux and other Unices: *opaque file descriptors*. Each export creates a new descriptor.

use ash::vk;

use crate::Result;
use crate::handle::{ExportType, Fd, MemoryHandle, SemaphoreHandle};
use crate::vulkan::Vk;

/// Creates a handle to `memory`, which must have been allocated with [`super::Memory`].
pub fn export_memory(vk: &Vk, memory: vk::DeviceMemory, kind: ExportType) -> Result<MemoryHandle> {
    let info = vk::MemoryGetFdInfoKHR::default().memory(memory).handle_type(kind.memory());
    // SAFETY: the memory belongs to this device and was allocated as exportable with this handle type.
    let fd = unsafe { vk.memory_handles()?.get_memory_fd(&info) }.map_err(vk.failed("vkGetMemoryFdKHR"))?;
    // SAFETY: the call made a new descriptor, which nothing else owns.
    Ok(MemoryHandle::OpaqueFd(unsafe { Fd::from_raw(fd) }))
}

/// Creates a handle to `semaphore`, which must be exportable as `kind` and be of the kind `semaphore_kind`.
pub fn export_semaphore(
    vk: &Vk,
    semaphore: vk::Semaphore,
    kind: ExportType,
    semaphore_kind: vk::SemaphoreType,
) -> Result<SemaphoreHandle> {
    let info = vk::SemaphoreGetFdInfoKHR::default().semaphore(semaphore).handle_type(kind.semaphore());
    // SAFETY: the semaphore belongs to this device and was created as exportable with this handle type.
    let fd = unsafe { vk.semaphore_handles()?.get_semaphore_fd(&info) }
        .map_err(vk.failed("vkGetSemaphoreFdKHR"))?;
    // SAFETY: the call made a new descriptor, which nothing else owns.
    let fd = unsafe { Fd::from_raw(fd) };
    Ok(match semaphore_kind {
        vk::SemaphoreType::TIMELINE => SemaphoreHandle::TimelineFd(fd),
        _ => SemaphoreHandle::OpaqueFd(fd),
    })
}
