//! How Vulkan exports: what an exportable object has in its `pNext` chain, and the calls that return handles.
//!
//! Creating such an object fails if the device exports none of its kind, if it was created without the
//! extension ([`crate::DEVICE_EXTENSIONS`]), or if memory has run out.

use ash::vk;

use crate::handle::ExportType;
use crate::vulkan::Vk;
use crate::{Error, Result};

#[cfg(unix)]
#[path = "fd.rs"]
mod system;
#[cfg(windows)]
#[path = "win32.rs"]
mod system;

pub(crate) use system::{export_memory, export_semaphore};

/// The handle type of exportable memory, and what its buffers and its allocation need in their chains.
pub(crate) struct MemoryExport {
    pub(crate) kind: ExportType,
    flags: vk::MemoryAllocateFlags,
    pub(crate) dedicated_only: bool,
    info: vk::ExportMemoryAllocateInfo<'static>,
    #[cfg(windows)]
    win32: system::Attributes,
}

impl MemoryExport {
    pub(crate) fn for_buffers(vk: &Vk, usage: vk::BufferUsageFlags) -> Result<Self> {
        let info = vk.info();
        // First, because the driver may be asked only about usages that the device has.
        vk.require_usage(usage)?;
        let kind = info.buffer_export.ok_or_else(|| cannot(&info.name, "a buffer"))?;
        let export = Self::new(vk, kind)?;
        let dedicated_only = vk.exports_buffer(usage, kind)?;
        Ok(Self { flags: flags_for(usage), dedicated_only, ..export })
    }

    /// `kind` must be a handle type that the driver offers for the exported object.
    pub(crate) fn new(vk: &Vk, kind: ExportType) -> Result<Self> {
        vk.memory_handles()?;
        Ok(Self {
            kind,
            flags: vk::MemoryAllocateFlags::empty(),
            dedicated_only: false,
            info: vk::ExportMemoryAllocateInfo::default().handle_types(kind.memory()),
            #[cfg(windows)]
            win32: system::Attributes::new()?,
        })
    }

    /// Creates a buffer for exportable memory, after [`check_buffer`]. The caller binds and destroys it.
    pub(crate) fn create_buffer(
        &self,
        vk: &Vk,
        size: u64,
        usage: vk::BufferUsageFlags,
    ) -> Result<vk::Buffer> {
        check_buffer(vk, size, usage)?;
        let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(self.kind.memory());
        let info = vk::BufferCreateInfo::default()
            .size(size)
            .usage(usage)
            .sharing_mode(vk::SharingMode::EXCLUSIVE)
            .push_next(&mut external);
        // SAFETY: a live device and a plain description.
        unsafe { vk.device().create_buffer(&info, None) }.map_err(vk.failed("vkCreateBuffer"))
    }

    /// Allocates memory that can be exported, of the required size, in device-local memory if that is
    /// allowed. `dedicated` names the buffer or image that uses the memory alone.
    ///
    /// # Safety
    /// `required` must cover everything that will lie in the memory. `dedicated` must be alive and unbound.
    pub(crate) unsafe fn allocate(
        mut self,
        vk: &Vk,
        required: &vk::MemoryRequirements,
        mut dedicated: Option<vk::MemoryDedicatedAllocateInfo<'_>>,
    ) -> Result<vk::DeviceMemory> {
        let memory_type = memory_type(vk, required);
        let allocate =
            vk::MemoryAllocateInfo::default().allocation_size(required.size).memory_type_index(memory_type);
        let mut flags = vk::MemoryAllocateFlagsInfo::default().flags(self.flags);
        let allocate = if flags.flags.is_empty() { allocate } else { allocate.push_next(&mut flags) };
        let allocate = match &mut dedicated {
            Some(dedicated) => allocate.push_next(dedicated),
            None => allocate,
        };
        #[cfg(windows)]
        // Only for NT handles (VUID-VkExportMemoryWin32HandleInfoKHR-handleTypes-00657).
        let allocate = match self.kind {
            ExportType::OpaqueWin32 => allocate.push_next(&mut self.win32.memory),
            _ => allocate,
        };
        let allocate = allocate.push_next(&mut self.info);
        // SAFETY: a live device, a description that points to locals, and for the rest the caller's promise.
        unsafe { vk.device().allocate_memory(&allocate, None) }.map_err(vk.failed("vkAllocateMemory"))
    }
}

