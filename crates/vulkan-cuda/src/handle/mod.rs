//! What travels between the two APIs, as data.
//!
//! CUDA imports eight kinds of memory handle with one function, and ten kinds of semaphore handle with another ([External
//! Resource Interoperability](https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__EXTRES__INTEROP.html)). The kinds
//! differ only in the descriptor that the function takes. In this module a handle is a value ([`MemoryHandle`],
//! [`SemaphoreHandle`]) that knows its row of a table. Pure functions build the descriptor from that row, on every platform.
//!
//! Only the form decides who closes a handle. Many programs are wrong about this, and leak a handle or close it twice:
//!
//! | form | after a successful import | after a failed one |
//! |---|---|---|
//! | file descriptor | CUDA's: using it again is undefined behaviour | still yours to close |
//! | NT handle | still yours to close; the import does not need it any longer | still yours to close |
//! | KMT handle | must not be closed; it keeps nothing alive | must not be closed |
//! | NvSci object | still yours to free | still yours to free |
//!
//! This crate closes handles for you: an import consumes the handle, and closes what is "yours" in the table, whether it
//! succeeds or fails. An NvSci object is only borrowed, so you must free it.
//!
//! An import takes the handle by value, so you cannot use it again:
//!
//! ```compile_fail,E0382
//! use vulkan_cuda::{ImportedSemaphore, handle::SemaphoreHandle};
//! # fn test(cuda: &vulkan_cuda::Cuda, handle: SemaphoreHandle) -> vulkan_cuda::Result<()> {
//! let semaphore = ImportedSemaphore::import(cuda, handle)?;
//! let again = ImportedSemaphore::import(cuda, handle)?; // the descriptor is CUDA's now
//! # Ok(())
//! # }
//! ```
//!
//! A handle of one kind cannot be used as another kind:
//!
//! ```compile_fail,E0308
//! use vulkan_cuda::handle::{KmtHandle, MemoryHandle};
//! # fn test(kmt: KmtHandle) -> MemoryHandle {
//! MemoryHandle::OpaqueWin32(kmt) // CUDA would take it for an NT handle
//! # }
//! ```
//!
//! A handle does not tell the size of its memory. The caller of the import must promise the size, so the import is `unsafe`:
//!
//! ```compile_fail,E0133
//! use vulkan_cuda::{MappedMemory, handle::MemoryHandle};
//! # fn test(cuda: &vulkan_cuda::Cuda, handle: MemoryHandle) -> vulkan_cuda::Result<MappedMemory> {
//! MappedMemory::import(cuda, handle, 4096, 1 << 30) // maps 1 GiB of 4 KiB: no driver notices
//! # }
//! ```
//!
//! Vulkan exports three kinds ([`ExportType`]): file descriptors on Linux, NT and KMT handles on Windows. The Windows
//! half is type-checked and linted (`scripts/check-windows.sh`), but was never run.

mod kind;
mod memory;
mod operand;
mod raw;
mod semaphore;

pub use kind::ExportType;
pub use memory::MemoryHandle;
pub(crate) use operand::Operand;
pub use operand::{Signal, Wait};
pub use raw::{Fd, KmtHandle, NtHandle, NvSciObject};
pub use semaphore::{SemaphoreHandle, SemaphoreKind};
