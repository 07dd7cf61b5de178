//! The GPU: the choice of a device that can share memory with CUDA, and the device itself.

use std::ffi::CStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use ash::{Device, khr, vk};
use gpu_allocator::vulkan::{Allocator, AllocatorCreateDesc};
use vulkan_cuda::{CudaInfo, Driver, Error, VkInfo, find_twin};

use crate::instance::{DRIVERS, Instance, Surface, VERSION, failed};
use crate::options::{Options, say};

/// The longest wait for the GPU. A frame that takes longer is an error.
pub const PATIENCE: Duration = Duration::from_secs(10);

struct Candidate {
    physical: vk::PhysicalDevice,
    properties: vk::PhysicalDeviceProperties,
    info: VkInfo,
    /// A queue family for graphics and compute, or why the device cannot draw.
    family: Result<u32, String>,
    /// The CUDA device that is the same GPU, or why there is none.
    cuda: Result<CudaInfo, String>,
}

impl Candidate {
    fn new(
        instance: &ash::Instance,
        physical: vk::PhysicalDevice,
        surface: Option<&Surface>,
        cuda: &Result<Vec<CudaInfo>, String>,
    ) -> Result<Self> {
        // SAFETY: one of this instance's devices.
        let properties = unsafe { instance.get_physical_device_properties(physical) };
        // SAFETY: as above; the instance was made for Vulkan 1.3.
        let info = unsafe { VkInfo::query(instance, physical) }?;
        let family = Self::family(instance, physical, properties.api_version, surface);
        // ANCHOR: twin
        // A GPU has the same UUID in both APIs. An index or a name does not identify it.
        let cuda = match cuda {
            Ok(devices) => find_twin(&info, devices).cloned().map_err(|mismatch| mismatch.to_string()),
            Err(reason) => Err(reason.clone()),
        };
        // ANCHOR_END: twin
        Ok(Self { physical, properties, info, family, cuda })
    }

    fn family(
        instance: &ash::Instance,
        physical: vk::PhysicalDevice,
        version: u32,
        surface: Option<&Surface>,
    ) -> Result<u32, String> {
        if version < VERSION {
            return Err("it has no Vulkan 1.3".into());
        }
        // SAFETY: one of this instance's devices.
        let extensions = unsafe { instance.enumerate_device_extension_properties(physical) };
        let extensions = extensions.map_err(|result| format!("its extensions are unknown: {result}"))?;
        let wanted = [Some(khr::push_descriptor::NAME), surface.map(|_| khr::swapchain::NAME)];
        for name in wanted.into_iter().flatten() {
            if !extensions.iter().any(|found| found.extension_name_as_c_str() == Ok(name)) {
                return Err(format!("it lacks {}", name.to_string_lossy()));
            }
        }
        // SAFETY: as above.
        let families = unsafe { instance.get_physical_device_queue_family_properties(physical) };
        let both = vk::QueueFlags::GRAPHICS | vk::QueueFlags::COMPUTE;
        let family = families.iter().position(|family| family.queue_flags.contains(both));
        let family = family.ok_or("it has no queue that draws and computes")? as u32;
        if surface.is_some_and(|surface| !surface.is_reached_by(physical, family)) {
            return Err("it cannot present to this window".into());
        }
        Ok(family)
    }
}

