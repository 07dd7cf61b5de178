//! Lists and checks which images, buffers and semaphores a device can share with CUDA.
//!
//! [`list`] asks Vulkan what it exports. [`check`] takes each of those through CUDA and back, byte for byte, and
//! records the results. Both fill a [`record::Report`], which becomes the table and the JSON file.

mod buffers;
mod check;
mod images;
mod kernels;
mod list;
mod pattern;
pub mod record;
mod table;
mod transfer;

pub use check::check;
pub use list::list;
pub use record::write_json;
pub use table::Table;
