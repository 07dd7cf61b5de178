//! What Vulkan exports and CUDA imports.
//!
//! A handle is a file in memory, identified by its inode. The file is empty, or the driver's own
//! (`STAND_IN_DRIVERS_MEMORY`). A real driver keeps the contents behind the descriptor; the stand-in keeps
//! them here.

use std::collections::{HashMap, HashSet};
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ash::vk;

use crate::os as libc;
use crate::vulkan::DeviceFns;

/// What a descriptor stands for.
#[derive(Clone)]
pub(crate) enum Exported {
    /// Memory, and its size in bytes.
    Memory(DeviceFns, vk::DeviceMemory, u64),
    /// A timeline or binary semaphore.
    Semaphore(DeviceFns, Arc<Semaphore>),
}

/// An exported semaphore. The driver below always has a timeline in its place, because the CPU can signal no
/// other semaphore.
pub(crate) struct Semaphore {
    pub raw: vk::Semaphore,
    pub binary: bool,
    /// The file through which other processes use an exported timeline: see [`Semaphore::share`].
    pub file: Mutex<Option<c_int>>,
    /// How often a binary semaphore was signalled and waited for. Each signal, and each wait, takes the next
    /// value of the timeline.
    pub counts: Mutex<(u64, u64)>,
}

impl Semaphore {
    /// Makes the file of `fd` represent a timeline in other processes. Its first 8 bytes are the value that
    /// they signal, and the next 8 are the value that the timeline has here. Reading any counter here tells
    /// other processes all values; what they signal counts once that timeline's own counter is read.
    pub fn share(&self, fd: c_int) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.binary && file.is_none() {
            *file = own_copy(fd);
        }
    }

    /// Closes the file, because the semaphore is destroyed.
    pub fn unshare(&self) {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(file) = file {
            release_memory(file);
        }
    }

    /// The last value that another process has signalled.
    pub fn hear(&self) -> u64 {
        let (mut value, file) = ([0; 8], self.file.lock().unwrap_or_else(PoisonError::into_inner));
        // SAFETY: reads into a local, or fails.
        file.map(|fd| unsafe { libc::pread(fd, value.as_mut_ptr().cast(), value.len(), 0) });
        u64::from_ne_bytes(value)
    }

    /// Tells other processes the value.
    pub fn tell(&self, value: u64) {
        let (value, file) = (value.to_ne_bytes(), self.file.lock().unwrap_or_else(PoisonError::into_inner));
        // SAFETY: writes from a local, or fails.
        file.map(|fd| unsafe { libc::pwrite(fd, value.as_ptr().cast(), value.len(), 8) });
    }

    /// The value of the timeline below for a signal with `value`.
    pub fn signal(&self, value: u64) -> u64 {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.0 += 1;
        if self.binary { counts.0 } else { value }
    }

    /// The value of the timeline below for a wait for `value`.
    pub fn wait(&self, value: u64) -> u64 {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.1 += 1;
        if self.binary { counts.1 } else { value }
    }
}

/// A semaphore as CUDA has imported it.
#[derive(Clone)]
pub(crate) enum Imported {
    /// A semaphore of a device in this process.
    Here(DeviceFns, Arc<Semaphore>),
    /// A timeline of another process, through its file: see [`Semaphore::share`].
    Elsewhere(c_int),
}

impl Imported {
    /// Imports the semaphore that `fd` stands for. If that succeeds, the importer owns `fd`.
    pub fn new(fd: c_int) -> Option<Self> {
        match find(fd) {
            Some(Exported::Semaphore(device, semaphore)) => Some(Self::Here(device, semaphore)),
            Some(Exported::Memory(..)) => None,
            None => (is_named(fd, NAME) && memory_size(fd).is_none()).then_some(Self::Elsewhere(fd)),
        }
    }

    /// The value to signal for `value`. Call this in the order of the signals.
    pub fn to_signal(&self, value: u64) -> u64 {
        if let Self::Here(_, semaphore) = self { semaphore.signal(value) } else { value }
    }

    /// The value to wait for. Call this in the order of the waits.
    pub fn to_wait(&self, value: u64) -> u64 {
        if let Self::Here(_, semaphore) = self { semaphore.wait(value) } else { value }
    }

    pub fn signal(&self, value: u64) {
        match self {
            Self::Here(device, semaphore) => device.signal(semaphore.raw, value),
            // SAFETY: writes from a local, or fails.
            Self::Elsewhere(fd) => unsafe {
                libc::pwrite(*fd, value.to_ne_bytes().as_ptr().cast(), 8, 0);
            },
        }
    }

