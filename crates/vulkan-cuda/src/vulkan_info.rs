//! What a Vulkan physical device reports about sharing, before a device is created.

use std::ffi::CStr;

#[cfg(unix)]
use ash::khr::{external_memory_fd as memory, external_semaphore_fd as semaphore};
#[cfg(windows)]
use ash::khr::{external_memory_win32 as memory, external_semaphore_win32 as semaphore};
use ash::vk;

use crate::exportable;
use crate::handle::ExportType;
use crate::identity::DeviceUuid;
use crate::{Error, Result};

pub(crate) use memory::{Device as MemoryFns, NAME as MEMORY_EXTENSION};
pub(crate) use semaphore::{Device as SemaphoreFns, NAME as SEMAPHORE_EXTENSION};

/// The device extensions that sharing needs on this system. On Linux: `VK_KHR_external_memory_fd` and
/// `VK_KHR_external_semaphore_fd`. [`VkInfo::extensions`] leaves out those that a device lacks.
pub const DEVICE_EXTENSIONS: &[&CStr] = &[MEMORY_EXTENSION, SEMAPHORE_EXTENSION];

/// What a physical device reports about sharing.
///
/// # Examples
/// Create a device that can share:
///
/// ```no_run
/// use ash::vk;
/// use vulkan_cuda::{Error, Result, VkInfo};
///
/// fn create(
///     instance: &ash::Instance,
///     physical: vk::PhysicalDevice,
///     queues: &[vk::DeviceQueueCreateInfo<'_>],
/// ) -> Result<ash::Device> {
///     // SAFETY: `physical` is one of this instance's devices.
///     let info = unsafe { VkInfo::query(instance, physical) }?;
///     let extensions: Vec<_> = info.extensions().map(|name| name.as_ptr()).collect();
///     let mut timeline = vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
///     // Only for vkQueueSubmit2. Below Vulkan 1.3 it also needs VK_KHR_synchronization2.
///     let mut submit2 = vk::PhysicalDeviceSynchronization2Features::default().synchronization2(true);
///     let create = vk::DeviceCreateInfo::default()
///         .queue_create_infos(queues)
///         .enabled_extension_names(&extensions)
///         .push_next(&mut timeline)
///         .push_next(&mut submit2);
///     // SAFETY: `create` points to live values; the device lists the extensions.
///     unsafe { instance.create_device(physical, &create, None) }
///         .map_err(|result| Error::Vulkan { call: "vkCreateDevice", device: info.name, result })
/// }
/// ```
#[derive(Clone, Debug)]
pub struct VkInfo {
    /// The device's name.
    pub name: String,
    /// The UUID that CUDA reports for the same device (`VkPhysicalDeviceIDProperties::deviceUUID`).
    pub uuid: DeviceUuid,
    /// The driver's UUID (`driverUUID`). Vulkan can import only what the same driver exported.
    pub driver_uuid: [u8; 16],
    /// The adapter's LUID and node mask on Windows (`deviceLUID`, `deviceNodeMask`). `None` elsewhere.
    pub luid: Option<([u8; 8], u32)>,
    /// The number of physical devices in its device group, usually 1. If it is greater, CUDA cannot share.
    pub group_size: usize,
    /// The handle type for exporting a storage buffer's memory: the first of [`ExportType::HERE`] that the
    /// driver supports. `None` if there is none, or if the device lacks the extension for exporting memory.
    pub buffer_export: Option<ExportType>,
    /// Like `buffer_export`, for a timeline semaphore and the extension for exporting semaphores.
    pub timeline_export: Option<ExportType>,
    /// Like `timeline_export`, for a binary semaphore.
    pub binary_export: Option<ExportType>,
}

