//! A Vulkan layer. It passes calls on to the driver below, counts them, makes them fail, and adds what a
//! software device lacks for sharing with CUDA.
//!
//! The loader's `docs/LoaderLayerInterface.md` describes the interface between a layer and the loader.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute_copy;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

use ash::vk::{self, Handle};

use crate::cuda::Head;
use crate::os as libc;
use crate::script::{self, alive};
use crate::shared::{self, Exported, Semaphore};
use crate::sparse;

/// The device extensions that the layer has if `STAND_IN_PRETEND` names them, and else hides, whatever the
/// driver below has. The manifest must list those, because the loader looks there too.
pub const PRETENDED: [&CStr; 4] = [
    // Timeline and binary semaphores as descriptors.
    ash::khr::external_semaphore_fd::NAME,
    // A lost device describes its fault.
    ash::ext::device_fault::NAME,
    // How much of `STAND_IN_MEMORY` is left.
    ash::ext::memory_budget::NAME,
    // CUDA kernels in command buffers; the launch does nothing.
    ash::nvx::binary_import::NAME,
];

/// Not an extension but a feature: the device can bind memory sparsely.
const SPARSE: &CStr = c"sparseBinding";

fn pretends(name: &CStr) -> bool {
    static NAMES: LazyLock<String> = LazyLock::new(|| std::env::var("STAND_IN_PRETEND").unwrap_or_default());
    NAMES.split(',').any(|wanted| wanted.as_bytes() == name.to_bytes())
}

/// The functions below this layer. The layer looks them up while it makes the instance: later, the loader
/// would return those of the topmost layer.
#[derive(Clone)]
struct InstanceFns {
    raw: vk::Instance,
    find: vk::PFN_vkGetInstanceProcAddr,
    found: Arc<HashMap<&'static str, vk::PFN_vkVoidFunction>>,
}

impl InstanceFns {
    unsafe fn new(raw: vk::Instance, find: vk::PFN_vkGetInstanceProcAddr) -> Self {
        let names = OWN.iter().chain(FORWARDED).chain(DESTROYING).chain(&["vkGetPhysicalDeviceProperties2"]);
        let found = names.map(|name| (*name, find(raw, CString::new(*name).unwrap_or_default().as_ptr())));
        Self { raw, find, found: Arc::new(found.collect()) }
    }
}

/// The functions of a device below this layer.
#[derive(Clone, Copy)]
pub(crate) struct DeviceFns {
    pub(crate) raw: vk::Device,
    find: vk::PFN_vkGetDeviceProcAddr,
}

/// Finds a function below this layer, as a typed pointer.
pub(crate) trait Below {
    unsafe fn find(&self, name: &CStr) -> vk::PFN_vkVoidFunction;

    unsafe fn get<F: Copy>(&self, name: &CStr) -> F {
        let Some(found) = self.find(name) else { panic!("stand-in: the driver has no {name:?}") };
        transmute_copy(&found)
    }
}

impl Below for InstanceFns {
    unsafe fn find(&self, name: &CStr) -> vk::PFN_vkVoidFunction {
        *self.found.get(name.to_str().ok()?)?
    }
}

impl Below for DeviceFns {
    unsafe fn find(&self, name: &CStr) -> vk::PFN_vkVoidFunction {
        (self.find)(self.raw, name.as_ptr())
    }
}

/// Objects by their handles, or by the key of their handles.
type Map<T> = LazyLock<Mutex<HashMap<u64, T>>>;

fn lock<T>(map: &Map<T>) -> MutexGuard<'_, HashMap<u64, T>> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

static INSTANCES: Map<InstanceFns> = LazyLock::new(Default::default);
static DEVICES: Map<DeviceFns> = LazyLock::new(Default::default);
/// The extensions with which each device was made.
static ENABLED: Map<Vec<CString>> = LazyLock::new(Default::default);
/// For each memory its size in bytes, and how many imports CUDA has of it.
static MEMORY: Map<(u64, i64)> = LazyLock::new(Default::default);
/// For each imported memory its descriptor, which the driver owns until the memory is freed, its size in
/// bytes, and the copy of the descriptor that the driver below keeps, or -1.
static IMPORTED: Map<(c_int, u64, c_int)> = LazyLock::new(Default::default);
static SEMAPHORES: Map<Arc<Semaphore>> = LazyLock::new(Default::default);
/// The UUID of the first Vulkan device, all zeros if there is none. `None` until an instance was made or
/// refused.
static UUID: Mutex<Option<[u8; 16]>> = Mutex::new(None);
static UUID_KNOWN: Condvar = Condvar::new();

/// The UUID of the first Vulkan device, or the one in `STAND_IN_UUID`.
pub(crate) fn first_uuid() -> [u8; 16] {
    if let Ok(text) = std::env::var("STAND_IN_UUID") {
        let digits = text.replace('-', "");
        let byte = |index| u8::from_str_radix(digits.get(2 * index..2 * index + 2)?, 16).ok();
        return std::array::from_fn(|index| byte(index).unwrap_or(0));
    }
    let layers = std::env::var("VK_INSTANCE_LAYERS").unwrap_or_default();
    let mut uuid = UUID.lock().unwrap_or_else(PoisonError::into_inner);
    // The program may ask CUDA before it makes a Vulkan instance.
    if layers.contains("WAVEFIELD_stand_in") {
        let known = UUID_KNOWN.wait_timeout_while(uuid, script::PATIENCE, |uuid| uuid.is_none());
        uuid = known.unwrap_or_else(PoisonError::into_inner).0;
    }
    uuid.unwrap_or_default()
}

/// Notes that an instance was made or refused.
fn tell_uuid(first: Option<[u8; 16]>) {
    let mut known = UUID.lock().unwrap_or_else(PoisonError::into_inner);
    // Other layers make their own instances of Vulkan 1.0, which report only zeros.
    let told = |uuid: &[u8; 16]| *uuid != [0; 16];
    *known = first.filter(told).or(*known).or(Some([0; 16]));
    UUID_KNOWN.notify_all();
}

/// The address of the loader's table, with which the object behind a dispatchable handle begins. It is the
/// same for an instance and its physical devices, and the same for a device, its queues and its command
/// buffers.
fn key<T: Handle>(handle: T) -> u64 {
    // SAFETY: a dispatchable handle points to an object that begins with this address.
    unsafe { *(handle.as_raw() as *const u64) }
}

fn instance_of<T: Handle>(handle: T) -> InstanceFns {
    lock(&INSTANCES)[&key(handle)].clone()
}

fn device_of<T: Handle>(handle: T) -> DeviceFns {
    lock(&DEVICES)[&key(handle)]
}

// The CUDA half uses these on Vulkan's objects. They go straight to the driver: they are not counted and
// never made to fail.
impl DeviceFns {
    pub(crate) fn map(&self, memory: vk::DeviceMemory) -> Option<u64> {
        let mut pointer = std::ptr::null_mut();
        // SAFETY: a software device's memory can be mapped, and the program itself does not map what it
        // exported.
        let result = unsafe {
            let map: vk::PFN_vkMapMemory = self.get(c"vkMapMemory");
            map(self.raw, memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty(), &mut pointer)
        };
        (result == vk::Result::SUCCESS).then_some(pointer as u64)
    }

    pub(crate) fn unmap(&self, memory: vk::DeviceMemory) {
        // SAFETY: `map` mapped the memory.
        unsafe {
            let unmap: vk::PFN_vkUnmapMemory = self.get(c"vkUnmapMemory");
            unmap(self.raw, memory);
        }
    }