pub(crate) fn memory_type(vk: &Vk, required: &vk::MemoryRequirements) -> u32 {
    let types = required.memory_type_bits;
    // Every buffer and image has at least one memory type. If none is device-local, any of them will do.
    vk.memory_type(types, vk::MemoryPropertyFlags::DEVICE_LOCAL).unwrap_or(types.trailing_zeros())
}

/// Checks a buffer's size (VUID-VkBufferCreateInfo-size-00912) and usage, which no driver has to check.
pub(crate) fn check_buffer(vk: &Vk, size: u64, usage: vk::BufferUsageFlags) -> Result<()> {
    match size {
        0 => Err(Error::Rule("a buffer cannot have 0 bytes".into())),
        _ => vk.require_usage(usage),
    }
}

/// Returns what memory a buffer of `size` bytes needs. Fails if that is less than `size`: CUDA maps `size`
/// bytes, and a driver may wrap around for an absurd size.
///
/// # Safety
/// `buffer` must be a live buffer of the device.
pub(crate) unsafe fn requirements(vk: &Vk, buffer: vk::Buffer, size: u64) -> Result<vk::MemoryRequirements> {
    // SAFETY: the caller's promise.
    let required = unsafe { vk.device().get_buffer_memory_requirements(buffer) };
    match required.size >= size {
        true => Ok(required),
        false => Err(Error::DeviceLacks(format!(
            "{} would give a buffer of {size} bytes only {} bytes of memory",
            vk.info().name,
            required.size
        ))),
    }
}

/// Returns the flags for memory of buffers with this usage. A buffer with a device address needs memory with
/// one (`VUID-vkBindBufferMemory-bufferDeviceAddress-03339`).
pub(crate) fn flags_for(usage: vk::BufferUsageFlags) -> vk::MemoryAllocateFlags {
    match usage.contains(vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS) {
        true => vk::MemoryAllocateFlags::DEVICE_ADDRESS,
        false => vk::MemoryAllocateFlags::empty(),
    }
}

/// What an exportable semaphore needs in its chain.
pub(crate) struct SemaphoreExport {
    pub(crate) kind: ExportType,
    info: vk::ExportSemaphoreCreateInfo<'static>,
    #[cfg(windows)]
    win32: system::Attributes,
}

impl SemaphoreExport {
    pub(crate) fn new(vk: &Vk, semaphore: vk::SemaphoreType) -> Result<Self> {
        let info = vk.info();
        let (kind, what) = match semaphore {
            vk::SemaphoreType::TIMELINE => (info.timeline_export, "a timeline semaphore"),
            vk::SemaphoreType::BINARY => (info.binary_export, "a binary semaphore"),
            _ => (None, "a semaphore of an unknown type"),
        };
        let kind = kind.ok_or_else(|| cannot(&info.name, what))?;
        vk.semaphore_handles()?;
        Ok(Self {
            kind,
            info: vk::ExportSemaphoreCreateInfo::default().handle_types(kind.semaphore()),
            #[cfg(windows)]
            win32: system::Attributes::new()?,
        })
    }

    pub(crate) fn chain<'a>(
        &'a mut self,
        create: vk::SemaphoreCreateInfo<'a>,
    ) -> vk::SemaphoreCreateInfo<'a> {
        #[cfg(windows)]
        // Only for NT handles (VUID-VkExportSemaphoreWin32HandleInfoKHR-handleTypes-01125).
        let create = match self.kind {
            ExportType::OpaqueWin32 => create.push_next(&mut self.win32.semaphore),
            _ => create,
        };
        create.push_next(&mut self.info)
    }
}

fn cannot(device: &str, what: &str) -> Error {
    Error::DeviceLacks(format!("{device} cannot export {what} as {}", ExportType::names()))
}
