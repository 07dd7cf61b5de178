//! Step 2: one memory, two addresses. Vulkan allocates and exports, CUDA imports and maps.
//!
//! The rules that each side asks for, and that examples often leave out:
//!
//! - The *buffer* is created with `VkExternalMemoryBufferCreateInfo` and the *memory* with
//!   `VkExportMemoryAllocateInfo` (both in `export/mod.rs`); one without the other is not exportable.
//! - The allocation is *dedicated*: this buffer has it for itself. Some drivers export in no other way, and any may place or
//!   compress such memory differently, so both are told: Vulkan by `VkMemoryDedicatedAllocateInfo`, CUDA by
//!   `CUDA_EXTERNAL_MEMORY_DEDICATED`. Told different things, they may see different bytes.
//! - CUDA imports the *allocation*, so it is given the size that Vulkan allocated (`VkMemoryAllocateInfo::allocationSize`). For a
//!   dedicated allocation that is `VkMemoryRequirements::size`, which may be more than the buffer's size. What CUDA then maps is the
//!   buffer.
//! - Teardown goes the other way round: CUDA's mapping, CUDA's import, Vulkan's buffer, Vulkan's memory. The `Drop` of
//!   [`MappedMemory`] frees the mapping before its import is dropped, that of [`ExportedBuffer`] destroys the buffer before the
//!   memory, and in [`SharedBuffer`] the field order puts CUDA's side first.
//!
//! Neither driver can tell whether the sizes are right. [`SharedBuffer`] knows them, since it has both sides. With only a
//! handle, from another process say, you must promise them: [`MappedMemory::import`] is `unsafe`.

use ash::vk;
use cudarc::driver::sys;

use crate::Result;
use crate::cuda::{Cuda, api};
use crate::export::{MemoryExport, export_memory, memory_type};
use crate::handle::{ExportType, MemoryHandle};
use crate::pair::Pair;
use crate::vulkan::Vk;

/// A Vulkan buffer in exportable memory of its own.
pub struct ExportedBuffer {
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    size: u64,
    allocation_size: u64,
    memory_type: u32,
    kind: ExportType,
    vk: Vk,
}

impl ExportedBuffer {
    /// Makes a buffer of `size` bytes in device memory, exportable as the device exports buffers
    /// ([`Exports::buffer`](crate::Exports::buffer)).
    ///
    /// # Errors
    /// A size of 0, out of memory, a device that was made without the extension, or one that exports no buffers of this usage.
    pub fn new(vk: &Vk, size: u64, usage: vk::BufferUsageFlags) -> Result<Self> {
        // ANCHOR: allocate
        let export = MemoryExport::for_buffers(vk, usage)?;
        let kind = export.kind();
        let buffer = export.create_buffer(vk, size, usage)?;
        // From here on Drop cleans up; freeing a null memory is allowed and does nothing.
        let mut exported = Self {
            buffer,
            memory: vk::DeviceMemory::null(),
            size,
            allocation_size: 0,
            memory_type: 0,
            kind,
            vk: vk.clone(),
        };
        // SAFETY: made above.
        let required = unsafe { vk.device().get_buffer_memory_requirements(buffer) };
        (exported.allocation_size, exported.memory_type) = (required.size, memory_type(vk, &required));
        let dedicated = vk::MemoryDedicatedAllocateInfo::default().buffer(buffer);
        // SAFETY: the buffer's own requirements; it was made above.
        exported.memory = unsafe { export.allocate(vk, &required, Some(dedicated)) }?;
        // SAFETY: the memory is dedicated to this buffer and is bound once.
        unsafe { vk.device().bind_buffer_memory(buffer, exported.memory, 0) }
            .map_err(vk.failed("vkBindBufferMemory"))?;
        Ok(exported)
        // ANCHOR_END: allocate
    }

    /// Vulkan's buffer. It is destroyed with `self`.
    pub fn raw(&self) -> vk::Buffer {
        self.buffer
    }

    /// Its size in bytes, as asked.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The size of the allocation behind it: what an importer must name.
    pub fn allocation_size(&self) -> u64 {
        self.allocation_size
    }

    /// The index of the allocation's memory type: what another Vulkan device object that imports it must name.
    pub fn memory_type(&self) -> u32 {
        self.memory_type
    }

    /// A new handle to the memory. It keeps the memory alive by itself, unless it is a KMT handle.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn export(&self) -> Result<MemoryHandle> {
        export_memory(&self.vk, self.memory, self.kind)
    }
}

impl Drop for ExportedBuffer {
    fn drop(&mut self) {
        // SAFETY: the GPU is done with it: whoever submitted work that uses it has promised to keep it alive so long.
        self.vk.cleanup(|device| unsafe {
            device.destroy_buffer(self.buffer, None);
            device.free_memory(self.memory, None);
        });
    }
}

/// Vulkan's memory as CUDA sees it.
pub(crate) struct ImportedMemory {
    pub(crate) raw: sys::CUexternalMemory,
    pub(crate) cuda: Cuda,
}

