//! Memory that Vulkan allocates and exports, and CUDA imports and maps.
//!
//! Both sides have rules that examples often leave out:
//!
//! - The *buffer* is created with `VkExternalMemoryBufferCreateInfo`, and the *memory* with
//!   `VkExportMemoryAllocateInfo`.
//! - The allocation is *dedicated*: it holds only this buffer. Both APIs must be told
//!   (`VkMemoryDedicatedAllocateInfo`, `CUDA_EXTERNAL_MEMORY_DEDICATED`), or they may see different bytes.
//! - CUDA imports the *allocation*, so it needs `VkMemoryAllocateInfo::allocationSize`, which may be more
//!   than the buffer's size. CUDA then maps only the buffer.
//! - Teardown is in reverse order: CUDA's mapping, CUDA's import, Vulkan's buffer, Vulkan's memory.
//!
//! Neither driver can check the sizes. [`SharedBuffer`] does both sides, so its sizes are right. If you have
//! only a handle, for example from another process, you must know the sizes ([`MappedMemory::import`]).

use std::any::Any;
use std::sync::Arc;

use ash::vk;
use cudarc::driver::sys;

use crate::Result;
use crate::cuda::{Cuda, api};
use crate::export::{Buffer, Memory, buffer_export};
use crate::handle::MemoryHandle;
use crate::pair::Pair;
use crate::vulkan::Vk;

/// A Vulkan buffer, and the exportable memory that holds only this buffer. Imports of the memory stay valid
/// after the drop, unless they were made with a KMT handle.
///
/// # Examples
/// Creates Vulkan's half and CUDA's half separately, as two processes would:
///
/// ```no_run
/// # fn example(pair: vulkan_cuda::Pair) -> vulkan_cuda::Result<()> {
/// use ash::vk;
/// use vulkan_cuda::{ExportedBuffer, MappedMemory};
///
/// let exported = ExportedBuffer::new(pair.vk(), 1 << 20, vk::BufferUsageFlags::STORAGE_BUFFER)?;
/// let handle = exported.export()?;
/// // SAFETY: both sizes are the exporter's own, and the allocation is dedicated.
/// let mapped =
///     unsafe { MappedMemory::import(pair.cuda(), handle, exported.allocation_size(), exported.size()) }?;
/// println!("Vulkan's {:?} is at {:#x} in CUDA", exported.raw(), mapped.pointer());
/// # Ok(())
/// # }
/// ```
pub struct ExportedBuffer {
    // Dropped before its memory.
    buffer: Buffer,
    memory: Memory,
}

impl ExportedBuffer {
    /// Creates a buffer of `size` bytes in device memory.
    ///
    /// # Errors
    /// Fails if `size` is 0 or `usage` is empty, if the device was created without the extension that exports
    /// memory, if it does not export buffers of this usage, or if memory has run out.
    pub fn new(vk: &Vk, size: u64, usage: vk::BufferUsageFlags) -> Result<Self> {
        // ANCHOR: allocate
        let (kind, _) = buffer_export(vk, usage)?;
        let buffer = Buffer::new(vk, size, (usage, vk::BufferCreateFlags::empty()), kind)?;
        let dedicated = vk::MemoryDedicatedAllocateInfo::default().buffer(buffer.raw);
        let (flags, required) = (buffer.memory_flags(), &buffer.required);
        // SAFETY: the requirements and the dedicated allocation are those of the buffer made above.
        let memory = unsafe { Memory::allocate(vk, kind, flags, required, Some(dedicated)) }?;
        // SAFETY: the memory is dedicated to this buffer and is bound once.
        unsafe { buffer.bind(&memory, 0) }?;
        Ok(Self { buffer, memory })
        // ANCHOR_END: allocate
    }

    /// Returns Vulkan's buffer. It is destroyed with `self`.
    pub fn raw(&self) -> vk::Buffer {
        self.buffer.raw
    }

    /// Returns the buffer's size in bytes, as requested.
    pub fn size(&self) -> u64 {
        self.buffer.size
    }

    /// Returns the size of the allocation in bytes, which every importer must specify.
    pub fn allocation_size(&self) -> u64 {
        self.memory.size
    }

    /// Returns the index of the memory type, which another Vulkan device must use to import the memory.
    pub fn memory_type(&self) -> u32 {
        self.buffer.vk.memory_type(&self.buffer.required)
    }

    /// Creates a handle to the memory, with `vkGetMemoryFdKHR` or `vkGetMemoryWin32HandleKHR`. You own the
    /// handle, which keeps the memory alive by itself, unless it is a KMT handle.
    pub fn export(&self) -> Result<MemoryHandle> {
        self.memory.export()
    }
}

pub(crate) struct ImportedMemory {
    pub(crate) raw: sys::CUexternalMemory,
    pub(crate) cuda: Cuda,
}

// SAFETY: the driver API is thread-safe, and every use binds the context first.
unsafe impl Send for ImportedMemory {}
// SAFETY: as above.
unsafe impl Sync for ImportedMemory {}

