//! What waits and signals are told, by kind of semaphore.

use cudarc::driver::sys;

use super::NvSciFence;
use crate::{Error, Result};

/// What a wait or a signal must be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// Nothing: the semaphore is signalled or it is not, and a wait resets it.
    Nothing,
    /// The value of the fence.
    Value,
    /// The key of the mutex, and for a wait how long to try.
    Key,
    /// An `NvSciSyncFence`, which a signal writes and a wait reads.
    Fence,
}

impl Operand {
    const fn words(self) -> &'static str {
        match self {
            Self::Nothing => "no value",
            Self::Value => "a fence value",
            Self::Key => "a key",
            Self::Fence => "an NvSciSyncFence",
        }
    }

    /// An error where `given` is not what a semaphore of this operand is told; the driver would read another field.
    pub(crate) fn check(self, given: Self, verb: &str, name: &str) -> Result<()> {
        if self == given {
            return Ok(());
        }
        Err(Error::Rule(format!("to {verb} {name} takes {}, and was given {}", self.words(), given.words())))
    }
}
/// What a wait is told.
#[derive(Clone, Copy, Debug)]
pub enum Wait {
    /// Until it is signalled, and resets it: for each signal there is one wait.
    Binary,
    /// Until the fence or timeline has this value or a greater one.
    Value(u64),
    /// Until the mutex is released with this key, or the time is up.
    Key {
        /// The key that the last owner released it with, as for `IDXGIKeyedMutex::AcquireSync`.
        key: u64,
        /// Milliseconds; Windows' `INFINITE` (`u32::MAX`) is for ever.
        timeout_ms: u32,
    },
    /// Until the signal that wrote the fence.
    Fence {
        /// Read by the call.
        fence: NvSciFence,
        /// Leaves memory that was imported from NvSciBuf as it is: `CUDA_EXTERNAL_SEMAPHORE_WAIT_SKIP_NVSCIBUF_MEMSYNC`.
        skip_memory_sync: bool,
    },
}

/// What a signal is told.
#[derive(Clone, Copy, Debug)]
pub enum Signal {
    /// Signals a binary semaphore, whose last signal must have had its wait.
    Binary,
    /// Sets the fence or timeline to this value.
    Value(u64),
    /// Releases the mutex with this key.
    Key(u64),
    /// Writes a fence for others to wait for.
    Fence {
        /// Written by the call.
        fence: NvSciFence,
        /// As in [`Wait::Fence`]: `CUDA_EXTERNAL_SEMAPHORE_SIGNAL_SKIP_NVSCIBUF_MEMSYNC`.
        skip_memory_sync: bool,
    },
}

impl Wait {
    /// The kind of semaphore that it is for.
    pub const fn operand(self) -> Operand {
        match self {
            Self::Binary => Operand::Nothing,
            Self::Value(_) => Operand::Value,
            Self::Key { .. } => Operand::Key,
            Self::Fence { .. } => Operand::Fence,
        }
    }

    /// What `cuWaitExternalSemaphoresAsync` is given.
    pub fn params(self) -> sys::CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS {
        // SAFETY: a plain C structure of integers and unused pointers, for which all zeros is "nothing asked".
        let mut params: sys::CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS = unsafe { std::mem::zeroed() };
        match self {
            Self::Binary => {}
            Self::Value(value) => params.params.fence.value = value,
            Self::Key { key, timeout_ms } => {
                params.params.keyedMutex.key = key;
                params.params.keyedMutex.timeoutMs = timeout_ms;
            }
            Self::Fence { fence, skip_memory_sync } => {
                params.params.nvSciSync.fence = fence.0.as_ptr();
                if skip_memory_sync {
                    params.flags = sys::CUDA_EXTERNAL_SEMAPHORE_WAIT_SKIP_NVSCIBUF_MEMSYNC;
                }
            }
        }
        params
    }
}

impl Signal {
    /// The kind of semaphore that it is for.
    pub const fn operand(self) -> Operand {
        match self {
            Self::Binary => Operand::Nothing,
            Self::Value(_) => Operand::Value,
            Self::Key(_) => Operand::Key,
            Self::Fence { .. } => Operand::Fence,
        }
    }

    /// What `cuSignalExternalSemaphoresAsync` is given.
    pub fn params(self) -> sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS {
        // SAFETY: as in `Wait::params`.
        let mut params: sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS = unsafe { std::mem::zeroed() };
        match self {
            Self::Binary => {}
            Self::Value(value) => params.params.fence.value = value,
            Self::Key(key) => params.params.keyedMutex.key = key,
            Self::Fence { fence, skip_memory_sync } => {
                params.params.nvSciSync.fence = fence.0.as_ptr();
                if skip_memory_sync {
                    params.flags = sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_SKIP_NVSCIBUF_MEMSYNC;
                }
            }
        }
        params
    }
}
