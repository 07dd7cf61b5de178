//! What Vulkan exports: three handle types, and what an exportable object has in its `pNext` chain.

use ash::vk;

#[cfg(windows)]
use super::system;
use super::{Form, SemaphoreKind};
use crate::vulkan::Device;
use crate::{Error, Result};

/// A handle type that Vulkan exports and CUDA imports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportType {
    /// A file descriptor.
    OpaqueFd,
    /// An NT handle.
    OpaqueWin32,
    /// A KMT handle, which keeps nothing alive.
    OpaqueWin32Kmt,
}

impl ExportType {
    /// Those of this system, the one to prefer first.
    pub const HERE: &[Self] =
        if cfg!(windows) { &[Self::OpaqueWin32, Self::OpaqueWin32Kmt] } else { &[Self::OpaqueFd] };

    /// The name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpaqueFd => "OPAQUE_FD",
            Self::OpaqueWin32 => "OPAQUE_WIN32",
            Self::OpaqueWin32Kmt => "OPAQUE_WIN32_KMT",
        }
    }

    /// [`ExportType::HERE`] in words.
    pub fn names() -> String {
        Self::HERE.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(" or ")
    }

    /// The form of its handles.
    pub const fn form(self) -> Form {
        match self {
            Self::OpaqueFd => Form::Fd,
            Self::OpaqueWin32 => Form::Nt,
            Self::OpaqueWin32Kmt => Form::Kmt,
        }
    }

    /// Vulkan's flag for memory.
    pub const fn memory(self) -> vk::ExternalMemoryHandleTypeFlags {
        match self {
            Self::OpaqueFd => vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD,
            Self::OpaqueWin32 => vk::ExternalMemoryHandleTypeFlags::OPAQUE_WIN32,
            Self::OpaqueWin32Kmt => vk::ExternalMemoryHandleTypeFlags::OPAQUE_WIN32_KMT,
        }
    }

    /// Vulkan's flag for semaphores.
    pub const fn semaphore(self) -> vk::ExternalSemaphoreHandleTypeFlags {
        match self {
            Self::OpaqueFd => vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD,
            Self::OpaqueWin32 => vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_WIN32,
            Self::OpaqueWin32Kmt => vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_WIN32_KMT,
        }
    }

    /// Whether CUDA imports semaphores of this kind as this type: it knows no KMT handles of timelines.
    pub const fn carries(self, kind: SemaphoreKind) -> bool {
        !matches!((self, kind), (Self::OpaqueWin32Kmt, SemaphoreKind::Timeline))
    }
}

/// What an exportable allocation has in its chain.
pub(crate) struct MemoryExport {
    kind: ExportType,
    info: vk::ExportMemoryAllocateInfo<'static>,
    #[cfg(windows)]
    win32: system::MemoryAttributes,
}

impl MemoryExport {
    /// For the type that the device exports buffers as.
    ///
    /// # Errors
    /// A device that exports none, or that was made without `interop`.
    pub(crate) fn new(device: &Device) -> Result<Self> {
        let info = device.info();
        Self::of(device, info.exports.buffer.ok_or_else(|| cannot(&info.name, "a buffer"))?)
    }

    /// For a type that the driver grants to what is to be exported.
    ///
    /// # Errors
    /// A device that was made without `interop`.
    pub(crate) fn of(device: &Device, kind: ExportType) -> Result<Self> {
        device.memory_handles()?;
        Ok(Self {
            kind,
            info: vk::ExportMemoryAllocateInfo::default().handle_types(kind.memory()),
            #[cfg(windows)]
            win32: system::MemoryAttributes::new()?,
        })
    }

    /// What the memory will be exported as.
    pub(crate) fn kind(&self) -> ExportType {
        self.kind
    }

