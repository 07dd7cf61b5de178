//! Vulkan objects and CUDA kernels, each of which owns its handles.

pub mod cuda;
pub mod machine;
pub mod vulkan;
