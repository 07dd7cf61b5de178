//! CUDA as this program uses it: streams, kernels and memory that CUDA allocates. The driver, its devices and their
//! contexts are in the library ([`vulkan_cuda::cuda`]).
//!
//! The types here own what they create, keep their context ([`Cuda`]) alive, and name the call and the device in every error.

pub mod api;
pub mod cubin;
mod jit_log;
mod kernel;
mod memory;
mod mipmap;
mod nvrtc;
mod parameters;
mod peers;
mod ptx;
mod stream;
mod texture;

pub use kernel::blocks;
pub use kernel::{Kernel, KernelSource, MAX_PTX};
pub use memory::DeviceMemory;
pub use memory::memset;
pub use mipmap::MipmappedArray;
pub use parameters::{KernelParameter, KernelParameters, KernelValues, MAX_PARAMETERS};
pub use peers::peers;
pub use ptx::Signature;
pub use stream::{Event, Stream};
pub use texture::{Texture, TextureDesc};
pub use vulkan_cuda::cuda::is_sticky;
pub use vulkan_cuda::cuda::{Array, Surface};
pub use vulkan_cuda::{Cuda, CudaInfo, Driver};

use vulkan_cuda::Error;
use wavefield_base::Result;

use api::Code;

/// The answers of the driver's functions that only this program calls.
pub(crate) trait Check {
    /// Turns an answer into an error that names the call and the device.
    fn check(&self, call: &'static str, code: Code) -> Result<(), Error>;

    /// For `Drop`: makes the context current, calls `release`, and reports an error, because `Drop` cannot return one.
    fn cleanup(&self, call: &'static str, release: impl FnOnce() -> Code);
}

impl Check for Cuda {
    fn check(&self, call: &'static str, code: Code) -> Result<(), Error> {
        if is_sticky(code.0) {
            // The library believes only what it hears itself. After a fault every call returns it.
            let _ = self.memory();
        }
        match code {
            Code::SUCCESS => Ok(()),
            code => Err(Error::of_cuda(call, &self.info().name, code)),
        }
    }

    fn cleanup(&self, call: &'static str, release: impl FnOnce() -> Code) {
        let known = self.has_faulted();
        let released = self.bind().and_then(|()| self.check(call, release()));
        // After a fault every call returns the same error. The first one was reported.
        if let (Err(error), false) = (released, known) {
            wavefield_base::report::cleanup_error(&error.into());
        }
    }
}

/// Loads CUDA's driver, with the functions that only this program calls.
pub fn load_driver() -> Result<Driver> {
    let driver = Driver::load()?;
    // SAFETY: the library is present, because the driver was loaded.
    unsafe { api::look_up() }?;
    Ok(driver)
}
