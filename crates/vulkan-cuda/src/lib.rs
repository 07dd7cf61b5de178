//! Share GPU memory and semaphores between Vulkan and CUDA, without copies, with devices that somebody else made.
//!
//! Read in this order; each file is short, and about nothing else. (The guide in the repository's `docs/guide` explains them step by
//! step, with pictures and exercises.)
//!
//! 1. [`pair`](mod@pair): which CUDA device *is* this Vulkan device? The [`Pair`] proves it, and everything is made from it.
//! 2. [`memory`]: Vulkan allocates and exports, CUDA imports and maps: one memory, two addresses.
//! 3. [`timeline`]: semaphores that both signal and wait for, on the GPU; [`binary`] for those who cannot use timelines.
//! 4. [`ring`]: which value to wait for and which to signal. Pure arithmetic.
//! 5. [`shared_ring`]: all of it together, frame by frame, so that no slot is overwritten while it is read.
//! 6. [`ownership`]: the barriers by which Vulkan takes a buffer from CUDA and gives it back.
//! 7. [`handle`]: what travels between the two APIs, as data: file descriptors on Linux, NT and KMT handles on Windows.
//!
//! That is the plain case, a buffer in memory of its own. What else CUDA can share with Vulkan:
//!
//! - [`image`](mod@image): images of every view type with their mip chains; [`format`](mod@format) and [`shape`] translate
//!   them, [`exportable`] says which a device has.
//! - [`allocation`]: several buffers in one allocation, each at its offset; [`layout`] says where they may lie.
//! - [`cuda_memory`]: the other direction, memory that CUDA allocated and Vulkan imports.
//!
//! A frame, with [`ring::Ring::turn`] giving every number:
//!
//! ```text
//! CUDA stream     wait free ≥ n+1-K ─ kernel writes slot n mod K ─ signal ready = n+1
//!                                                                           │
//! Vulkan queue                      wait ready ≥ n+1 at the stage that reads ┘ ─ acquire ─ draw ─ release ─ signal free = n+1
//! ```
//!
//! The CPU enqueues both lines and waits for neither. Pace it as you pace your frames, or it fills the queues: [`shared_ring`].
//!
//! # Your own device
//!
//! [`Vk::from_raw`] adopts a device of ash, wgpu or vulkano, and [`Cuda::from_cudarc`] or [`Cuda::from_raw`] a context.
//! What is adopted is never destroyed here. Create the device with [`DEVICE_EXTENSIONS`] and the feature `timelineSemaphore`. The
//! barriers of [`ownership`] are those of `vkCmdPipelineBarrier2`, which needs `synchronization2`; the ring does without.
//!
//! # Who keeps what alive
//!
//! Every object keeps alive what it was made from, so they may be dropped in any order. What no type can see is
//! whether the GPU still uses one. Whatever enqueues such a use is `unsafe`, here, in ash and in cudarc, and its caller promises
//! to keep the object alive until the GPU has passed it. [`SharedRing`] makes that promise itself, and keeps it.
//!
//! What is shared, a ring of it, and its reads are `Send`, `Sync` and `'static`, so a renderer's drop callback may own one. Do not
//! let it where `keep` is the renderer's own device: the callback would keep that device alive for ever. Lend the buffer instead,
//! and drop it once the renderer has let go (`examples/wgpu` in the repository does so). Two kinds of value stay where they are:
//! a [`Write`] borrows its ring, and the handles and operands of [`handle`] may hold a bare pointer to an NvSci object, so they
//! are not `Send`.
//!
//! # Layers
//!
//! A module imports only from those before it in this list; a test of the repository (`tests/layers.rs`) reads every import.
//!
//! `identity`, `error`, `cuda`, `handle`, `format`, `shape`, `exportable`, `vulkan_info`, `vulkan`, `mismatch`, `pair`,
//! `export`, `memory`, `semaphore`, `timeline`, `binary`, `ring`, `ownership`, `exported_image`, `image`, `layout`,
//! `exported_allocation`, `allocation`, `cuda_allocation`, `pieces`, `sparse`, `imported_buffer`, `cuda_memory`,
//! `ledger`, `hand_over`, `slot`, `shared_ring`

#![deny(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks)]

pub mod allocation;
pub mod binary;
pub mod cuda;
mod cuda_allocation;
pub mod cuda_memory;
mod error;
mod export;
pub mod exportable;
mod exported_allocation;
mod exported_image;
pub mod format;
mod hand_over;
pub mod handle;
mod identity;
pub mod image;
mod imported_buffer;
pub mod layout;
mod ledger;
pub mod memory;
mod mismatch;
pub mod ownership;
pub mod pair;
mod pieces;
pub mod ring;
mod semaphore;
pub mod shape;
pub mod shared_ring;
mod slot;
mod sparse;
pub mod timeline;
mod vulkan;
mod vulkan_info;

pub use allocation::{ImportedAllocation, MappedBuffer, SharedAllocation};
pub use binary::{BinarySignal, ExportedBinary, SharedBinary, SignalToSubmit, WaitToSubmit};
pub use cuda::{Cuda, CudaInfo, Driver, Stream};
pub use cuda_memory::{CudaAllocation, ImportedBuffer};
pub use error::{Error, Result, cuda_advice, on_cleanup_error, vulkan_words};
pub use exported_allocation::ExportedAllocation;
pub use exported_image::{ExportedImage, ImageRequest};
pub use format::{ArrayFormat, FORMATS, Numeric};
pub use identity::{DeviceUuid, Luid};
pub use image::{MappedImage, share_image};
pub use memory::{ExportedBuffer, MappedMemory, SharedBuffer};
pub use pair::{Mismatch, Pair, find_twin, same_device};
pub use ring::{Ring, Turn};
pub use semaphore::ImportedSemaphore;
pub use shape::{Shape, ViewType};
pub use shared_ring::{Read, Reads, SharedRing, Slot, Write};
pub use timeline::{ExportedTimeline, SharedTimeline};
pub use vulkan::Vk;
pub use vulkan_info::{DEVICE_EXTENSIONS, Exports, VkInfo};
