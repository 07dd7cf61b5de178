//! A buffer that stays on the Vulkan side, in memory from gpu-allocator.

use ash::vk;
use gpu_allocator::MemoryLocation;
use gpu_allocator::vulkan::{Allocation, AllocationCreateDesc, AllocationScheme};

use super::Device;
use crate::{Error, Result};

/// How to make a [`Buffer`].
#[derive(Clone, Copy, Debug)]
pub struct BufferDesc {
    /// For errors and debuggers.
    pub label: &'static str,
    /// The size in bytes; not 0.
    pub size: u64,
    /// What the GPU does with it.
    pub usage: vk::BufferUsageFlags,
    /// Device, upload (`CpuToGpu`) or read-back (`GpuToCpu`) memory.
    pub location: MemoryLocation,
}

/// Buffers of at least this many bytes get an allocation of their own.
const LARGE: u64 = 1 << 20;

/// A buffer and its memory, which CUDA does not share. For shared memory, see [`vulkan_cuda::SharedBuffer`].
pub struct Buffer {
    raw: vk::Buffer,
    // None only while it is being dropped.
    allocation: Option<Allocation>,
    size: u64,
    device: Device,
}

impl Buffer {
    /// Makes a buffer with memory bound to it.
    pub fn new(device: &Device, desc: &BufferDesc) -> Result<Self> {
        let info = vk::BufferCreateInfo::default()
            .size(desc.size)
            .usage(desc.usage)
            .sharing_mode(vk::SharingMode::EXCLUSIVE);
        // SAFETY: a live device and a plain description.
        let raw =
            unsafe { device.raw().create_buffer(&info, None) }.map_err(device.failed("vkCreateBuffer"))?;
        // From here on Drop cleans up.
        let mut buffer = Self { raw, allocation: None, size: desc.size, device: device.clone() };
        // SAFETY: made above.
        let requirements = unsafe { device.raw().get_buffer_memory_requirements(raw) };
        let allocation = device
            .allocator()
            .allocate(&AllocationCreateDesc {
                name: desc.label,
                requirements,
                location: desc.location,
                linear: true,
                // In a block shared with other buffers, a large one would leave the rest of the block unused.
                allocation_scheme: match desc.size {
                    LARGE.. => AllocationScheme::DedicatedBuffer(raw),
                    _ => AllocationScheme::GpuAllocatorManaged,
                },
            })
            .map_err(|source| Error::Allocation {
                what: desc.label,
                bytes: requirements.size,
                device: device.info().name.clone(),
                source,
            })?;
        let allocation = buffer.allocation.insert(allocation);
        // SAFETY: the memory was allocated for this buffer's requirements and is bound once.
        unsafe { device.raw().bind_buffer_memory(raw, allocation.memory(), allocation.offset()) }
            .map_err(device.failed("vkBindBufferMemory"))?;
        Ok(buffer)
    }

    /// Makes a buffer in memory that the CPU can write, and copies `bytes` into it. `bytes` must not be empty.
    ///
    /// # Errors
    /// As [`Buffer::new`].
    pub fn filled(
        device: &Device,
        label: &'static str,
        bytes: &[u8],
        usage: vk::BufferUsageFlags,
    ) -> Result<Self> {
        let (size, location) = (bytes.len() as u64, MemoryLocation::CpuToGpu);
        let mut buffer = Self::new(device, &BufferDesc { label, size, usage, location })?;
        buffer.bytes_mut()?.copy_from_slice(bytes);
        Ok(buffer)
    }

    /// The raw handle.
    pub fn raw(&self) -> vk::Buffer {
        self.raw
    }

    /// The requested size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The bytes, as the CPU sees them. They have the alignment that the device requires for such a buffer.
    ///
    /// # Errors
    /// Memory that is for neither upload nor read-back.
    pub fn bytes(&self) -> Result<&[u8]> {
        let bytes = self.allocation.as_ref().and_then(|allocation| allocation.mapped_slice());
        bytes.and_then(|bytes| bytes.get(..self.size as usize)).ok_or_else(|| unmapped(&self.device))
    }

    /// The bytes, writable.
    ///
    /// # Errors
    /// As [`Buffer::bytes`].
    pub fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        let bytes = self.allocation.as_mut().and_then(|allocation| allocation.mapped_slice_mut());
        bytes.and_then(|bytes| bytes.get_mut(..self.size as usize)).ok_or_else(|| unmapped(&self.device))
    }
}

/// The error for a buffer in `GpuOnly` memory. Upload and read-back memory is always mapped: Vulkan demands that every device
/// has some.
fn unmapped(device: &Device) -> Error {
    Error::Unsupported(format!("the CPU cannot access this memory of {}", device.info().name))
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.device.is_left_running() {
            return;
        }
        // SAFETY: the GPU is done with it, as the module `vulkan` demands.
        unsafe { self.device.raw().destroy_buffer(self.raw, None) };
        if let Some(allocation) = self.allocation.take() {
            // It fails only for a block that the allocator does not know, and this one is its own.
            let _ = self.device.allocator().free(allocation);
        }
    }
}
