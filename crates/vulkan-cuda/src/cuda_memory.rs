//! Memory that *CUDA* allocates and exports, and Vulkan imports: the reverse of [`crate::memory`].
//!
//! CUDA can export memory that `cuMemCreate` allocated for a handle type ([Virtual Memory Management]), but
//! not memory from `cuMemAlloc`. This module works on Linux only: the handle is a file descriptor, and Vulkan
//! imports it as `OPAQUE_FD`, which no specification guarantees. It works on an NVIDIA H200 (driver 580).
//!
//! [Virtual Memory Management]: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__VA.html
//!
//! | owner | owns | until |
//! |---|---|---|
//! | [`CudaAllocation`] | the address, its mappings, and CUDA's references to the memory | it is dropped |
//! | a descriptor ([`CudaAllocation::export`]) | one reference to the memory | it is closed or imported |
//! | [`CudaBuffer`] | a Vulkan buffer, its memory, and an `Arc` of the allocation, if any | it is dropped |
//!
//! The memory is freed when its last reference is released (`cuMemRelease`), so neither API can free memory
//! that the other still references. But CUDA's *address* is valid only while the [`CudaAllocation`] lives, so
//! a [`CudaBuffer`] that was made from an allocation keeps the allocation alive.
//!
//! A [`SharedRing`](crate::SharedRing) can also hand over these buffers. You must implement
//! [`Slot`](crate::Slot) yourself, because the slots of a ring must not overlap, and two `CudaBuffer`s may.
//!
//! # Examples
//! A Vulkan buffer over part of CUDA's memory:
//!
//! ```no_run
//! # fn example(pair: vulkan_cuda::Pair) -> vulkan_cuda::Result<()> {
//! use ash::vk;
//! use vulkan_cuda::layout::Range;
//! use vulkan_cuda::{CudaAllocation, CudaBuffer};
//!
//! let allocation = CudaAllocation::new(pair.cuda(), 1 << 20)?;
//! let tensor = Range { offset: 4096, size: 4000 };
//! let view = CudaBuffer::new(&pair, &allocation, tensor, vk::BufferUsageFlags::STORAGE_BUFFER)?;
//! assert_eq!(view.cuda(), Some(allocation.pointer() + 4096));
//! println!("{:?} shows {} bytes", view.vulkan(), view.size());
//! # Ok(())
//! # }
//! ```
//!
//! `examples/08_cuda_memory.rs` shows this example and the two cases below.
//!
//! # Several chunks
//! An allocation may have several chunks at consecutive addresses, like PyTorch's expandable segments. Each
//! is exported and imported on its own. A buffer that spans several chunks is bound *sparsely*
//! ([`CudaBuffer::spanning`]). If the device does not support sparse binding, copy the bytes into one chunk.
//!
//! # A descriptor from another process
//! **One refused import may make every later import in the process fail.** This happened on an H200 (driver
//! 580.159.04). Mesa's lavapipe (22.3.6) closes a descriptor that it refuses, although the caller still owns
//! it. The descriptor is then closed twice, and Rust's standard library may abort the process for that.
//!
//! So import only what your own process has exported, or try the descriptor in a child process first, as
//! `examples/cuda_memory/stranger.rs` does. In the child, [`CudaAllocation::import`] can also check what
//! Vulkan cannot: that the descriptor stands for CUDA's memory, on this GPU, of exactly this size.

pub use crate::cuda_allocation::CudaAllocation;
pub use crate::cuda_buffer::CudaBuffer;
