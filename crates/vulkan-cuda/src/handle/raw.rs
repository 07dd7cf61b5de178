//! The handles themselves: file descriptors, NT and KMT handles, and objects of NvSci.
//!
//! File descriptors exist on Unix and NT handles on Windows. This module has both types on every system, so that every
//! descriptor can be built and tested everywhere. On a system without such handles, the type holds the bare value and closes
//! nothing.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
#[cfg(unix)]
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
#[cfg(windows)]
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr::NonNull;

use crate::{Error, Result};

/// What kind of thing a handle is. It decides on which systems it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Fd,
    Nt,
    Kmt,
    NvSci,
}

impl Form {
    /// Fails if this system has no such handles, before a driver is called. `name` is the kind's name in CUDA's manual.
    pub(super) fn exists_here(self, name: &str) -> Result<()> {
        let (words, here) = match self {
            Self::Fd => ("file descriptor", cfg!(unix)),
            Self::Nt => ("NT handle", cfg!(windows)),
            Self::Kmt => ("KMT handle", cfg!(windows)),
            // Only the driver can tell whether its libraries are installed.
            Self::NvSci => ("NvSci object", true),
        };
        let ours = if cfg!(windows) { "NT and KMT handles" } else { "file descriptors" };
        match here {
            true => Ok(()),
            false => Err(Error::Unsupported(format!(
                "{name} is a {words}, which does not exist on {}: CUDA imports {ours} here",
                std::env::consts::OS
            ))),
        }
    }
}

/// What a handle writes into the union of a descriptor. The pointers are borrowed from the handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
    /// `handle.fd`
    Fd(c_int),
    /// `handle.win32.handle` with no name, or the NvSci object.
    Pointer(*mut c_void),
    /// `handle.win32.name` with no handle: UTF-16, terminated.
    Name(*const u16),
}

impl Member {
    /// Fills the union of a memory's or a semaphore's descriptor. Unused members are zero.
    ///
    /// # Safety
    /// `U` must be one of those two unions: two pointers, whose first place is also the descriptor's and the object's.
    pub(super) unsafe fn union<U>(self) -> U {
        let mut union = MaybeUninit::<U>::zeroed();
        let place = union.as_mut_ptr();
        // SAFETY: within the two pointers (the caller's promise); any integers and pointers are valid there.
        unsafe {
            match self {
                Self::Fd(fd) => place.cast::<c_int>().write(fd),
                Self::Pointer(pointer) => place.cast::<*mut c_void>().write(pointer),
                Self::Name(name) => place.cast::<*const u16>().add(1).write(name),
            }
            union.assume_init()
        }
    }
}

