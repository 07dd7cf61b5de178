//! Vulkan's buffers and memory for export, and the calls that export memory and semaphores as handles.
//!
//! Creating such an object fails if the device exports no objects of this kind, if the device was created
//! without the extension ([`crate::DEVICE_EXTENSIONS`]), or if memory has run out.

use ash::vk;

use crate::exportable;
use crate::handle::{ExportType, MemoryHandle};
use crate::vulkan::Vk;
use crate::{Error, Result};

#[cfg(unix)]
#[path = "fd.rs"]
mod system;
#[cfg(windows)]
#[path = "win32.rs"]
mod system;

#[cfg(windows)]
pub(crate) use system::Attributes;
pub(crate) use system::export_semaphore;

/// Returns the handle type as which the device exports buffers with this usage, and whether each buffer needs
/// a dedicated allocation.
pub(crate) fn buffer_export(vk: &Vk, usage: vk::BufferUsageFlags) -> Result<(ExportType, bool)> {
    use vk::ExternalMemoryFeatureFlags as Features;
    let info = vk.info();
    // Checked first, because the driver may be asked only about usages that the device supports.
    vk.require_usage(usage)?;
    let kind = info.buffer_export.ok_or_else(|| cannot(&info.name, "a buffer"))?;
    vk.memory_handles()?;
    let asked = (usage, vk::BufferCreateFlags::empty());
    // SAFETY: `vk` keeps both handles alive, and its physical device belongs to its instance.
    let features = unsafe { exportable::buffer(vk.instance(), vk.physical(), asked, kind) };
    match features.contains(Features::EXPORTABLE) {
        true => Ok((kind, features.contains(Features::DEDICATED_ONLY))),
        false => Err(Error::DeviceLacks(format!(
            "{} exports no buffers for {usage:?} as {}",
            info.name,
            kind.name()
        ))),
    }
}

/// A Vulkan buffer whose memory is exported or imported. Owns the buffer, but not its memory.
pub(crate) struct Buffer {
    pub(crate) raw: vk::Buffer,
    /// The requested size, in bytes.
    pub(crate) size: u64,
    pub(crate) required: vk::MemoryRequirements,
    usage: vk::BufferUsageFlags,
    pub(crate) vk: Vk,
}

impl Buffer {
    /// Creates the buffer, still unbound. The driver must offer the handle type `kind` for such buffers.
    pub(crate) fn new(
        vk: &Vk,
        size: u64,
        (usage, flags): (vk::BufferUsageFlags, vk::BufferCreateFlags),
        kind: ExportType,
    ) -> Result<Self> {
        // Drivers need not check this (VUID-VkBufferCreateInfo-size-00912).
        if size == 0 {
            return Err(Error::Rule("a buffer cannot have 0 bytes".into()));
        }
        let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(kind.memory());
        let info = vk::BufferCreateInfo::default()
            .size(size)
            .usage(usage)
            .flags(flags)
            .sharing_mode(vk::SharingMode::EXCLUSIVE)
            .push_next(&mut external);
        // SAFETY: a live device and a plain description.
        let raw = unsafe { vk.device().create_buffer(&info, None) }.map_err(vk.failed("vkCreateBuffer"))?;
        // SAFETY: the buffer was created above.
        let required = unsafe { vk.device().get_buffer_memory_requirements(raw) };
        // From here on, `Drop` destroys the buffer.
        let buffer = Self { raw, size, required, usage, vk: vk.clone() };
        // CUDA maps `size` bytes, so the memory needs them. A driver's sum may overflow for a huge size.
        match required.size >= size {
            true => Ok(buffer),
            false => Err(Error::DeviceLacks(format!(
                "{} would give a buffer of {size} bytes only {} bytes of memory",
                vk.info().name,
                required.size
            ))),
        }
    }

    /// Returns the flags for the buffer's memory. A buffer with a device address needs memory that allows one
    /// (`VUID-vkBindBufferMemory-bufferDeviceAddress-03339`).
    pub(crate) fn memory_flags(&self) -> vk::MemoryAllocateFlags {
        match self.usage.contains(vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS) {
            true => vk::MemoryAllocateFlags::DEVICE_ADDRESS,
            false => vk::MemoryAllocateFlags::empty(),
        }
    }

    /// # Safety
    /// `offset` must be aligned as required. From there, the memory must have the required bytes and a type
    /// that the buffer allows. The buffer must be unbound.
    pub(crate) unsafe fn bind(&self, memory: &Memory, offset: u64) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.vk.device().bind_buffer_memory(self.raw, memory.raw, offset) }
            .map_err(self.vk.failed("vkBindBufferMemory"))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: destroyed once. Code that submits work with the buffer promises that the GPU has finished.
        self.vk.cleanup(|device| unsafe { device.destroy_buffer(self.raw, None) });
    }
}

/// Owned memory that Vulkan allocated or imported. Must be dropped after the buffers and images in it.
pub(crate) struct Memory {
    pub(crate) raw: vk::DeviceMemory,
    /// The size of the allocation in bytes, which every importer must specify.
    pub(crate) size: u64,
    pub(crate) kind: ExportType,
    pub(crate) vk: Vk,
}

impl Memory {
    /// Allocates exportable memory of the required size, which is device-local if `required` allows that.
    /// `dedicated` names the only buffer or image that will use the memory, if there is only one.
    ///
    /// # Safety
    /// - `required` must cover every buffer and image that will be bound to the memory, and the driver must
    ///   offer the handle type `kind` for each of them.
    /// - The buffer or image in `dedicated` must be alive and unbound, and `required` must be its own.
    pub(crate) unsafe fn allocate(
        vk: &Vk,
        kind: ExportType,
        flags: vk::MemoryAllocateFlags,
        required: &vk::MemoryRequirements,
        mut dedicated: Option<vk::MemoryDedicatedAllocateInfo<'_>>,
    ) -> Result<Self> {
        let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(kind.memory());
        let mut flags = vk::MemoryAllocateFlagsInfo::default().flags(flags);
        let allocate = vk::MemoryAllocateInfo::default()
            .allocation_size(required.size)
            .memory_type_index(vk.memory_type(required));
        let allocate = if flags.flags.is_empty() { allocate } else { allocate.push_next(&mut flags) };
        let allocate = match &mut dedicated {
            Some(dedicated) => allocate.push_next(dedicated),
            None => allocate,
        };
        #[cfg(windows)]
        let mut attributes = Attributes::new()?;
        #[cfg(windows)]
        // Only for NT handles (VUID-VkExportMemoryWin32HandleInfoKHR-handleTypes-00657).
        let allocate = match kind {
            ExportType::OpaqueWin32 => allocate.push_next(&mut attributes.memory),
            _ => allocate,
        };
        let allocate = allocate.push_next(&mut export);
        // SAFETY: a live device, and a description that points to locals. The caller promises the rest.
        let raw =
            unsafe { vk.device().allocate_memory(&allocate, None) }.map_err(vk.failed("vkAllocateMemory"))?;
        Ok(Self { raw, size: required.size, kind, vk: vk.clone() })
    }

    pub(crate) fn export(&self) -> Result<MemoryHandle> {
        system::export_memory(&self.vk, self.raw, self.kind)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: freed once. Its owner has dropped the buffers and images in it, so the GPU has finished.
        self.vk.cleanup(|device| unsafe { device.free_memory(self.raw, None) });
    }
}

pub(crate) fn cannot(device: &str, what: &str) -> Error {
    Error::DeviceLacks(format!("{device} cannot export {what} as {}", ExportType::names()))
}
