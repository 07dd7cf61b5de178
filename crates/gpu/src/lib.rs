//! Vulkan objects and CUDA kernels that own their handles, and the machine on which they run.
//!
//! - [`vulkan`]: from the instance to the swapchain
//! - [`cuda`]: a context, a stream, kernels from PTX or CUDA C++
//! - [`machine`]: what a figure was measured on

pub mod cuda;
pub mod machine;
pub mod vulkan;
