//! The ground floor of the tool: Vulkan objects and CUDA kernels that own their handles, and what every crate
//! uses.
//!
//! - [`vulkan`]: from the instance to the swapchain; [`shaders`]: their SPIR-V
//! - [`cuda`]: a context, a stream, kernels from PTX or CUDA C++
//! - [`machine`]: what a figure was measured on
//! - [`error`]: what was tried, on which device, what the driver answered; [`advice`]: what to do about it
//! - [`report`]: results and notes on the terminal; [`progress`]: a bar that shows the time left
//! - [`input_file`], [`output_file`]: files that the user names
//! - [`threads`]: rayon's pool, one job on a thread, exact sleeping
//! - [`stuck_gpu`]: what must not be released, because the GPU may still use it
//! - [`svg`]: pictures that follow the reader's light or dark theme
//! - `unix_packets`: packets with file descriptors over a Unix socket (Linux)

// rustc then sees what nobody uses.
#![warn(unreachable_pub)]

pub mod advice;
pub mod cuda;
pub mod error;
pub mod input_file;
pub mod machine;
pub mod output_file;
pub mod progress;
pub mod report;
pub mod shaders;
pub mod stuck_gpu;
pub mod svg;
pub mod threads;
#[cfg(target_os = "linux")]
pub mod unix_packets;
pub mod vulkan;

pub use error::{Error, Result};
