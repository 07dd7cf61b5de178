//! Vulkan's half of [`crate::cuda_memory`].

use std::sync::Arc;

use ash::vk;
use cudarc::driver::sys;

use crate::cuda_allocation::CudaAllocation;
use crate::export::{Buffer, Memory};
use crate::exportable;
use crate::handle::{ExportType, Fd};
use crate::layout::Range;
use crate::pair::Pair;
use crate::pieces::{Piece, pieces};
use crate::sparse;
use crate::vulkan::Vk;
use crate::{Error, Result};

/// A Vulkan buffer in memory that CUDA allocated. Owns the buffer and Vulkan's references to the memory, and
/// keeps the [`CudaAllocation`] alive, if there is one. [`crate::cuda_memory`] has an example.
pub struct CudaBuffer {
    // Dropped before `memories`.
    pub(crate) buffer: Buffer,
    /// One import for each chunk that holds bytes of the buffer.
    memories: Vec<Memory>,
    /// CUDA's address of the same bytes, and the allocation that keeps the address valid. `None` if the
    /// buffer was made from descriptors. Dropped last.
    owner: Option<(sys::CUdeviceptr, Arc<CudaAllocation>)>,
}

impl CudaBuffer {
    /// Imports the chunk that holds `range` of the allocation, and binds a buffer to these bytes.
    ///
    /// # Errors
    /// Fails if `range` is not in the allocation, spans several chunks, or is not aligned as Vulkan requires
    /// (16 bytes on an H200), if the allocation is on another GPU, or if the device was created without
    /// `VK_KHR_external_memory_fd` or imports no buffers of this usage.
    pub fn new(
        pair: &Pair,
        allocation: &Arc<CudaAllocation>,
        range: Range,
        usage: vk::BufferUsageFlags,
    ) -> Result<Self> {
        // SAFETY: the demands are about a queue, and there is none.
        unsafe { Self::of_allocation(pair, allocation, range, usage, None) }
    }

    /// Like [`CudaBuffer::new`], but `range` may span several chunks. Binds the buffer to them with
    /// `vkQueueBindSparse` ([Sparse Resources]), and waits until the GPU has done so.
    ///
    /// # Errors
    /// Also fails if the device or the queue family does not support sparse binding, if the device does not
    /// support it for imported memory, or if a chunk would hold part of a sparse block (usually 64 KiB).
    ///
    /// # Safety
    /// - The device must have been created with `sparseBinding`, which Vulkan cannot check.
    /// - `queue` must be a queue of the pair's device, of the family `family`.
    /// - No other thread may use the queue during the call. Earlier work on the queue must not wait for this
    ///   thread.
    ///
    /// [Sparse Resources]: https://registry.khronos.org/vulkan/specs/latest/html/vkspec.html#sparsememory
    pub unsafe fn spanning(
        pair: &Pair,
        allocation: &Arc<CudaAllocation>,
        range: Range,
        usage: vk::BufferUsageFlags,
        (queue, family): (vk::Queue, u32),
    ) -> Result<Self> {
        // SAFETY: the caller's promise.
        unsafe { Self::of_allocation(pair, allocation, range, usage, Some((queue, family))) }
    }

    /// # Safety
    /// Same as [`CudaBuffer::spanning`], if there is a queue.
    unsafe fn of_allocation(
        pair: &Pair,
        allocation: &Arc<CudaAllocation>,
        range: Range,
        usage: vk::BufferUsageFlags,
        queue: Option<(vk::Queue, u32)>,
    ) -> Result<Self> {
        let (ours, theirs) = (pair.cuda().info(), allocation.cuda().info());
        if ours.uuid != theirs.uuid {
            return Err(Error::Rule(format!(
                "memory on {} ({}) cannot be imported on {} ({})",
                theirs.name, theirs.uuid, ours.name, ours.uuid
            )));
        }
        let chunks = allocation.chunks();
        let (mut made, found) = Self::create(pair.vk(), &chunks, range, usage, queue)?;
        for piece in &found {
            // SAFETY: exported just now from this chunk, which has this size and is on the pair's GPU.
            unsafe { made.import(allocation.export(piece.chunk)?, chunks[piece.chunk]) }?;
        }
        made.owner = Some((allocation.pointer() + range.offset, allocation.clone()));
        // SAFETY: the memory of each piece was imported above. The caller promises the rest.
        unsafe { made.bind(&found, queue) }
    }