impl VkInfo {
    /// Returns the extensions of [`DEVICE_EXTENSIONS`] to enable for everything that this device can export.
    pub fn extensions(&self) -> impl Iterator<Item = &'static CStr> {
        let semaphore = self.timeline_export.or(self.binary_export);
        let memory = self.buffer_export.map(|_| MEMORY_EXTENSION);
        memory.into_iter().chain(semaphore.map(|_| SEMAPHORE_EXTENSION))
    }

    /// Queries what `physical` can share, without creating a device.
    ///
    /// # Safety
    /// - `physical` must be one of `instance`'s devices.
    /// - `instance` must have been created for Vulkan 1.1 or later.
    pub unsafe fn query(instance: &ash::Instance, physical: vk::PhysicalDevice) -> Result<Self> {
        let mut id = vk::PhysicalDeviceIDProperties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut id);
        // SAFETY: (and for all queries below) the caller's promise; the chain is of local structures.
        unsafe { instance.get_physical_device_properties2(physical, &mut properties) };
        let base = properties.properties;
        let name =
            base.device_name_as_c_str().map_or("unnamed".into(), |name| name.to_string_lossy().into_owned());
        let failed = |call| {
            let device = name.clone();
            move |result| Error::Vulkan { call, device, result }
        };
        // SAFETY: as above.
        let extensions = unsafe { instance.enumerate_device_extension_properties(physical) }
            .map_err(failed("vkEnumerateDeviceExtensionProperties"))?;
        let has = |wanted: &CStr| extensions.iter().any(|e| e.extension_name_as_c_str() == Ok(wanted));
        let group_size = group_size(instance, physical).map_err(failed("vkEnumeratePhysicalDeviceGroups"))?;
        let first = |granted: &dyn Fn(ExportType) -> bool| {
            ExportType::HERE.iter().copied().find(|&handle_type| granted(handle_type))
        };
        let semaphore = |kind: vk::SemaphoreType| {
            // The query needs VkSemaphoreTypeCreateInfo of Vulkan 1.2.
            let may_ask = has(SEMAPHORE_EXTENSION) && base.api_version >= vk::API_VERSION_1_2;
            first(&|handle_type| {
                may_ask
                    && handle_type.carries(kind)
                    // SAFETY: the caller's promise.
                    && unsafe { exportable::semaphore(instance, physical, handle_type, kind) }
            })
        };
        let asked = (BUFFER_USAGE, vk::BufferCreateFlags::empty());
        let exportable_buffer = |handle_type| {
            // SAFETY: the caller's promise.
            unsafe { exportable::buffer(instance, physical, asked, handle_type) }
                .contains(vk::ExternalMemoryFeatureFlags::EXPORTABLE)
        };
        Ok(Self {
            uuid: DeviceUuid(id.device_uuid),
            driver_uuid: id.driver_uuid,
            luid: (id.device_luid_valid == vk::TRUE).then_some((id.device_luid, id.device_node_mask)),
            group_size,
            buffer_export: first(&exportable_buffer).filter(|_| has(MEMORY_EXTENSION)),
            timeline_export: semaphore(vk::SemaphoreType::TIMELINE),
            binary_export: semaphore(vk::SemaphoreType::BINARY),
            name,
        })
    }
}

/// The usage that [`VkInfo::buffer_export`] is queried for. Creating a buffer queries its own usage.
const BUFFER_USAGE: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(
    vk::BufferUsageFlags::STORAGE_BUFFER.as_raw()
        | vk::BufferUsageFlags::TRANSFER_SRC.as_raw()
        | vk::BufferUsageFlags::TRANSFER_DST.as_raw(),
);

fn group_size(instance: &ash::Instance, physical: vk::PhysicalDevice) -> Result<usize, vk::Result> {
    // SAFETY: a live instance.
    let count = unsafe { instance.enumerate_physical_device_groups_len() }?;
    let mut groups = vec![vk::PhysicalDeviceGroupProperties::default(); count];
    // SAFETY: as above; the slice has the length that the driver just reported.
    unsafe { instance.enumerate_physical_device_groups(&mut groups) }?;
    let members = |group: &vk::PhysicalDeviceGroupProperties| group.physical_device_count as usize;
    let ours = groups.iter().find(|group| group.physical_devices[..members(group)].contains(&physical));
    Ok(ours.map_or(1, members))
}
