//! Vulkan's half of [`crate::cuda_memory`].

use std::sync::Arc;

use ash::vk;
use cudarc::driver::sys;

use crate::cuda_allocation::CudaAllocation;
use crate::export::{check_buffer, flags_for, memory_type, requirements};
use crate::exportable;
use crate::handle::{ExportType, Fd};
use crate::layout::Range;
use crate::pair::Pair;
use crate::pieces::{Piece, pieces};
use crate::sparse;
use crate::vulkan::Vk;
use crate::{Error, Result};

/// A Vulkan buffer in memory that CUDA allocated. It owns the buffer and Vulkan's references to the memory,
/// and keeps the [`CudaAllocation`] alive. [`crate::cuda_memory`] has an example.
pub struct CudaBuffer {
    buffer: vk::Buffer,
    /// One import for each chunk that holds bytes of the buffer.
    memories: Vec<vk::DeviceMemory>,
    size: u64,
    required: vk::MemoryRequirements,
    usage: vk::BufferUsageFlags,
    vk: Vk,
    /// CUDA's address of the same bytes, and the allocation that keeps it valid. Dropped last.
    owner: Option<(sys::CUdeviceptr, Arc<CudaAllocation>)>,
}

impl CudaBuffer {
    /// Imports the chunk that holds `range` of the allocation, and binds a buffer to these bytes.
    ///
    /// # Errors
    /// Fails if `range` is not in the allocation, spans several chunks, or is not aligned as Vulkan requires
    /// (16 bytes on an H200), if the allocation is on another GPU, if the device was created without
    /// `VK_KHR_external_memory_fd` or imports no buffers of this usage.
    pub fn new(
        pair: &Pair,
        allocation: &Arc<CudaAllocation>,
        range: Range,
        usage: vk::BufferUsageFlags,
    ) -> Result<Self> {
        let mut made = Self::create(pair.vk(), range.size, usage, vk::BufferCreateFlags::empty())?;
        let found = made.place(pair, allocation, range)?;
        let &[Piece { chunk, range: within, .. }] = found.as_slice() else {
            return Err(Error::Rule(format!(
                "{range} span {} chunks of CUDA's memory: bind them sparsely (CudaBuffer::spanning), or copy them into one",
                found.len()
            )));
        };
        // SAFETY: exported just now from this very chunk, on the pair's GPU.
        unsafe { made.import(allocation.export(chunk)?, allocation.chunks()[chunk]) }?;
        made.bind(within.offset)?;
        Ok(made)
    }

    /// Like [`CudaBuffer::new`], but the bytes may span several chunks. Binds them with `vkQueueBindSparse`
    /// ([Sparse Resources]), and returns when they are bound.
    ///
    /// # Errors
    /// Also fails if the device or the queue family does not support sparse binding, or not for imported
    /// memory, or if the range's part in a chunk is not whole sparse blocks, usually of 64 KiB.
    ///
    /// # Safety
    /// - The device must have been created with `sparseBinding`. Vulkan cannot tell whether it was.
    /// - `queue` must be a queue of the pair's device, of the family `family`.
    /// - No other thread may use the queue during the call. Its earlier work must be able to finish.
    ///
    /// [Sparse Resources]: https://registry.khronos.org/vulkan/specs/latest/html/vkspec.html#sparsememory
    pub unsafe fn spanning(
        pair: &Pair,
        allocation: &Arc<CudaAllocation>,
        range: Range,
        usage: vk::BufferUsageFlags,
        (queue, family): (vk::Queue, u32),
    ) -> Result<Self> {
        sparse::offered(pair.vk(), family)?;
        let mut made = Self::create(pair.vk(), range.size, usage, vk::BufferCreateFlags::SPARSE_BINDING)?;
        let found = made.place(pair, allocation, range)?;
        sparse::check(&found, made.required.alignment)?;
        for piece in &found {
            // SAFETY: as in `new`.
            unsafe { made.import(allocation.export(piece.chunk)?, allocation.chunks()[piece.chunk]) }?;
        }
        // SAFETY: the caller's promise.
        unsafe { made.bind_sparsely(queue, &found) }
    }

