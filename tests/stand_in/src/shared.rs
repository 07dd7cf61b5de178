//! What Vulkan has exported and CUDA may import.
//!
//! A handle is a file in memory, known by its inode: an empty one, or the driver's own (`STAND_IN_DRIVERS_MEMORY`). What a real
//! driver keeps behind the descriptor is kept here.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ash::vk;

use crate::vulkan::DeviceFns;

/// What a descriptor stands for.
#[derive(Clone)]
pub(crate) enum Exported {
    /// Memory and its size.
    Memory(DeviceFns, vk::DeviceMemory, u64),
    /// A semaphore of either kind.
    Semaphore(DeviceFns, Arc<Semaphore>),
}

/// An exported semaphore. Vulkan below has a timeline in its place, for it has no others that the CPU could signal.
pub(crate) struct Semaphore {
    pub raw: vk::Semaphore,
    pub binary: bool,
    /// How often a binary one was signalled and waited for: each time is the next value of the timeline.
    pub counts: Mutex<(u64, u64)>,
}

impl Semaphore {
    /// The timeline's value for a signal with `value`.
    pub fn signal(&self, value: u64) -> u64 {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.0 += 1;
        if self.binary { counts.0 } else { value }
    }

    /// The timeline's value for a wait for `value`.
    pub fn wait(&self, value: u64) -> u64 {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.1 += 1;
        if self.binary { counts.1 } else { value }
    }
}

static HANDLES: Mutex<Option<HashMap<u64, Exported>>> = Mutex::new(None);

fn handles() -> MutexGuard<'static, Option<HashMap<u64, Exported>>> {
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

const NAME: &str = "wavefield-stand-in";

/// A new descriptor for `what`.
pub(crate) fn export(what: Exported) -> Option<c_int> {
    // SAFETY: a terminated name.
    let fd = unsafe { libc::memfd_create(c"wavefield-stand-in".as_ptr(), libc::MFD_CLOEXEC) };
    handles().get_or_insert_default().insert(inode(fd)?, what);
    Some(fd)
}

/// From now on the driver's own descriptor stands for `what`.
pub(crate) fn adopt(fd: c_int, what: Exported) -> Option<()> {
    handles().get_or_insert_default().insert(inode(fd)?, what);
    Some(())
}

/// What a descriptor stands for; `None` for one that was never exported, or is closed.
pub(crate) fn find(fd: c_int) -> Option<Exported> {
    handles().as_ref()?.get(&inode(fd)?).cloned()
}

fn inode(fd: c_int) -> Option<u64> {
    // SAFETY: a plain C structure, which the call fills.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: as above; a descriptor that is not open is an error.
    (unsafe { libc::fstat(fd, &mut stat) } == 0).then_some(stat.st_ino)
}

/// The exported handles that this process still has open.
pub(crate) fn open_descriptors() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let ours = entries.flatten().filter(|entry| {
        std::fs::read_link(entry.path()).is_ok_and(|path| path.to_string_lossy().contains(NAME))
    });
    ours.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
