//! The CUDA driver API, opened at run time: no toolkit to build, none to run, and no panic where there is no driver.
//!
//! cudarc brings the types ([`cudarc::driver::sys`]) and opens the library; `api` has its functions. The few types here own what they
//! create, keep their [`Context`] alive, and name the call and the device in every error.

pub(crate) mod api;
mod array;
mod context;
pub mod cubin;
mod driver;
mod kernel;
mod memory;
mod mipmap;
mod ptx;

pub use array::{Array, Surface, Texture, TextureDesc};
pub(crate) use context::is_sticky;
#[cfg(test)]
pub(crate) use context::tests;
pub use context::{Context, Event, Priority, Stream};
pub(crate) use driver::require;
pub use driver::{DeviceInfo, Driver};
pub(crate) use kernel::blocks;
pub use kernel::{Kernel, KernelSource, MAX_PTX};
pub use memory::DeviceMemory;
pub(crate) use memory::memset;
pub use mipmap::MipmappedArray;
pub use ptx::Signature;