    /// Imports a descriptor that your process did not export, and binds a buffer to `range` of its memory. If
    /// the import fails, the descriptor is closed.
    ///
    /// **A refused import may make later ones fail**: try it in a child process ([`crate::cuda_memory`]).
    ///
    /// # Errors
    /// Fails as [`CudaBuffer::new`] does. For a refused descriptor the driver may report a lack of memory.
    ///
    /// # Safety
    /// `fd` must stand for memory on this device's GPU, which CUDA exported (`cuMemExportToShareableHandle`),
    /// of exactly `allocation_size` bytes. Drivers need not detect a broken promise.
    pub unsafe fn from_descriptor(
        vk: &Vk,
        fd: Fd,
        allocation_size: u64,
        range: Range,
        usage: vk::BufferUsageFlags,
    ) -> Result<Self> {
        let mut made = Self::create(vk, range.size, usage, vk::BufferCreateFlags::empty())?;
        made.lies_in(&[allocation_size], range)?;
        // SAFETY: the caller's promise.
        unsafe { made.import(fd, allocation_size) }?;
        made.bind(range.offset)?;
        Ok(made)
    }

    /// Like [`CudaBuffer::from_descriptor`], for several chunks: a descriptor and a size in bytes for each.
    ///
    /// # Safety
    /// Same as [`CudaBuffer::from_descriptor`] for each chunk. For several, also as for
    /// [`CudaBuffer::spanning`].
    pub unsafe fn from_descriptors(
        vk: &Vk,
        mut chunks: Vec<(Fd, u64)>,
        range: Range,
        usage: vk::BufferUsageFlags,
        (queue, family): (vk::Queue, u32),
    ) -> Result<Self> {
        if chunks.len() == 1
            && let Some((fd, size)) = chunks.pop()
        {
            // SAFETY: the caller's promise.
            return unsafe { Self::from_descriptor(vk, fd, size, range, usage) };
        }
        sparse::offered(vk, family)?;
        let mut made = Self::create(vk, range.size, usage, vk::BufferCreateFlags::SPARSE_BINDING)?;
        let sizes: Vec<_> = chunks.iter().map(|&(_, size)| size).collect();
        let found = made.lies_in(&sizes, range)?;
        sparse::check(&found, made.required.alignment)?;
        for (chunk, (fd, size)) in chunks.into_iter().enumerate() {
            if found.iter().any(|piece| piece.chunk == chunk) {
                // SAFETY: the caller's promise.
                unsafe { made.import(fd, size) }?;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { made.bind_sparsely(queue, &found) }
    }

    /// Returns Vulkan's buffer. It is destroyed with `self`.
    pub fn vulkan(&self) -> vk::Buffer {
        self.buffer
    }

    /// Returns the address of the same bytes in CUDA's address space, or `None` if the buffer was made from
    /// descriptors. The address is valid while `self` lives.
    pub fn cuda(&self) -> Option<sys::CUdeviceptr> {
        self.owner.as_ref().map(|(pointer, _)| *pointer)
    }

    /// Returns the size in bytes, as requested.
    pub fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn device(&self) -> vk::Device {
        self.vk.device().handle()
    }

    fn create(vk: &Vk, size: u64, usage: vk::BufferUsageFlags, flags: vk::BufferCreateFlags) -> Result<Self> {
        vk.memory_handles()?;
        check_buffer(vk, size, usage)?;
        let (name, fd) = (&vk.info().name, ExportType::OpaqueFd);
        // SAFETY: the adopted device's own.
        let features = unsafe { exportable::buffer(vk.instance(), vk.physical(), (usage, flags), fd) };
        let sparse = if flags.is_empty() { "" } else { "sparse " };
        let what = format!("{sparse}buffers for {usage:?} as {}", fd.name());
        if !features.contains(vk::ExternalMemoryFeatureFlags::IMPORTABLE) {
            return Err(Error::DeviceLacks(format!("{name} imports no {what}")));
        }
        if features.contains(vk::ExternalMemoryFeatureFlags::DEDICATED_ONLY) {
            return Err(Error::DeviceLacks(format!("{name} imports {what} only in dedicated allocations")));
        }
        let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(fd.memory());
        let info =
            vk::BufferCreateInfo::default().size(size).usage(usage).flags(flags).push_next(&mut external);
        // SAFETY: a live device and a plain description.
        let buffer =
            unsafe { vk.device().create_buffer(&info, None) }.map_err(vk.failed("vkCreateBuffer"))?;
        let required = vk::MemoryRequirements::default();
        // From here on Drop cleans up.
        let mut made =
            Self { buffer, memories: Vec::new(), size, required, usage, vk: vk.clone(), owner: None };
        // SAFETY: made above.
        made.required = unsafe { requirements(vk, buffer, size) }?;
        Ok(made)
    }

    /// Finds the pieces of the allocation that the buffer shows, and keeps the allocation alive.
    fn place(&mut self, pair: &Pair, allocation: &Arc<CudaAllocation>, range: Range) -> Result<Vec<Piece>> {
        let (ours, theirs) = (pair.cuda().info(), allocation.cuda().info());
        if ours.uuid != theirs.uuid {
            return Err(Error::Rule(format!(
                "memory on {} ({}) cannot be imported on {} ({})",
                theirs.name, theirs.uuid, ours.name, ours.uuid
            )));
        }
        let pieces = self.lies_in(&allocation.chunks(), range)?;
        self.owner = Some((allocation.pointer() + range.offset, allocation.clone()));
        Ok(pieces)
    }

    /// Returns the pieces of `range`, including the bytes that Vulkan requires beyond the buffer's own.
    fn lies_in(&self, chunks: &[u64], range: Range) -> Result<Vec<Piece>> {
        let alignment = self.required.alignment;
        if !range.offset.is_multiple_of(alignment) {
            return Err(Error::Rule(format!(
                "{range} of CUDA's memory do not begin at a multiple of {alignment}, as VkMemoryRequirements::alignment requires"
            )));
        }
        pieces(chunks, Range { size: self.required.size, ..range })
    }

    /// # Safety
    /// `fd` stands for memory on this GPU that CUDA exported, of exactly `size` bytes.
    unsafe fn import(&mut self, fd: Fd, size: u64) -> Result<()> {
        let vk = &self.vk;
        let mut flags = vk::MemoryAllocateFlagsInfo::default().flags(flags_for(self.usage));
        let mut import = vk::ImportMemoryFdInfoKHR::default()
            .handle_type(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD)
            .fd(fd.number());
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(size)
            .memory_type_index(memory_type(vk, &self.required))
            .push_next(&mut import);
        let info = if flags.flags.is_empty() { info } else { info.push_next(&mut flags) };
        let call = "vkAllocateMemory (import of a file descriptor)";
        // SAFETY: a live device and a description that points to locals; the caller promises the rest.
        let memory = unsafe { vk.device().allocate_memory(&info, None) }.map_err(vk.failed(call))?;
        // "Importing memory from a file descriptor transfers ownership of the file descriptor from the
        // application to the Vulkan implementation." After a failure the `?` above has closed it.
        fd.give_up();
        self.memories.push(memory);
        Ok(())
    }

    fn bind(&mut self, offset: u64) -> Result<()> {
        // SAFETY: aligned and inside the allocation, checked in `lies_in`; bound once.
        unsafe { self.vk.device().bind_buffer_memory(self.buffer, self.memories[0], offset) }
            .map_err(self.vk.failed("vkBindBufferMemory"))
    }

    /// # Safety
    /// Same as [`sparse::bind`].
    unsafe fn bind_sparsely(self, queue: vk::Queue, pieces: &[Piece]) -> Result<Self> {
        // SAFETY: the caller's promise.
        match unsafe { sparse::bind(&self.vk, queue, self.buffer, pieces.iter().zip(&self.memories)) } {
            Ok(()) => Ok(self),
            Err(error) => {
                if matches!(error, Error::Timeout(_)) {
                    // The GPU may still bind.
                    std::mem::forget(self);
                }
                Err(error)
            }
        }
    }
}

impl Drop for CudaBuffer {
    fn drop(&mut self) {
        // SAFETY: the GPU is done with it: code that submits such work promises to wait for that.
        self.vk.cleanup(|device| unsafe {
            device.destroy_buffer(self.buffer, None);
            self.memories.iter().for_each(|&memory| device.free_memory(memory, None));
        });
    }
}
