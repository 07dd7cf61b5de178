//! How CUDA and Vulkan share a GPU. Nothing here knows of waves or windows. Read in this order:
//!
//! 1. [`device`]: which CUDA device *is* this Vulkan device? Only the UUID says.
//! 2. [`handle`]: what travels between the two APIs, as data: file descriptors on Linux, NT and KMT handles on Windows.
//! 3. [`memory`]: Vulkan allocates and exports, CUDA imports and maps: one memory, two addresses.
//! 4. [`semaphore`]: timeline and binary semaphores that both signal and wait for, on the GPU.
//! 5. [`ring`]: which value to wait for and which to signal. Pure arithmetic.
//! 6. [`ownership`]: the barriers by which Vulkan takes a buffer from CUDA and gives it back.
//!
//! That is the plain case, a buffer in memory of its own. What else CUDA can share with Vulkan:
//!
//! - [`allocation`]: several buffers in one allocation, each at its offset; [`layout`] says where they may lie.
//! - [`image`](mod@image): images of every view type with their mip chains; [`format`](mod@format) and [`shape`] translate
//!   them, [`exportable`] says which a device has.
//!
//! A frame then is, with [`ring::Ring::turn`] giving every number:
//!
//! ```text
//! CUDA stream     wait free ≥ n+1-K ─ kernel writes slot n mod K ─ signal ready = n+1
//!                                                                           │
//! Vulkan queue                      wait ready ≥ n+1 at the stage that reads ┘ ─ acquire ─ draw ─ release ─ signal free = n+1
//! ```
//!
//! The CPU enqueues both lines and waits for neither; it stops only when it is K frames ahead (`vulkan::Pacer`).

pub mod allocation;
pub mod device;
pub mod exportable;
pub mod format;
pub mod handle;
pub mod image;
pub mod layout;
pub mod memory;
pub mod ownership;
pub mod ring;
pub mod semaphore;
pub mod shape;

pub use crate::identity::{DeviceUuid, Luid};
pub use allocation::{ExportedAllocation, ImportedAllocation, MappedBuffer, SharedAllocation};
pub use device::{Mismatch, find_twin, same_device};
pub use format::{ArrayFormat, FORMATS, Numeric};
pub use image::{ExportedImage, ImageRequest, MappedImage, share_image};
pub use memory::{ExportedBuffer, MappedMemory, SharedBuffer};
pub use ring::{Ring, Turn};
pub use semaphore::{
    BinarySignal, ExportedTimeline, ImportedSemaphore, SharedBinary, SharedTimeline, SignalToSubmit,
    WaitToSubmit,
};
pub use shape::{Shape, ViewType};
