//! The handles that pass between the two APIs.
//!
//! CUDA imports eight kinds of memory handle and ten kinds of semaphore handle ([External Resource
//! Interoperability](https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__EXTRES__INTEROP.html)).
//! [`MemoryHandle`] and [`SemaphoreHandle`] have one variant for each. Vulkan exports handles of three types
//! ([`ExportType`]). Only file descriptors, the handles of Linux, were tested.
//!
//! The form of a handle determines who closes it. The table shows CUDA's rules. This crate's imports consume
//! the handle, and close for you what the table calls "yours":
//!
//! | form | after a successful import | after a failed one |
//! |---|---|---|
//! | file descriptor | CUDA's: using it again is undefined behaviour | still yours to close |
//! | NT handle | still yours to close; the import does not need it any longer | still yours to close |
//! | KMT handle | must not be closed; it keeps nothing alive | must not be closed |
//! | NvSci object | borrowed: you must free it | borrowed: you must free it |
//!
//! An import takes the handle by value, so you cannot use it again:
//!
//! ```compile_fail,E0382
//! use vulkan_cuda::{ImportedSemaphore, handle::SemaphoreHandle};
//! # fn test(cuda: &vulkan_cuda::Cuda, handle: SemaphoreHandle) -> vulkan_cuda::Result<()> {
//! let semaphore = ImportedSemaphore::import(cuda, handle)?;
//! let again = ImportedSemaphore::import(cuda, handle)?; // the handle was moved
//! # Ok(())
//! # }
//! ```
//!
//! A handle of one form cannot be used as another:
//!
//! ```compile_fail,E0308
//! use vulkan_cuda::handle::{BorrowedHandle, MemoryHandle};
//! # fn test(kmt: BorrowedHandle) -> MemoryHandle {
//! MemoryHandle::OpaqueWin32(kmt) // CUDA would take it for an NT handle
//! # }
//! ```
//!
//! A handle does not contain the size of its memory. The caller must promise it, so this import is `unsafe`:
//!
//! ```compile_fail,E0133
//! use vulkan_cuda::{MappedMemory, handle::MemoryHandle};
//! # fn test(cuda: &vulkan_cuda::Cuda, handle: MemoryHandle) -> vulkan_cuda::Result<MappedMemory> {
//! MappedMemory::import(cuda, handle, 4096, 1 << 30) // maps 1 GiB of a 4 KiB allocation: no driver notices
//! # }
//! ```

mod kind;
mod memory;
mod raw;
mod semaphore;

pub use kind::ExportType;
pub use memory::MemoryHandle;
pub use raw::{BorrowedHandle, Fd, NtHandle};
pub use semaphore::{Operand, SemaphoreHandle};