    /// Allocates `size` bytes of memory that can be exported, of one of `types`: the device's own where it is among them.
    /// `dedicated` names the buffer or image that is to have it for itself.
    ///
    /// # Errors
    /// Out of memory.
    ///
    /// # Safety
    /// What `dedicated` names is alive and unbound, and requires so many bytes of one of these types.
    pub(crate) unsafe fn allocate(
        mut self,
        device: &Device,
        size: u64,
        types: u32,
        mut dedicated: Option<vk::MemoryDedicatedAllocateInfo<'_>>,
    ) -> Result<vk::DeviceMemory> {
        let memory_type = device
            .memory_type(types, vk::MemoryPropertyFlags::DEVICE_LOCAL)
            // Every buffer and image has at least one memory type; without a device-local one any of them will do.
            .unwrap_or(types.trailing_zeros());
        let allocate = vk::MemoryAllocateInfo::default().allocation_size(size).memory_type_index(memory_type);
        let allocate = match &mut dedicated {
            Some(dedicated) => allocate.push_next(dedicated),
            None => allocate,
        };
        #[cfg(windows)]
        // It is only allowed where an NT handle is asked for (VUID-VkExportMemoryWin32HandleInfoKHR-handleTypes-00657).
        let allocate = match self.kind {
            ExportType::OpaqueWin32 => allocate.push_next(&mut self.win32.info),
            _ => allocate,
        };
        let allocate = allocate.push_next(&mut self.info);
        // SAFETY: a live device, a description that points to locals, and for the rest the caller's promise.
        unsafe { device.raw().allocate_memory(&allocate, None) }.map_err(device.failed("vkAllocateMemory"))
    }
}

/// What an exportable semaphore has in its chain.
pub(crate) struct SemaphoreExport {
    kind: ExportType,
    info: vk::ExportSemaphoreCreateInfo<'static>,
    #[cfg(windows)]
    win32: system::SemaphoreAttributes,
}

impl SemaphoreExport {
    /// For the type that the device exports such semaphores as.
    ///
    /// # Errors
    /// A device that exports none, or that was made without `interop`.
    pub(crate) fn new(device: &Device, semaphore: SemaphoreKind) -> Result<Self> {
        let info = device.info();
        let kind = info.exports.semaphore(semaphore);
        let kind = kind.ok_or_else(|| cannot(&info.name, &format!("a {}", semaphore.words())))?;
        device.semaphore_handles()?;
        Ok(Self {
            kind,
            info: vk::ExportSemaphoreCreateInfo::default().handle_types(kind.semaphore()),
            #[cfg(windows)]
            win32: system::SemaphoreAttributes::new()?,
        })
    }

    /// What the semaphore will be exported as.
    pub(crate) fn kind(&self) -> ExportType {
        self.kind
    }

    /// Adds it to the description of the semaphore.
    pub(crate) fn chain<'a>(
        &'a mut self,
        create: vk::SemaphoreCreateInfo<'a>,
    ) -> vk::SemaphoreCreateInfo<'a> {
        #[cfg(windows)]
        // As for memory (VUID-VkExportSemaphoreWin32HandleInfoKHR-handleTypes-01125).
        let create = match self.kind {
            ExportType::OpaqueWin32 => create.push_next(&mut self.win32.info),
            _ => create,
        };
        create.push_next(&mut self.info)
    }
}

fn cannot(device: &str, what: &str) -> Error {
    Error::Unsupported(format!("{device} cannot export {what} as {}", ExportType::names()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bits of `vulkan_core.h`, which are the same for memory and semaphores.
    #[test]
    fn the_types_are_those_of_vulkan() {
        for (kind, bit, form, name) in [
            (ExportType::OpaqueFd, 0x1, Form::Fd, "OPAQUE_FD"),
            (ExportType::OpaqueWin32, 0x2, Form::Nt, "OPAQUE_WIN32"),
            (ExportType::OpaqueWin32Kmt, 0x4, Form::Kmt, "OPAQUE_WIN32_KMT"),
        ] {
            assert_eq!((kind.memory().as_raw(), kind.semaphore().as_raw()), (bit, bit), "{name}");
            assert_eq!((kind.form(), kind.name()), (form, name));
            assert!(kind.carries(SemaphoreKind::Binary));
        }
        assert!(!ExportType::OpaqueWin32Kmt.carries(SemaphoreKind::Timeline));
        for kind in ExportType::HERE {
            assert!(kind.form().exists_here(kind.name()).is_ok());
        }
    }
}
