//! Several buffers in *one* allocation: Vulkan exports it once, CUDA imports it once and maps each buffer at its own offset.
//!
//! Usually a buffer has a dedicated allocation ([`crate::memory`]), which every driver exports. This module is for many small
//! buffers. Drivers limit the number of allocations (`maxMemoryAllocationCount`), and the system limits the number of open
//! descriptors.
//!
//! The rules, and how they are kept:
//!
//! - The allocation is not dedicated, so CUDA imports it without `CUDA_EXTERNAL_MEMORY_DEDICATED`.
//! - Offset and size of a mapping are those of the Vulkan buffer there: [`MappedBuffer`]s are made from the exported
//!   buffer, not from numbers. [`crate::layout`] checks the offsets themselves.
//! - A mapping goes before its import, and the import before Vulkan's memory: each keeps an `Arc` of the next, so a
//!   wrong order cannot be written.
//!
//! ```compile_fail
//! // Nothing maps what was not exported: there is no way to make one from a pointer, or from a descriptor and a size.
//! use vulkan_cuda::MappedBuffer;
//! fn forged(pointer: u64) -> MappedBuffer {
//!     MappedBuffer { pointer }
//! }
//! ```
//!
//! ```compile_fail,E0616
//! // The import below a mapping cannot be freed before it: nobody else can get at it.
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

/// One allocation as CUDA sees it, with the ranges that are mapped just now.
pub struct ImportedAllocation {
    // CUDA lets go before Vulkan frees.
    imported: ImportedMemory,
    mapped: Mutex<Vec<(usize, Range)>>,
    exported: Arc<ExportedAllocation>,
}

impl ImportedAllocation {
    /// Imports the whole allocation, which is of the pair's device.
    ///
    /// # Errors
    /// An allocation of another device, and what either driver answers.
    pub fn new(pair: &Pair, exported: &Arc<ExportedAllocation>) -> Result<Arc<Self>> {
        pair.vk().require_same(&exported.vk)?;
        let handle = exported.export()?;
        let imported = ImportedMemory::new(pair.cuda(), handle, exported.size, false)?;
        Ok(Arc::new(Self { imported, mapped: Mutex::default(), exported: exported.clone() }))
    }

    /// Vulkan's side.
    pub fn exported(&self) -> &ExportedAllocation {
        &self.exported
    }

    /// Maps buffer `index`, which must not be mapped already.
    ///
    /// # Errors
    /// There is no such buffer, it is mapped already, or what the driver answers.
    pub fn map(self: &Arc<Self>, index: usize) -> Result<MappedBuffer> {
        let Some(&range) = self.exported.ranges.get(index) else {
            return Err(Error::Rule(format!(
                "there is no buffer {index} in an allocation of {}",
                self.exported.ranges.len()
            )));
        };
        // A poisoned lock only says that another thread panicked; the list is whole.
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

/// Whether nothing that is mapped has a byte in common with `range`.
fn free_of(mapped: &[(usize, Range)], index: usize, range: Range) -> Result<()> {
    match mapped.iter().find(|(_, other)| other.overlaps(range)) {
        None => Ok(()),
        Some(&(other, other_range)) => Err(Error::Rule(format!(
            "buffer {index} ({range}) cannot be mapped while buffer {other} ({other_range}) is: CUDA may give the same \
             bytes a second address, through which writes to the first are not seen"
        ))),
    }
}

/// One buffer of an allocation as CUDA addresses it.
pub struct MappedBuffer {
    pointer: sys::CUdeviceptr,
    index: usize,
    range: Range,
    imported: Arc<ImportedAllocation>,
}

impl MappedBuffer {
    /// The address in CUDA's address space.
    pub fn pointer(&self) -> sys::CUdeviceptr {
        self.pointer
    }

    /// Where it lies in the allocation.
    pub fn range(&self) -> Range {
        self.range
    }

    /// The same bytes as Vulkan knows them.
    pub fn vulkan(&self) -> vk::Buffer {
        self.imported.exported.buffers[self.index]
    }
}

impl Drop for MappedBuffer {
    fn drop(&mut self) {
        // SAFETY: mapped in `map`; no stream uses it any more, which whoever launched work on it has promised.
        self.imported.imported.cuda.cleanup("cuMemFree", || unsafe { api::cuMemFree(self.pointer) });
        let mut mapped = self.imported.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        mapped.retain(|(index, _)| *index != self.index);
    }
}

/// Several buffers that both APIs address, in one allocation.
pub struct SharedAllocation {
    mapped: Vec<MappedBuffer>,
}

impl SharedAllocation {
    /// Allocates once in Vulkan, imports once into CUDA, maps each buffer.
    ///
    /// # Errors
    /// Those of [`ExportedAllocation::new`] and [`ImportedAllocation::new`].
    pub fn new(pair: &Pair, sizes: &[u64], usage: vk::BufferUsageFlags) -> Result<Self> {
        let exported = Arc::new(ExportedAllocation::new(pair.vk(), sizes, usage)?);
        let imported = ImportedAllocation::new(pair, &exported)?;
        let mapped = (0..sizes.len()).map(|index| imported.map(index)).collect::<Result<_>>()?;
        Ok(Self { mapped })
    }

    /// The buffers, in the order in which they were asked for.
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