    pub(crate) fn imported(&self, memory: vk::DeviceMemory, change: i64) {
        // If the memory is unknown, it was freed too early, and `vkFreeMemory` has noted the offence.
        if let Some((_, imports)) = lock(&MEMORY).get_mut(&memory.as_raw()) {
            *imports += change;
        }
    }

    pub(crate) fn signal(&self, semaphore: vk::Semaphore, value: u64) {
        let info = vk::SemaphoreSignalInfo::default().semaphore(semaphore).value(value);
        // SAFETY: the program destroys a semaphore only after CUDA has released it. The driver refuses a
        // value that is not above the counter, for example after `abandon`.
        unsafe {
            let signal: vk::PFN_vkSignalSemaphore = self.get(c"vkSignalSemaphore");
            let _ = signal(self.raw, &info);
        }
    }

    /// Whether the semaphore reaches the value within a tenth of a second.
    pub(crate) fn wait(&self, semaphore: vk::Semaphore, value: u64) -> bool {
        let (semaphores, values) = ([semaphore], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: as for `signal`.
        let result = unsafe {
            let wait: vk::PFN_vkWaitSemaphores = self.get(c"vkWaitSemaphores");
            wait(self.raw, &info, 100_000_000)
        };
        result == vk::Result::SUCCESS
    }

    fn wait_idle(&self) {
        // SAFETY: the program is inside a call, on its only Vulkan thread.
        unsafe {
            let wait: vk::PFN_vkDeviceWaitIdle = self.get(c"vkDeviceWaitIdle");
            let _ = wait(self.raw);
        }
    }
}

/// Whether the device is lost. A lost device does nothing any more.
static LOST: AtomicBool = AtomicBool::new(false);

/// The calls that report the loss.
const TELL_OF_LOSS: [&str; 10] = [
    "vkQueueSubmit",
    "vkQueueSubmit2",
    "vkQueueWaitIdle",
    "vkDeviceWaitIdle",
    "vkWaitSemaphores",
    "vkWaitForFences",
    "vkGetSemaphoreCounterValue",
    "vkGetQueryPoolResults",
    "vkAcquireNextImageKHR",
    "vkQueuePresentKHR",
];

/// The result that a call must return instead of running, if any.
fn fault<T: Handle>(name: &'static str, handle: T) -> Option<vk::Result> {
    let order = script::call(name).map(vk::Result::from_raw);
    if order == Some(vk::Result::ERROR_DEVICE_LOST) {
        // A lost device has no more work, so this one must finish its work first.
        if let Some(device) = lock(&DEVICES).get(&key(handle)).copied() {
            device.wait_idle();
        }
        LOST.store(true, Ordering::SeqCst);
    }
    match order {
        None if LOST.load(Ordering::SeqCst) && TELL_OF_LOSS.contains(&name) => {
            Some(vk::Result::ERROR_DEVICE_LOST)
        }
        order => order,
    }
}

/// Commands that the layer passes on unchanged. `makes` counts a new object.
macro_rules! forward {
    (@next instance $first:ident) => { instance_of($first) };
    (@next device $first:ident) => { device_of($first) };
    (@count makes $kind:literal) => { alive($kind, 1) };
    ($($level:ident $name:ident($first:ident: $handle:ty $(, $argument:ident: $type:ty)*) $(makes $kind:literal)?;)*) => {
        $(
            #[allow(non_snake_case)]
            unsafe extern "system" fn $name($first: $handle $(, $argument: $type)*) -> vk::Result {
                let name = stringify!($name);
                let order = fault(name, $first);
                // Only these results are returned although the call takes effect.
                let beside = |answer| match name {
                    "vkAcquireNextImageKHR" => answer == vk::Result::SUBOPTIMAL_KHR,
                    // A present does its waits even if it does not show the image.
                    "vkQueuePresentKHR" => matches!(
                        answer,
                        vk::Result::SUBOPTIMAL_KHR | vk::Result::ERROR_OUT_OF_DATE_KHR | vk::Result::ERROR_SURFACE_LOST_KHR
                    ),
                    _ => false,
                };
                if let Some(answer) = order && !beside(answer) {
                    return answer;
                }
                let next: unsafe extern "system" fn($handle $(, $type)*) -> vk::Result =
                    forward!(@next $level $first).get(terminated(concat!(stringify!($name), "\0")));
                let result = next($first $(, $argument)*);
                $(if result == vk::Result::SUCCESS { alive($kind, 1); })?
                match order {
                    Some(answer) if result == vk::Result::SUCCESS => answer,
                    _ => result,
                }
            }
        )*

        const FORWARDED: &[&str] = &[$(stringify!($name)),*];

        fn forwarded(name: &CStr) -> vk::PFN_vkVoidFunction {
            $(if name.to_bytes() == stringify!($name).as_bytes() {
                return pointer($name as *const c_void);
            })*
            None
        }
    };
}

/// Commands that destroy. `ends` counts the object as gone.
macro_rules! destroy {
    ($($level:ident $name:ident($handle:ty, $object:ty) ends $kind:literal;)*) => {
        $(
            #[allow(non_snake_case)]
            unsafe extern "system" fn $name(first: $handle, object: $object, allocator: *const c_void) {
                script::call(stringify!($name));
                let next: unsafe extern "system" fn($handle, $object, *const c_void) =
                    forward!(@next $level first).get(terminated(concat!(stringify!($name), "\0")));
                next(first, object, allocator);
                if !object.is_null() {
                    alive($kind, -1);
                }
            }
        )*

        const DESTROYING: &[&str] = &[$(stringify!($name)),*];

        fn destroying(name: &CStr) -> vk::PFN_vkVoidFunction {
            $(if name.to_bytes() == stringify!($name).as_bytes() {
                return pointer($name as *const c_void);
            })*
            None
        }
    };
}

fn terminated(name: &'static str) -> &'static CStr {
    CStr::from_bytes_with_nul(name.as_bytes()).unwrap_or_default()
}

fn pointer(function: *const c_void) -> vk::PFN_vkVoidFunction {
    // SAFETY: this is the address of a function. The caller knows its type from its name.
    unsafe { transmute_copy(&function) }
}

type Allocator = *const c_void;

forward! {
    instance vkEnumeratePhysicalDevices(instance: vk::Instance, count: *mut u32, devices: *mut c_void);
    instance vkEnumeratePhysicalDeviceGroups(instance: vk::Instance, count: *mut u32, groups: *mut c_void);
    instance vkCreateXlibSurfaceKHR(instance: vk::Instance, info: *const c_void, allocator: Allocator, out: *mut c_void) makes "surface";
    instance vkCreateXcbSurfaceKHR(instance: vk::Instance, info: *const c_void, allocator: Allocator, out: *mut c_void) makes "surface";
    instance vkGetPhysicalDeviceSurfaceSupportKHR(device: vk::PhysicalDevice, family: u32, surface: vk::SurfaceKHR, out: *mut vk::Bool32);
    instance vkGetPhysicalDeviceSurfaceCapabilitiesKHR(device: vk::PhysicalDevice, surface: vk::SurfaceKHR, out: *mut c_void);
    instance vkGetPhysicalDeviceSurfaceFormatsKHR(device: vk::PhysicalDevice, surface: vk::SurfaceKHR, count: *mut u32, out: *mut c_void);
    instance vkGetPhysicalDeviceSurfacePresentModesKHR(device: vk::PhysicalDevice, surface: vk::SurfaceKHR, count: *mut u32, out: *mut c_void);
    device vkCreateImage(device: vk::Device, info: *const c_void, allocator: Allocator, out: *mut c_void) makes "image";
    device vkCreateImageView(device: vk::Device, info: *const c_void, allocator: Allocator, out: *mut c_void) makes "image view";
    device vkCreateFence(device: vk::Device, info: *const c_void, allocator: Allocator, out: *mut c_void) makes "fence";
    device vkCreateQueryPool(device: vk::Device, info: *const c_void, allocator: Allocator, out: *mut c_void) makes "query pool";
    device vkCreateSampler(device: vk::Device, info: *const c_void, allocator: Allocator, out: *mut c_void) makes "sampler";
    device vkCreateShaderModule(device: vk::Device, info: *const c_void, allocator: Allocator, out: *mut c_void) makes "shader module";
    device vkCreateDescriptorSetLayout(device: vk::Device, info: *const c_void, allocator: Allocator, out: *mut c_void) makes "descriptor set layout";
    device vkCreateDescriptorPool(device: vk::Device, info: *const c_void, allocator: Allocator, out: *mut c_void) makes "descriptor pool";
    device vkCreatePipelineLayout(device: vk::Device, info: *const c_void, allocator: Allocator, out: *mut c_void) makes "pipeline layout";
    device vkCreateGraphicsPipelines(device: vk::Device, cache: vk::PipelineCache, count: u32, infos: *const c_void, allocator: Allocator, out: *mut c_void) makes "pipeline";
    device vkCreateComputePipelines(device: vk::Device, cache: vk::PipelineCache, count: u32, infos: *const c_void, allocator: Allocator, out: *mut c_void) makes "pipeline";
    device vkCreateCommandPool(device: vk::Device, info: *const c_void, allocator: Allocator, out: *mut c_void) makes "command pool";
    device vkAllocateCommandBuffers(device: vk::Device, info: *const c_void, out: *mut c_void);
    device vkAllocateDescriptorSets(device: vk::Device, info: *const c_void, out: *mut c_void);
    device vkBindBufferMemory(device: vk::Device, buffer: vk::Buffer, memory: vk::DeviceMemory, offset: u64);
    device vkBindImageMemory(device: vk::Device, image: vk::Image, memory: vk::DeviceMemory, offset: u64);
    device vkMapMemory(device: vk::Device, memory: vk::DeviceMemory, offset: u64, size: u64, flags: u32, out: *mut c_void);
    device vkResetCommandPool(device: vk::Device, pool: vk::CommandPool, flags: u32);
    device vkBeginCommandBuffer(commands: vk::CommandBuffer, info: *const c_void);
    device vkEndCommandBuffer(commands: vk::CommandBuffer);
    device vkGetQueryPoolResults(device: vk::Device, pool: vk::QueryPool, first: u32, count: u32, size: usize, out: *mut c_void, stride: u64, flags: u32);
    device vkWaitSemaphores(device: vk::Device, info: *const c_void, timeout: u64);
    device vkWaitForFences(device: vk::Device, count: u32, fences: *const vk::Fence, all: vk::Bool32, timeout: u64);
    device vkQueueWaitIdle(queue: vk::Queue);
    device vkDeviceWaitIdle(device: vk::Device);
    device vkCreateSwapchainKHR(device: vk::Device, info: *const c_void, allocator: Allocator, out: *mut c_void) makes "swapchain";
    device vkGetSwapchainImagesKHR(device: vk::Device, swapchain: vk::SwapchainKHR, count: *mut u32, out: *mut c_void);
    device vkAcquireNextImageKHR(device: vk::Device, swapchain: vk::SwapchainKHR, timeout: u64, semaphore: vk::Semaphore, fence: vk::Fence, out: *mut u32);
    device vkQueuePresentKHR(queue: vk::Queue, info: *const c_void);
}

destroy! {
    instance vkDestroySurfaceKHR(vk::Instance, vk::SurfaceKHR) ends "surface";
    device vkDestroyImage(vk::Device, vk::Image) ends "image";
    device vkDestroyImageView(vk::Device, vk::ImageView) ends "image view";
    device vkDestroyFence(vk::Device, vk::Fence) ends "fence";
    device vkDestroyQueryPool(vk::Device, vk::QueryPool) ends "query pool";
    device vkDestroySampler(vk::Device, vk::Sampler) ends "sampler";
    device vkDestroyShaderModule(vk::Device, vk::ShaderModule) ends "shader module";
    device vkDestroyDescriptorSetLayout(vk::Device, vk::DescriptorSetLayout) ends "descriptor set layout";
    device vkDestroyDescriptorPool(vk::Device, vk::DescriptorPool) ends "descriptor pool";
    device vkDestroyPipelineLayout(vk::Device, vk::PipelineLayout) ends "pipeline layout";
    device vkDestroyPipeline(vk::Device, vk::Pipeline) ends "pipeline";
    device vkDestroyCommandPool(vk::Device, vk::CommandPool) ends "command pool";
    device vkDestroySwapchainKHR(vk::Device, vk::SwapchainKHR) ends "swapchain";
}

/// Commands for which this layer does something of its own.
macro_rules! own {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? $body:block)*) => {
        $(
            #[allow(non_snake_case)]
            unsafe extern "system" fn $name($($argument: $type),*) $(-> $result)? $body
        )*

        const OWN: &[&str] = &[$(stringify!($name)),*];

        fn own(name: &CStr) -> vk::PFN_vkVoidFunction {
            $(if name.to_bytes() == stringify!($name).as_bytes() {
                return pointer($name as *const c_void);
            })*
            None
        }
    };
}

