//! What waits and signals need, by kind of semaphore.

use cudarc::driver::sys;

use super::NvSciObject;
use crate::{Error, Result};

/// What a wait or a signal needs. A wait or signal with another operand is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    Nothing,
    Value,
    Key,
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

/// What a wait for an imported semaphore needs. [`ImportedSemaphore::wait`](crate::ImportedSemaphore::wait) takes one.
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
    /// Waits for the signal that wrote this `NvSciSyncFence`.
    Fence(NvSciObject),
}

/// What a signal of an imported semaphore needs. [`ImportedSemaphore::signal`](crate::ImportedSemaphore::signal) takes one.
#[derive(Clone, Copy, Debug)]
pub enum Signal {
    /// Signals a binary semaphore. The previous signal must already have its wait.
    Binary,
    /// Sets the fence or timeline to this value.
    Value(u64),
    /// Releases the mutex with this key.
    Key(u64),
    /// Writes this `NvSciSyncFence` for others to wait for.
    Fence(NvSciObject),
}

impl Wait {
    pub(crate) const fn operand(self) -> Operand {
        match self {
            Self::Binary => Operand::Nothing,
            Self::Value(_) => Operand::Value,
            Self::Key { .. } => Operand::Key,
            Self::Fence(_) => Operand::Fence,
        }
    }

    /// Returns the parameters that `cuWaitExternalSemaphoresAsync` takes.
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
            Self::Fence(fence) => params.params.nvSciSync.fence = fence.pointer(),
        }
        params
    }
}

impl Signal {
    pub(crate) const fn operand(self) -> Operand {
        match self {
            Self::Binary => Operand::Nothing,
            Self::Value(_) => Operand::Value,
            Self::Key(_) => Operand::Key,
            Self::Fence(_) => Operand::Fence,
        }
    }

    /// Returns the parameters that `cuSignalExternalSemaphoresAsync` takes.
    pub fn params(self) -> sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS {
        // SAFETY: as in `Wait::params`.
        let mut params: sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS = unsafe { std::mem::zeroed() };
        match self {
            Self::Binary => {}
            Self::Value(value) => params.params.fence.value = value,
            Self::Key(key) => params.params.keyedMutex.key = key,
            Self::Fence(fence) => params.params.nvSciSync.fence = fence.pointer(),
        }
        params
    }
}
