//! Handles that Vulkan on Linux does not hand out: NT and KMT handles and names of Windows, objects of NvSci. They are built into
//! descriptors and tested as data everywhere; nothing here was ever run with a driver.

use std::ffi::c_void;
use std::ptr::NonNull;

#[cfg(windows)]
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};

use super::form::Payload;
use super::{Form, Member};
use crate::{Error, Result};

/// A shared NT handle; closed (`CloseHandle`) when it is dropped.
#[derive(Debug)]
pub struct NtHandle(#[cfg(windows)] OwnedHandle, #[cfg(not(windows))] NonNull<c_void>);

#[cfg(not(windows))]
// SAFETY: a bare value, which is never used.
unsafe impl Send for NtHandle {}
#[cfg(not(windows))]
// SAFETY: as above.
unsafe impl Sync for NtHandle {}

impl NtHandle {
    /// Takes over an open handle; `None` for null.
    ///
    /// # Safety
    /// It is open, and nobody else closes it.
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

/// A KMT handle. It keeps nothing alive: the object that it stands for must live until CUDA has let go of its import.
#[derive(Clone, Copy, Debug)]
pub struct KmtHandle(NonNull<c_void>);

// SAFETY: a number that any thread may use.
unsafe impl Send for KmtHandle {}
// SAFETY: as above.
unsafe impl Sync for KmtHandle {}

impl KmtHandle {
    /// Takes the value; `None` for null.
    ///
    /// # Safety
    /// It is a global KMT handle of an object that lives for as long as the handle is used.
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
#[derive(Clone, Debug)]
pub struct ObjectName(pub(super) Box<[u16]>);

impl ObjectName {
    /// Turns it into what Windows takes: UTF-16 with a zero at the end.
    ///
    /// # Errors
    /// An empty name, or one with a zero in it, which would name another object.
    pub fn new(name: &str) -> Result<Self> {
        if name.is_empty() || name.contains('\0') {
            return Err(Error::Rule(format!(
                "{name:?} names no shared object: a name has a character at least, and none is zero"
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

/// An `NvSciBufObj` or `NvSciSyncObj`, borrowed: whoever made it frees it, once CUDA has let go of its import.
#[derive(Clone, Copy, Debug)]
pub struct NvSciObject(NonNull<c_void>);

impl NvSciObject {
    /// Takes the pointer; `None` for null.
    ///
    /// # Safety
    /// It is a live object of the NvSci kind that it is then used as, and lives for as long as CUDA has it imported.
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

/// An `NvSciSyncFence`, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct NvSciFence(pub(super) NonNull<c_void>);

impl NvSciFence {
    /// Takes the pointer; `None` for null.
    ///
    /// # Safety
    /// It is an initialised `NvSciSyncFence`, which lives for as long as any copy of this value is used, and which nobody else
    /// touches during a call that is given one.
    pub unsafe fn from_raw(raw: *mut c_void) -> Option<Self> {
        NonNull::new(raw).map(Self)
    }
}