/// Returns from the function if the script makes this call fail.
macro_rules! may_fail {
    ($name:literal, $handle:expr) => {
        if let Some(answer) = fault($name, $handle) {
            return answer;
        }
    };
}

own! {
    fn vkCreateInstance(
        info: *const vk::InstanceCreateInfo<'_>, allocator: *const vk::AllocationCallbacks<'_>, out: *mut vk::Instance
    ) -> vk::Result {
        if let Some(answer) = script::call("vkCreateInstance") {
            tell_uuid(None);
            return vk::Result::from_raw(answer);
        }
        let Some(link) = next_link::<InstanceLink>((*info).p_next, vk::StructureType::LOADER_INSTANCE_CREATE_INFO)
        else {
            return vk::Result::ERROR_INITIALIZATION_FAILED;
        };
        let find = link.find_instance;
        let create: vk::PFN_vkCreateInstance = transmute_copy(&find(vk::Instance::null(), c"vkCreateInstance".as_ptr()));
        let result = create(info, allocator, out);
        if result == vk::Result::SUCCESS {
            let made = InstanceFns::new(*out, find);
            tell_uuid(read_uuid(&made));
            lock(&INSTANCES).insert(key(*out), made);
        } else {
            tell_uuid(None);
        }
        result
    }

    fn vkDestroyInstance(instance: vk::Instance, allocator: *const vk::AllocationCallbacks<'_>) {
        script::call("vkDestroyInstance");
        let Some(below) = lock(&INSTANCES).remove(&key(instance)) else { return };
        let destroy: vk::PFN_vkDestroyInstance = below.get(c"vkDestroyInstance");
        destroy(instance, allocator);
    }

    fn vkCreateDevice(
        physical: vk::PhysicalDevice, info: *const vk::DeviceCreateInfo<'_>,
        allocator: *const vk::AllocationCallbacks<'_>, out: *mut vk::Device
    ) -> vk::Result {
        may_fail!("vkCreateDevice", physical);
        let Some(link) = next_link::<DeviceLink>((*info).p_next, vk::StructureType::LOADER_DEVICE_CREATE_INFO) else {
            return vk::Result::ERROR_INITIALIZATION_FAILED;
        };
        let (find_instance, find) = (link.find_instance, link.find_device);
        // The driver does not know the pretended extensions.
        let info = *info;
        let names = match info.enabled_extension_count {
            0 => &[][..],
            count => std::slice::from_raw_parts(info.pp_enabled_extension_names, count as usize),
        };
        let enabled: Vec<CString> = names.iter().map(|&name| CStr::from_ptr(name).to_owned()).collect();
        let names: Vec<*const c_char> =
            enabled.iter().filter(|name| !pretends(name)).map(|name| name.as_ptr()).collect();
        let mut features = info.p_enabled_features.as_ref().copied().unwrap_or_default();
        if features.sparse_binding == vk::TRUE && !pretends(SPARSE) {
            script::offence("a device was made with a feature that it lacks, sparseBinding".into());
        }
        features.sparse_binding = vk::FALSE;
        let info = vk::DeviceCreateInfo {
            p_enabled_features: if info.p_enabled_features.is_null() { std::ptr::null() } else { &features },
            enabled_extension_count: names.len() as u32,
            pp_enabled_extension_names: names.as_ptr(),
            ..info
        };
        let instance = instance_of(physical).raw;
        let create: vk::PFN_vkCreateDevice = transmute_copy(&find_instance(instance, c"vkCreateDevice".as_ptr()));
        let fault = find_in_chain(info.p_next.cast_mut(), vk::StructureType::PHYSICAL_DEVICE_FAULT_FEATURES_EXT);
        let fault = fault.cast::<vk::PhysicalDeviceFaultFeaturesEXT<'_>>().as_mut();
        let wanted = fault.map(|fault| (std::mem::replace(&mut fault.device_fault, vk::FALSE), fault));
        let result = create(physical, &info, allocator, out);
        if let Some((was, fault)) = wanted {
            fault.device_fault = was;
        }
        if result == vk::Result::SUCCESS {
            lock(&DEVICES).insert(key(*out), DeviceFns { raw: *out, find });
            lock(&ENABLED).insert(key(*out), enabled.clone());
            alive("device", 1);
        }
        result
    }

    fn vkDestroyDevice(device: vk::Device, allocator: *const vk::AllocationCallbacks<'_>) {
        script::call("vkDestroyDevice");
        let Some(below) = lock(&DEVICES).remove(&key(device)) else { return };
        lock(&ENABLED).remove(&key(device));
        let destroy: vk::PFN_vkDestroyDevice = below.get(c"vkDestroyDevice");
        destroy(device, allocator);
        alive("device", -1);
    }

    fn vkEnumerateDeviceExtensionProperties(
        physical: vk::PhysicalDevice, layer: *const c_char, count: *mut u32, out: *mut vk::ExtensionProperties
    ) -> vk::Result {
        may_fail!("vkEnumerateDeviceExtensionProperties", physical);
        let enumerate: vk::PFN_vkEnumerateDeviceExtensionProperties =
            instance_of(physical).get(c"vkEnumerateDeviceExtensionProperties");
        let mut below = 0;
        let result = enumerate(physical, layer, &mut below, std::ptr::null_mut());
        if result != vk::Result::SUCCESS {
            return result;
        }
        let mut all = vec![vk::ExtensionProperties::default(); below as usize];
        let result = enumerate(physical, layer, &mut below, all.as_mut_ptr());
        if result != vk::Result::SUCCESS {
            return result;
        }
        all.retain(|extension| extension.extension_name_as_c_str().is_ok_and(|name| !PRETENDED.contains(&name)));
        let pretended = PRETENDED.into_iter().filter(|name| pretends(name));
        all.extend(pretended.flat_map(|name| vk::ExtensionProperties::default().spec_version(1).extension_name(name)));
        if out.is_null() {
            *count = all.len() as u32;
            return vk::Result::SUCCESS;
        }
        let room = (*count as usize).min(all.len());
        std::slice::from_raw_parts_mut(out, room).copy_from_slice(&all[..room]);
        *count = room as u32;
        if room < all.len() { vk::Result::INCOMPLETE } else { vk::Result::SUCCESS }
    }

    fn vkGetPhysicalDeviceFeatures(physical: vk::PhysicalDevice, out: *mut vk::PhysicalDeviceFeatures) {
        let get: vk::PFN_vkGetPhysicalDeviceFeatures = instance_of(physical).get(c"vkGetPhysicalDeviceFeatures");
        get(physical, out);
        (*out).sparse_binding = pretends(SPARSE).into();
    }

    fn vkGetPhysicalDeviceQueueFamilyProperties(
        physical: vk::PhysicalDevice, count: *mut u32, out: *mut vk::QueueFamilyProperties
    ) {
        let get: vk::PFN_vkGetPhysicalDeviceQueueFamilyProperties =
            instance_of(physical).get(c"vkGetPhysicalDeviceQueueFamilyProperties");
        get(physical, count, out);
        if !out.is_null() {
            let families = std::slice::from_raw_parts_mut(out, *count as usize);
            let sparse = vk::QueueFlags::SPARSE_BINDING;
            let pretended = if pretends(SPARSE) { sparse } else { vk::QueueFlags::empty() };
            families.iter_mut().for_each(|family| family.queue_flags = family.queue_flags & !sparse | pretended);
        }
    }

    fn vkCreateBuffer(
        device: vk::Device, info: *const vk::BufferCreateInfo<'_>, allocator: *const vk::AllocationCallbacks<'_>,
        out: *mut vk::Buffer
    ) -> vk::Result {
        may_fail!("vkCreateBuffer", device);
        let sparse = (*info).flags.contains(vk::BufferCreateFlags::SPARSE_BINDING);
        if sparse && !pretends(SPARSE) {
            script::offence("a sparse buffer was made on a device that binds nothing sparsely".into());
        }
        let info = (*info).flags((*info).flags & !vk::BufferCreateFlags::SPARSE_BINDING);
        let create: vk::PFN_vkCreateBuffer = device_of(device).get(c"vkCreateBuffer");
        let result = create(device, &info, allocator, out);
        if result == vk::Result::SUCCESS {
            alive("buffer", 1);
            if sparse {
                sparse::created(*out);
            }
        }
        result
    }

    fn vkDestroyBuffer(device: vk::Device, buffer: vk::Buffer, allocator: *const vk::AllocationCallbacks<'_>) {
        script::call("vkDestroyBuffer");
        let below = device_of(device);
        let destroy: vk::PFN_vkDestroyBuffer = below.get(c"vkDestroyBuffer");
        destroy(device, buffer, allocator);
        if !buffer.is_null() {
            alive("buffer", -1);
            sparse::destroyed(below, buffer);
        }
    }

    fn vkGetBufferMemoryRequirements(device: vk::Device, buffer: vk::Buffer, out: *mut vk::MemoryRequirements) {
        let get: vk::PFN_vkGetBufferMemoryRequirements = device_of(device).get(c"vkGetBufferMemoryRequirements");
        get(device, buffer, out);
        sparse::require(buffer, &mut *out);
        if std::env::var_os("STAND_IN_SMALL_BUFFERS").is_some() {
            (*out).size /= 2;
        }
    }

    fn vkQueueBindSparse(
        queue: vk::Queue, count: u32, infos: *const vk::BindSparseInfo<'_>, fence: vk::Fence
    ) -> vk::Result {
        may_fail!("vkQueueBindSparse", queue);
        let below = device_of(queue);
        let size_of = |memory: vk::DeviceMemory| lock(&IMPORTED).get(&memory.as_raw()).map_or(0, |(_, size, _)| *size);
        for info in std::slice::from_raw_parts(infos, count as usize) {
            for buffer in std::slice::from_raw_parts(info.p_buffer_binds, info.buffer_bind_count as usize) {
                let result = sparse::bind(below, buffer, size_of);
                if result != vk::Result::SUCCESS {
                    return result;
                }
            }
        }
        let submit: vk::PFN_vkQueueSubmit2 = below.get(c"vkQueueSubmit2");
        submit(queue, 0, std::ptr::null(), fence)
    }

    fn vkGetPhysicalDeviceFeatures2(physical: vk::PhysicalDevice, out: *mut vk::PhysicalDeviceFeatures2<'_>) {
        let get: vk::PFN_vkGetPhysicalDeviceFeatures2 = instance_of(physical).get(c"vkGetPhysicalDeviceFeatures2");
        get(physical, out);
        (*out).features.sparse_binding = pretends(SPARSE).into();
        if pretends(ash::ext::device_fault::NAME) {
            let asked = find_in_chain(out.cast(), vk::StructureType::PHYSICAL_DEVICE_FAULT_FEATURES_EXT);
            if let Some(asked) = asked.cast::<vk::PhysicalDeviceFaultFeaturesEXT<'_>>().as_mut() {
                asked.device_fault = vk::TRUE;
            }
        }
    }

    fn vkGetPhysicalDeviceMemoryProperties2(
        physical: vk::PhysicalDevice, out: *mut vk::PhysicalDeviceMemoryProperties2<'_>
    ) {
        let get: vk::PFN_vkGetPhysicalDeviceMemoryProperties2 =
            instance_of(physical).get(c"vkGetPhysicalDeviceMemoryProperties2");
        get(physical, out);
        if pretends(ash::ext::memory_budget::NAME) {
            let kind = vk::StructureType::PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT;
            let asked = find_in_chain(out.cast(), kind);
            if let Some(asked) = asked.cast::<vk::PhysicalDeviceMemoryBudgetPropertiesEXT<'_>>().as_mut() {
                asked.heap_budget = [script::memory_size(); vk::MAX_MEMORY_HEAPS];
                asked.heap_usage = [script::memory_used(); vk::MAX_MEMORY_HEAPS];
            }
        }
    }

    fn vkGetPhysicalDeviceExternalSemaphoreProperties(
        physical: vk::PhysicalDevice, info: *const vk::PhysicalDeviceExternalSemaphoreInfo<'_>,
        out: *mut vk::ExternalSemaphoreProperties<'_>
    ) {
        let get: vk::PFN_vkGetPhysicalDeviceExternalSemaphoreProperties =
            instance_of(physical).get(c"vkGetPhysicalDeviceExternalSemaphoreProperties");
        get(physical, info, out);
        if pretends(ash::khr::external_semaphore_fd::NAME) {
            (*out).external_semaphore_features |=
                vk::ExternalSemaphoreFeatureFlags::EXPORTABLE | vk::ExternalSemaphoreFeatureFlags::IMPORTABLE;
            (*out).compatible_handle_types |= (*info).handle_type;
            (*out).export_from_imported_handle_types |= (*info).handle_type;
        }
    }

    fn vkAllocateMemory(
        device: vk::Device, info: *const vk::MemoryAllocateInfo<'_>, allocator: *const vk::AllocationCallbacks<'_>,
        out: *mut vk::DeviceMemory
    ) -> vk::Result {
        may_fail!("vkAllocateMemory", device);
        let import = find_in_chain((*info).p_next.cast_mut(), vk::StructureType::IMPORT_MEMORY_FD_INFO_KHR);
        if let Some(import) = import.cast::<vk::ImportMemoryFdInfoKHR<'_>>().as_mut() {
            let result = import_memory(device_of(device), &*info, import, out);
            if result == vk::Result::SUCCESS {
                // The bytes belong to CUDA and are counted there.
                lock(&MEMORY).insert((*out).as_raw(), (0, 0));
                alive("memory", 1);
            }
            return result;
        }
        let size = (*info).allocation_size;
        if !script::take_memory(size) {
            return vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
        }
        let allocate: vk::PFN_vkAllocateMemory = device_of(device).get(c"vkAllocateMemory");
        let result = allocate(device, info, allocator, out);
        match result {
            vk::Result::SUCCESS => {
                lock(&MEMORY).insert((*out).as_raw(), (size, 0));
                alive("memory", 1);
            }
            _ => script::give_memory(size),
        }
        result
    }

    fn vkFreeMemory(device: vk::Device, memory: vk::DeviceMemory, allocator: *const vk::AllocationCallbacks<'_>) {
        script::call("vkFreeMemory");
        if let Some((size, imports)) = lock(&MEMORY).remove(&memory.as_raw()) {
            script::give_memory(size);
            alive("memory", -1);
            if imports > 0 && crate::cuda::takes_everything_back() {
                script::offence("memory was freed in Vulkan before CUDA let go of it".into());
            }
        }
        let imported = lock(&IMPORTED).remove(&memory.as_raw());
        if let Some((fd, ..)) = imported && libc::close(fd) != 0 {
            script::offence(format!("descriptor {fd} was closed although Vulkan owned it"));
        }
        let free: vk::PFN_vkFreeMemory = device_of(device).get(c"vkFreeMemory");
        free(device, memory, allocator);
        if let Some((.., copy)) = imported {
            close_copy(copy);
        }
    }

    fn vkGetMemoryFdKHR(device: vk::Device, info: *const vk::MemoryGetFdInfoKHR<'_>, out: *mut c_int) -> vk::Result {
        may_fail!("vkGetMemoryFdKHR", device);
        let below = device_of(device);
        let get: vk::PFN_vkGetMemoryFdKHR = below.get(c"vkGetMemoryFdKHR");
        // Only the driver knows whether this memory can be exported.
        let result = get(device, info, out);
        if result != vk::Result::SUCCESS {
            return result;
        }
        let memory = (*info).memory;
        let size = lock(&MEMORY).get(&memory.as_raw()).map_or(0, |(size, _)| *size);
        let what = Exported::Memory(below, memory, size);
        if std::env::var_os("STAND_IN_DRIVERS_MEMORY").is_some() {
            return shared::adopt(*out, what).map_or(vk::Result::ERROR_TOO_MANY_OBJECTS, |()| result);
        }
        // Hand out a descriptor of the stand-in instead, so that it can be counted.
        libc::close(*out);
        hand_out(what, out)
    }

    fn vkCreateSemaphore(
        device: vk::Device, info: *const vk::SemaphoreCreateInfo<'_>, allocator: *const vk::AllocationCallbacks<'_>,
        out: *mut vk::Semaphore
    ) -> vk::Result {
        may_fail!("vkCreateSemaphore", device);
        let create: vk::PFN_vkCreateSemaphore = device_of(device).get(c"vkCreateSemaphore");
        let chain = (*info).p_next.cast_mut();
        let exported = !find_in_chain(chain, vk::StructureType::EXPORT_SEMAPHORE_CREATE_INFO).is_null();
        if !(exported && pretends(ash::khr::external_semaphore_fd::NAME)) {
            let result = create(device, info, allocator, out);
            if result == vk::Result::SUCCESS {
                alive("semaphore", 1);
            }
            return result;
        }
        // The driver below makes an ordinary timeline, without export.
        let kind = find_in_chain(chain, vk::StructureType::SEMAPHORE_TYPE_CREATE_INFO);
        let kind = kind.cast::<vk::SemaphoreTypeCreateInfo<'_>>().as_ref();
        let binary = kind.is_none_or(|kind| kind.semaphore_type == vk::SemaphoreType::BINARY);
        let mut timeline = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut timeline);
        let result = create(device, &info, allocator, out);
        if result == vk::Result::SUCCESS {
            alive("semaphore", 1);
            let semaphore = Semaphore { raw: *out, binary, file: Mutex::default(), counts: Mutex::default() };
            lock(&SEMAPHORES).insert((*out).as_raw(), Arc::new(semaphore));
        }
        result
    }

    fn vkDestroySemaphore(
        device: vk::Device, semaphore: vk::Semaphore, allocator: *const vk::AllocationCallbacks<'_>
    ) {
        script::call("vkDestroySemaphore");
        let exported = lock(&SEMAPHORES).remove(&semaphore.as_raw());
        exported.inspect(|exported| exported.unshare());
        if !semaphore.is_null() {
            alive("semaphore", -1);
        }
        let destroy: vk::PFN_vkDestroySemaphore = device_of(device).get(c"vkDestroySemaphore");
        destroy(device, semaphore, allocator);
    }

    fn vkGetSemaphoreFdKHR(
        device: vk::Device, info: *const vk::SemaphoreGetFdInfoKHR<'_>, out: *mut c_int
    ) -> vk::Result {
        may_fail!("vkGetSemaphoreFdKHR", device);
        let exported = lock(&SEMAPHORES).get(&(*info).semaphore.as_raw()).cloned();
        match exported {
            Some(semaphore) => {
                let result = hand_out(Exported::Semaphore(device_of(device), semaphore.clone()), out);
                if result == vk::Result::SUCCESS {
                    semaphore.share(*out);
                }
                result
            }
            None => vk::Result::ERROR_INVALID_EXTERNAL_HANDLE,
        }
    }

    fn vkSignalSemaphore(device: vk::Device, info: *const vk::SemaphoreSignalInfo<'_>) -> vk::Result {
        may_fail!("vkSignalSemaphore", device);
        // One lock for the check and the signal, so that a second thread's late signal is noticed.
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (below, mut counter) = (device_of(device), 0);
        let get: vk::PFN_vkGetSemaphoreCounterValue = below.get(c"vkGetSemaphoreCounterValue");
        if get(device, (*info).semaphore, &mut counter) == vk::Result::SUCCESS && (*info).value <= counter {
            script::offence(format!("a counter of {counter} was set to {}", (*info).value));
        }
        let signal: vk::PFN_vkSignalSemaphore = below.get(c"vkSignalSemaphore");
        signal(device, info)
    }

    fn vkGetSemaphoreCounterValue(device: vk::Device, semaphore: vk::Semaphore, out: *mut u64) -> vk::Result {
        may_fail!("vkGetSemaphoreCounterValue", device);
        let below = device_of(device);
        let get: vk::PFN_vkGetSemaphoreCounterValue = below.get(c"vkGetSemaphoreCounterValue");
        let exported = lock(&SEMAPHORES).get(&semaphore.as_raw()).cloned();
        let result = get(device, semaphore, out);
        let Some(exported) = exported.filter(|_| result == vk::Result::SUCCESS) else { return result };
        // The driver below does not know what another process has signalled.
        let signalled = exported.hear();
        if signalled > *out {
            below.signal(semaphore, signalled);
            *out = signalled;
        }
        exported.tell(*out);
        // Timelines that nobody reads here may have moved too.
        for (&other, exported) in lock(&SEMAPHORES).iter().filter(|&(&other, _)| other != semaphore.as_raw()) {
            let mut value = 0;
            if get(device, vk::Semaphore::from_raw(other), &mut value) == vk::Result::SUCCESS {
                exported.tell(value);
            }
        }
        result
    }

    fn vkQueueSubmit2(
        queue: vk::Queue, count: u32, batches: *const vk::SubmitInfo2<'_>, fence: vk::Fence
    ) -> vk::Result {
        may_fail!("vkQueueSubmit2", queue);
        let shared = lock(&SEMAPHORES).clone();
        // In the driver below, exported semaphores are timelines: see `Semaphore`.
        let rewritten = |infos: *const vk::SemaphoreSubmitInfo<'static>, count: u32, value: fn(&Semaphore, u64) -> u64| {
            let rewrite = |info: &vk::SemaphoreSubmitInfo<'static>| match shared.get(&info.semaphore.as_raw()) {
                Some(semaphore) => {
                    check_stage(info.stage_mask);
                    info.value(value(semaphore, info.value))
                }
                None => *info,
            };
            slice(infos, count).iter().map(rewrite).collect::<Vec<_>>()
        };
        let batches = slice(batches, count);
        let semaphores: Vec<_> = batches
            .iter()
            .map(|batch| {
                let (waits, signals) = (batch.p_wait_semaphore_infos.cast(), batch.p_signal_semaphore_infos.cast());
                let waits = rewritten(waits, batch.wait_semaphore_info_count, Semaphore::wait);
                let signals = rewritten(signals, batch.signal_semaphore_info_count, Semaphore::signal);
                check_signals(signals.iter().map(|signal| signal.semaphore));
                (waits, signals)
            })
            .collect();
        let batches: Vec<_> = batches
            .iter()
            .zip(&semaphores)
            .map(|(batch, (waits, signals))| vk::SubmitInfo2 {
                p_wait_semaphore_infos: waits.as_ptr(),
                p_signal_semaphore_infos: signals.as_ptr(),
                ..*batch
            })
            .collect();
        let submit: vk::PFN_vkQueueSubmit2 = device_of(queue).get(c"vkQueueSubmit2");
        submit(queue, count, batches.as_ptr(), fence)
    }

    fn vkQueueSubmit(
        queue: vk::Queue, count: u32, batches: *const vk::SubmitInfo<'_>, fence: vk::Fence
    ) -> vk::Result {
        may_fail!("vkQueueSubmit", queue);
        let shared = lock(&SEMAPHORES).clone();
        // As for `vkQueueSubmit2`. The values are in a structure of the chain; without it, all are 0.
        let rewritten = |semaphores: &[vk::Semaphore], values: &[u64], value: fn(&Semaphore, u64) -> u64| {
            let rewrite = |(index, semaphore): (usize, &vk::Semaphore)| {
                let given = values.get(index).copied().unwrap_or(0);
                shared.get(&semaphore.as_raw()).map_or(given, |semaphore| value(semaphore, given))
            };
            semaphores.iter().enumerate().map(rewrite).collect::<Vec<_>>()
        };
        let batches = slice(batches, count);
        let values: Vec<_> = batches
            .iter()
            .map(|batch| {
                let waits = slice(batch.p_wait_semaphores, batch.wait_semaphore_count);
                let stages = slice(batch.p_wait_dst_stage_mask, batch.wait_semaphore_count);
                for (_, stage) in waits.iter().zip(stages).filter(|(wait, _)| shared.contains_key(&wait.as_raw())) {
                    check_stage(vk::PipelineStageFlags2::from_raw(stage.as_raw().into()));
                }
                let kind = vk::StructureType::TIMELINE_SEMAPHORE_SUBMIT_INFO;
                let given = find_in_chain(batch.p_next.cast_mut(), kind).cast::<vk::TimelineSemaphoreSubmitInfo<'_>>();
                let given = given.as_ref().copied().unwrap_or_default();
                let values = slice(given.p_wait_semaphore_values, given.wait_semaphore_value_count);
                let waits = rewritten(waits, values, Semaphore::wait);
                let signals = slice(batch.p_signal_semaphores, batch.signal_semaphore_count);
                check_signals(signals.iter().copied());
                let values = slice(given.p_signal_semaphore_values, given.signal_semaphore_value_count);
                (waits, rewritten(signals, values, Semaphore::signal))
            })
            .collect();
        // The driver below uses the first structure of a kind.
        let infos: Vec<_> = batches
            .iter()
            .zip(&values)
            .map(|(batch, (waits, signals))| {
                let info = vk::TimelineSemaphoreSubmitInfo::default();
                let info = info.wait_semaphore_values(waits).signal_semaphore_values(signals);
                vk::TimelineSemaphoreSubmitInfo { p_next: batch.p_next, ..info }
            })
            .collect();
        let batches: Vec<_> = batches
            .iter()
            .zip(&infos)
            .map(|(batch, info)| vk::SubmitInfo { p_next: std::ptr::from_ref(info).cast(), ..*batch })
            .collect();
        let submit: vk::PFN_vkQueueSubmit = device_of(queue).get(c"vkQueueSubmit");
        submit(queue, count, batches.as_ptr(), fence)
    }

    fn vkGetDeviceFaultInfoEXT(
        device: vk::Device, counts: *mut vk::DeviceFaultCountsEXT<'_>, info: *mut vk::DeviceFaultInfoEXT<'_>
    ) -> vk::Result {
        may_fail!("vkGetDeviceFaultInfoEXT", device);
        if !LOST.load(Ordering::SeqCst) {
            script::offence("the fault was asked for before the device was lost".into());
        }
        let Some(info) = info.as_mut() else {
            (*counts).address_info_count = 1;
            (*counts).vendor_info_count = 1;
            return vk::Result::SUCCESS;
        };
        info.description = text(c"the stand-in was told to fail");
        if let Some(address) = info.p_address_infos.as_mut() {
            address.address_type = vk::DeviceFaultAddressTypeEXT::READ_INVALID;
            address.reported_address = 0xdead_0000;
            address.address_precision = 0x1000;
        }
        if let Some(vendor) = info.p_vendor_infos.as_mut() {
            vendor.description = text(c"engine reset");
            (vendor.vendor_fault_code, vendor.vendor_fault_data) = (7, 8);
        }
        vk::Result::SUCCESS
    }

    fn vkCreateCuModuleNVX(
        device: vk::Device, info: *const vk::CuModuleCreateInfoNVX<'_>, _allocator: Allocator, out: *mut u64
    ) -> vk::Result {
        may_fail!("vkCreateCuModuleNVX", device);
        // The stand-in's machine code is the PTX itself, with the zero at its end.
        let code = std::slice::from_raw_parts((*info).p_data.cast::<u8>(), (*info).data_size);
        let ptx = String::from_utf8_lossy(code).into_owned();
        *out = Box::into_raw(Box::new(ptx)) as u64;
        alive("CUDA module in Vulkan", 1);
        vk::Result::SUCCESS
    }
    fn vkCreateCuFunctionNVX(
        device: vk::Device, info: *const vk::CuFunctionCreateInfoNVX<'_>, _allocator: Allocator, out: *mut u64
    ) -> vk::Result {
        may_fail!("vkCreateCuFunctionNVX", device);
        let ptx = &*((*info).module.as_raw() as *const String);
        let name = CStr::from_ptr((*info).p_name).to_string_lossy();
        *out = Head::of(ptx, &name).pack() as u64;
        alive("CUDA function in Vulkan", 1);
        vk::Result::SUCCESS
    }
    fn vkDestroyCuModuleNVX(_device: vk::Device, module: u64, _allocator: Allocator) {
        script::call("vkDestroyCuModuleNVX");
        drop(Box::from_raw(module as *mut String));
        alive("CUDA module in Vulkan", -1);
    }
    fn vkDestroyCuFunctionNVX(_device: vk::Device, _function: u64, _allocator: Allocator) {
        script::call("vkDestroyCuFunctionNVX");
        alive("CUDA function in Vulkan", -1);
    }
    fn vkCmdCuLaunchKernelNVX(_commands: vk::CommandBuffer, info: *const vk::CuLaunchInfoNVX<'_>) {
        script::call("vkCmdCuLaunchKernelNVX");
        let vk::CuLaunchInfoNVX { function, block_dim_x, param_count, p_params, .. } = *info;
        let head = Head::unpack(function.as_raw() as usize);
        if param_count != head.parameters {
            script::offence(format!("a kernel of {} parameters was given {param_count}", head.parameters));
        } else {
            head.values(p_params);
        }
        if !head.takes(block_dim_x) {
            script::offence(format!("a kernel in a command buffer has blocks of {block_dim_x} threads, which it does not take"));
        }
    }

    fn vkGetDeviceProcAddr(device: vk::Device, name: *const c_char) -> vk::PFN_vkVoidFunction {
        let (below, name) = (device_of(device), CStr::from_ptr(name));
        // As a driver does, this has no function of an extension with which the device was not made.
        let needed = EXPORTING.iter().find(|(function, _)| *function == name);
        let enabled = |extension: &CStr| lock(&ENABLED)[&key(device)].iter().any(|name| name.as_c_str() == extension);
        if needed.is_some_and(|(_, extension)| !enabled(extension)) {
            return None;
        }
        known(name, |name| below.find(name).is_some()).or_else(|| below.find(name))
    }

    fn vkGetInstanceProcAddr(instance: vk::Instance, name: *const c_char) -> vk::PFN_vkVoidFunction {
        let name = CStr::from_ptr(name);
        // Before there is an instance, the loader asks for the function that makes one.
        let made = if instance.is_null() { None } else { lock(&INSTANCES).get(&key(instance)).cloned() };
        let Some(below) = made else { return known(name, |_| true) };
        known(name, |name| below.find(name).is_some()).or_else(|| (below.find)(instance, name.as_ptr()))
    }
}

