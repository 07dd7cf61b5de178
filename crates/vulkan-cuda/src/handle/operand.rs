//! What waits and signals need, by kind of semaphore.

use cudarc::driver::sys;

use super::NvSciFence;
use crate::{Error, Result};

/// What a wait or a signal needs. A wait or signal with another operand is an error. [`Wait`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// Nothing. The semaphore is either signalled or not, and a wait resets it.
    Nothing,
    /// The value of the fence or timeline.
    Value,
    /// The key of the mutex, and for a wait a time limit.
    Key,
    /// An `NvSciSyncFence`. A signal writes it, a wait reads it.
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

    /// Fails if `given` is not what a semaphore of this operand needs. The driver would read another field.
    pub(crate) fn check(self, given: Self, verb: &str, name: &str) -> Result<()> {
        if self == given {
            return Ok(());
        }
        Err(Error::Rule(format!("to {verb} {name} takes {}, but {} was given", self.words(), given.words())))
    }
}
/// What a wait for an imported semaphore needs ([`cuWaitExternalSemaphoresAsync`]).
///
/// # Examples
/// ```
/// use vulkan_cuda::handle::{Operand, Wait};
///
/// let wait = Wait::Key { key: 1, timeout_ms: 250 };
/// assert_eq!(wait.operand(), Operand::Key);
/// assert_eq!(wait.params().flags, 0);
/// ```
///
/// [`ImportedSemaphore::wait`](crate::ImportedSemaphore::wait) takes one.
///
/// [`cuWaitExternalSemaphoresAsync`]: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__EXTRES__INTEROP.html
#[derive(Clone, Copy, Debug)]
pub enum Wait {
    /// Waits for a binary semaphore's signal, and resets it. Each signal has one wait.
    Binary,
    /// Waits until the fence or timeline has this value or a greater one.
    Value(u64),
    /// Waits until the mutex is released with this key, or the time is up.
    Key {
        /// The key that the last owner released it with, as for `IDXGIKeyedMutex::AcquireSync`.
        key: u64,
        /// Milliseconds. Windows' `INFINITE` (`u32::MAX`) means no limit.
        timeout_ms: u32,
    },
    /// Waits for the signal that wrote the fence.
    Fence {
        /// Read by the call.
        fence: NvSciFence,
        /// Does not synchronise memory imported from NvSciBuf: `CUDA_EXTERNAL_SEMAPHORE_WAIT_SKIP_NVSCIBUF_MEMSYNC`.
        skip_memory_sync: bool,
    },
}

/// What a signal of an imported semaphore needs ([`cuSignalExternalSemaphoresAsync`]).
///
/// # Examples
/// ```
/// use vulkan_cuda::handle::{Operand, Signal};
///
/// assert_eq!(Signal::Value(7).operand(), Operand::Value);
/// assert_eq!(Signal::Binary.params().flags, 0);
/// ```
///
/// [`ImportedSemaphore::signal`](crate::ImportedSemaphore::signal) takes one.
///
/// [`cuSignalExternalSemaphoresAsync`]: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__EXTRES__INTEROP.html
#[derive(Clone, Copy, Debug)]
pub enum Signal {
    /// Signals a binary semaphore. The previous signal must already have its wait.
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
    /// Returns which operand this wait has. See the [example](Wait#examples).
    pub const fn operand(self) -> Operand {
        match self {
            Self::Binary => Operand::Nothing,
            Self::Value(_) => Operand::Value,
            Self::Key { .. } => Operand::Key,
            Self::Fence { .. } => Operand::Fence,
        }
    }

    /// Returns the parameters that [`cuWaitExternalSemaphoresAsync`] takes.
    ///
    /// [`cuWaitExternalSemaphoresAsync`]: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__EXTRES__INTEROP.html
    pub fn params(self) -> sys::CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS {
        // SAFETY: a plain C structure of integers and unused pointers, for which all zeros mean "nothing requested".
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
    /// Returns which operand this signal has. See the [example](Signal#examples).
    pub const fn operand(self) -> Operand {
        match self {
            Self::Binary => Operand::Nothing,
            Self::Value(_) => Operand::Value,
            Self::Key(_) => Operand::Key,
            Self::Fence { .. } => Operand::Fence,
        }
    }

    /// Returns the parameters that [`cuSignalExternalSemaphoresAsync`] takes.
    ///
    /// [`cuSignalExternalSemaphoresAsync`]: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__EXTRES__INTEROP.html
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
