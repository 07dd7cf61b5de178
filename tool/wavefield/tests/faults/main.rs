//! Makes the calls of both APIs fail in turn.

#[path = "../common/mod.rs"]
mod common;

#[cfg(target_os = "linux")]
mod cuda_faults;
#[cfg(target_os = "linux")]
mod vulkan_faults;