/// The functions that export, and their extensions.
const EXPORTING: [(&CStr, &CStr); 2] = [
    (c"vkGetMemoryFdKHR", ash::khr::external_memory_fd::NAME),
    (c"vkGetSemaphoreFdKHR", ash::khr::external_semaphore_fd::NAME),
];

/// Notes an offence if the wait or the signal of a shared semaphore is at a narrower stage. None of these
/// orders the ownership transfer that comes with it.
fn check_stage(stage: vk::PipelineStageFlags2) {
    if stage != vk::PipelineStageFlags2::ALL_COMMANDS {
        script::offence(format!("a shared semaphore at {stage:?}, not ALL_COMMANDS"));
    }
}

/// No submission may signal a timeline twice: the second value would be pending while the first is
/// (`VUID-VkSubmitInfo2-semaphore-03882`).
fn check_signals(signals: impl Iterator<Item = vk::Semaphore>) {
    let (shared, mut seen) = (lock(&SEMAPHORES).clone(), HashSet::new());
    for signal in signals.filter(|signal| shared.contains_key(&signal.as_raw())) {
        if !seen.insert(signal) {
            script::offence("one submission signals a shared semaphore twice".into());
        }
    }
}

/// The array of a Vulkan structure, whose pointer may be null if it is empty.
unsafe fn slice<'a, T>(first: *const T, count: u32) -> &'a [T] {
    if count == 0 || first.is_null() { &[] } else { std::slice::from_raw_parts(first, count as usize) }
}

