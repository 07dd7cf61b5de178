//! The CUDA driver API, opened at run time: no toolkit to build, none to run, and no panic where there is no driver.
//!
//! cudarc brings the types ([`cudarc::driver::sys`]) and opens the library. `api.rs` has its functions, which `look_up.rs` finds.

#[doc(hidden)]
pub mod api;
mod array;
mod context;
mod driver;
mod look_up;
mod objects;
mod stream;

pub use array::Array;
pub use context::{Cuda, is_sticky};
pub use driver::{CudaInfo, Driver, require};
pub use objects::{Surface, Texture, TextureDesc};
pub use stream::Stream;

#[cfg(test)]
pub(crate) use context::tests;
