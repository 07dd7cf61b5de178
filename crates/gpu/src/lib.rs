//! Vulkan objects and CUDA kernels. Each owns its handles.
//!
//! - [`vulkan`]: from the instance to the swapchain
//! - [`cuda`]: a context, a stream, kernels from PTX or CUDA C++
//! - [`machine`]: the machine on which a figure was measured

pub mod cuda;
pub mod machine;
pub mod vulkan;