    /// Imports a descriptor that your process did not export, and binds a buffer to `range` of its memory. If
    /// the import fails, the descriptor is closed.
    ///
    /// **A refused import may make later ones fail**: try it in a child process ([`crate::cuda_memory`]).
    ///
    /// # Errors
    /// Fails as [`CudaBuffer::new`] does. For a refused descriptor, the driver may report a lack of memory.
    ///
    /// # Safety
    /// `fd` must stand for memory on this device's GPU, which CUDA exported (`cuMemExportToShareableHandle`),
    /// of exactly `allocation_size` bytes. Drivers need not detect a violation.
    pub unsafe fn from_descriptor(
        vk: &Vk,
        fd: Fd,
        allocation_size: u64,
        range: Range,
        usage: vk::BufferUsageFlags,
    ) -> Result<Self> {
        let (mut made, found) = Self::create(vk, &[allocation_size], range, usage, None)?;
        // SAFETY: the caller promises what `import` demands. `bind` gets the imported memory, and no queue.
        unsafe {
            made.import(fd, allocation_size)?;
            made.bind(&found, None)
        }
    }

    /// Like [`CudaBuffer::from_descriptor`], for several chunks: a descriptor and a size in bytes for each.
    ///
    /// # Safety
    /// Same as [`CudaBuffer::from_descriptor`], for each chunk. Unless there is exactly one chunk, also the
    /// same as [`CudaBuffer::spanning`], for the device `vk`.
    pub unsafe fn from_descriptors(
        vk: &Vk,
        chunks: Vec<(Fd, u64)>,
        range: Range,
        usage: vk::BufferUsageFlags,
        queue: (vk::Queue, u32),
    ) -> Result<Self> {
        // One chunk needs no sparse binding.
        let queue = (chunks.len() != 1).then_some(queue);
        let sizes: Vec<_> = chunks.iter().map(|&(_, size)| size).collect();
        let (mut made, found) = Self::create(vk, &sizes, range, usage, queue)?;
        for (chunk, (fd, size)) in chunks.into_iter().enumerate() {
            if found.iter().any(|piece| piece.chunk == chunk) {
                // SAFETY: the caller's promise.
                unsafe { made.import(fd, size) }?;
            }
        }
        // SAFETY: the memory of each piece was imported above. The caller promises the rest.
        unsafe { made.bind(&found, queue) }
    }

    /// Returns Vulkan's buffer. It is destroyed with `self`.
    pub fn vulkan(&self) -> vk::Buffer {
        self.buffer.raw
    }

    /// Returns the address of the same bytes in CUDA's address space, or `None` if the buffer was made from
    /// descriptors. The address is valid while `self` lives.
    pub fn cuda(&self) -> Option<sys::CUdeviceptr> {
        self.owner.as_ref().map(|(pointer, _)| *pointer)
    }

    /// Returns the buffer's size in bytes, as requested.
    pub fn size(&self) -> u64 {
        self.buffer.size
    }

