//! How an engine creates its instance and its device, with what sharing needs.

use std::error::Error;

use ash::vk;
use vulkan_cuda::Error::{DeviceLacks, SystemLacks};
use vulkan_cuda::{Driver, VkInfo, find_twin};

/// The engine's instance.
pub struct Instance {
    pub raw: ash::Instance,
    _entry: ash::Entry,
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: the device, which holds it, is gone.
        unsafe { self.raw.destroy_instance(None) };
    }
}

/// The engine's device. An `Arc` of it is the token for `Vk::from_raw`.
pub struct Device {
    pub raw: ash::Device,
    pub physical: vk::PhysicalDevice,
    pub queue: vk::Queue,
    pub family: u32,
    // Dropped last.
    pub instance: Instance,
}

impl Device {
    /// Creates the device, and returns it with CUDA's ordinal of the same GPU.
    pub fn new(driver: Driver) -> Result<(Self, i32), Box<dyn Error>> {
        // SAFETY: the loader is the system's own.
        let entry = unsafe { ash::Entry::load() }
            .map_err(|error| SystemLacks(format!("there is no Vulkan loader: {error}")))?;
        let app = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_3);
        let create = vk::InstanceCreateInfo::default().application_info(&app);
        // SAFETY: a plain description.
        let raw = unsafe { entry.create_instance(&create, None) }?;
        let instance = Instance { raw, _entry: entry };

        // The engine chooses its GPU as before, and CUDA follows.
        // SAFETY: a live instance, and its own devices.
        let physical =
            unsafe { instance.raw.enumerate_physical_devices() }?.into_iter().max_by_key(|&device| {
                // SAFETY: as above.
                let kind = unsafe { instance.raw.get_physical_device_properties(device) }.device_type;
                kind == vk::PhysicalDeviceType::DISCRETE_GPU
            });
        let physical = physical.ok_or_else(|| SystemLacks("there is no Vulkan device".into()))?;
        // SAFETY: as above.
        let version = unsafe { instance.raw.get_physical_device_properties(physical) }.api_version;
        if version < vk::API_VERSION_1_3 {
            return Err(DeviceLacks("the engine needs Vulkan 1.3".into()).into());
        }
        // SAFETY: as above.
        let info = unsafe { VkInfo::query(&instance.raw, physical) }?;
        let cuda = driver.devices()?;
        let twin =
            find_twin(&info, &cuda).map_err(|mismatch| DeviceLacks(format!("{}: {mismatch}", info.name)))?;

        // SAFETY: a live physical device.
        let families = unsafe { instance.raw.get_physical_device_queue_family_properties(physical) };
        let graphics =
            |family: &vk::QueueFamilyProperties| family.queue_flags.contains(vk::QueueFlags::GRAPHICS);
        let family = families.iter().position(graphics).ok_or("no queue draws")? as u32;
        let priorities = [1.0];
        let queues =
            [vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&priorities)];
        // 1. What sharing needs, and what the engine needs itself: here `synchronization2`.
        let extensions: Vec<_> = info.extensions().map(|name| name.as_ptr()).collect();
        let mut timeline = vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
        let mut sync2 = vk::PhysicalDeviceSynchronization2Features::default().synchronization2(true);
        let create = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&extensions)
            .push_next(&mut timeline)
            .push_next(&mut sync2);
        // SAFETY: `create` points to locals; the device lists the extensions.
        let raw = unsafe { instance.raw.create_device(physical, &create, None) }?;
        // SAFETY: one queue of this family was requested.
        let queue = unsafe { raw.get_device_queue(family, 0) };
        Ok((Self { raw, physical, queue, family, instance }, twin.ordinal))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: every object of the device holds an `Arc` of it, so all of them are gone.
        unsafe { self.raw.destroy_device(None) };
    }
}
