//! Lists and checks which images, buffers and semaphores a device can share with CUDA.
//!
//! - `list`: asks Vulkan what it exports
//! - `check`: takes each of those through CUDA and back, byte for byte; `transfer`, `kernels`, `pattern` are its parts
//! - `record`: the results as data

mod check;
mod kernels;
mod list;
mod pattern;
mod record;
mod transfer;

pub use check::check;
pub use list::list;
pub use record::{Object, Report};
