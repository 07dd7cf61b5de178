//! What travels between the two APIs, as data.
//!
//! CUDA imports twelve kinds of memory handle with one function, and fifteen kinds of semaphore handle with another. The kinds
//! differ only in the descriptor that the function is given. Here a handle is a value ([`MemoryHandle`], [`SemaphoreHandle`])
//! that knows its row of a table: CUDA's type for it, the member of the descriptor's union, the flags, what its waits and
//! signals need, and how the two devices are matched. Pure functions build the descriptor from that row, on every platform.
//!
//! Only the [`Form`] decides who closes a handle, and this is where most programs leak or close twice:
//!
//! | form | after a successful import | after a failed one |
//! |---|---|---|
//! | file descriptor | CUDA's: touching it again is undefined | still yours to close |
//! | NT handle | still yours to close, and the import does not need it any longer | still yours to close |
//! | KMT handle | nobody's: it keeps nothing alive and must not be closed | nobody's |
//! | name | a string | a string |
//! | NvSci object | still yours to free | still yours to free |
//!
//! This crate does the closing: an import consumes the handle, and closes what is "yours" in the table, whether it succeeds or
//! fails. Only an NvSci object is borrowed, so you free that yourself.
//!
//! An import takes the handle by value, so that a consumed one cannot be used again:
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
//! and a handle of one kind is no handle of another:
//!
//! ```compile_fail,E0308
//! use vulkan_cuda::handle::{KmtHandle, MemoryHandle};
//! # fn test(kmt: KmtHandle) -> MemoryHandle {
//! MemoryHandle::OpaqueWin32(kmt) // CUDA would take it for an NT handle
//! # }
//! ```
//!
//! A handle does not say how large the memory behind it is. Who imports one must promise it, so that is `unsafe`:
//!
//! ```compile_fail,E0133
//! use vulkan_cuda::{MappedMemory, handle::MemoryHandle};
//! # fn test(cuda: &vulkan_cuda::Cuda, handle: MemoryHandle) -> vulkan_cuda::Result<MappedMemory> {
//! MappedMemory::import(cuda, handle, 4096, 1 << 30) // maps 1 GiB of 4 KiB: no driver notices
//! # }
//! ```
//!
//! Vulkan hands out three kinds ([`ExportType`]): file descriptors on Linux, NT and KMT handles on Windows. The Windows
//! half is type-checked and linted (`scripts/check-windows.sh`), not run.

mod foreign;
mod form;
mod kind;
mod memory;
mod operand;
mod semaphore;

pub use foreign::{KmtHandle, NtHandle, NvSciFence, NvSciObject, ObjectName};
pub use form::{Fd, Form, Keeper, Member, Ownership, System};
pub use kind::ExportType;
pub use memory::{Dedicated, MemoryFacts, MemoryHandle};
pub use operand::{Operand, Signal, Wait};
pub use semaphore::{SemaphoreFacts, SemaphoreHandle, SemaphoreKind};

/// How the exporter's device and CUDA's are found to be the same hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matching {
    /// By UUID: `VkPhysicalDeviceIDProperties::deviceUUID` and `cuDeviceGetUuid`.
    Uuid,
    /// On Windows both APIs have a LUID too, which the system itself gave the adapter: where both say one, it and the
    /// node mask decide; else the UUID does.
    LuidElseUuid,
    /// By LUID and node mask: `ID3D12Device::GetAdapterLuid` or `DXGI_ADAPTER_DESC::AdapterLuid`, and
    /// `cuDeviceGetLuid`. Direct3D knows no UUIDs.
    Luid,
}
