//! Exports on Windows: NT handles and KMT handles. Its test runs in Wine (`scripts/windows.sh`), whose
//! Vulkan has no handles: nothing was ever exported with it.
//!
//! Each export as an NT handle makes a new handle, with the access rights and the security descriptor that
//! the object was created with ([`Attributes`]). Each export as a KMT handle returns the same value, which
//! must not be closed.

use std::ffi::c_void;

use ash::vk;
use windows_sys::Win32::Foundation::{FALSE, LocalFree};
use windows_sys::Win32::Security::Authorization::{
    ConvertStringSecurityDescriptorToSecurityDescriptorW, SDDL_REVISION_1,
};
use windows_sys::Win32::Security::{PSECURITY_DESCRIPTOR, SECURITY_ATTRIBUTES};
use windows_sys::w;

use crate::handle::{BorrowedHandle, ExportType, MemoryHandle, NtHandle, SemaphoreHandle};
use crate::vulkan::Vk;
use crate::{Error, Result};

/// The structures that set who may open an object that is exported as an NT handle: its owner and the system
/// have full access, and nobody else has any. Child processes do not inherit the handle. Without these
/// structures, the process's default rights would apply, and might admit other users.
pub(crate) struct Attributes {
    pub memory: vk::ExportMemoryWin32HandleInfoKHR<'static>,
    pub semaphore: vk::ExportSemaphoreWin32HandleInfoKHR<'static>,
    // `memory` and `semaphore` point to this box.
    _attributes: Box<SECURITY_ATTRIBUTES>,
    descriptor: PSECURITY_DESCRIPTOR,
}