impl ImportedMemory {
    /// Imports an allocation of `size` bytes. `dedicated` says whether it holds only one buffer or image.
    pub(crate) fn new(cuda: &Cuda, handle: MemoryHandle, size: u64, dedicated: bool) -> Result<Self> {
        let (name, _, form, ..) = handle.row();
        form.exists_here(name)?;
        // ANCHOR: import
        let desc = handle.descriptor(size, dedicated);
        let mut raw = std::ptr::null_mut();
        cuda.bind()?;
        // SAFETY: `desc` is filled as its type requires, and `handle`, to which it points, is alive.
        let code = unsafe { api::cuImportExternalMemory(&mut raw, &desc) };
        cuda.check("cuImportExternalMemory", code)?;
        // A file descriptor now belongs to CUDA, so this gives it up. An NT handle is still ours, so this
        // closes it. After a failure, every handle is still ours, and its drop closes it: see `handle`.
        handle.imported();
        // ANCHOR_END: import
        Ok(Self { raw, cuda: cuda.clone() })
    }
}

impl Drop for ImportedMemory {
    fn drop(&mut self) {
        // SAFETY: imported in `new`. Mappings hold an `Arc` of `self`, so all of them were freed before.
        self.cuda.cleanup("cuDestroyExternalMemory", || unsafe { api::cuDestroyExternalMemory(self.raw) });
    }
}

/// Memory that Vulkan allocated, mapped into CUDA's address space. It owns the mapping and the import.
pub struct MappedMemory {
    pointer: sys::CUdeviceptr,
    size: u64,
    pub(crate) imported: Arc<ImportedMemory>,
}

impl MappedMemory {
    /// Imports a dedicated allocation of `allocation_size` bytes and maps its first `size` bytes. Consumes
    /// the handle, as [`crate::handle`] describes.
    ///
    /// # Safety
    /// - `handle` must stand for an allocation on `cuda`'s GPU.
    /// - The allocation must be dedicated (`VkMemoryDedicatedAllocateInfo`), of exactly `allocation_size`
    ///   bytes.
    /// - `size` must not be greater than `allocation_size`.
    ///
    /// # Errors
    /// Fails if this system has no such handles. Under WSL2, CUDA reports 304 (`OPERATING_SYSTEM`).
    pub unsafe fn import(cuda: &Cuda, handle: MemoryHandle, allocation_size: u64, size: u64) -> Result<Self> {
        let imported = ImportedMemory::new(cuda, handle, allocation_size, true)?;
        // SAFETY: the bytes lie in the allocation, which holds only one buffer (the caller's promise).
        unsafe { Self::map(Arc::new(imported), 0, size) }
    }

    /// # Safety
    /// The bytes must lie in the allocation, and must be those of one Vulkan buffer.
    pub(crate) unsafe fn map(imported: Arc<ImportedMemory>, offset: u64, size: u64) -> Result<Self> {
        let cuda = &imported.cuda;
        cuda.bind()?;
        // ANCHOR: map
        let desc = sys::CUDA_EXTERNAL_MEMORY_BUFFER_DESC { offset, size, flags: 0, reserved: [0; 16] };
        let mut pointer = 0;
        // SAFETY: the range lies in the imported allocation (the caller's promise).
        cuda.check("cuExternalMemoryGetMappedBuffer", unsafe {
            api::cuExternalMemoryGetMappedBuffer(&mut pointer, imported.raw, &desc)
        })?;
        Ok(Self { pointer, size, imported })
        // ANCHOR_END: map
    }

    /// Returns the address in CUDA's address space. It is valid while `self` lives.
    pub fn pointer(&self) -> sys::CUdeviceptr {
        self.pointer
    }

    /// Returns the number of mapped bytes.
    pub fn size(&self) -> u64 {
        self.size
    }
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped in `map`. No stream uses it any more, as code that launches work on it promises.
        self.imported.cuda.cleanup("cuMemFree", || unsafe { api::cuMemFree(self.pointer) });
    }
}

/// A buffer that both APIs can address: kernels take the address, descriptor sets and copies take Vulkan's
/// buffer. It owns Vulkan's buffer and memory, and CUDA's import and mapping. See the [example](crate).
pub struct SharedBuffer {
    // Dropped first: CUDA releases before Vulkan frees.
    pub(crate) mapped: MappedMemory,
    /// Has exactly the mapped bytes.
    pub(crate) vulkan: vk::Buffer,
    pub(crate) device: vk::Device,
    /// Owns Vulkan's buffer and memory.
    pub(crate) _exported: Arc<dyn Any + Send + Sync>,
}

impl SharedBuffer {
    /// Allocates `size` bytes in Vulkan, in device memory, and imports them into CUDA. Fails as
    /// [`ExportedBuffer::new`] and [`MappedMemory::import`] do.
    ///
    /// [`ExportedAllocation`](crate::ExportedAllocation) puts several buffers in one allocation.
    pub fn new(pair: &Pair, size: u64, usage: vk::BufferUsageFlags) -> Result<Self> {
        let exported = ExportedBuffer::new(pair.vk(), size, usage)?;
        let (handle, allocation_size) = (exported.export()?, exported.allocation_size());
        // SAFETY: the allocation is on this GPU, and dedicated to the buffer, which is never larger than it.
        let mapped = unsafe { MappedMemory::import(pair.cuda(), handle, allocation_size, size) }?;
        let (vulkan, device) = (exported.raw(), pair.vk().device().handle());
        Ok(Self { mapped, vulkan, device, _exported: Arc::new(exported) })
    }

    /// Returns Vulkan's buffer. It is destroyed with `self`.
    pub fn vulkan(&self) -> vk::Buffer {
        self.vulkan
    }

    /// Returns the address of the same bytes in CUDA's address space. It is valid while `self` lives.
    pub fn cuda(&self) -> sys::CUdeviceptr {
        self.mapped.pointer()
    }

    /// Returns the size in bytes, as requested.
    pub fn size(&self) -> u64 {
        self.mapped.size()
    }
}
