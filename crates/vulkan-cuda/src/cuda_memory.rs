//! The other direction: memory that *CUDA* allocates and exports, and Vulkan imports.
//!
//! In the other modules Vulkan allocates. Some programs cannot use that, because a library has already allocated a
//! tensor. CUDA can export memory that was allocated with `cuMemCreate` and a handle type ([Virtual Memory
//! Management](https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__VA.html)). It cannot export memory from
//! `cuMemAlloc`. On Linux the handle is a file descriptor, and Vulkan imports it as `OPAQUE_FD`
//! (`VkImportMemoryFdInfoKHR`). No specification promises that this works. It does on an NVIDIA H200 (driver 580).
//!
//! | owner | owns | until |
//! |---|---|---|
//! | [`CudaAllocation`] | the address, its mappings, and CUDA's references to the memory | it is dropped |
//! | a descriptor ([`CudaAllocation::export`]) | one reference to the memory | it is closed, or Vulkan has imported it |
//! | [`CudaBuffer`] | a Vulkan buffer, Vulkan's reference to the memory, and an `Arc` of the allocation | it is dropped |
//!
//! The memory is freed with its last reference, so neither side can take it from the other ("The memory allocation
//! will be freed when all outstanding mappings to the memory are unmapped and when all outstanding references to the
//! handle (including its shareable counterparts) are also released", `cuMemRelease`). But CUDA's *address* is valid
//! only while the allocation lives. Vulkan's buffer therefore keeps the allocation alive.
//!
//! A [`SharedRing`](crate::SharedRing) hands over such buffers too. Because two of them may show the same bytes, which the
//! slots of a ring must not, you write the [`Slot`](crate::Slot) yourself.
//!
//! # Examples
//!
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
//! `examples/08_cuda_memory.rs` goes through the three cases below.
//!
//! # Several chunks
//!
//! An allocation may consist of several chunks, one after the other in CUDA's address space. PyTorch's expandable
//! segments do. Each chunk is exported and imported on its own. A buffer whose bytes lie in one chunk is bound to
//! that chunk ([`CudaBuffer::new`]). A buffer that spans several is bound *sparsely*, if the device supports it
//! ([`CudaBuffer::spanning`]). If it does not, copy the bytes into one chunk.
//!
//! # A descriptor from a stranger
//!
//! **One refused import may make every later import of the process fail.** On an H200 (driver 580.159.04), after a
//! dma-buf was refused as `OPAQUE_FD`, every later import of that process was refused as well, with the same
//! `ERROR_OUT_OF_DEVICE_MEMORY`. Mesa's lavapipe (22.3.6) closes a descriptor that it refuses, although the caller
//! still owns it. The descriptor is then closed twice, and Rust's standard library may abort the process for that.
//!
//! So import only what your own process has exported, or try the descriptor in a child process first: the damage ends
//! with that process. `examples/cuda_memory/stranger.rs` does so. There [`CudaAllocation::import`] also proves what
//! Vulkan cannot: that the descriptor stands for CUDA's memory, on this GPU, of exactly this size.

pub use crate::cuda_allocation::CudaAllocation;
pub use crate::cuda_buffer::CudaBuffer;
