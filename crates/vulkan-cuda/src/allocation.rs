//! Several buffers in *one* allocation: exported once, imported once, and each mapped at its offset.
//!
//! Usually a buffer has its own allocation ([`crate::memory`]), which every driver exports. This is for many
//! small buffers: drivers limit the allocations (`maxMemoryAllocationCount`), and the system limits open
//! descriptors. The allocation is not dedicated, so CUDA imports it without `CUDA_EXTERNAL_MEMORY_DEDICATED`.
//!
//! ```compile_fail
//! // Only exported memory can be mapped: no function maps a pointer, or a descriptor and a size.
//! fn forged(pointer: u64) -> vulkan_cuda::MappedMemory {
//!     vulkan_cuda::MappedMemory { pointer }
//! }
//! ```
//!
//! ```compile_fail,E0616
//! // A mapping's import cannot be freed before the mapping: the field is private.
//! fn too_early(mapped: vulkan_cuda::MappedMemory) {
//!     drop(mapped.imported);
//! }
//! ```
//!
//! ```compile_fail,E0382
//! // No buffer is mapped twice: the same bytes would have two addresses in CUDA.
//! use vulkan_cuda::{ExportedAllocation, Pair, Result, SharedBuffer};
//! fn twice(pair: &Pair, exported: ExportedAllocation) -> Result<[Vec<SharedBuffer>; 2]> {
//!     Ok([exported.share(pair)?, exported.share(pair)?])
//! }
//! ```

use std::sync::Arc;

use ash::vk;

use crate::export::{MemoryExport, export_memory, requirements};
use crate::handle::{ExportType, MemoryHandle};
use crate::layout::{self, Range};
use crate::memory::{ImportedMemory, MappedMemory, SharedBuffer};
use crate::pair::Pair;
use crate::vulkan::Vk;
use crate::{Error, Result};

/// Vulkan buffers in one exportable allocation. It owns the buffers and the memory.
///
/// # Examples
/// ```no_run
/// # fn example(pair: vulkan_cuda::Pair) -> vulkan_cuda::Result<()> {
/// use ash::vk;
/// use vulkan_cuda::ExportedAllocation;
///
/// let exported =
///     ExportedAllocation::new(pair.vk(), &[4096, 100, 64], vk::BufferUsageFlags::STORAGE_BUFFER)?;
/// for buffer in exported.share(&pair)? {
///     println!("{:?} is at {:#x} in CUDA", buffer.vulkan(), buffer.cuda());
/// }
/// # Ok(())
/// # }
/// ```
pub struct ExportedAllocation {
    buffers: Vec<vk::Buffer>,
    ranges: Vec<Range>,
    memory: vk::DeviceMemory,
    size: u64,
    kind: ExportType,
    vk: Vk,
}

impl ExportedAllocation {
    /// Creates a buffer for each of `sizes` (in bytes) and packs them into one allocation of device memory,
    /// in this order, at multiples of 256 bytes or of a larger alignment that Vulkan requires.
    ///
    /// # Errors
    /// Fails as [`ExportedBuffer::new`](crate::ExportedBuffer::new) does, and if `sizes` is empty or the
    /// device exports such buffers only in dedicated allocations.
    pub fn new(vk: &Vk, sizes: &[u64], usage: vk::BufferUsageFlags) -> Result<Self> {
        if sizes.is_empty() {
            return Err(Error::Rule("an allocation for no buffers would be empty: name at least one".into()));
        }
        // Vulkan has no buffer of size 0. This error names the buffer's index.
        if let Some(index) = sizes.iter().position(|&size| size == 0) {
            return Err(layout::empty(index));
        }
        let export = MemoryExport::for_buffers(vk, usage)?;
        if export.dedicated_only {
            return Err(Error::DeviceLacks(format!(
                "{} exports such buffers in dedicated allocations only: give each its own",
                vk.info().name
            )));
        }
        // From here on Drop cleans up; freeing a null memory is allowed and does nothing.
        let mut made = Self {
            buffers: Vec::with_capacity(sizes.len()),
            ranges: Vec::new(),
            memory: vk::DeviceMemory::null(),
            size: 0,
            kind: export.kind,
            vk: vk.clone(),
        };
        let (mut needs, mut memory_types) = (Vec::with_capacity(sizes.len()), u32::MAX);
        for &size in sizes {
            let buffer = export.create_buffer(vk, size, usage)?;
            made.buffers.push(buffer);
            // SAFETY: made above.
            let requirements = unsafe { requirements(vk, buffer, size) }?;
            // One memory holds all buffers, so its type must suit every one. Buffers with equal usage and
            // flags allow the same types ("Resource Memory Association").
            memory_types &= requirements.memory_type_bits;
            needs.push(requirements);
        }
        (made.ranges, made.size) = layout::pack(&needs)?;
        // Vulkan may require more bytes than the buffer has. CUDA maps only the buffer.
        made.ranges.iter_mut().zip(sizes).for_each(|(range, &size)| range.size = size);
        let required = vk::MemoryRequirements::default().size(made.size).memory_type_bits(memory_types);
        // SAFETY: the types are those that every buffer allows, and nothing is dedicated.
        made.memory = unsafe { export.allocate(vk, &required, None) }?;
        for (&buffer, range) in made.buffers.iter().zip(&made.ranges) {
            // SAFETY: aligned and inside the allocation, as packed; bound once.
            unsafe { vk.device().bind_buffer_memory(buffer, made.memory, range.offset) }
                .map_err(vk.failed("vkBindBufferMemory"))?;
        }
        Ok(made)
    }

    /// Imports the allocation into CUDA and maps each buffer. Returns them in the order of the sizes. The
    /// allocation is freed with the last of them. Fails if it is of another device than the pair's.
    pub fn share(self, pair: &Pair) -> Result<Vec<SharedBuffer>> {
        pair.vk().require_same(&self.vk)?;
        let exported = Arc::new(self);
        // Declared last, so after an error CUDA releases before Vulkan frees.
        let imported =
            ImportedMemory::new(pair.cuda(), exported.export()?, exported.size, false).map(Arc::new)?;
        let share = |(&vulkan, range): (&vk::Buffer, &Range)| {
            // SAFETY: the range is that of a buffer in the imported allocation.
            let mapped = unsafe { MappedMemory::map(imported.clone(), range.offset, range.size) }?;
            Ok(SharedBuffer::of(mapped, vulkan, &exported.vk, exported.clone()))
        };
        exported.buffers.iter().zip(&exported.ranges).map(share).collect()
    }

    /// Returns the buffers, in the order of the sizes. They are destroyed with `self`.
    pub fn buffers(&self) -> &[vk::Buffer] {
        &self.buffers
    }

    /// Returns each buffer's place in the allocation.
    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// Creates a handle to the memory: see [`ExportedBuffer::export`](crate::ExportedBuffer::export).
    pub fn export(&self) -> Result<MemoryHandle> {
        export_memory(&self.vk, self.memory, self.kind)
    }

    /// Returns the size of the allocation in bytes, which every importer must specify.
    pub fn size(&self) -> u64 {
        self.size
    }
}

impl Drop for ExportedAllocation {
    fn drop(&mut self) {
        // SAFETY: the GPU is done with them: code that submits such work promises to wait for that.
        self.vk.cleanup(|device| unsafe {
            for &buffer in &self.buffers {
                device.destroy_buffer(buffer, None);
            }
            device.free_memory(self.memory, None);
        });
    }
}
