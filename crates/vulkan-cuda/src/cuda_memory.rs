//! The other direction: memory that *CUDA* allocates and exports, and Vulkan imports.
//!
//! CUDA can export memory from `cuMemCreate` with a handle type ([Virtual Memory Management]), but none from
//! `cuMemAlloc`. This works on Linux only: the handle is a file descriptor, and Vulkan imports it as
//! `OPAQUE_FD`. No specification promises it. It works on an NVIDIA H200 (driver 580).
//!
//! [Virtual Memory Management]: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__VA.html
//!
//! | owner | owns | until |
//! |---|---|---|
//! | [`CudaAllocation`] | the address, its mappings, and CUDA's references to the memory | it is dropped |
//! | a descriptor ([`CudaAllocation::export`]) | one reference to the memory | it is closed or imported |
//! | [`CudaBuffer`] | a Vulkan buffer with its memory, and an `Arc` of the allocation | it is dropped |
//!
//! The memory is freed with its last reference, so neither side can take it from the other (`cuMemRelease`).
//! But CUDA's *address* is valid only while the allocation lives, so Vulkan's buffer keeps it alive.
//!
//! A [`SharedRing`](crate::SharedRing) hands over such buffers too. Two of them may show the same bytes,
//! which the slots of a ring must not, so you implement [`Slot`](crate::Slot) yourself.
//!
//! # Examples
//! A Vulkan buffer that shows a part of CUDA's memory:
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
//! `examples/08_cuda_memory.rs` shows this and the two cases below.
//!
//! # Several chunks
//! An allocation may have several chunks, one after the other in CUDA's address space, like PyTorch's
//! expandable segments. Each is exported and imported on its own. A buffer that spans several is bound
//! *sparsely* ([`CudaBuffer::spanning`]). If the device does not support that, copy the bytes into one chunk.
//!
//! # A descriptor from a stranger
//! **One refused import may make every later import of the process fail.** It did on an H200 (driver
//! 580.159.04). Mesa's lavapipe (22.3.6) closes a descriptor that it refuses, although the caller still owns
//! it. It is then closed twice, and Rust's standard library may abort the process for that.
//!
//! So import only what your own process has exported, or try the descriptor in a child process first, as
//! `examples/cuda_memory/stranger.rs` does. There [`CudaAllocation::import`] also proves what Vulkan cannot:
//! that the descriptor stands for CUDA's memory, on this GPU, of exactly this size.

pub use crate::cuda_allocation::CudaAllocation;
pub use crate::cuda_buffer::CudaBuffer;
