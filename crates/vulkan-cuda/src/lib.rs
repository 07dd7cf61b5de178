#![doc = include_str!("../README.md")]
//!
//! # The modules, in the order to read them
//! 1. [`pair`](mod@pair): which CUDA device *is* this Vulkan device? All sharing begins with a [`Pair`].
//! 2. [`memory`]: Vulkan allocates and exports, CUDA imports and maps: one memory, two addresses.
//! 3. [`timeline`]: semaphores that both APIs use, on the GPU. [`binary`] is for programs without timelines.
//! 4. [`ownership`]: the barriers with which Vulkan takes a buffer from CUDA and gives it back.
//! 5. [`shared_ring`]: all of it, frame by frame. **Most programs need only this**, or its reverse,
//!    [`ring_to_cuda`].
//! 6. [`ring`]: for a ring of your own: which value to wait for and which to signal. Pure arithmetic.
//! 7. [`handle`]: what travels between the two APIs, as data.
//!
//! CUDA can also share images ([`image`](mod@image)), several buffers in one allocation ([`allocation`]), and
//! memory that CUDA allocated ([`cuda_memory`]). [`manual`] lists all that CUDA's manual describes.
//!
//! # Who keeps what alive
//! [`Vk::from_raw`] adopts a device made with ash, wgpu or vulkano; [`Cuda::from_cudarc`] and
//! [`Cuda::from_raw`] adopt a context. This crate never destroys what it adopts.
//!
//! Every object keeps alive what it was made from, so you may drop objects in any order. But no type can tell
//! whether the GPU still uses an object: drop it only when the GPU is done with it. Functions that enqueue
//! such a use are `unsafe`: their caller promises this. [`SharedRing`] keeps this promise itself.
//!
//! Shared objects, rings and turns are `Send`, `Sync` and `'static`, so a renderer's drop callback may own
//! one. One exception: if the `keep` of [`Vk::from_raw`] is the renderer's own device, the object keeps the
//! device alive, and the callback never runs. Lend the buffer instead, and drop it after the renderer has
//! released it, as `examples/wgpu` in the repository does. A [`CudaTurn`] borrows its ring. Handles and
//! operands of [`handle`] are not `Send`, because they may hold a bare pointer to an NvSci object.
//!
//! # Errors
//! [`enum@Error`] names the call, the device, the driver's answer and what to do. Sections on errors list
//! only what this crate itself refuses: any call may also fail with the driver's own error.
//!
//! # Layers
//! A module imports only from modules before it in this list:
//!
//! `identity`, `error`, `cuda`, `handle`, `format`, `shape`, `exportable`, `vulkan_info`, `vulkan`, `pair`,
//! `export`, `memory`, `semaphore`, `timeline`, `binary`, `ring`, `ownership`, `image`, `layout`,
//! `allocation`, `cuda_allocation`, `pieces`, `sparse`, `cuda_buffer`, `cuda_memory`,
//! `ledger`, `slot`, `hand_over`, `submission`, `vulkan_turn`, `view`, `shared_ring`, `ring_to_cuda`

#![deny(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks)]

pub mod allocation;
pub mod binary;
pub mod cuda;
mod cuda_allocation;
mod cuda_buffer;
pub mod cuda_memory;
mod error;
mod export;
pub mod exportable;
pub mod format;
mod frames;
mod hand_over;
pub mod handle;
mod identity;
pub mod image;
pub mod layout;
mod ledger;
#[doc = include_str!("manual.md")]
pub mod manual {}
pub mod memory;
pub mod ownership;
pub mod pair;
mod pieces;
pub mod ring;
pub mod ring_to_cuda;
mod semaphore;
pub mod shape;
pub mod shared_ring;
mod slot;
mod sparse;
mod submission;
pub mod timeline;
mod view;
mod vulkan;
mod vulkan_info;
mod vulkan_turn;

pub use allocation::ExportedAllocation;
pub use binary::SharedBinary;
pub use cuda::{Cuda, CudaInfo, Driver, Stream};
pub use cuda_memory::{CudaAllocation, CudaBuffer};
pub use error::{Error, Mismatch, Result, cuda_advice, on_cleanup_error, vulkan_words};
pub use format::{ArrayFormat, FORMATS, Numeric};
pub use identity::DeviceUuid;
pub use image::{ExportedImage, ImageRequest, SharedImage};
pub use memory::{ExportedBuffer, MappedMemory, SharedBuffer};
pub use pair::{Pair, find_twin, same_device};
pub use ring::{Ring, Turn};
pub use ring_to_cuda::{ReadTurn, RingToCuda, WriteTurn};
pub use semaphore::{ExportedSemaphore, ImportedSemaphore};
pub use shape::{Shape, ViewType};
pub use shared_ring::{CudaTurn, QueueUse, SharedRing, Slot, VulkanTurn};
pub use timeline::SharedTimeline;
pub use vulkan::Vk;
pub use vulkan_info::{DEVICE_EXTENSIONS, VkInfo};
