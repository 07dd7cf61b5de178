//! The CUDA driver API, loaded at run time. It needs no toolkit. A missing driver is an error, not a panic.
//!
//! Every function that calls the driver returns the driver's error ([`Error::Cuda`](crate::Error::Cuda)). The
//! documentation lists only other errors and notable codes. CUDA's [manual] explains CUDA's terms.
//!
//! [manual]: https://docs.nvidia.com/cuda/cuda-driver-api/index.html

#[doc(hidden)]
pub mod api;
mod array;
mod context;
mod driver;
#[doc(hidden)]
pub mod look_up;
mod stream;

pub use array::{Array, Surface};
pub use context::{Cuda, is_sticky};
pub use driver::{CudaInfo, Driver};
pub use stream::Stream;

#[cfg(test)]
pub(crate) use context::tests;
