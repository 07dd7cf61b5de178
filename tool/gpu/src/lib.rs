//! The base crate of the tool: Vulkan and CUDA objects that own their handles, and utilities for every crate.
//!
//! - [`vulkan`]: from the instance to the swapchain; [`shaders`]: the SPIR-V of all shaders
//! - [`cuda`]: a context, a stream, kernels from PTX or CUDA C++
//! - [`machine`]: a description of the machine on which a figure was measured
//! - [`error`]: the error type of all crates; [`advice`]: what to do about an error
//! - [`report`]: results and notes on the terminal; [`progress`]: a bar that shows the time left
//! - [`input_file`], [`output_file`]: files that the user names
//! - [`threads`]: rayon's pool, jobs on their own threads, precise sleeps
//! - [`stuck_gpu`]: objects that must not be released, because the GPU may still use them
//! - [`svg`]: pictures that follow the reader's light or dark theme
//! - `unix_packets`: packets with file descriptors over a Unix socket (Linux)

// Warns about `pub` on items that other crates cannot reach: use `pub(crate)` or `pub(super)` for those.
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