/// A file descriptor. It owns the descriptor, and closes it when it is dropped. On Unix it converts from and to an
/// `OwnedFd`.
#[derive(Debug)]
pub struct Fd(#[cfg(unix)] OwnedFd, #[cfg(not(unix))] c_int);

impl Fd {
    /// The bare number, for an API that imports it.
    pub(crate) fn number(&self) -> c_int {
        #[cfg(unix)]
        return self.0.as_raw_fd();
        #[cfg(not(unix))]
        self.0
    }

    /// Gives the descriptor up after a successful import: the importer owns it now, and it is not used here again.
    pub(crate) fn give_up(self) {
        // On a system without descriptors, dropping the number closes nothing.
        #[cfg(unix)]
        let _ = self.0.into_raw_fd();
    }

    /// Takes ownership of an open descriptor.
    ///
    /// # Safety
    /// It must be open, and nothing else may close it.
    pub unsafe fn from_raw(raw: c_int) -> Self {
        // SAFETY: the caller's promise.
        #[cfg(unix)]
        return Self(unsafe { OwnedFd::from_raw_fd(raw) });
        #[cfg(not(unix))]
        Self(raw)
    }

    pub(super) fn member(&self) -> Member {
        Member::Fd(self.number())
    }
}

#[cfg(unix)]
impl From<OwnedFd> for Fd {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

#[cfg(unix)]
impl From<Fd> for OwnedFd {
    fn from(fd: Fd) -> Self {
        fd.0
    }
}

/// A shared object of the NT kernel, by its handle or by its name. It owns a handle, and closes it (`CloseHandle`) when
/// it is dropped. Vulkan exports one with `vkGetMemoryWin32HandleKHR`.
///
/// # Examples
/// ```
/// use vulkan_cuda::handle::{MemoryHandle, NtHandle};
///
/// let handle = MemoryHandle::D3d12Resource(NtHandle::named("Local\\picture").unwrap());
/// assert_eq!(handle.name(), "D3D12_RESOURCE");
/// assert!(NtHandle::named("").is_err());
/// ```
#[derive(Debug)]
pub struct NtHandle(Nt);

#[derive(Debug)]
enum Nt {
    #[cfg(windows)]
    Open(OwnedHandle),
    #[cfg(not(windows))]
    Open(NonNull<c_void>),
    Name(Box<[u16]>),
}

#[cfg(not(windows))]
// SAFETY: a bare value, which is never dereferenced.
unsafe impl Send for NtHandle {}
#[cfg(not(windows))]
// SAFETY: as above.
unsafe impl Sync for NtHandle {}

impl NtHandle {
    /// Takes ownership of an open handle. Returns `None` for null.
    ///
    /// # Safety
    /// It must be open, and nothing else may close it.
    pub unsafe fn from_raw(raw: *mut c_void) -> Option<Self> {
        let raw = NonNull::new(raw)?;
        // SAFETY: the caller's promise; not null.
        #[cfg(windows)]
        return Some(Self(Nt::Open(unsafe { OwnedHandle::from_raw_handle(raw.as_ptr()) })));
        #[cfg(not(windows))]
        Some(Self(Nt::Open(raw)))
    }

    /// Takes the name under which the object was created.
    ///
    /// # Errors
    /// Fails if the name is empty, or contains a zero character: Windows would stop reading there.
    pub fn named(name: &str) -> Result<Self> {
        if name.is_empty() || name.contains('\0') {
            return Err(Error::Rule(format!(
                "{name:?} is not the name of a shared object: a name has at least one character, and no zero"
            )));
        }
        Ok(Self(Nt::Name(name.encode_utf16().chain([0]).collect())))
    }

    pub(super) fn member(&self) -> Member {
        match &self.0 {
            #[cfg(windows)]
            Nt::Open(handle) => Member::Pointer(handle.as_raw_handle()),
            #[cfg(not(windows))]
            Nt::Open(raw) => Member::Pointer(raw.as_ptr()),
            Nt::Name(name) => Member::Name(name.as_ptr()),
        }
    }
}

/// Makes a type that borrows a pointer.
macro_rules! borrowed {
    ($(#[$about:meta])* $name:ident: $(#[$must:meta])*) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name(NonNull<c_void>);

        impl $name {
            /// Takes the value. Returns `None` for null.
            ///
            /// # Safety
            $(#[$must])*
            pub unsafe fn from_raw(raw: *mut c_void) -> Option<Self> {
                NonNull::new(raw).map(Self)
            }

            pub(super) fn pointer(self) -> *mut c_void {
                self.0.as_ptr()
            }
        }
    };
}

borrowed! {
    /// A KMT handle. It owns nothing and keeps nothing alive. See [External memory handle types compatibility].
    ///
    /// [External memory handle types compatibility]: https://registry.khronos.org/vulkan/specs/latest/html/vkspec.html#external-memory-handle-types-compatibility
    KmtHandle:
    /// It must be a global KMT handle. Its object must live until CUDA has destroyed the import.
}
// SAFETY: a number that any thread may use.
unsafe impl Send for KmtHandle {}
// SAFETY: as above.
unsafe impl Sync for KmtHandle {}

borrowed! {
    /// An `NvSciBufObj`, `NvSciSyncObj` or `NvSciSyncFence`. It is borrowed: the code that created it must free it.
    NvSciObject:
    /// It must be a live object of the NvSci kind that it is used as. It must live until CUDA has destroyed the import, a fence
    /// for as long as any copy of this value is used. During a call that takes a fence, nothing else may access it.
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A value that stands for a handle or object in tests. It refers to nothing, and nothing here dereferences it.
    pub(in super::super) const BARE: *mut c_void = std::ptr::without_provenance_mut(0x1234_5670);

    pub(in super::super) fn fd() -> (Fd, [u64; 2]) {
        #[cfg(unix)]
        let fd = Fd::from(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()));
        // SAFETY: bare values are not closed here.
        #[cfg(not(unix))]
        let fd = unsafe { Fd::from_raw(42) };
        let number = fd.number() as u64;
        (fd, [number, 0])
    }

    /// A handle and what it writes: the handle, no name. On Windows the handle is a real one.
    pub(in super::super) fn nt() -> (NtHandle, [u64; 2]) {
        #[cfg(windows)]
        let handle = NtHandle(Nt::Open(OwnedHandle::from(std::fs::File::open("NUL").unwrap())));
        // SAFETY: a bare value is not closed here.
        #[cfg(not(windows))]
        let handle = unsafe { NtHandle::from_raw(BARE) }.unwrap();
        let Member::Pointer(raw) = handle.member() else { unreachable!() };
        (handle, [raw.addr() as u64, 0])
    }

    /// A name and what it writes: no handle, the name.
    pub(in super::super) fn named() -> (NtHandle, [u64; 2]) {
        let handle = NtHandle::named("Local\\ä").unwrap();
        let Member::Name(text) = handle.member() else { unreachable!() };
        (handle, [0, text.addr() as u64])
    }

    pub(in super::super) fn kmt() -> (KmtHandle, [u64; 2]) {
        // SAFETY: never dereferenced.
        (unsafe { KmtHandle::from_raw(BARE) }.unwrap(), [BARE.addr() as u64, 0])
    }

    pub(in super::super) fn sci() -> (NvSciObject, [u64; 2]) {
        // SAFETY: never dereferenced.
        (unsafe { NvSciObject::from_raw(BARE) }.unwrap(), [BARE.addr() as u64, 0])
    }

    /// The repository's `docs/interop.md` must list each variant. The packaged crate does not have that file.
    pub(in super::super) fn assert_documented(handle: &impl std::fmt::Debug) {
        let text = format!("{handle:?}");
        let name = text.split('(').next().unwrap_or_default();
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/interop.md");
        let Ok(page) = std::fs::read_to_string(page) else { return };
        assert!(page.contains(&format!("`{name}`")), "docs/interop.md lacks {name}");
    }

    #[test]
    fn no_handle_is_null() {
        let null = std::ptr::null_mut();
        // SAFETY: null is refused.
        unsafe {
            assert!(NtHandle::from_raw(null).is_none());
            assert!(KmtHandle::from_raw(null).is_none());
            assert!(NvSciObject::from_raw(null).is_none());
        }
    }

    #[test]
    fn names_are_terminated_and_not_empty() {
        let NtHandle(Nt::Name(name)) = named().0 else { unreachable!() };
        assert_eq!(&*name, [0x4c, 0x6f, 0x63, 0x61, 0x6c, 0x5c, 0xe4, 0]);
        for bad in ["", "a\0b"] {
            let error = NtHandle::named(bad).unwrap_err();
            assert!(error.to_string().contains("not the name of a shared object"));
        }
    }

    #[test]
    fn a_form_that_this_system_lacks_is_an_error_in_words() {
        let (foreign, words) =
            if cfg!(windows) { (Form::Fd, "file descriptor") } else { (Form::Kmt, "KMT handle") };
        let text = foreign.exists_here("D3D11_RESOURCE_KMT").unwrap_err().to_string();
        for part in ["D3D11_RESOURCE_KMT", words, std::env::consts::OS, "CUDA imports"] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
        assert!(Form::NvSci.exists_here("NVSCIBUF").is_ok());
    }
}