fn choose(instance: &ash::Instance, options: &Options, surface: Option<&Surface>) -> Result<Candidate> {
    let cuda = match options.compute {
        false => Driver::load().and_then(|driver| driver.devices()).map_err(|error| error.to_string()),
        true => Err("--compute was given".into()),
    };
    // SAFETY: a live instance.
    let all =
        unsafe { instance.enumerate_physical_devices() }.map_err(failed("vkEnumeratePhysicalDevices"))?;
    let all = all.into_iter().map(|physical| Candidate::new(instance, physical, surface, &cuda));
    let mut all = all.collect::<Result<Vec<_>>>()?;
    let names: Vec<_> =
        all.iter().enumerate().map(|(n, found)| format!("{n}: {}", found.info.name)).collect();
    if let Some(wanted) = &options.device {
        match wanted.parse() {
            Ok(number) => all = all.into_iter().skip(number).take(1).collect(),
            Err(_) => all.retain(|found| found.info.name.to_lowercase().contains(&wanted.to_lowercase())),
        }
        if all.is_empty() {
            bail!("there is no device `{wanted}`; there is {}", names.join(", "));
        }
    }
    for (info, reason) in all.iter().filter_map(|found| Some((&found.info, found.family.as_ref().err()?))) {
        say(format_args!("{} is not used: {reason}", info.name));
    }
    all.retain(|found| found.family.is_ok());
    // Prefer devices that CUDA has, too, and then hardware to software.
    let best = all.into_iter().min_by_key(|Candidate { cuda, properties, .. }| {
        let kind = match properties.device_type {
            vk::PhysicalDeviceType::DISCRETE_GPU => 0,
            vk::PhysicalDeviceType::INTEGRATED_GPU => 1,
            vk::PhysicalDeviceType::CPU => 3,
            _ => 2,
        };
        (cuda.is_err(), kind)
    });
    best.ok_or_else(|| match names.is_empty() {
        true => anyhow!("no Vulkan device: {DRIVERS}"),
        false => anyhow!("no Vulkan device here can draw this: {}", names.join(", ")),
    })
}

/// A Vulkan device with one queue. Every object made from it holds an `Arc` of it.
pub struct Gpu {
    // Dropped first: it frees its memory on the device.
    allocator: Mutex<Allocator>,
    pub device: ash::Device,
    pub swapchain: khr::swapchain::Device,
    pub push_descriptor: khr::push_descriptor::Device,
    pub queue: vk::Queue,
    pub family: u32,
    pub physical: vk::PhysicalDevice,
    pub limits: vk::PhysicalDeviceLimits,
    pub name: String,
    pub is_software: bool,
    /// The CUDA device that is the same GPU, or why there is none.
    pub cuda: Result<CudaInfo, String>,
    // Dropped before the instance.
    _owner: Owner,
    pub instance: Arc<Instance>,
}

/// Destroys the device when dropped.
struct Owner(Device);

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: every object holds an `Arc` of `Gpu`, so none is left. The allocator was dropped before.
        unsafe { self.0.destroy_device(None) };
    }
}