    /// Whether the value is reached within a short time.
    pub fn wait(&self, value: u64) -> bool {
        match self {
            Self::Here(device, semaphore) => device.wait(semaphore.raw, value),
            Self::Elsewhere(fd) => {
                let mut now = [0; 8];
                // SAFETY: reads into a local, or fails.
                unsafe { libc::pread(*fd, now.as_mut_ptr().cast(), now.len(), 8) };
                std::thread::sleep(std::time::Duration::from_micros(100));
                u64::from_ne_bytes(now) >= value
            }
        }
    }
}

static HANDLES: Mutex<Option<HashMap<u64, Exported>>> = Mutex::new(None);

fn handles() -> MutexGuard<'static, Option<HashMap<u64, Exported>>> {
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

const NAME: &str = "wavefield-stand-in";

/// Makes a new descriptor for `what`.
pub(crate) fn export(what: Exported) -> Option<c_int> {
    // SAFETY: a terminated name.
    let fd = unsafe { libc::memfd_create(c"wavefield-stand-in".as_ptr(), libc::MFD_CLOEXEC) };
    handles().get_or_insert_default().insert(inode(fd)?, what);
    Some(fd)
}

/// Makes the driver's own descriptor stand for `what`.
pub(crate) fn adopt(fd: c_int, what: Exported) -> Option<()> {
    handles().get_or_insert_default().insert(inode(fd)?, what);
    Some(())
}

/// What a descriptor stands for. `None` if it was never exported or is closed.
pub(crate) fn find(fd: c_int) -> Option<Exported> {
    handles().as_ref()?.get(&inode(fd)?).cloned()
}

/// The bytes before the contents of a memory file. To import a file, lavapipe expects its own header there.
pub(crate) const HEADER: u64 = 4096;

/// The descriptors that the stand-in itself has open.
static OWN: Mutex<Option<HashSet<c_int>>> = Mutex::new(None);

fn own() -> MutexGuard<'static, Option<HashSet<c_int>>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a file that stands for `size` bytes of CUDA's memory. Unlike what Vulkan exports, the file has
/// contents, and another process recognises it by its name.
pub(crate) fn create_memory(size: u64) -> Option<c_int> {
    // SAFETY: a terminated name, and a descriptor that was just made.
    let fd = unsafe {
        let fd = libc::memfd_create(c"wavefield-stand-in-memory".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 || libc::ftruncate(fd, (HEADER + size) as libc::off_t) != 0 {
            return None;
        }
        fd
    };
    own().get_or_insert_default().insert(fd);
    Some(fd)
}

/// Duplicates `fd` for the stand-in's own use.
fn own_copy(fd: c_int) -> Option<c_int> {
    // SAFETY: answers -1 if it is not open.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    (copy >= 0).then(|| own().get_or_insert_default().insert(copy))?;
    Some(copy)
}

/// Duplicates the descriptor of a memory file, which another process may have made. Also returns the file's
/// size in bytes.
pub(crate) fn import_memory(fd: c_int) -> Option<(c_int, u64)> {
    let size = memory_size(fd)?;
    Some((own_copy(fd)?, size))
}

/// Closes a descriptor from [`create_memory`] or [`own_copy`].
pub(crate) fn release_memory(fd: c_int) {
    own().get_or_insert_default().remove(&fd);
    // SAFETY: the stand-in made this descriptor, and nobody else uses it.
    unsafe { libc::close(fd) };
}

/// Whether the name of a descriptor's file contains `words`. A test uses the name to have memory of another
/// GPU, or compressed memory.
pub(crate) fn is_named(fd: c_int, words: &str) -> bool {
    let path = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
    path.to_string_lossy().contains(words)
}

/// The size in bytes of CUDA's memory that a descriptor stands for. `None` for anything else.
pub(crate) fn memory_size(fd: c_int) -> Option<u64> {
    is_named(fd, "wavefield-stand-in-memory").then_some(())?;
    // SAFETY: a plain C structure, which the call fills.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    (unsafe { libc::fstat(fd, &mut stat) } == 0).then_some((stat.st_size as u64).checked_sub(HEADER)?)
}

fn inode(fd: c_int) -> Option<u64> {
    // SAFETY: a plain C structure, which the call fills.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: as above; a descriptor that is not open is an error.
    (unsafe { libc::fstat(fd, &mut stat) } == 0).then_some(stat.st_ino)
}

/// The exported handles that this process still has open, without the stand-in's own.
pub(crate) fn open_descriptors() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let ours = entries.flatten().filter(|entry| {
        let kept = entry
            .file_name()
            .to_string_lossy()
            .parse()
            .is_ok_and(|fd: c_int| own().as_ref().is_some_and(|own| own.contains(&fd)));
        !kept && std::fs::read_link(entry.path()).is_ok_and(|path| path.to_string_lossy().contains(NAME))
    });
    ours.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
