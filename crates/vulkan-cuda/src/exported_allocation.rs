//! Vulkan's half of [`crate::allocation`].

use ash::vk;

use crate::export::{MemoryExport, export_memory, requirements};
use crate::handle::{ExportType, MemoryHandle};
use crate::layout::{self, Needs, Range};
use crate::vulkan::Vk;
use crate::{Error, Result};

/// Vulkan buffers in one exportable allocation. It owns the buffers and the memory, and destroys them when it is
/// dropped. [`ImportedAllocation`](crate::ImportedAllocation) has an example.
pub struct ExportedAllocation {
    pub(crate) buffers: Vec<vk::Buffer>,
    pub(crate) ranges: Vec<Range>,
    pub(crate) memory: vk::DeviceMemory,
    pub(crate) size: u64,
    pub(crate) kind: ExportType,
    pub(crate) vk: Vk,
}

impl ExportedAllocation {
    /// Creates a buffer for each of `sizes` (in bytes) and packs them into one allocation of device memory, in this
    /// order: see [`layout::pack`].
    ///
    /// # Errors
    /// Fails if `sizes` is empty or contains 0, if the device exports such buffers only in dedicated allocations or
    /// was created without the extension, or if memory has run out.
    pub fn new(vk: &Vk, sizes: &[u64], usage: vk::BufferUsageFlags) -> Result<Self> {
        Self::place(vk, sizes, usage, None)
    }

    /// Creates the buffers at offsets that you choose, in an allocation of `size` bytes. `ranges` are the buffers'
    /// places in it. Offsets and sizes are in bytes.
    ///
    /// # Errors
    /// Fails as [`ExportedAllocation::new`] does, and if a range breaks a rule of either API: see [`layout::check`],
    /// which has an example.
    pub fn with_offsets(vk: &Vk, ranges: &[Range], size: u64, usage: vk::BufferUsageFlags) -> Result<Self> {
        let sizes: Vec<_> = ranges.iter().map(|range| range.size).collect();
        Self::place(vk, &sizes, usage, Some((ranges, size)))
    }

    fn place(
        vk: &Vk,
        sizes: &[u64],
        usage: vk::BufferUsageFlags,
        places: Option<(&[Range], u64)>,
    ) -> Result<Self> {
        if sizes.is_empty() {
            return Err(Error::Rule("an allocation for no buffers would be empty: name at least one".into()));
        }
        // Vulkan has no buffer of size 0. This error names the buffer's index.
        if let Some(index) = sizes.iter().position(|&size| size == 0) {
            return Err(layout::LayoutError::Empty(index).into());
        }
        let export = MemoryExport::for_buffers(vk, usage)?;
        if export.dedicated_only() {
            return Err(Error::Unsupported(format!(
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
            kind: export.kind(),
            vk: vk.clone(),
        };
        let (mut needs, mut memory_types) = (Vec::with_capacity(sizes.len()), u32::MAX);
        for &size in sizes {
            let buffer = export.create_buffer(vk, size, usage)?;
            made.buffers.push(buffer);
            // SAFETY: made above.
            let requirements = unsafe { requirements(vk, buffer, size) }?;
            // One memory holds all buffers, so its type must suit every one. Buffers with equal usage and flags allow the
            // same types ("Resource Memory Association").
            memory_types &= requirements.memory_type_bits;
            needs.push(Needs { size: requirements.size, alignment: requirements.alignment });
        }
        (made.ranges, made.size) = match places {
            Some((ranges, size)) => {
                layout::check(size, &needs, ranges)?;
                (ranges.to_vec(), size)
            }
            None => {
                let (mut ranges, size) = layout::pack(&needs)?;
                // Vulkan may require more bytes than the buffer has. CUDA maps only the buffer.
                ranges.iter_mut().zip(sizes).for_each(|(range, &size)| range.size = size);
                (ranges, size)
            }
        };
        let required = vk::MemoryRequirements::default().size(made.size).memory_type_bits(memory_types);
        // SAFETY: the types are those that every buffer allows, and nothing is dedicated.
        made.memory = unsafe { export.allocate(vk, &required, None) }?;
        for (&buffer, range) in made.buffers.iter().zip(&made.ranges) {
            // SAFETY: aligned and inside the allocation, checked above; bound once.
            unsafe { vk.device().bind_buffer_memory(buffer, made.memory, range.offset) }
                .map_err(vk.failed("vkBindBufferMemory"))?;
        }
        Ok(made)
    }

    /// Returns the buffers, in the order of the sizes or ranges. They are destroyed with `self`.
    pub fn buffers(&self) -> &[vk::Buffer] {
        &self.buffers
    }

    /// Returns each buffer's place in the allocation, in bytes. See [`layout`].
    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// Creates a new handle to the memory, with `vkGetMemoryFdKHR` or `vkGetMemoryWin32HandleKHR`. You own the handle.
    /// It keeps the memory alive by itself, unless it is a KMT handle.
    ///
    /// # Errors
    /// Fails if the driver reports an error.
    pub fn export(&self) -> Result<MemoryHandle> {
        export_memory(&self.vk, self.memory, self.kind)
    }

    /// Returns the size of the allocation in bytes, which every importer must specify (`VkMemoryAllocateInfo`).
    pub fn size(&self) -> u64 {
        self.size
    }
}

impl Drop for ExportedAllocation {
    fn drop(&mut self) {
        // SAFETY: the GPU is done with it: code that submits work with the buffers promises to keep them alive until then.
        self.vk.cleanup(|device| unsafe {
            for &buffer in &self.buffers {
                device.destroy_buffer(buffer, None);
            }
            device.free_memory(self.memory, None);
        });
    }
}
