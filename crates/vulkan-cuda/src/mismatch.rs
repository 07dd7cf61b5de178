//! The reasons why [`crate::find_twin`] finds no twin.

use std::fmt;

use crate::handle::ExportType;

/// Why a Vulkan device cannot share with CUDA. Returned by [`find_twin`](crate::find_twin).
///
/// `Display` writes the reason as a clause about the Vulkan device: "it cannot export a buffer as OPAQUE_FD".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// No CUDA device has its UUID. On Windows, no CUDA device has its LUID, if both APIs report one.
    NoTwin,
    /// It belongs to a device group of this many physical devices. CUDA cannot import a group's memory.
    Group(usize),
    /// Its buffers cannot be exported.
    Buffer,
    /// Its timeline semaphores cannot be exported.
    Timeline,
    /// The CUDA device with its UUID cannot import timeline semaphores.
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
