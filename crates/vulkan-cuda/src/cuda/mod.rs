//! The CUDA driver API, opened at run time: no toolkit to build, none to run, and no panic where there is no driver.
//!
//! cudarc brings the types ([`cudarc::driver::sys`]) and opens the library; [`api`] has its functions.

#[doc(hidden)]
pub mod api;
mod array;
mod context;
mod driver;

pub use array::{Array, Surface, Texture, TextureDesc};
pub use context::{Cuda, Stream, is_sticky};
pub use driver::{CudaInfo, Driver, require};

#[cfg(test)]
pub(crate) use context::tests;
