use ash::vk;
use gpu_allocator::MemoryLocation;
use gpu_allocator::vulkan::{AllocationCreateDesc, AllocationScheme};

use super::owned::OwnedMemory;
use super::{AutoDestroy, Device};
use crate::{Error, Result};

#[derive(Clone, Copy, Debug)]
pub struct BufferDesc {
    pub label: &'static str,
    /// In bytes; not 0.
    pub size: u64,
    pub usage: vk::BufferUsageFlags,
    pub location: MemoryLocation,
}

/// Buffers of at least this many bytes get an allocation of their own.
const LARGE: u64 = 1 << 20;

/// A buffer that is not shared with CUDA. For one that is, see [`vulkan_cuda::SharedBuffer`].
pub struct Buffer {
    raw: AutoDestroy<vk::Buffer>,
    memory: OwnedMemory,
    size: u64,
}

impl Buffer {
    pub fn new(device: &Device, desc: &BufferDesc) -> Result<Self> {
        let info = vk::BufferCreateInfo::default().size(desc.size).usage(desc.usage);
        // SAFETY: a live device and a plain description.
        let raw = AutoDestroy::new(device, "vkCreateBuffer", |vk| unsafe { vk.create_buffer(&info, None) })?;
        let desc = AllocationCreateDesc {
            name: desc.label,
            // SAFETY: made above.
            requirements: unsafe { device.raw().get_buffer_memory_requirements(raw.raw()) },
            location: desc.location,
            linear: true,
            // In a block that buffers share, a large buffer could leave much memory unused.
            allocation_scheme: match desc.size {
                LARGE.. => AllocationScheme::DedicatedBuffer(raw.raw()),
                _ => AllocationScheme::GpuAllocatorManaged,
            },
        };
        let memory = OwnedMemory::new(device, &desc)?;
        let (block, offset) = memory.place();
        // SAFETY: the memory was allocated for this buffer's requirements and is bound once.
        unsafe { device.raw().bind_buffer_memory(raw.raw(), block, offset) }
            .map_err(device.failed("vkBindBufferMemory"))?;
        Ok(Self { raw, memory, size: info.size })
    }

    /// Makes a buffer and fills it with `bytes`, which must not be empty.
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

    pub fn raw(&self) -> vk::Buffer {
        self.raw.raw()
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the bytes, aligned as the device requires for such a buffer. Fails for `GpuOnly` memory.
    pub fn bytes(&self) -> Result<&[u8]> {
        let bytes = self.memory.allocation.mapped_slice().and_then(|bytes| bytes.get(..self.size as usize));
        bytes.ok_or_else(|| unmapped(self.raw.device()))
    }

    pub fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        let bytes = self.memory.allocation.mapped_slice_mut();
        let bytes = bytes.and_then(|bytes| bytes.get_mut(..self.size as usize));
        bytes.ok_or_else(|| unmapped(self.raw.device()))
    }
}

/// Returns the error for `GpuOnly` memory. Every device has mappable memory for the other locations.
fn unmapped(device: &Device) -> Error {
    Error::Unsupported(format!("the CPU cannot access this memory of {}", device.info().name))
}