    /// Creates the buffer for `range`, still unbound, and returns it with the pieces of the chunks that it
    /// must be bound to. Without a queue for sparse binding, there is exactly one piece.
    fn create(
        vk: &Vk,
        chunks: &[u64],
        range: Range,
        usage: vk::BufferUsageFlags,
        queue: Option<(vk::Queue, u32)>,
    ) -> Result<(Self, Vec<Piece>)> {
        use vk::ExternalMemoryFeatureFlags as Features;
        let (mut flags, mut sparse) = (vk::BufferCreateFlags::empty(), "");
        if let Some((_, family)) = queue {
            sparse::offered(vk, family)?;
            (flags, sparse) = (vk::BufferCreateFlags::SPARSE_BINDING, "sparse ");
        }
        vk.memory_handles()?;
        vk.require_usage(usage)?;
        let (name, fd) = (&vk.info().name, ExportType::OpaqueFd);
        // SAFETY: `vk` keeps both handles alive, and its physical device belongs to its instance.
        let features = unsafe { exportable::buffer(vk.instance(), vk.physical(), (usage, flags), fd) };
        let what = format!("{sparse}buffers for {usage:?} as {}", fd.name());
        if !features.contains(Features::IMPORTABLE) {
            return Err(Error::DeviceLacks(format!("{name} imports no {what}")));
        }
        if features.contains(Features::DEDICATED_ONLY) {
            return Err(Error::DeviceLacks(format!("{name} imports {what} only in dedicated allocations")));
        }
        let buffer = Buffer::new(vk, range.size, (usage, flags), fd)?;
        let alignment = buffer.required.alignment;
        if !range.offset.is_multiple_of(alignment) {
            return Err(Error::Rule(format!(
                "{range} of CUDA's memory do not begin at a multiple of {alignment}, as VkMemoryRequirements::alignment requires"
            )));
        }
        // Vulkan may require more bytes of memory than the buffer has.
        let found = pieces(chunks, Range { size: buffer.required.size, ..range })?;
        match queue {
            Some(_) => sparse::check(&found, alignment)?,
            None if found.len() == 1 => {}
            None => {
                return Err(Error::Rule(format!(
                    "{range} span {} chunks of CUDA's memory: bind them sparsely (CudaBuffer::spanning), or copy them into one",
                    found.len()
                )));
            }
        }
        Ok((Self { buffer, memories: Vec::new(), owner: None }, found))
    }

    /// # Safety
    /// `fd` must stand for memory on this GPU that CUDA exported, of exactly `size` bytes.
    unsafe fn import(&mut self, fd: Fd, size: u64) -> Result<()> {
        let Buffer { required, vk, .. } = &self.buffer;
        let mut flags = vk::MemoryAllocateFlagsInfo::default().flags(self.buffer.memory_flags());
        let mut import = vk::ImportMemoryFdInfoKHR::default()
            .handle_type(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD)
            .fd(fd.number());
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(size)
            .memory_type_index(vk.memory_type(required))
            .push_next(&mut import);
        let info = if flags.flags.is_empty() { info } else { info.push_next(&mut flags) };
        let call = "vkAllocateMemory (import of a file descriptor)";
        // SAFETY: a live device, and a description that points to locals. The caller promises the rest.
        let raw = unsafe { vk.device().allocate_memory(&info, None) }.map_err(vk.failed(call))?;
        // "Importing memory from a file descriptor transfers ownership of the file descriptor from the
        // application to the Vulkan implementation." After a failure, `?` drops `fd`, which closes it.
        fd.give_up();
        self.memories.push(Memory { raw, size, kind: ExportType::OpaqueFd, vk: vk.clone() });
        Ok(())
    }

    /// # Safety
    /// The memory of each piece must have been imported. If there is a queue, same as [`sparse::bind`].
    unsafe fn bind(self, pieces: &[Piece], queue: Option<(vk::Queue, u32)>) -> Result<Self> {
        let Some((queue, _)) = queue else {
            // SAFETY: `create` checked that the offset is aligned and that the piece lies inside the memory,
            // which the caller has imported. Bound once.
            unsafe { self.buffer.bind(&self.memories[0], pieces[0].range.offset) }?;
            return Ok(self);
        };
        let places = pieces.iter().zip(self.memories.iter().map(|memory| memory.raw));
        // SAFETY: `create` has checked the pieces. The buffer is unbound. The caller promises the rest.
        match unsafe { sparse::bind(&self.buffer.vk, queue, self.buffer.raw, places) } {
            Ok(()) => Ok(self),
            Err(error) => {
                if matches!(error, Error::Timeout(_)) {
                    // The GPU may still be binding, so leak the buffer and its memory.
                    std::mem::forget(self);
                }
                Err(error)
            }
        }
    }
}