/// Imports memory that the CUDA half has exported. The file first gets the header that the driver below
/// expects.
///
/// After a refused import, every later import in the process fails, as on an H200 (driver 580).
unsafe fn import_memory(
    below: DeviceFns,
    info: &vk::MemoryAllocateInfo<'_>,
    import: &mut vk::ImportMemoryFdInfoKHR<'_>,
    out: *mut vk::DeviceMemory,
) -> vk::Result {
    static SPOILT: AtomicBool = AtomicBool::new(false);
    let (fd, size) = (import.fd, info.allocation_size);
    let fits = shared::memory_size(fd) == Some(size);
    if !fits || SPOILT.load(Ordering::SeqCst) || !write_header(below, fd, info) {
        SPOILT.store(true, Ordering::SeqCst);
        return vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
    }
    let copy = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0);
    import.fd = copy;
    let allocate: vk::PFN_vkAllocateMemory = below.get(c"vkAllocateMemory");
    let result = allocate(below.raw, info, std::ptr::null(), out);
    import.fd = fd;
    if result == vk::Result::SUCCESS {
        // Before Mesa 26, lavapipe closed the copy at once. The number may then soon be another file's.
        let kept = if shared::memory_size(copy).is_some() { copy } else { -1 };
        lock(&IMPORTED).insert((*out).as_raw(), (fd, size, kept));
    } else {
        close_copy(copy);
    }
    result
}

