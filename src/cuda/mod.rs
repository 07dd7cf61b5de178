//! CUDA as this program uses it: streams, kernels and memory that CUDA allocates. The driver, its devices and their
//! contexts are in the library ([`vulkan_cuda::cuda`]).
//!
//! The types here own what they create, keep their context ([`Cuda`]) alive, and name the call and the device in every error.

pub mod cubin;
mod jit_log;
mod kernel;
mod memory;
mod mipmap;
mod nvrtc;
mod parameters;
mod ptx;
mod stream;

pub(crate) use kernel::blocks;
pub use kernel::{Kernel, KernelSource, MAX_PTX};
pub use memory::DeviceMemory;
pub(crate) use memory::memset;
pub use mipmap::MipmappedArray;
pub use parameters::{KernelParameter, KernelParameters, KernelValues, MAX_PARAMETERS};
pub use ptx::Signature;
pub use stream::{Event, Priority, Stream};
pub(crate) use vulkan_cuda::cuda::api;
pub use vulkan_cuda::cuda::{Array, Surface, Texture, TextureDesc};
pub(crate) use vulkan_cuda::cuda::{is_sticky, require};
pub use vulkan_cuda::{Cuda, CudaInfo, Driver};