// SAFETY: the driver API is thread-safe, and every use binds the context first.
unsafe impl Send for ImportedMemory {}
// SAFETY: as above.
unsafe impl Sync for ImportedMemory {}

impl ImportedMemory {
    /// Imports an allocation of `size` bytes; `dedicated` is whether one buffer or image has it for itself
    /// (`VkMemoryDedicatedAllocateInfo`), which CUDA must be told.
    pub(crate) fn new(cuda: &Cuda, handle: MemoryHandle, size: u64, dedicated: bool) -> Result<Self> {
        handle.exists_here()?;
        // ANCHOR: import
        let desc = handle.descriptor(size, dedicated);
        let mut raw = std::ptr::null_mut();
        cuda.bind()?;
        // SAFETY: `desc` is filled as its type asks, and `handle`, to which it points, is alive.
        let code = unsafe { api::cuImportExternalMemory(&mut raw, &desc) };
        cuda.check("cuImportExternalMemory", code)?;
        // Gives up what CUDA has taken over, and closes what it has not (an NT handle). After a failure nothing is taken over, and
        // dropping the handle closes it: see `handle`.
        handle.imported();
        // ANCHOR_END: import
        Ok(Self { raw, cuda: cuda.clone() })
    }
}

impl Drop for ImportedMemory {
    fn drop(&mut self) {
        // SAFETY: imported above; its mappings were freed before: whatever maps it holds it, and unmaps in `Drop`.
        self.cuda.cleanup("cuDestroyExternalMemory", || unsafe { api::cuDestroyExternalMemory(self.raw) });
    }
}

/// A CUDA pointer to memory that Vulkan allocated.
pub struct MappedMemory {
    pointer: sys::CUdeviceptr,
    size: u64,
    imported: ImportedMemory,
}

impl MappedMemory {
    /// Imports a dedicated allocation of `allocation_size` bytes and maps its first `size` bytes.
    ///
    /// # Safety
    /// `handle` stands for an allocation of `cuda`'s GPU, which its exporter made for one buffer
    /// (`VkMemoryDedicatedAllocateInfo`) and of exactly `allocation_size` bytes; `size` is not more.
    ///
    /// # Errors
    /// A handle of another system; 304 (`OPERATING_SYSTEM`) under WSL2, which has no such sharing; 2 (`OUT_OF_MEMORY`).
    pub unsafe fn import(
        cuda: &Cuda,
        handle: impl Into<MemoryHandle>,
        allocation_size: u64,
        size: u64,
    ) -> Result<Self> {
        // ANCHOR: map
        let imported = ImportedMemory::new(cuda, handle.into(), allocation_size, true)?;
        let desc = sys::CUDA_EXTERNAL_MEMORY_BUFFER_DESC { offset: 0, size, flags: 0, reserved: [0; 16] };
        let mut pointer = 0;
        // SAFETY: the range lies in the imported allocation (the caller's promise).
        cuda.check("cuExternalMemoryGetMappedBuffer", unsafe {
            api::cuExternalMemoryGetMappedBuffer(&mut pointer, imported.raw, &desc)
        })?;
        Ok(Self { pointer, size, imported })
        // ANCHOR_END: map
    }

    /// The address in CUDA's address space.
    pub fn pointer(&self) -> sys::CUdeviceptr {
        self.pointer
    }

    /// Mapped bytes.
    pub fn size(&self) -> u64 {
        self.size
    }
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped above; no stream uses it any more, which whoever launched work on it has promised.
        self.imported.cuda.cleanup("cuMemFree", || unsafe { api::cuMemFree(self.pointer) });
    }
}

/// One buffer that both APIs address.
pub struct SharedBuffer {
    // CUDA lets go before Vulkan frees.
    mapped: MappedMemory,
    exported: ExportedBuffer,
}

impl SharedBuffer {
    /// Allocates `size` bytes in Vulkan, imports them into CUDA.
    ///
    /// # Errors
    /// Those of [`ExportedBuffer::new`] and [`MappedMemory::import`].
    pub fn new(pair: &Pair, size: u64, usage: vk::BufferUsageFlags) -> Result<Self> {
        let exported = ExportedBuffer::new(pair.vk(), size, usage)?;
        let (handle, allocation_size) = (exported.export()?, exported.allocation_size());
        // SAFETY: the allocation is the exported buffer's own, which is never larger than its memory.
        let mapped = unsafe { MappedMemory::import(pair.cuda(), handle, allocation_size, size) }?;
        Ok(Self { mapped, exported })
    }

    /// Vulkan's side.
    pub fn vulkan(&self) -> vk::Buffer {
        self.exported.raw()
    }

    /// CUDA's side.
    pub fn cuda(&self) -> sys::CUdeviceptr {
        self.mapped.pointer()
    }

    /// Its size in bytes, as asked.
    pub fn size(&self) -> u64 {
        self.exported.size()
    }
}