/// Closes the copy of a descriptor, unless the driver below has: since Mesa 26, lavapipe closes it with the
/// memory.
unsafe fn close_copy(copy: c_int) {
    if shared::memory_size(copy).is_some() {
        libc::close(copy);
    }
}

/// Copies the header from memory that the driver below exports itself.
unsafe fn write_header(below: DeviceFns, fd: c_int, info: &vk::MemoryAllocateInfo<'_>) -> bool {
    let kind = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;
    let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(kind);
    let like = vk::MemoryAllocateInfo::default()
        .allocation_size(info.allocation_size)
        .memory_type_index(info.memory_type_index)
        .push_next(&mut export);
    let allocate: vk::PFN_vkAllocateMemory = below.get(c"vkAllocateMemory");
    let get: vk::PFN_vkGetMemoryFdKHR = below.get(c"vkGetMemoryFdKHR");
    let free: vk::PFN_vkFreeMemory = below.get(c"vkFreeMemory");
    let (mut memory, mut from) = (vk::DeviceMemory::null(), -1);
    if allocate(below.raw, &like, std::ptr::null(), &mut memory) != vk::Result::SUCCESS {
        return false;
    }
    let asked = vk::MemoryGetFdInfoKHR::default().memory(memory).handle_type(kind);
    let mut header = [0u8; shared::HEADER as usize];
    let done = get(below.raw, &asked, &mut from) == vk::Result::SUCCESS
        && libc::pread(from, header.as_mut_ptr().cast(), header.len(), 0) == header.len() as isize
        && libc::pwrite(fd, header.as_ptr().cast(), header.len(), 0) == header.len() as isize;
    libc::close(from);
    free(below.raw, memory, std::ptr::null());
    done
}

