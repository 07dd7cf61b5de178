//! The CUDA driver API, opened at run time: no toolkit to build, none to run, and no panic where there is no driver.
//!
//! cudarc brings the bindings ([`cudarc::driver::sys`]) and opens the library. The few types here own what they
//! create, keep their [`Context`] alive, and name the call and the device in every error.

mod context;
mod driver;
mod kernel;

pub use context::{Context, Event, Stream};
pub use driver::{DeviceInfo, Driver};
pub use kernel::{Kernel, KernelSource};
