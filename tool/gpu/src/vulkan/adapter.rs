use ash::{ext, khr, nvx, vk};
use vulkan_cuda::VkInfo;

use super::{Instance, WindowSurface, failed};
use crate::Result;

#[derive(Clone)]
pub struct Adapter {
    instance: Instance,
    raw: vk::PhysicalDevice,
    info: AdapterInfo,
}

#[derive(Clone, Debug)]
pub struct AdapterInfo {
    pub name: String,
    /// The UUIDs that identify the device in CUDA too, and what the device can export to CUDA.
    pub sharing: VkInfo,
    pub kind: vk::PhysicalDeviceType,
    pub driver: String,
    /// `VkPhysicalDeviceDriverProperties::driverID`; 0 if unknown.
    pub driver_id: vk::DriverId,
    /// A packed version: see [`super::version`].
    pub api_version: u32,
    /// Which of timeline semaphores, synchronization2 and dynamic rendering are missing.
    pub missing_features: Vec<&'static str>,
    /// The first queue family with graphics and compute.
    pub queue_family: Option<u32>,
    /// The size of the largest buffer that can be bound whole as a storage buffer, in bytes, and the name of
    /// the limit that decides it.
    pub largest_buffer: (u64, &'static str),
    /// In bytes (`maxMemoryAllocationSize`).
    pub largest_allocation: u64,
    /// In bytes (`minStorageBufferOffsetAlignment`).
    pub storage_alignment: u64,
    /// Whether command buffers can launch CUDA kernels (`VK_NVX_binary_import`).
    pub inline: bool,
    /// Whether it has `VK_KHR_swapchain`, which presenting needs.
    pub presents: bool,
    /// Nanoseconds per timestamp tick; `None` if the queue has no timestamps.
    pub timestamp_period: Option<f64>,
    /// Whether `VK_EXT_calibrated_timestamps` can read the device's clock.
    pub calibrated_timestamps: bool,
    /// Whether `VK_EXT_device_fault` can report why a device was lost.
    pub device_fault: bool,
    /// Whether `VK_EXT_memory_budget` can report free memory.
    pub memory_budget: bool,
    /// Whether one buffer may span several allocations (`sparseBinding`).
    pub sparse_binding: bool,
    /// Whether shaders have 64-bit atomics (`shaderInt64`, `shaderBufferInt64Atomics`).
    pub atomics64: bool,
    /// The maximum width and height of a picture, in pixels.
    pub largest_picture: u32,
}

impl Instance {
    pub fn adapters(&self) -> Result<Vec<Adapter>> {
        let vk = self.raw();
        // SAFETY: a live instance.
        let devices = unsafe { vk.enumerate_physical_devices() }
            .map_err(failed("vkEnumeratePhysicalDevices", "the Vulkan instance"))?;
        let adapter = |raw| Ok(Adapter { instance: self.clone(), raw, info: AdapterInfo::query(vk, raw)? });
        devices.into_iter().map(adapter).collect()
    }
}

impl Adapter {
    pub fn info(&self) -> &AdapterInfo {
        &self.info
    }

    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    pub fn raw(&self) -> vk::PhysicalDevice {
        self.raw
    }

    /// Fails with the reason if this device cannot run the renderer or cannot present to `surface`.
    pub fn can_draw(&self, surface: Option<&WindowSurface>) -> Result<(), String> {
        let info = &self.info;
        if info.api_version < super::API_VERSION {
            return Err(format!("has Vulkan {}, 1.3 is needed", super::version(info.api_version)));
        }
        if !info.missing_features.is_empty() {
            return Err(format!("lacks {}", info.missing_features.join(", ")));
        }
        let Some(family) = info.queue_family else {
            return Err("has no queue that draws and computes".into());
        };
        match surface {
            Some(surface) if !surface.supported_by(self, family) => {
                Err("cannot present to this window".into())
            }
            _ => Ok(()),
        }
    }
}

impl AdapterInfo {
    fn query(vk: &ash::Instance, raw: vk::PhysicalDevice) -> Result<Self> {
        // SAFETY: (here and for all queries below) `raw` was enumerated from this live instance.
        let base = unsafe { vk.get_physical_device_properties(raw) };
        // SAFETY: as above.
        let sharing = unsafe { VkInfo::query(vk, raw) }?;
        let name = sharing.name.clone();

        let mut driver = vk::PhysicalDeviceDriverProperties::default();
        let mut maintenance3 = vk::PhysicalDeviceMaintenance3Properties::default();
        let mut maintenance4 = vk::PhysicalDeviceMaintenance4Properties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut maintenance3);
        // Structures of a later Vulkan version must not be chained for an older device.
        if base.api_version >= vk::API_VERSION_1_2 {
            properties = properties.push_next(&mut driver);
        }
        if base.api_version >= vk::API_VERSION_1_3 {
            properties = properties.push_next(&mut maintenance4);
        }
        // SAFETY: as above; the chain is of local structures.
        unsafe { vk.get_physical_device_properties2(raw, &mut properties) };

