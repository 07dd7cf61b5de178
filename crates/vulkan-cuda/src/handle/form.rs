//! The five forms of handles, and who closes each.
//!
//! File descriptors exist on Unix and NT handles on Windows. This module has both Rust types on every system, so that
//! every descriptor can be built and tested everywhere. On a system without such handles, the type holds the bare
//! value and closes nothing.

use std::ffi::{c_int, c_void};

#[cfg(unix)]
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use cudarc::driver::sys;

use crate::{Error, Result};

/// What kind of thing a handle is. The form decides who closes it.
///
/// # Examples
/// ```
/// use vulkan_cuda::handle::{Form, Keeper, System};
///
/// let fd = Form::Fd.ownership();
/// assert_eq!((fd.after_success, fd.after_failure), (Keeper::Cuda, Keeper::You));
/// assert_eq!(Form::Fd.system(), System::Unix);
/// assert_eq!(Form::Fd.words(), "file descriptor");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A file descriptor.
    Fd,
    /// A shared NT handle.
    Nt,
    /// The name of a shared object of the NT kernel.
    Name,
    /// A global handle of the kernel-mode thunk (KMT), the older kind.
    Kmt,
    /// A pointer to an object of NvSci, the sharing library of NVIDIA's embedded systems.
    NvSci,
}

/// Who must close a handle. See [`Form::ownership`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// CUDA. It closes the handle when the imported object is destroyed, or earlier.
    Cuda,
    /// The code that had the handle before the import. For a handle of this crate, dropping it is enough.
    You,
    /// Nobody: there is nothing to close.
    Nobody,
}

/// Who must close a handle after an attempt to import it. Returned by [`Form::ownership`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// If the import succeeded.
    pub after_success: Keeper,
    /// If the import failed.
    pub after_failure: Keeper,
}

/// The systems on which a form exists. Returned by [`Form::system`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Linux and other Unices.
    Unix,
    /// Microsoft Windows.
    Windows,
    /// Every system that has NVIDIA's NvSci libraries: Tegra, DRIVE OS, some servers.
    NvSci,
}

impl Form {
    /// Returns who closes a handle of this form after an import. The manual of [`cuImportExternalMemory`] says:
    ///
    /// - File descriptor: "Ownership of the file descriptor is transferred to the CUDA driver when the handle is
    ///   imported successfully".
    /// - NT handle: "Ownership of this handle is not transferred to CUDA".
    /// - KMT handle: it "does not hold a reference to the underlying object".
    ///
    /// [`cuImportExternalMemory`]: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__EXTRES__INTEROP.html
    // ANCHOR: owner
    pub const fn ownership(self) -> Ownership {
        use Keeper::{Cuda, Nobody, You};
        let (after_success, after_failure) = match self {
            Self::Fd => (Cuda, You),
            Self::Nt => (You, You),
            Self::Name => (Nobody, Nobody),
            Self::Kmt => (Nobody, Nobody),
            Self::NvSci => (You, You),
        };
        Ownership { after_success, after_failure }
    }
    // ANCHOR_END: owner

    /// Returns the systems on which such handles exist. See the [example](Form#examples).
    pub const fn system(self) -> System {
        match self {
            Self::Fd => System::Unix,
            Self::Nt | Self::Name | Self::Kmt => System::Windows,
            Self::NvSci => System::NvSci,
        }
    }

    /// Ends a handle of this form after a successful import: gives it up if it is CUDA's now, and closes it if it is
    /// still ours. (After a failed import every handle is still ours, and dropping it closes it.)
    pub(super) fn imported<H>(self, handle: H) {
        match self.ownership().after_success {
            Keeper::Cuda => std::mem::forget(handle),
            Keeper::You | Keeper::Nobody => drop(handle),
        }
    }

