//! Vulkan objects, from the instance to the swapchain, and CUDA kernels from PTX. Each owns its handles.
//!
//! - [`vulkan`]: from the instance to the swapchain
//! - [`cuda`]: a context, a stream, kernels from PTX or CUDA C++
//! - [`machine`]: what a figure was measured on

pub mod cuda;
pub mod machine;
pub mod vulkan;