        // SAFETY: as above.
        let extensions = unsafe { vk.enumerate_device_extension_properties(raw) }
            .map_err(failed("vkEnumerateDeviceExtensionProperties", &name))?;
        let has = |wanted| extensions.iter().any(|e| e.extension_name_as_c_str() == Ok(wanted));

        let mut features12 = vk::PhysicalDeviceVulkan12Features::default();
        let mut features13 = vk::PhysicalDeviceVulkan13Features::default();
        let mut fault = vk::PhysicalDeviceFaultFeaturesEXT::default();
        let mut features = vk::PhysicalDeviceFeatures2::default();
        if base.api_version >= vk::API_VERSION_1_3 {
            features = features.push_next(&mut features12).push_next(&mut features13);
        }
        if has(ext::device_fault::NAME) {
            features = features.push_next(&mut fault);
        }
        // SAFETY: as above; the chain is of local structures.
        unsafe { vk.get_physical_device_features2(raw, &mut features) };
        let vk::PhysicalDeviceFeatures { sparse_binding, shader_int64, .. } = features.features;
        let missing_features = [
            (features12.timeline_semaphore, "timeline semaphores"),
            (features13.synchronization2, "synchronization2"),
            (features13.dynamic_rendering, "dynamic rendering"),
        ]
        .into_iter()
        .filter_map(|(has, name)| (has == vk::FALSE).then_some(name))
        .collect();

        // SAFETY: as above.
        let families = unsafe { vk.get_physical_device_queue_family_properties(raw) };
        let queue_family = families
            .iter()
            .position(|f| f.queue_flags.contains(vk::QueueFlags::GRAPHICS | vk::QueueFlags::COMPUTE))
            .map(|index| index as u32);

        let mut limits = vec![
            (u64::from(base.limits.max_storage_buffer_range), "maxStorageBufferRange"),
            (maintenance3.max_memory_allocation_size, "maxMemoryAllocationSize"),
        ];
        if base.api_version >= vk::API_VERSION_1_3 {
            limits.push((maintenance4.max_buffer_size, "maxBufferSize"));
        }
        let largest_buffer = limits.into_iter().min_by_key(|(bytes, _)| *bytes).unwrap_or((0, "none"));

        Ok(Self {
            sharing,
            kind: base.device_type,
            driver: driver_words(&driver, base.driver_version),
            driver_id: driver.driver_id,
            api_version: base.api_version,
            device_fault: fault.device_fault == vk::TRUE,
            memory_budget: has(ext::memory_budget::NAME),
            sparse_binding: sparse_binding == vk::TRUE,
            atomics64: [shader_int64, features12.shader_buffer_int64_atomics] == [vk::TRUE; 2],
            // CUDA kernels in command buffers get their buffers by address.
            inline: features12.buffer_device_address == vk::TRUE && has(nvx::binary_import::NAME),
            presents: has(khr::swapchain::NAME),
            timestamp_period: queue_family
                .filter(|&family| families[family as usize].timestamp_valid_bits > 0)
                .map(|_| f64::from(base.limits.timestamp_period)),
            calibrated_timestamps: has(ash::ext::calibrated_timestamps::NAME),
            missing_features,
            queue_family,
            largest_allocation: maintenance3.max_memory_allocation_size,
            largest_buffer,
            storage_alignment: base.limits.min_storage_buffer_offset_alignment,
            largest_picture: base.limits.max_image_dimension2_d.min(base.limits.max_framebuffer_width),
            name,
        })
    }

    pub fn kind_name(&self) -> &'static str {
        match self.kind {
            vk::PhysicalDeviceType::DISCRETE_GPU => "discrete",
            vk::PhysicalDeviceType::INTEGRATED_GPU => "integrated",
            vk::PhysicalDeviceType::VIRTUAL_GPU => "virtual",
            vk::PhysicalDeviceType::CPU => "software",
            _ => "other",
        }
    }
}

fn driver_words(driver: &vk::PhysicalDeviceDriverProperties, version: u32) -> String {
    let text = |field: Result<&std::ffi::CStr, _>| {
        field.map_or(String::new(), |text| text.to_string_lossy().into_owned())
    };
    let words = format!("{} {}", text(driver.driver_name_as_c_str()), text(driver.driver_info_as_c_str()));
    match words.trim() {
        "" => format!("driver {version:#x}"),
        words => words.to_owned(),
    }
}