impl Attributes {
    pub fn new() -> Result<Self> {
        // SDDL: a protected list (`D:P`) with all rights (`GA`) for the owner (`OW`) and the system (`SY`).
        let wanted = w!("D:P(A;;GA;;;OW)(A;;GA;;;SY)");
        let mut descriptor: PSECURITY_DESCRIPTOR = std::ptr::null_mut();
        // SAFETY: a terminated string. Writes one pointer, and no size, because that pointer is null.
        let made = unsafe {
            ConvertStringSecurityDescriptorToSecurityDescriptorW(
                wanted,
                SDDL_REVISION_1,
                &mut descriptor,
                std::ptr::null_mut(),
            )
        };
        if made == FALSE {
            let answer = std::io::Error::last_os_error();
            return Err(Error::SystemLacks(format!(
                "no security descriptor for exported handles (ConvertStringSecurityDescriptorToSecurityDescriptorW): \
                 {answer}"
            )));
        }
        let attributes = Box::new(SECURITY_ATTRIBUTES {
            nLength: size_of::<SECURITY_ATTRIBUTES>() as u32,
            lpSecurityDescriptor: descriptor,
            bInheritHandle: FALSE,
        });
        // The pointer is valid while the box lives, even if `self` moves.
        let (p_attributes, dw_access) = ((&raw const *attributes).cast(), ACCESS);
        Ok(Self {
            memory: vk::ExportMemoryWin32HandleInfoKHR { p_attributes, dw_access, ..Default::default() },
            semaphore: vk::ExportSemaphoreWin32HandleInfoKHR {
                p_attributes,
                dw_access,
                ..Default::default()
            },
            _attributes: attributes,
            descriptor,
        })
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`, by a function whose manual requires `LocalFree`. Freed once.
        unsafe { LocalFree(self.descriptor) };
    }
}

/// `DXGI_SHARED_RESOURCE_READ | DXGI_SHARED_RESOURCE_WRITE` of `dxgi1_2.h`, which windows-sys lacks.
const ACCESS: u32 = 0x8000_0000 | 1;

/// Wraps an exported handle. Fails if it is null.
///
/// # Safety
/// `raw` must have just been exported as the kind of handle that `new` takes, and nothing else may own it.
unsafe fn take<T>(
    vk: &Vk,
    call: &str,
    raw: vk::HANDLE,
    new: unsafe fn(*mut c_void) -> Option<T>,
) -> Result<T> {
    // SAFETY: the caller's promise. The object of a KMT handle outlives CUDA's import, because its owner
    // drops the import first (the order of the fields in `memory`, `image` and `semaphore`).
    let handle = unsafe { new(std::ptr::with_exposed_provenance_mut(raw as usize)) };
    let name = &vk.info().name;
    handle.ok_or_else(|| Error::DeviceLacks(format!("{call} on {name} answered with a null handle")))
}

/// Creates a handle to `memory`, which must have been allocated with [`super::Memory`].
pub fn export_memory(vk: &Vk, memory: vk::DeviceMemory, kind: ExportType) -> Result<MemoryHandle> {
    let call = "vkGetMemoryWin32HandleKHR";
    let info = vk::MemoryGetWin32HandleInfoKHR::default().memory(memory).handle_type(kind.memory());
    // SAFETY: the memory belongs to this device and was allocated as exportable with this handle type.
    let raw = unsafe { vk.memory_handles()?.get_memory_win32_handle(&info) }.map_err(vk.failed(call))?;
    // SAFETY: exported just now as `kind`, and nothing else owns the handle.
    unsafe {
        match kind {
            ExportType::OpaqueWin32Kmt => {
                take(vk, call, raw, BorrowedHandle::from_raw).map(MemoryHandle::OpaqueWin32Kmt)
            }
            _ => take(vk, call, raw, NtHandle::from_raw).map(MemoryHandle::OpaqueWin32),
        }
    }
}

/// Creates a handle to `semaphore`, which must be exportable as `kind` and be of the kind `semaphore_kind`.
pub fn export_semaphore(
    vk: &Vk,
    semaphore: vk::Semaphore,
    kind: ExportType,
    semaphore_kind: vk::SemaphoreType,
) -> Result<SemaphoreHandle> {
    let call = "vkGetSemaphoreWin32HandleKHR";
    let info =
        vk::SemaphoreGetWin32HandleInfoKHR::default().semaphore(semaphore).handle_type(kind.semaphore());
    // SAFETY: the semaphore belongs to this device and was created as exportable with this handle type.
    let raw =
        unsafe { vk.semaphore_handles()?.get_semaphore_win32_handle(&info) }.map_err(vk.failed(call))?;
    let is_timeline = semaphore_kind == vk::SemaphoreType::TIMELINE;
    // SAFETY: exported just now as `kind`, and nothing else owns the handle.
    unsafe {
        match kind {
            // Not reached: `VkInfo` never selects this type for timelines (`ExportType::carries`).
            ExportType::OpaqueWin32Kmt if is_timeline => Err(Error::DeviceLacks(format!(
                "CUDA imports no KMT handle of a timeline semaphore ({})",
                vk.info().name
            ))),
            ExportType::OpaqueWin32Kmt => {
                take(vk, call, raw, BorrowedHandle::from_raw).map(SemaphoreHandle::OpaqueWin32Kmt)
            }
            _ if is_timeline => take(vk, call, raw, NtHandle::from_raw).map(SemaphoreHandle::TimelineWin32),
            _ => take(vk, call, raw, NtHandle::from_raw).map(SemaphoreHandle::OpaqueWin32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exported_objects_are_their_owners() {
        let made = Attributes::new().unwrap();
        let (memory, semaphore) = (&made.memory, &made.semaphore);
        // SAFETY: what `new` made, which is alive.
        let attributes = unsafe { &*memory.p_attributes.cast::<SECURITY_ATTRIBUTES>() };
        assert_eq!(attributes.nLength as usize, size_of::<SECURITY_ATTRIBUTES>());
        assert!(!attributes.lpSecurityDescriptor.is_null());
        assert_eq!(attributes.bInheritHandle, FALSE);
        assert_eq!(memory.dw_access, 0x8000_0001);
        assert!(memory.name.is_null());
        assert_eq!((semaphore.p_attributes, semaphore.dw_access), (memory.p_attributes, memory.dw_access));
    }
}
