//! The types that own or borrow a handle. Each type exists on every system, so that every descriptor can be
//! built and tested everywhere. On a system without such handles, the type only holds the raw value.

use std::ffi::{c_int, c_void};
#[cfg(unix)]
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
#[cfg(windows)]
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr::{NonNull, null, null_mut, without_provenance_mut};

use crate::{Error, Result};

/// The form of a handle, and whether this system has such handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form(&'static str, bool);

impl Form {
    pub(super) const FD: Self = Self("file descriptor", cfg!(unix));
    pub(super) const NT: Self = Self("NT handle", cfg!(windows));
    pub(super) const KMT: Self = Self("KMT handle", cfg!(windows));
    /// Always assumed to exist: only CUDA's driver can tell whether NvSci's libraries are installed.
    pub(super) const NVSCI: Self = Self("NvSci object", true);

    /// Fails if this system has no handles of this form. `name` is the kind's name in CUDA's manual.
    pub(crate) fn exists_here(self, name: &str) -> Result<()> {
        let (Self(form, here), system) = (self, std::env::consts::OS);
        let ours = if cfg!(windows) { "NT and KMT handles" } else { "file descriptors" };
        match here {
            true => Ok(()),
            false => Err(Error::SystemLacks(format!(
                "{name} is a {form}, which does not exist on {system}: CUDA imports {ours} here"
            ))),
        }
    }
}

/// The content of a descriptor's union, valid while the handle lives: a handle, object or file descriptor,
/// and a name. `handle.fd` is the low half of the first word, as all systems with CUDA are little-endian.
pub(crate) type Words = (*mut c_void, *const c_void);

/// An owned file descriptor. On Unix it converts from and to an `OwnedFd`.
#[derive(Debug)]
pub struct Fd(OwnedFd);

#[cfg(not(unix))]
type OwnedFd = c_int;

impl Fd {
    /// Takes ownership of a descriptor.
    ///
    /// # Safety
    /// `raw` must be open, and nothing else may close it.
    pub unsafe fn from_raw(raw: c_int) -> Self {
        #[cfg(unix)]
        // SAFETY: the caller's promise.
        let raw = unsafe { OwnedFd::from_raw_fd(raw) };
        Self(raw)
    }

    /// Returns the number of the descriptor, which `self` still owns.
    pub(crate) fn number(&self) -> c_int {
        #[cfg(unix)]
        return self.0.as_raw_fd();
        #[cfg(not(unix))]
        self.0
    }

    /// Drops `self` without closing the descriptor, which the importer owns after a successful import.
    pub(crate) fn give_up(self) {
        let _ = std::mem::ManuallyDrop::new(self);
    }

    pub(super) fn words(&self) -> Words {
        const { assert!(cfg!(target_endian = "little")) };
        (without_provenance_mut(self.number() as u32 as usize), null())
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

/// A shared object of the NT kernel, given as an owned handle or by its name.
#[derive(Debug)]
pub struct NtHandle(Nt);

#[derive(Debug)]
enum Nt {
    Open(OwnedHandle),
    /// UTF-16, zero-terminated.
    Name(Box<[u16]>),
}

#[cfg(not(windows))]
type OwnedHandle = NonNull<c_void>;

impl NtHandle {
    /// Takes ownership of a handle. Returns `None` for null.
    ///
    /// # Safety
    /// `raw` must be open, and nothing else may close it.
    pub unsafe fn from_raw(raw: *mut c_void) -> Option<Self> {
        let raw = NonNull::new(raw)?;
        #[cfg(windows)]
        // SAFETY: an open handle that nothing else closes (the caller's promise).
        let raw = unsafe { OwnedHandle::from_raw_handle(raw.as_ptr()) };
        Some(Self(Nt::Open(raw)))
    }

    /// Refers to an object by the name that it was created with.
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

    pub(super) fn words(&self) -> Words {
        match &self.0 {
            #[cfg(windows)]
            Nt::Open(handle) => (handle.as_raw_handle(), null()),
            #[cfg(not(windows))]
            Nt::Open(raw) => (raw.as_ptr(), null()),
            Nt::Name(name) => (null_mut(), name.as_ptr().cast()),
        }
    }
}

/// A KMT handle, or an `NvSciBufObj`, `NvSciSyncObj` or `NvSciSyncFence`. It keeps nothing alive.
#[derive(Clone, Copy, Debug)]
pub struct BorrowedHandle(pub(super) NonNull<c_void>);

impl BorrowedHandle {
    /// Wraps a handle or an object. Returns `None` for null.
    ///
    /// # Safety
    /// - `raw` must be a global KMT handle or a live object, of the kind that the returned value is used as.
    /// - An object that is imported must live until CUDA has destroyed the import. A fence must live while
    ///   any copy of the returned value is used, and nothing else may access it during a call that takes it.
    pub unsafe fn from_raw(raw: *mut c_void) -> Option<Self> {
        NonNull::new(raw).map(Self)
    }

    pub(super) fn words(self) -> Words {
        (self.0.as_ptr(), null())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A value that stands for a handle or object in tests. It refers to nothing, and nothing here
    /// dereferences it.
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
        let raw = handle.words().0;
        (handle, [raw.addr() as u64, 0])
    }

    /// A name and what it writes: no handle, the name.
    pub(in super::super) fn named() -> (NtHandle, [u64; 2]) {
        let handle = NtHandle::named("Local\\ä").unwrap();
        let Nt::Name(text) = &handle.0 else { unreachable!() };
        let text = text.as_ptr().addr();
        (handle, [0, text as u64])
    }

    pub(in super::super) fn borrowed() -> (BorrowedHandle, [u64; 2]) {
        // SAFETY: never dereferenced.
        (unsafe { BorrowedHandle::from_raw(BARE) }.unwrap(), [BARE.addr() as u64, 0])
    }

    /// The page of the module `manual` must list each variant.
    pub(in super::super) fn assert_documented(handle: &impl std::fmt::Debug) {
        let text = format!("{handle:?}");
        let name = text.split('(').next().unwrap_or_default();
        assert!(include_str!("../manual.md").contains(&format!("`{name}`")), "manual.md lacks {name}");
    }

    #[test]
    fn no_handle_is_null() {
        let null = std::ptr::null_mut();
        // SAFETY: null is refused.
        unsafe {
            assert!(NtHandle::from_raw(null).is_none());
            assert!(BorrowedHandle::from_raw(null).is_none());
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
            if cfg!(windows) { (Form::FD, "file descriptor") } else { (Form::KMT, "KMT handle") };
        let text = foreign.exists_here("D3D11_RESOURCE_KMT").unwrap_err().to_string();
        for part in ["D3D11_RESOURCE_KMT", words, std::env::consts::OS, "CUDA imports"] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
        assert!(Form::NVSCI.exists_here("NVSCIBUF").is_ok());
    }
}
