//! The other direction: memory that *CUDA* allocates and exports, and Vulkan imports.
//!
//! Elsewhere in this crate Vulkan allocates. Some programs cannot have that: a tensor is where its library put it. CUDA can
//! export what was allocated with `cuMemCreate` and a handle type
//! ([Virtual Memory Management](https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__VA.html)); memory from `cuMemAlloc` it
//! cannot. On Linux the handle is a file descriptor, and Vulkan imports it as `OPAQUE_FD` (`VkImportMemoryFdInfoKHR`).
//! No specification promises that the two fit. They do on an NVIDIA H200 (driver 580).
//!
//! | who | owns | until |
//! |---|---|---|
//! | [`CudaAllocation`] | the address, its mappings, and CUDA's references to the memory | it is dropped |
//! | a descriptor ([`CudaAllocation::export`]) | one reference to the memory | it is closed, or Vulkan has imported it |
//! | [`ImportedBuffer`] | a Vulkan buffer, Vulkan's reference to the memory, and an `Arc` of the allocation | it is dropped |
//!
//! The memory itself is freed with its last reference, so neither side can take it from the other ("The memory allocation will be
//! freed when all outstanding mappings to the memory are unmapped and when all outstanding references to the handle (including
//! its shareable counterparts) are also released", `cuMemRelease`). CUDA's *address* ends with the allocation: that is why Vulkan's
//! view keeps it.
//!
//! An [`ImportedBuffer`] is a [`Slot`](crate::Slot): a [`SharedRing`](crate::SharedRing) of them hands frames over as one of
//! [`SharedBuffer`](crate::SharedBuffer)s does.
//!
//! # Several chunks
//!
//! An allocation may consist of several chunks, one behind the other in CUDA's address space, as PyTorch's expandable segments do.
//! Each chunk is exported and imported for itself. A buffer whose bytes lie in one chunk is bound to it
//! ([`ImportedBuffer::new`]). One that spans several is bound *sparsely*, if the device can ([`ImportedBuffer::spanning`]).
//! Otherwise copy it into one.
//!
//! # A descriptor from a stranger
//!
//! **One refused import may cost a process all others.** On an H200 (driver 580.159.04), after a dma-buf was refused as `OPAQUE_FD`,
//! every later import of that process was refused as well, with the same `ERROR_OUT_OF_DEVICE_MEMORY`. Mesa's lavapipe (22.3.6)
//! closes a descriptor that it refuses, although the descriptor is still the caller's. It is then closed twice, for which Rust's
//! standard library may abort the process.
//!
//! So import only what your own process has exported, or try the descriptor in a child process first: whatever happens to the
//! driver there ends with that process. `examples/cuda_memory/stranger.rs` does so. There [`CudaAllocation::import`] also proves what
//! Vulkan cannot: that it is CUDA's memory, on this GPU, and of this very size.

pub use crate::cuda_allocation::CudaAllocation;
pub use crate::imported_buffer::ImportedBuffer;
pub use crate::pieces::{Piece, pieces};
