//! Which CUDA device is this Vulkan device? Neither index nor name answers this. The UUID does, and on
//! Windows the LUID.
//!
//! ```sh
//! cargo run -p vulkan-cuda --example 01_match
//! ```
//!
//! The Vulkan device is ash's and the CUDA context is cudarc's, as in a program that already has both.
//! The other examples call [`open`] too.

use std::error::Error;
use std::sync::Arc;

use ash::vk;
use cudarc::driver::CudaContext;
use vulkan_cuda::Error::{DeviceLacks, SystemLacks};
use vulkan_cuda::{Cuda, Driver, Pair, Vk, VkInfo, find_twin};

/// One GPU, opened with both APIs.
pub struct Gpu {
    pub cuda: Arc<CudaContext>,
    pub device: ash::Device,
    pub queue: vk::Queue,
    pub family: u32,
    pub memory: vk::PhysicalDeviceMemoryProperties,
    pub pair: Pair,
}

/// The pair keeps this alive. It is dropped after the last shared object.
struct Owner {
    device: ash::Device,
    instance: ash::Instance,
    _entry: ash::Entry,
}

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: every object made from them is gone, and every example waits for the GPU.
        unsafe {
            self.device.destroy_device(None);
            self.instance.destroy_instance(None);
        }
    }
}

/// Opens the first Vulkan device that CUDA also has. If there is none, the error [is unavailable](vulkan_cuda::Error::is_unavailable).
pub fn open() -> Result<Gpu, Box<dyn Error>> {
    open_with(|_| vk::PhysicalDeviceFeatures::default())
}

/// As [`open`], with features that the caller chooses from those that the device has. Sharing needs none of
/// them.
pub fn open_with(
    choose: fn(vk::PhysicalDeviceFeatures) -> vk::PhysicalDeviceFeatures,
) -> Result<Gpu, Box<dyn Error>> {
    // The driver is opened at run time, so this also runs on a machine without CUDA. cudarc would panic
    // there.
    let driver = Driver::load().map_err(|error| SystemLacks(error.to_string()))?;
    // SAFETY: the loader is the system's own.
    let entry = unsafe { ash::Entry::load() }
        .map_err(|error| SystemLacks(format!("there is no Vulkan loader: {error}")))?;
    let app = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_3);
    // SAFETY: a plain description.
    let instance =
        unsafe { entry.create_instance(&vk::InstanceCreateInfo::default().application_info(&app), None) }?;

    // The match: the UUIDs are equal (on Windows the LUIDs), and both sides can share memory and timelines.
    let mut reasons = vec!["no device is shared".to_owned()];
    // SAFETY: a live instance, and its own devices.
    let physical_devices = unsafe { instance.enumerate_physical_devices() }?;
    let cuda_devices = driver.devices()?;
    for physical in physical_devices {
        // SAFETY: as above.
        let vulkan = unsafe { VkInfo::query(&instance, physical) }?;
        // SAFETY: as above.
        let version = unsafe { instance.get_physical_device_properties(physical) }.api_version;
        match find_twin(&vulkan, &cuda_devices) {
            // The examples submit with vkQueueSubmit2.
            Ok(_) if version < vk::API_VERSION_1_3 => {
                reasons.push(format!("{}: the examples need Vulkan 1.3", vulkan.name));
            }
            Ok(twin) => {
                println!("Vulkan's {} is CUDA's device {}: {}", vulkan.name, twin.ordinal, vulkan.uuid);
                // SAFETY: as above.
                let features = choose(unsafe { instance.get_physical_device_features(physical) });
                return make(entry, instance, physical, features, &vulkan, twin.ordinal);
            }
            Err(mismatch) => reasons.push(format!("{}: {mismatch}", vulkan.name)),
        }
    }
    // SAFETY: nothing was made from it.
    unsafe { instance.destroy_instance(None) };
    Err(DeviceLacks(reasons.join("; ")).into())
}

/// Creates a device that can share, and pairs it with a context.
fn make(
    entry: ash::Entry,
    instance: ash::Instance,
    physical: vk::PhysicalDevice,
    features: vk::PhysicalDeviceFeatures,
    info: &VkInfo,
    ordinal: i32,
) -> Result<Gpu, Box<dyn Error>> {
    // With NVIDIA's driver, family 0 supports everything.
    let family = 0;
    let priorities = [1.0];
    let queues =
        [vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&priorities)];
    // Sharing needs the extensions and timelines. The examples also submit with vkQueueSubmit2, which needs
    // synchronization2.
    // ANCHOR: device
    let extensions: Vec<_> = info.extensions().map(|name| name.as_ptr()).collect();
    let mut timeline = vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
    let mut sync2 = vk::PhysicalDeviceSynchronization2Features::default().synchronization2(true);
    let create = vk::DeviceCreateInfo::default()
        .queue_create_infos(&queues)
        .enabled_extension_names(&extensions)
        .enabled_features(&features)
        .push_next(&mut timeline)
        .push_next(&mut sync2);
    // ANCHOR_END: device
    // SAFETY: `create` points to locals; the device lists the extensions.
    let device = unsafe { instance.create_device(physical, &create, None) }?;
    // SAFETY: one queue of this family was requested; a live physical device.
    let (queue, memory) = unsafe {
        (device.get_device_queue(family, 0), instance.get_physical_device_memory_properties(physical))
    };
    let owner = Owner { device: device.clone(), instance: instance.clone(), _entry: entry };
    // SAFETY: the three belong together and live as long as `owner`; both features were enabled above.
    let vk = unsafe { Vk::from_raw(instance, physical, device.clone(), Arc::new(owner)) }?;
    let cuda = CudaContext::new(ordinal as usize)?;
    let pair = Pair::new(vk, Cuda::from_cudarc(&cuda)?)?;
    Ok(Gpu { cuda, device, queue, family, memory, pair })
}

pub fn run() -> Result<(), Box<dyn Error>> {
    open().map(drop)
}

#[allow(dead_code)] // The other examples have their own `main`.
fn main() -> Result<(), Box<dyn Error>> {
    report(run())
}

/// An example that this machine cannot run has not failed. It prints the reason.
pub fn report(outcome: Result<(), Box<dyn Error>>) -> Result<(), Box<dyn Error>> {
    match outcome {
        Err(error) if is_unsupported(&*error) => {
            println!("skipped: {error}");
            Ok(())
        }
        outcome => outcome,
    }
}

/// Returns whether an error means that this machine cannot do what was requested.
pub fn is_unsupported(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref().is_some_and(vulkan_cuda::Error::is_unavailable)
}
