//! Several buffers in *one* allocation: Vulkan exports it once, CUDA imports it once and maps each buffer at its own offset.
//!
//! Usually a buffer has a dedicated allocation ([`crate::memory`]), which every driver exports. This module is for many small
//! buffers. Drivers limit the number of allocations (`maxMemoryAllocationCount`), and the system limits the number of open
//! descriptors.
//!
//! The rules, and how this module keeps them:
//!
//! - The allocation is not dedicated, so CUDA imports it without `CUDA_EXTERNAL_MEMORY_DEDICATED`.
//! - A mapping covers exactly the bytes of one Vulkan buffer. So a [`MappedBuffer`] is made from the exported buffer,
//!   not from numbers. [`crate::layout`] checks the offsets themselves.
//! - A mapping is freed before its import, and the import before Vulkan's memory: each holds an `Arc` of the next, so you
//!   cannot write a wrong order.
//!
//! ```compile_fail
//! // Only exported memory can be mapped: no function makes a mapping from a pointer, or from a descriptor and a size.
//! use vulkan_cuda::MappedBuffer;
//! fn forged(pointer: u64) -> MappedBuffer {
//!     MappedBuffer { pointer }
//! }
//! ```
//!
//! ```compile_fail,E0616
//! // A mapping's import cannot be freed before the mapping: the field is private.
//! use vulkan_cuda::MappedBuffer;
//! fn too_early(mapped: MappedBuffer) -> u64 {
//!     drop(mapped.imported);
//!     mapped.pointer()
//! }
//! ```

use std::sync::{Arc, Mutex, PoisonError};

use ash::vk;
use cudarc::driver::sys;

use crate::cuda::api;
use crate::exported_allocation::ExportedAllocation;
use crate::layout::Range;
use crate::memory::ImportedMemory;
use crate::pair::Pair;
use crate::{Error, Result};

/// One allocation as CUDA sees it, and the list of ranges that are mapped. It owns CUDA's import, and keeps Vulkan's
/// half alive.
///
/// # Examples
/// ```no_run
/// # fn example(pair: vulkan_cuda::Pair) -> vulkan_cuda::Result<()> {
/// use std::sync::Arc;
///
/// use ash::vk;
/// use vulkan_cuda::{ExportedAllocation, ImportedAllocation};
///
/// let exported = ExportedAllocation::new(pair.vk(), &[4096, 100], vk::BufferUsageFlags::STORAGE_BUFFER)?;
/// let imported = ImportedAllocation::new(&pair, &Arc::new(exported))?;
/// let second = imported.map(1)?;
/// assert_eq!(second.vulkan(), imported.exported().buffers()[1]);
/// println!("{} are at {:#x} in CUDA", second.range(), second.pointer());
/// # Ok(())
/// # }
/// ```
pub struct ImportedAllocation {
    // Dropped first: CUDA releases before Vulkan frees.
    imported: ImportedMemory,
    mapped: Mutex<Vec<(usize, Range)>>,
    exported: Arc<ExportedAllocation>,
}

impl ImportedAllocation {
    /// Imports the whole allocation, which must be of the pair's device. Calls `cuImportExternalMemory`.
    ///
    /// # Errors
    /// Fails if the allocation is of another device, or if either driver reports an error.
    pub fn new(pair: &Pair, exported: &Arc<ExportedAllocation>) -> Result<Arc<Self>> {
        pair.vk().require_same(&exported.vk)?;
        let handle = exported.export()?;
        let imported = ImportedMemory::new(pair.cuda(), handle, exported.size, false)?;
        Ok(Arc::new(Self { imported, mapped: Mutex::default(), exported: exported.clone() }))
    }

    /// Returns Vulkan's half.
    pub fn exported(&self) -> &ExportedAllocation {
        &self.exported
    }

    /// Maps buffer `index`. Calls `cuExternalMemoryGetMappedBuffer`.
    ///
    /// # Errors
    /// Fails if there is no such buffer, if it is mapped already, or if the driver reports an error.
    pub fn map(self: &Arc<Self>, index: usize) -> Result<MappedBuffer> {
        let Some(&range) = self.exported.ranges.get(index) else {
            return Err(Error::Rule(format!(
                "there is no buffer {index} in an allocation of {} buffers",
                self.exported.ranges.len()
            )));
        };
        // A poisoned lock only means that another thread panicked; the list is intact.
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        free_of(&mapped, index, range)?;
        let desc = sys::CUDA_EXTERNAL_MEMORY_BUFFER_DESC {
            offset: range.offset,
            size: range.size,
            flags: 0,
            reserved: [0; 16],
        };
        let cuda = &self.imported.cuda;
        cuda.bind()?;
        let mut pointer = 0;
        // SAFETY: the range is that of a buffer in the imported allocation.
        cuda.check("cuExternalMemoryGetMappedBuffer", unsafe {
            api::cuExternalMemoryGetMappedBuffer(&mut pointer, self.imported.raw, &desc)
        })?;
        mapped.push((index, range));
        Ok(MappedBuffer { pointer, index, range, imported: self.clone() })
    }
}