    /// Returns its name in error messages, without an article. See the [example](Form#examples).
    pub const fn words(self) -> &'static str {
        match self {
            Self::Fd => "file descriptor",
            Self::Nt => "NT handle",
            Self::Name => "name of an NT object",
            Self::Kmt => "KMT handle",
            Self::NvSci => "NvSci object",
        }
    }

    /// Fails if this system has no such handles, before a driver is called.
    pub(super) fn exists_here(self, name: &str) -> Result<()> {
        let here = match self.system() {
            System::Unix => cfg!(unix),
            System::Windows => cfg!(windows),
            // Only the driver can tell whether its libraries are installed.
            System::NvSci => true,
        };
        if here {
            return Ok(());
        }
        let ours = if cfg!(windows) { "NT and KMT handles" } else { "file descriptors" };
        Err(Error::Unsupported(format!(
            "{name} is a {}, which does not exist on {}: CUDA imports {ours} here",
            self.words(),
            std::env::consts::OS
        )))
    }
}

/// What a handle writes into the union of a descriptor: [`cuImportExternalMemory`] and [`cuImportExternalSemaphore`].
/// The pointers are borrowed from the handle.
///
/// [`cuImportExternalMemory`]: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__EXTRES__INTEROP.html
/// [`cuImportExternalSemaphore`]: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__EXTRES__INTEROP.html
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Member {
    /// `handle.fd`
    Fd(c_int),
    /// `handle.win32.handle`, with no name.
    Handle(*mut c_void),
    /// `handle.win32.name`, with no handle: UTF-16, terminated.
    Name(*const u16),
    /// `handle.nvSciBufObject` or `handle.nvSciSyncObj`.
    Object(*const c_void),
}

impl Member {
    /// The union for memory. Unused members are zero.
    pub(super) fn memory(self) -> sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st__bindgen_ty_1 {
        type Union = sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st__bindgen_ty_1;
        type Win32 = sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st__bindgen_ty_1__bindgen_ty_1;
        let mut union = Union { win32: Win32 { handle: std::ptr::null_mut(), name: std::ptr::null() } };
        match self {
            Self::Fd(fd) => union.fd = fd,
            Self::Handle(handle) => union.win32 = Win32 { handle, name: std::ptr::null() },
            Self::Name(name) => union.win32 = Win32 { handle: std::ptr::null_mut(), name: name.cast() },
            Self::Object(object) => union.nvSciBufObject = object,
        }
        union
    }

    /// The union for semaphores. Unused members are zero.
    pub(super) fn semaphore(self) -> sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_st__bindgen_ty_1 {
        type Union = sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_st__bindgen_ty_1;
        type Win32 = sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_st__bindgen_ty_1__bindgen_ty_1;
        let mut union = Union { win32: Win32 { handle: std::ptr::null_mut(), name: std::ptr::null() } };
        match self {
            Self::Fd(fd) => union.fd = fd,
            Self::Handle(handle) => union.win32 = Win32 { handle, name: std::ptr::null() },
            Self::Name(name) => union.win32 = Win32 { handle: std::ptr::null_mut(), name: name.cast() },
            Self::Object(object) => union.nvSciSyncObj = object,
        }
        union
    }
}

/// What each type of handle knows about itself.
pub(super) trait Payload {
    const FORM: Form;

    fn member(&self) -> Member;
}

/// A file descriptor. It owns the descriptor, and closes it when it is dropped.
///
/// # Examples
/// ```
/// # #[cfg(unix)]
/// # fn example() -> std::io::Result<()> {
/// use std::os::fd::OwnedFd;
///
/// use vulkan_cuda::handle::{Fd, MemoryHandle};
///
/// let received: OwnedFd = std::fs::File::open("/dev/null")?.into(); // from a socket, in a real program
/// let handle = MemoryHandle::OpaqueFd(Fd::from(received));
/// # drop(handle);
/// # Ok(())
/// # }
/// # #[cfg(unix)]
/// # example().unwrap();
/// ```
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

    /// Takes ownership of an open descriptor, as [`FromRawFd`] does.
    ///
    /// [`FromRawFd`]: https://doc.rust-lang.org/std/os/fd/trait.FromRawFd.html
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