/// This layer's function of that name. A function that only passes calls on exists only if the driver has it.
unsafe fn known(name: &CStr, below_has: impl Fn(&CStr) -> bool) -> vk::PFN_vkVoidFunction {
    own(name).or_else(|| forwarded(name).or_else(|| destroying(name)).filter(|_| below_has(name)))
}

fn hand_out(what: Exported, out: *mut c_int) -> vk::Result {
    match shared::export(what) {
        Some(fd) => {
            // SAFETY: `out` is the caller's place for the descriptor.
            unsafe { *out = fd };
            vk::Result::SUCCESS
        }
        None => vk::Result::ERROR_TOO_MANY_OBJECTS,
    }
}

fn text<const SIZE: usize>(text: &CStr) -> [c_char; SIZE] {
    let mut array = [0; SIZE];
    for (to, from) in array.iter_mut().zip(text.to_bytes()) {
        *to = *from as c_char;
    }
    array
}

/// The first structure of a kind in a chain, or null.
unsafe fn find_in_chain(chain: *mut c_void, kind: vk::StructureType) -> *mut c_void {
    let mut at = chain.cast::<vk::BaseOutStructure<'_>>();
    while let Some(structure) = at.as_ref() {
        if structure.s_type == kind {
            return at.cast();
        }
        at = structure.p_next.cast();
    }
    std::ptr::null_mut()
}