impl Gpu {
    /// Chooses a device and opens it. Without a window, there is no surface.
    pub fn new(instance: Arc<Instance>, options: &Options, surface: Option<&Surface>) -> Result<Arc<Self>> {
        let Candidate { physical, properties, info, family, cuda } = choose(&instance.raw, options, surface)?;
        let family = family.map_err(anyhow::Error::msg)?;
        let queues =
            [vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&[1.0])];
        // ANCHOR: device
        let mut extensions = vec![khr::push_descriptor::NAME.as_ptr()];
        extensions.extend(surface.map(|_| khr::swapchain::NAME.as_ptr()));
        if cuda.is_ok() {
            // Vulkan exports memory and semaphores with these extensions. CUDA then imports them.
            extensions.extend(info.extensions().map(CStr::as_ptr));
        }
        let mut of_1_2 = vk::PhysicalDeviceVulkan12Features::default().timeline_semaphore(true);
        let mut of_1_3 =
            vk::PhysicalDeviceVulkan13Features::default().synchronization2(true).dynamic_rendering(true);
        let create = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&extensions)
            .push_next(&mut of_1_2)
            .push_next(&mut of_1_3);
        // ANCHOR_END: device
        // SAFETY: `create` points to locals; Vulkan 1.3 has the features, and the device has the extensions.
        let device = unsafe { instance.raw.create_device(physical, &create, None) }
            .map_err(|result| Error::Vulkan { call: "vkCreateDevice", device: info.name.clone(), result })?;
        let owner = Owner(device.clone());
        let allocator = Allocator::new(&AllocatorCreateDesc {
            instance: instance.raw.clone(),
            device: device.clone(),
            physical_device: physical,
            debug_settings: Default::default(),
            buffer_device_address: false,
            allocation_sizes: Default::default(),
        })?;
        Ok(Arc::new(Self {
            allocator: Mutex::new(allocator),
            swapchain: khr::swapchain::Device::new(&instance.raw, &device),
            push_descriptor: khr::push_descriptor::Device::new(&instance.raw, &device),
            // SAFETY: the device was made with one queue of this family.
            queue: unsafe { device.get_device_queue(family, 0) },
            device,
            family,
            physical,
            limits: properties.limits,
            name: info.name,
            is_software: properties.device_type == vk::PhysicalDeviceType::CPU,
            cuda,
            _owner: owner,
            instance,
        }))
    }

    /// Locks the allocator of all memory that is not shared with CUDA.
    pub fn allocator(&self) -> MutexGuard<'_, Allocator> {
        self.allocator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the call and the device's name to an error.
    pub fn check<T>(&self, call: &'static str, result: Result<T, vk::Result>) -> Result<T> {
        result.map_err(|result| Error::Vulkan { call, device: self.name.clone(), result }.into())
    }

    /// Waits until a timeline reaches `value`. Returns `false` if that takes longer than `limit`.
    pub fn wait(&self, timeline: vk::Semaphore, value: u64, limit: Duration) -> Result<bool> {
        let (semaphores, values) = ([timeline], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: a live timeline of this device.
        match unsafe { self.device.wait_semaphores(&info, limit.as_nanos() as u64) } {
            Err(vk::Result::TIMEOUT) => Ok(false),
            result => self.check("vkWaitSemaphores", result).map(|()| true),
        }
    }

    /// Begins recording. The GPU must be done with the commands.
    pub fn begin(&self, commands: vk::CommandBuffer) -> Result<()> {
        let info = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: a command buffer that is not pending (see above), from a pool that lets it be reset.
        self.check("vkBeginCommandBuffer", unsafe { self.device.begin_command_buffer(commands, &info) })
    }

    pub fn end(&self, commands: vk::CommandBuffer) -> Result<()> {
        // SAFETY: recording.
        self.check("vkEndCommandBuffer", unsafe { self.device.end_command_buffer(commands) })
    }
}

// ANCHOR: at
/// Describes a wait before all commands of a submission, or a signal after all. Only timelines use `value`.
pub fn at(semaphore: vk::Semaphore, value: u64) -> vk::SemaphoreSubmitInfo<'static> {
    vk::SemaphoreSubmitInfo::default()
        .semaphore(semaphore)
        .value(value)
        .stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)
}
// ANCHOR_END: at

type Destroy<T> = unsafe fn(&Device, T, Option<&vk::AllocationCallbacks<'_>>);

/// Destroys its handle when dropped. The GPU is done by then: `Frames` waits before it drops anything.
pub struct AutoDestroy<T: Copy> {
    pub raw: T,
    destroy: Destroy<T>,
    gpu: Arc<Gpu>,
}

impl<T: Copy> AutoDestroy<T> {
    /// Takes the handle that `call` created on this device, or adds the call to its error.
    pub fn new(
        gpu: &Arc<Gpu>,
        call: &'static str,
        made: Result<T, vk::Result>,
        destroy: Destroy<T>,
    ) -> Result<Self> {
        Ok(Self { raw: gpu.check(call, made)?, destroy, gpu: gpu.clone() })
    }
}

impl<T: Copy> Drop for AutoDestroy<T> {
    fn drop(&mut self) {
        // SAFETY: made from this device, destroyed once, and not in use any more: see the type.
        unsafe { (self.destroy)(&self.gpu.device, self.raw, None) };
    }
}

pub fn semaphore(gpu: &Arc<Gpu>, kind: vk::SemaphoreType) -> Result<AutoDestroy<vk::Semaphore>> {
    let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(kind);
    let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
    // SAFETY: a live device and a plain description.
    let made = unsafe { gpu.device.create_semaphore(&info, None) };
    AutoDestroy::new(gpu, "vkCreateSemaphore", made, Device::destroy_semaphore)
}