impl Payload for Fd {
    const FORM: Form = Form::Fd;

    fn member(&self) -> Member {
        Member::Fd(self.number())
    }
}

#[cfg(test)]
pub(super) mod tests {
    #[cfg(windows)]
    use std::os::windows::io::OwnedHandle;

    use super::super::{KmtHandle, NtHandle, NvSciObject, ObjectName};
    use super::*;

    /// A value that stands for a handle or object in tests. It refers to nothing, and nothing here dereferences it.
    pub(in super::super) const BARE: *mut c_void = std::ptr::without_provenance_mut(0x1234_5670);

    pub(in super::super) fn fd() -> Fd {
        #[cfg(unix)]
        return Fd::from(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()));
        // SAFETY: bare values are not closed here.
        #[cfg(not(unix))]
        unsafe {
            Fd::from_raw(42)
        }
    }

    /// A handle and its value. On Windows the handle is a real one.
    pub(in super::super) fn nt() -> (NtHandle, *mut c_void) {
        #[cfg(windows)]
        let handle = NtHandle::from(OwnedHandle::from(std::fs::File::open("NUL").unwrap()));
        // SAFETY: a bare value is not closed here.
        #[cfg(not(windows))]
        let handle = unsafe { NtHandle::from_raw(BARE) }.unwrap();
        let Member::Handle(raw) = handle.member() else { unreachable!() };
        (handle, raw)
    }

    pub(in super::super) fn kmt() -> KmtHandle {
        // SAFETY: only written into descriptors.
        unsafe { KmtHandle::from_raw(BARE) }.unwrap()
    }

    pub(in super::super) fn sci() -> NvSciObject {
        // SAFETY: only written into descriptors.
        unsafe { NvSciObject::from_raw(BARE) }.unwrap()
    }

    /// The repository's `docs/interop.md` must list each variant. The packaged crate does not have that file.
    pub(in super::super) fn assert_documented(handle: &impl std::fmt::Debug) {
        let text = format!("{handle:?}");
        let name = text.split('(').next().unwrap_or_default();
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/interop.md");
        let Ok(page) = std::fs::read_to_string(page) else { return };
        assert!(page.contains(&format!("`{name}`")), "docs/interop.md lacks {name}");
    }

    /// The table in the module's documentation, from CUDA's manual.
    #[test]
    fn whose_a_handle_is() {
        use Keeper::*;
        for (form, success, failure, system) in [
            (Form::Fd, Cuda, You, System::Unix),
            (Form::Nt, You, You, System::Windows),
            (Form::Name, Nobody, Nobody, System::Windows),
            (Form::Kmt, Nobody, Nobody, System::Windows),
            (Form::NvSci, You, You, System::NvSci),
        ] {
            let ownership = Ownership { after_success: success, after_failure: failure };
            assert_eq!((form.ownership(), form.system()), (ownership, system), "{form:?}");
        }
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
        let name = ObjectName::new("Local\\ä").unwrap();
        assert_eq!(&*name.0, [0x4c, 0x6f, 0x63, 0x61, 0x6c, 0x5c, 0xe4, 0]);
        for bad in ["", "a\0b"] {
            assert!(
                ObjectName::new(bad)
                    .is_err_and(|error| error.to_string().contains("not the name of a shared object"))
            );
        }
    }

    #[test]
    fn a_form_that_this_system_lacks_is_an_error_in_words() {
        let foreign = if cfg!(windows) { Form::Fd } else { Form::Kmt };
        let text = foreign.exists_here("D3D11_RESOURCE_KMT").unwrap_err().to_string();
        for part in ["D3D11_RESOURCE_KMT", foreign.words(), std::env::consts::OS, "CUDA imports"] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
        assert!(Form::NvSci.exists_here("NVSCIBUF").is_ok());
    }
}
