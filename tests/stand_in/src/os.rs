//! The calls to the system. Windows has no descriptors to hand over, so there those calls fail.

#[cfg(unix)]
pub(crate) use libc::*;

#[cfg(windows)]
pub(crate) use windows::*;

#[cfg(windows)]
#[allow(non_camel_case_types)]
mod windows {
    use std::ffi::{c_char, c_int, c_void};

    pub(crate) use libc::{atexit, close};

    pub(crate) type off_t = i64;

    pub(crate) struct stat {
        pub st_size: i64,
        pub st_ino: u64,
    }

    macro_rules! absent {
        ($($name:ident($($type:ty),*) -> $answer:ty = $value:expr;)*) => {
            $(pub(crate) unsafe fn $name($(_: $type),*) -> $answer { $value })*
        };
    }

    absent! {
        fcntl(c_int, c_int, c_int) -> c_int = -1;
        fstat(c_int, *mut stat) -> c_int = -1;
        ftruncate(c_int, off_t) -> c_int = -1;
        memfd_create(*const c_char, u32) -> c_int = -1;
        mmap(*mut c_void, usize, c_int, c_int, c_int, off_t) -> *mut c_void = MAP_FAILED;
        mprotect(*mut c_void, usize, c_int) -> c_int = -1;
        munmap(*mut c_void, usize) -> c_int = -1;
        pread(c_int, *mut c_void, usize, off_t) -> isize = -1;
        pwrite(c_int, *const c_void, usize, off_t) -> isize = -1;
    }

    pub(crate) const MAP_FAILED: *mut c_void = std::ptr::without_provenance_mut(usize::MAX);

    macro_rules! flags { ($($name:ident)*) => { $(pub(crate) const $name: c_int = 0;)* } }
    flags! { F_DUPFD_CLOEXEC MAP_ANONYMOUS MAP_FIXED MAP_NORESERVE MAP_PRIVATE MAP_SHARED PROT_NONE PROT_READ PROT_WRITE }

    pub(crate) const MFD_CLOEXEC: u32 = 0;
}