/// `VkLayerInstanceLink`.
#[repr(C)]
#[derive(Clone, Copy)]
struct InstanceLink {
    next: *mut InstanceLink,
    find_instance: vk::PFN_vkGetInstanceProcAddr,
    find_physical_device: *const c_void,
}

/// `VkLayerDeviceLink`.
#[repr(C)]
#[derive(Clone, Copy)]
struct DeviceLink {
    next: *mut DeviceLink,
    find_instance: vk::PFN_vkGetInstanceProcAddr,
    find_device: vk::PFN_vkGetDeviceProcAddr,
}

/// `VkLayerInstanceCreateInfo` and `VkLayerDeviceCreateInfo`, which differ only in the link.
#[repr(C)]
struct LayerCreateInfo<Link> {
    s_type: vk::StructureType,
    p_next: *const c_void,
    /// 0 is `VK_LAYER_LINK_INFO`.
    function: c_int,
    link: *mut Link,
}

/// Takes this layer's link from the chain, so that the layer below finds its own.
unsafe fn next_link<Link: Copy>(chain: *const c_void, kind: vk::StructureType) -> Option<Link> {
    let mut at = chain.cast_mut();
    loop {
        at = find_in_chain(at, kind);
        let info = at.cast::<LayerCreateInfo<Link>>().as_mut()?;
        if info.function == 0 {
            let link = *info.link.as_ref()?;
            // Both kinds of link start with the pointer to the next link.
            info.link = *info.link.cast::<*mut Link>();
            return Some(link);
        }
        at = info.p_next.cast_mut();
    }
}

/// Asks the driver for the UUID of its first device, which the CUDA half then uses.
unsafe fn read_uuid(below: &InstanceFns) -> Option<[u8; 16]> {
    let properties = below.find(c"vkGetPhysicalDeviceProperties2")?;
    let properties: vk::PFN_vkGetPhysicalDeviceProperties2 = transmute_copy(&properties);
    let enumerate: vk::PFN_vkEnumeratePhysicalDevices = below.get(c"vkEnumeratePhysicalDevices");
    let (mut count, mut device) = (1, vk::PhysicalDevice::null());
    let _ = enumerate(below.raw, &mut count, &mut device);
    if device.is_null() {
        return None;
    }
    let mut id = vk::PhysicalDeviceIDProperties::default();
    let mut all = vk::PhysicalDeviceProperties2::default().push_next(&mut id);
    properties(device, &mut all);
    Some(id.device_uuid)
}

/// `VkNegotiateLayerInterface`.
#[repr(C)]
pub struct Negotiation {
    s_type: c_int,
    p_next: *const c_void,
    version: u32,
    find_instance: Option<vk::PFN_vkGetInstanceProcAddr>,
    find_device: Option<vk::PFN_vkGetDeviceProcAddr>,
    find_physical_device: *const c_void,
}

/// The first function that the loader calls.
#[allow(non_snake_case)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkNegotiateLoaderLayerInterfaceVersion(negotiation: *mut Negotiation) -> vk::Result {
    let negotiation = &mut *negotiation;
    negotiation.version = negotiation.version.min(2);
    negotiation.find_instance = Some(vkGetInstanceProcAddr);
    negotiation.find_device = Some(vkGetDeviceProcAddr);
    negotiation.find_physical_device = std::ptr::null();
    vk::Result::SUCCESS
}
