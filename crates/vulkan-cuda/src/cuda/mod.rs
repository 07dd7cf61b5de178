//! The CUDA driver API, opened at run time. You need no CUDA toolkit, neither to build nor to run, and a missing
//! driver is an error, not a panic.
//!
//! cudarc provides the types ([`cudarc::driver::sys`]) and opens the library. `api.rs` lists the functions that this
//! crate uses, and `look_up.rs` finds them. The manual of the driver API:
//! <https://docs.nvidia.com/cuda/cuda-driver-api/index.html>.
//!
//! [`Driver`] and [`Cuda`] have examples.

#[doc(hidden)]
pub mod api;
mod array;
mod context;
mod driver;
#[doc(hidden)]
pub mod look_up;
mod objects;
mod stream;

pub use array::Array;
pub use context::{Cuda, is_sticky};
pub use driver::{CudaInfo, Driver};
pub use objects::{Surface, Texture, TextureDesc};
pub use stream::Stream;

#[cfg(test)]
pub(crate) use context::tests;
