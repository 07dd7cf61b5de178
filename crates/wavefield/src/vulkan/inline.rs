//! The extensions that launch CUDA kernels from a command buffer.

use ash::{nv, nvx};

/// An extension that launches CUDA kernels from a command buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InlineSupport {
    KernelLaunch,
    BinaryImport,
}

pub(crate) const NO_INLINE: &str = "the driver has neither VK_NV_cuda_kernel_launch nor VK_NVX_binary_import";

impl InlineSupport {
    pub fn extension(self) -> &'static std::ffi::CStr {
        match self {
            Self::KernelLaunch => nv::cuda_kernel_launch::NAME,
            Self::BinaryImport => nvx::binary_import::NAME,
        }
    }

    pub(crate) fn producer_name(self) -> &'static str {
        match self {
            Self::KernelLaunch => "cuda, inline by VK_NV_cuda_kernel_launch",
            Self::BinaryImport => "cuda, inline by VK_NVX_binary_import",
        }
    }
}
