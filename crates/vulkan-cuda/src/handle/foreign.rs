//! Handles that Vulkan on Linux does not export: NT handles, KMT handles and names of Windows, and objects of NvSci.
//! They are tested as data on every system. Nothing here was ever run with a driver.

use std::ffi::c_void;
use std::ptr::NonNull;

#[cfg(windows)]
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};

use super::form::Payload;
use super::{Form, Member};
use crate::{Error, Result};

/// A shared NT handle. It owns the handle, and closes it (`CloseHandle`) when it is dropped. Vulkan exports one with
/// [`vkGetMemoryWin32HandleKHR`].
///
/// [`vkGetMemoryWin32HandleKHR`]: https://registry.khronos.org/vulkan/specs/latest/man/html/vkGetMemoryWin32HandleKHR.html
#[derive(Debug)]
pub struct NtHandle(#[cfg(windows)] OwnedHandle, #[cfg(not(windows))] NonNull<c_void>);

#[cfg(not(windows))]
// SAFETY: a bare value, which is never dereferenced.
unsafe impl Send for NtHandle {}
#[cfg(not(windows))]
// SAFETY: as above.
unsafe impl Sync for NtHandle {}

impl NtHandle {
    /// Takes ownership of an open handle. Returns `None` for null. See [`vkGetMemoryWin32HandleKHR`].
    ///
    /// # Safety
    /// It must be open, and nothing else may close it.
    ///
    /// [`vkGetMemoryWin32HandleKHR`]: https://registry.khronos.org/vulkan/specs/latest/man/html/vkGetMemoryWin32HandleKHR.html
    pub unsafe fn from_raw(raw: *mut c_void) -> Option<Self> {
        let raw = NonNull::new(raw)?;
        // SAFETY: the caller's promise; not null.
        #[cfg(windows)]
        return Some(Self(unsafe { OwnedHandle::from_raw_handle(raw.as_ptr()) }));
        #[cfg(not(windows))]
        Some(Self(raw))
    }
}

#[cfg(windows)]
impl From<OwnedHandle> for NtHandle {
    fn from(handle: OwnedHandle) -> Self {
        Self(handle)
    }
}

#[cfg(windows)]
impl From<NtHandle> for OwnedHandle {
    fn from(handle: NtHandle) -> Self {
        handle.0
    }
}

impl Payload for NtHandle {
    const FORM: Form = Form::Nt;

    fn member(&self) -> Member {
        #[cfg(windows)]
        return Member::Handle(self.0.as_raw_handle());
        #[cfg(not(windows))]
        Member::Handle(self.0.as_ptr())
    }
}

/// A KMT handle. It owns nothing and keeps nothing alive: its object must live until CUDA has destroyed the import.
/// See [External memory handle types compatibility].
///
/// [External memory handle types compatibility]: https://registry.khronos.org/vulkan/specs/latest/html/vkspec.html#external-memory-handle-types-compatibility
#[derive(Clone, Copy, Debug)]
pub struct KmtHandle(NonNull<c_void>);

// SAFETY: a number that any thread may use.
unsafe impl Send for KmtHandle {}
// SAFETY: as above.
unsafe impl Sync for KmtHandle {}

impl KmtHandle {
    /// Takes the value. Returns `None` for null. See [`vkGetMemoryWin32HandleKHR`].
    ///
    /// # Safety
    /// It must be a global KMT handle of an object that lives for as long as the handle is used.
    ///
    /// [`vkGetMemoryWin32HandleKHR`]: https://registry.khronos.org/vulkan/specs/latest/man/html/vkGetMemoryWin32HandleKHR.html
    pub unsafe fn from_raw(raw: *mut c_void) -> Option<Self> {
        NonNull::new(raw).map(Self)
    }
}

impl Payload for KmtHandle {
    const FORM: Form = Form::Kmt;

    fn member(&self) -> Member {
        Member::Handle(self.0.as_ptr())
    }
}

/// The name under which a shared object was created, such as `Local\picture`.
///
/// # Examples
/// ```
/// use vulkan_cuda::handle::ObjectName;
///
/// assert!(ObjectName::new("Local\\picture").is_ok());
/// assert!(ObjectName::new("").is_err());
/// ```
#[derive(Clone, Debug)]
pub struct ObjectName(pub(super) Box<[u16]>);

impl ObjectName {
    /// Converts a name to the form that Windows takes: UTF-16 with a zero at the end. See the
    /// [example](ObjectName#examples).
    ///
    /// # Errors
    /// Fails if the name is empty, or contains a zero character: Windows would stop reading there.
    pub fn new(name: &str) -> Result<Self> {
        if name.is_empty() || name.contains('\0') {
            return Err(Error::Rule(format!(
                "{name:?} is not the name of a shared object: a name has at least one character, and no zero"
            )));
        }
        Ok(Self(name.encode_utf16().chain([0]).collect()))
    }
}

impl Payload for ObjectName {
    const FORM: Form = Form::Name;

    fn member(&self) -> Member {
        Member::Name(self.0.as_ptr())
    }
}

/// An `NvSciBufObj` or `NvSciSyncObj`. It is borrowed: the code that created it must free it, after CUDA has
/// destroyed the import. See [`cuImportExternalMemory`].
///
/// [`cuImportExternalMemory`]: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__EXTRES__INTEROP.html
#[derive(Clone, Copy, Debug)]
pub struct NvSciObject(NonNull<c_void>);

impl NvSciObject {
    /// Takes the pointer. Returns `None` for null. See [`cuImportExternalMemory`].
    ///
    /// # Safety
    /// It must be a live object of the NvSci kind that it is used as. It must live for as long as CUDA has it
    /// imported.
    ///
    /// [`cuImportExternalMemory`]: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__EXTRES__INTEROP.html
    pub unsafe fn from_raw(raw: *const c_void) -> Option<Self> {
        NonNull::new(raw.cast_mut()).map(Self)
    }
}

impl Payload for NvSciObject {
    const FORM: Form = Form::NvSci;

    fn member(&self) -> Member {
        Member::Object(self.0.as_ptr())
    }
}

/// An `NvSciSyncFence`. It is borrowed. See [`Wait::Fence`](super::Wait::Fence) and
/// [`cuWaitExternalSemaphoresAsync`].
///
/// [`cuWaitExternalSemaphoresAsync`]: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__EXTRES__INTEROP.html
#[derive(Clone, Copy, Debug)]
pub struct NvSciFence(pub(super) NonNull<c_void>);

impl NvSciFence {
    /// Takes the pointer. Returns `None` for null. See [`cuWaitExternalSemaphoresAsync`].
    ///
    /// # Safety
    /// It must be an initialised `NvSciSyncFence`. It must live for as long as any copy of this value is used. During
    /// a call that takes this value, nothing else may access it.
    ///
    /// [`cuWaitExternalSemaphoresAsync`]: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__EXTRES__INTEROP.html
    pub unsafe fn from_raw(raw: *mut c_void) -> Option<Self> {
        NonNull::new(raw).map(Self)
    }
}
