//! Which images, buffers and semaphores a device can share with CUDA: asked of the driver, and tried.
//!
//! [`list`] asks Vulkan what it exports. [`check`] takes each of those through CUDA and back, byte for byte, and writes
//! down what came out. Both fill a [`record::Report`], from which the table and the JSON file are made.

mod buffers;
mod check;
mod images;
mod kernels;
mod list;
pub mod pattern;
pub mod record;
mod table;
mod transfer;

pub use check::{check, check_vulkan_alone};
pub use list::list;
pub use record::write_json;
pub use table::Table;
