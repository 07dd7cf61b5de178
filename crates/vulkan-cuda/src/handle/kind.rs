//! The handle types that Vulkan exports, which are three of those that CUDA imports.

use ash::vk;

/// A handle type that Vulkan exports and CUDA imports. The discriminants are Vulkan's flag bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportType {
    /// A file descriptor.
    OpaqueFd = 1,
    /// An NT handle.
    OpaqueWin32 = 2,
    /// A KMT handle, which keeps nothing alive.
    OpaqueWin32Kmt = 4,
}

impl ExportType {
    /// The handle types of this operating system, in order of preference: NT handles, then KMT handles on
    /// Windows, and file descriptors elsewhere. [`VkInfo`](crate::VkInfo) says which one a device supports.
    pub const HERE: &[Self] =
        if cfg!(windows) { &[Self::OpaqueWin32, Self::OpaqueWin32Kmt] } else { &[Self::OpaqueFd] };

    /// Returns Vulkan's name of the type, without prefix and suffix.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpaqueFd => "OPAQUE_FD",
            Self::OpaqueWin32 => "OPAQUE_WIN32",
            Self::OpaqueWin32Kmt => "OPAQUE_WIN32_KMT",
        }
    }

    /// Returns the names of [`ExportType::HERE`], joined with "or".
    pub fn names() -> String {
        Self::HERE.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(" or ")
    }

    /// Returns Vulkan's flag for memory.
    pub const fn memory(self) -> vk::ExternalMemoryHandleTypeFlags {
        vk::ExternalMemoryHandleTypeFlags::from_raw(self as u32)
    }

    /// Returns Vulkan's flag for semaphores.
    pub const fn semaphore(self) -> vk::ExternalSemaphoreHandleTypeFlags {
        vk::ExternalSemaphoreHandleTypeFlags::from_raw(self as u32)
    }

    /// Returns whether CUDA imports semaphores of this kind as this handle type. The only exception is
    /// timeline semaphores as KMT handles.
    pub fn carries(self, kind: vk::SemaphoreType) -> bool {
        (self, kind) != (Self::OpaqueWin32Kmt, vk::SemaphoreType::TIMELINE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bits of `vulkan_core.h`, which are the same for memory and semaphores.
    #[test]
    fn the_types_are_those_of_vulkan() {
        for (kind, bit, name) in [
            (ExportType::OpaqueFd, 0x1, "OPAQUE_FD"),
            (ExportType::OpaqueWin32, 0x2, "OPAQUE_WIN32"),
            (ExportType::OpaqueWin32Kmt, 0x4, "OPAQUE_WIN32_KMT"),
        ] {
            assert_eq!((kind.memory().as_raw(), kind.semaphore().as_raw()), (bit, bit), "{name}");
            assert_eq!(kind.name(), name);
            assert!(kind.carries(vk::SemaphoreType::BINARY));
        }
        assert!(!ExportType::OpaqueWin32Kmt.carries(vk::SemaphoreType::TIMELINE));
    }
}
