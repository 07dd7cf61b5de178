//! What [`crate::find_twin`] answers where there is no twin, and the words for it.

use std::fmt;

use crate::handle::ExportType;

/// Why a Vulkan device cannot share with CUDA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// No CUDA device has its UUID; on Windows its LUID, where both APIs have one.
    NoTwin,
    /// It stands for several physical devices; memory of a group cannot be imported.
    Group(usize),
    /// Its buffers cannot be exported.
    Buffer,
    /// Its timeline semaphores cannot be exported.
    Timeline,
    /// Its CUDA twin cannot import timeline semaphores.
    CudaTimeline,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTwin => f.write_str("no CUDA device has its UUID"),
            Self::Group(size) => write!(f, "it is one of a device group of {size}"),
            Self::Buffer => write!(f, "it cannot export a buffer as {}", ExportType::names()),
            Self::Timeline => write!(f, "it cannot export a timeline semaphore as {}", ExportType::names()),
            Self::CudaTimeline => f.write_str("its CUDA driver cannot import timeline semaphores"),
        }
    }
}