/// Checks that no mapping has a byte in common with `range`.
fn free_of(mapped: &[(usize, Range)], index: usize, range: Range) -> Result<()> {
    match mapped.iter().find(|(_, other)| other.overlaps(range)) {
        None => Ok(()),
        Some(&(other, other_range)) => Err(Error::Rule(format!(
            "buffer {index} ({range}) cannot be mapped while buffer {other} ({other_range}) is: the same bytes \
             would have two addresses in CUDA, and writes through one may not be seen through the other"
        ))),
    }
}

/// One buffer of an allocation as CUDA addresses it. Dropping it frees the mapping, and the buffer can be mapped
/// again. Before you drop it, the streams that use it must be idle.
///
/// See the [example](ImportedAllocation#examples).
pub struct MappedBuffer {
    pointer: sys::CUdeviceptr,
    index: usize,
    range: Range,
    imported: Arc<ImportedAllocation>,
}

impl MappedBuffer {
    /// Returns the address in CUDA's address space. It is valid while `self` lives.
    pub fn pointer(&self) -> sys::CUdeviceptr {
        self.pointer
    }

    /// Returns the buffer's place in the allocation, in bytes.
    pub fn range(&self) -> Range {
        self.range
    }

    /// Returns Vulkan's buffer of the same bytes. It lives as long as `self`.
    pub fn vulkan(&self) -> vk::Buffer {
        self.imported.exported.buffers[self.index]
    }
}

impl Drop for MappedBuffer {
    fn drop(&mut self) {
        // SAFETY: mapped in `map`. No stream uses it any more: code that launches work on it promises that.
        self.imported.imported.cuda.cleanup("cuMemFree", || unsafe { api::cuMemFree(self.pointer) });
        let mut mapped = self.imported.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        mapped.retain(|(index, _)| *index != self.index);
    }
}

/// Several buffers that both APIs address, in one allocation. It owns all of them.
///
/// # Examples
/// ```no_run
/// # fn example(pair: vulkan_cuda::Pair) -> vulkan_cuda::Result<()> {
/// use ash::vk;
/// use vulkan_cuda::SharedAllocation;
///
/// let shared = SharedAllocation::new(&pair, &[4096, 100, 64], vk::BufferUsageFlags::STORAGE_BUFFER)?;
/// for buffer in shared.buffers() {
///     println!("{:?} is at {:#x} in CUDA", buffer.vulkan(), buffer.pointer());
/// }
/// # Ok(())
/// # }
/// ```
pub struct SharedAllocation {
    mapped: Vec<MappedBuffer>,
}

impl SharedAllocation {
    /// Allocates once in Vulkan, imports once into CUDA, and maps each buffer. `sizes` are in bytes.
    ///
    /// # Errors
    /// Fails as [`ExportedAllocation::new`] and [`ImportedAllocation::new`] do.
    pub fn new(pair: &Pair, sizes: &[u64], usage: vk::BufferUsageFlags) -> Result<Self> {
        let exported = Arc::new(ExportedAllocation::new(pair.vk(), sizes, usage)?);
        let imported = ImportedAllocation::new(pair, &exported)?;
        let mapped = (0..sizes.len()).map(|index| imported.map(index)).collect::<Result<_>>()?;
        Ok(Self { mapped })
    }

    /// Returns the buffers, in the order of `sizes`.
    pub fn buffers(&self) -> &[MappedBuffer] {
        &self.mapped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_mapping_of_the_same_bytes_names_both() {
        let (a, b) = (Range { offset: 0, size: 100 }, Range { offset: 256, size: 7 });
        assert!(free_of(&[(0, a)], 1, b).is_ok());
        let text = free_of(&[(0, a), (1, b)], 1, b).unwrap_err().to_string();
        assert!(text.contains("buffer 1 (7 bytes at offset 256) cannot be mapped while buffer 1"), "{text}");
        let text = free_of(&[(0, a)], 3, Range { offset: 96, size: 16 }).unwrap_err().to_string();
        assert!(text.contains("buffer 3 (16 bytes at offset 96)"), "{text}");
        assert!(text.contains("buffer 0 (100 bytes at offset 0)"), "{text}");
    }
}
