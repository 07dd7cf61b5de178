//! Vulkan's half of [`crate::cuda_memory`].

use std::sync::Arc;

use ash::vk;
use cudarc::driver::sys;

use crate::cuda_allocation::CudaAllocation;
use crate::export::flags_for;
use crate::exportable;
use crate::handle::{ExportType, Fd};
use crate::layout::Range;
use crate::pair::Pair;
use crate::pieces::{Piece, pieces};
use crate::sparse;
use crate::vulkan::Vk;
use crate::{Error, Result};

/// A Vulkan buffer in memory that CUDA allocated.
pub struct ImportedBuffer {
    buffer: vk::Buffer,
    /// One import for each chunk that the buffer has bytes of.
    memories: Vec<vk::DeviceMemory>,
    size: u64,
    required: vk::MemoryRequirements,
    usage: vk::BufferUsageFlags,
    vk: Vk,
    /// CUDA's address of the same bytes, and what keeps it valid. Behind Vulkan's objects, which go first.
    owner: Option<(sys::CUdeviceptr, Arc<CudaAllocation>)>,
}

impl ImportedBuffer {
    /// Imports the chunk in which `range` of the allocation lies, and binds a buffer to these bytes. The device needs the extension
    /// `VK_KHR_external_memory_fd`.
    ///
    /// # Errors
    /// A range that is not there, that spans several chunks, or that is not aligned as Vulkan asks (16 bytes on an H200); an
    /// allocation of another GPU; a device without the extension, or that imports no buffers of this usage; what either driver
    /// answers.
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
                "{range} span {} chunks of CUDA's memory: bind them sparsely (ImportedBuffer::spanning), or copy them into one",
                found.len()
            )));
        };
        // SAFETY: exported just now from this very chunk, on the pair's GPU.
        unsafe { made.import(allocation.export(chunk)?, allocation.chunks()[chunk]) }?;
        made.bind(within.offset)?;
        Ok(made)
    }

    /// The same for bytes that may span several chunks: imports each, and binds them one behind the other with `vkQueueBindSparse`
    /// ("Sparse Resources" in the specification). Returns when they are bound. The range must begin at a multiple of the device's
    /// sparse block, 64 KiB as a rule.
    ///
    /// # Errors
    /// As [`ImportedBuffer::new`], but the range may span chunks. Also a device or a queue family without sparse binding, a device
    /// that does not bind imported memory sparsely, and a range whose part in a chunk is not of whole sparse blocks.
    ///
    /// # Safety
    /// - The device was created with the feature `sparseBinding`. Vulkan has no way to ask.
    /// - `queue` is the pair's device's, of the family `family`; nobody else uses it during the call, and what it has to do ends without this thread.
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
        unsafe { sparse::bind(pair.vk(), queue, made.buffer, found.iter().zip(&made.memories)) }?;
        Ok(made)
    }

    /// Imports a descriptor whose origin you know only from others, from another process for instance, and binds a buffer to
    /// `range` of its memory. After an error the descriptor is closed.
    ///
    /// Try it in a child process first: **a refused import may cost this process every later one**
    /// (see [`crate::cuda_memory`]).
    ///
    /// # Errors
    /// As [`ImportedBuffer::new`]. What the driver refuses it may call out of memory.
    ///
    /// # Safety
    /// `fd` stands for memory on this device's GPU, which CUDA exported (`cuMemExportToShareableHandle`), and of exactly
    /// `allocation_size` bytes. Drivers need not notice if it does not.
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

    /// The same for memory of several chunks, one behind the other: for each a descriptor and its size in bytes. One chunk is bound as
    /// [`ImportedBuffer::from_descriptor`] does, several as [`ImportedBuffer::spanning`] does. After an error the descriptors are closed.
    ///
    /// # Errors
    /// As those two.
    ///
    /// # Safety
    /// As [`ImportedBuffer::from_descriptor`], for each chunk; for several as [`ImportedBuffer::spanning`], too.
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
        unsafe { sparse::bind(vk, queue, made.buffer, found.iter().zip(&made.memories)) }?;
        Ok(made)
    }

    /// Vulkan's buffer. It is destroyed with `self`.
    pub fn vulkan(&self) -> vk::Buffer {
        self.buffer
    }

    /// The address of the same bytes in CUDA's address space; `None` where only a descriptor was known.
    pub fn cuda(&self) -> Option<sys::CUdeviceptr> {
        self.owner.as_ref().map(|(pointer, _)| *pointer)
    }

    /// Its size in bytes, as asked.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// A buffer without memory.
    fn create(vk: &Vk, size: u64, usage: vk::BufferUsageFlags, flags: vk::BufferCreateFlags) -> Result<Self> {
        vk.memory_handles()?;
        // Vulkan's rule, not the driver's to check (VUID-VkBufferCreateInfo-size-00912).
        if size == 0 {
            return Err(Error::Rule("a buffer of 0 bytes is none".into()));
        }
        let (name, fd) = (&vk.info().name, ExportType::OpaqueFd);
        // SAFETY: the adopted device's own.
        unsafe { exportable::imported_buffer(vk.instance(), vk.physical(), name, (usage, flags), fd) }
            .map_err(Error::Unsupported)?;
        let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(fd.memory());
        let info =
            vk::BufferCreateInfo::default().size(size).usage(usage).flags(flags).push_next(&mut external);
        // SAFETY: a live device and a plain description.
        let buffer =
            unsafe { vk.device().create_buffer(&info, None) }.map_err(vk.failed("vkCreateBuffer"))?;
        // SAFETY: made above.
        let required = unsafe { vk.device().get_buffer_memory_requirements(buffer) };
        // From here on Drop cleans up.
        Ok(Self { buffer, memories: Vec::new(), size, required, usage, vk: vk.clone(), owner: None })
    }

    /// Finds the pieces of an allocation that the buffer is to show, and keeps the allocation.
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

    /// The pieces of `range`, with the bytes that Vulkan asks for beyond the buffer's own.
    fn lies_in(&self, chunks: &[u64], range: Range) -> Result<Vec<Piece>> {
        let alignment = self.required.alignment;
        if !range.offset.is_multiple_of(alignment) {
            return Err(Error::Rule(format!(
                "{range} of CUDA's memory are not at a multiple of {alignment}, which VkMemoryRequirements::alignment asks"
            )));
        }
        pieces(chunks, Range { size: self.required.size.max(range.size), ..range })
    }

    /// Imports an allocation of `size` bytes, for this buffer.
    ///
    /// # Safety
    /// `fd` stands for memory on this GPU that CUDA exported, of so many bytes.
    unsafe fn import(&mut self, fd: Fd, size: u64) -> Result<()> {
        let (vk, types) = (&self.vk, self.required.memory_type_bits);
        let memory_type = vk
            .memory_type(types, vk::MemoryPropertyFlags::DEVICE_LOCAL)
            // Every buffer has at least one memory type.
            .unwrap_or(types.trailing_zeros());
        let mut flags = vk::MemoryAllocateFlagsInfo::default().flags(flags_for(self.usage));
        let mut import = vk::ImportMemoryFdInfoKHR::default()
            .handle_type(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD)
            .fd(fd.number());
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(size)
            .memory_type_index(memory_type)
            .push_next(&mut import);
        let info = if flags.flags.is_empty() { info } else { info.push_next(&mut flags) };
        let call = "vkAllocateMemory (import of a file descriptor)";
        // SAFETY: a live device, a description that points to locals, and for the descriptor the caller's promise.
        let memory = unsafe { vk.device().allocate_memory(&info, None) }.map_err(vk.failed(call))?;
        // "Importing memory from a file descriptor transfers ownership of the file descriptor from the application to the Vulkan
        // implementation." After a failure it is ours, and was closed above.
        fd.give_up();
        self.memories.push(memory);
        Ok(())
    }

    /// Binds the buffer to its one import.
    fn bind(&mut self, offset: u64) -> Result<()> {
        // SAFETY: aligned and inside the allocation, checked in `lies_in`; bound once.
        unsafe { self.vk.device().bind_buffer_memory(self.buffer, self.memories[0], offset) }
            .map_err(self.vk.failed("vkBindBufferMemory"))
    }
}

impl Drop for ImportedBuffer {
    fn drop(&mut self) {
        // SAFETY: the GPU is done with it: whoever submitted work that uses it has promised to keep it alive so long.
        self.vk.cleanup(|device| unsafe {
            device.destroy_buffer(self.buffer, None);
            self.memories.iter().for_each(|&memory| device.free_memory(memory, None));
        });
    }
}
