//! Several buffers in *one* allocation: exported once, imported once, and each mapped at its offset.
//!
//! Usually each buffer has an allocation of its own ([`crate::memory`]), because some drivers export only
//! those. This module is for many small buffers: drivers limit the number of allocations
//! (`maxMemoryAllocationCount`), and the system limits the number of open descriptors. The allocation is not
//! dedicated to one buffer, so CUDA imports it without `CUDA_EXTERNAL_MEMORY_DEDICATED`.
//!
//! ```compile_fail
//! // Safe code can map only exported memory: it cannot make a mapping from an address.
//! fn forged(pointer: u64) -> vulkan_cuda::MappedMemory {
//!     vulkan_cuda::MappedMemory { pointer }
//! }
//! ```
//!
//! ```compile_fail,E0616
//! // The imported memory cannot be freed before its mapping: the field is private.
//! fn too_early(mapped: vulkan_cuda::MappedMemory) {
//!     drop(mapped.imported);
//! }
//! ```
//!
//! ```compile_fail,E0382
//! // An allocation cannot be shared twice: each byte would then have two addresses in CUDA.
//! use vulkan_cuda::{ExportedAllocation, Pair, Result, SharedBuffer};
//! fn twice(pair: &Pair, exported: ExportedAllocation) -> Result<[Vec<SharedBuffer>; 2]> {
//!     Ok([exported.share(pair)?, exported.share(pair)?])
//! }
//! ```

use std::sync::Arc;

use ash::vk;

use crate::export::{Buffer, Memory, buffer_export};
use crate::handle::MemoryHandle;
use crate::layout::{self, Range};
use crate::memory::{ImportedMemory, MappedMemory, SharedBuffer};
use crate::pair::Pair;
use crate::vulkan::Vk;
use crate::{Error, Result};

/// Vulkan buffers in one exportable allocation. Owns the buffers and the memory.
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
    // Dropped before their memory.
    buffers: Vec<Buffer>,
    ranges: Vec<Range>,
    memory: Memory,
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
        // Vulkan has no buffer of size 0. `Buffer::new` also checks this, but cannot name the buffer's index.
        if let Some(index) = sizes.iter().position(|&size| size == 0) {
            return Err(layout::empty(index));
        }
        let (kind, dedicated_only) = buffer_export(vk, usage)?;
        if dedicated_only {
            return Err(Error::DeviceLacks(format!(
                "{} exports such buffers in dedicated allocations only: give each its own",
                vk.info().name
            )));
        }
        let buffer = |&size: &u64| Buffer::new(vk, size, (usage, vk::BufferCreateFlags::empty()), kind);
        let buffers = sizes.iter().map(buffer).collect::<Result<Vec<_>>>()?;
        let needs: Vec<_> = buffers.iter().map(|buffer| buffer.required).collect();
        let (mut ranges, size) = layout::pack(&needs)?;
        // Vulkan may require more bytes than the buffer has. CUDA maps only the buffer.
        ranges.iter_mut().zip(sizes).for_each(|(range, &size)| range.size = size);
        // The memory type must suit every buffer. Buffers with equal usage and flags allow the same types
        // ("Resource Memory Association"), so at least one type is left.
        let memory_types = needs.iter().fold(u32::MAX, |types, need| types & need.memory_type_bits);
        let required = vk::MemoryRequirements::default().size(size).memory_type_bits(memory_types);
        // SAFETY: `required` covers all buffers, which allow these types. The driver offers `kind`.
        let memory = unsafe { Memory::allocate(vk, kind, buffers[0].memory_flags(), &required, None) }?;
        let made = Self { buffers, ranges, memory };
        for (buffer, range) in made.buffers.iter().zip(&made.ranges) {
            // SAFETY: `pack` aligned the range and put it inside the allocation. Each buffer is bound once.
            unsafe { buffer.bind(&made.memory, range.offset) }?;
        }
        Ok(made)
    }

    /// Imports the allocation into CUDA, maps each buffer, and returns the buffers in the order of the sizes.
    /// Dropping the last one frees the allocation. Fails if the pair has another Vulkan device.
    pub fn share(self, pair: &Pair) -> Result<Vec<SharedBuffer>> {
        pair.vk().require_same(&self.memory.vk)?;
        let exported = Arc::new(self);
        // Declared after `exported`: if a mapping fails, CUDA releases the memory before Vulkan frees it.
        let imported =
            ImportedMemory::new(pair.cuda(), exported.export()?, exported.size(), false).map(Arc::new)?;
        let share = |(buffer, range): (&Buffer, &Range)| {
            // SAFETY: the range lies in the imported allocation, and is that of one buffer.
            let mapped = unsafe { MappedMemory::map(imported.clone(), range.offset, range.size) }?;
            let (vulkan, device) = (buffer.raw, buffer.vk.device().handle());
            Ok(SharedBuffer { mapped, vulkan, device, _exported: exported.clone() })
        };
        exported.buffers.iter().zip(&exported.ranges).map(share).collect()
    }

    /// Returns the buffers, in the order of the sizes. They are destroyed with `self`.
    pub fn buffers(&self) -> Vec<vk::Buffer> {
        self.buffers.iter().map(|buffer| buffer.raw).collect()
    }

    /// Returns the range of each buffer in the allocation, in the order of the sizes.
    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// Creates a handle to the memory: see [`ExportedBuffer::export`](crate::ExportedBuffer::export).
    pub fn export(&self) -> Result<MemoryHandle> {
        self.memory.export()
    }

    /// Returns the size of the allocation in bytes, which every importer must specify.
    pub fn size(&self) -> u64 {
        self.memory.size
    }
}
