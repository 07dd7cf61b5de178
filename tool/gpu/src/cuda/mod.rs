//! Streams, kernels and memory. Drivers, devices and contexts are in [`vulkan_cuda::cuda`].
//!
//! Each type owns what it creates, keeps its [`Cuda`] alive, and names call and device in every error.

pub mod api;
pub mod cubin;
mod jit_log;
mod kernel;
mod memory;
mod mipmap;
mod nvrtc;
mod owned;
mod parameters;
mod peers;
mod ptx;
mod stream;

pub use kernel::{Kernel, KernelSource, MAX_PTX, blocks};
pub use memory::{DeviceMemory, memset};
pub use mipmap::MipmappedArray;
pub use parameters::{KernelParameter, KernelParameters, KernelValues, MAX_PARAMETERS};
pub use peers::peers;
pub use ptx::Signature;
pub use stream::{Event, Stream};
pub use vulkan_cuda::cuda::{Array, Surface, is_sticky};
pub use vulkan_cuda::{Cuda, CudaInfo, Driver};

use crate::Result;

/// Loads the driver and looks up the functions in [`api`].
pub fn load_driver() -> Result<Driver> {
    let driver = Driver::load_without_cudarc()?;
    api::look_up()?;
    Ok(driver)
}

/// What the fuzz target `ptx` calls.
#[cfg(fuzzing)]
pub mod fuzzing {
    use super::ptx::{self, PtxCode};

    pub fn choose(ptx: &str) -> Result<String, String> {
        ptx::choose(ptx, None)
    }

    pub fn block(ptx: &str, entry: &str) -> Option<[u32; 3]> {
        PtxCode::of(ptx).entry(entry)?.block()
    }
}
