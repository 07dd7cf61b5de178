//! Vulkan's loader, instance and validation layer, and the window's surface.

use std::ffi::{CStr, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, anyhow};
use ash::vk::{self, DebugUtilsMessageSeverityFlagsEXT as Severity};
use ash::{ext::debug_utils, khr};
use vulkan_cuda::Error;
use winit::raw_window_handle::{HasDisplayHandle, HasWindowHandle, RawDisplayHandle};
use winit::window::Window;

use crate::options::say;

/// The first version with timeline semaphores, synchronization2 and dynamic rendering in core.
pub const VERSION: u32 = vk::API_VERSION_1_3;
pub const DRIVERS: &str = "install the GPU's driver, or mesa-vulkan-drivers for a software device";
const LOADER: &str = "with VK_LOADER_DEBUG=error, the loader says why a driver does not work";
const VALIDATION: &CStr = c"VK_LAYER_KHRONOS_validation";

pub struct Instance {
    messenger: Option<(debug_utils::Instance, vk::DebugUtilsMessengerEXT)>,
    pub raw: ash::Instance,
    // Dropped last: it keeps the loader's library open.
    pub entry: ash::Entry,
}

impl Instance {
    /// Creates an instance. `display` is the window's, if any. `validation` loads the validation layer, with
    /// synchronization validation.
    pub fn new(display: Option<RawDisplayHandle>, validation: bool) -> Result<Arc<Self>> {
        // SAFETY: this runs the initialisers of the system's own Vulkan loader.
        let entry = unsafe { ash::Entry::load() }.with_context(|| {
            format!("no Vulkan loader: install it (Debian and Ubuntu: libvulkan1), and {DRIVERS}")
        })?;
        let (mut layers, mut extensions) = (Vec::new(), Vec::new());
        if let Some(display) = display {
            let needed = ash_window::enumerate_required_extensions(display);
            extensions.extend(needed.map_err(failed("choosing the window's extension"))?);
        }
        if validation {
            layers.push(VALIDATION.as_ptr());
            extensions.push(debug_utils::NAME.as_ptr());
        }
        // ANCHOR: instance
        let app = vk::ApplicationInfo::default().application_name(c"wavefield-demo").api_version(VERSION);
        let mut info = vk::InstanceCreateInfo::default()
            .application_info(&app)
            .enabled_layer_names(&layers)
            .enabled_extension_names(&extensions);
        // ANCHOR_END: instance
        let synchronization = [vk::ValidationFeatureEnableEXT::SYNCHRONIZATION_VALIDATION];
        let mut features = vk::ValidationFeaturesEXT::default().enabled_validation_features(&synchronization);
        let messages = vk::DebugUtilsMessengerCreateInfoEXT::default()
            .pfn_user_callback(Some(on_message))
            .message_severity(Severity::ERROR | Severity::WARNING)
            .message_type(vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION);
        // In the `pNext` chain, the messenger also reports vkCreateInstance and vkDestroyInstance.
        let mut early = messages;
        if validation {
            info = info.push_next(&mut features).push_next(&mut early);
        }
        // SAFETY: `info` points to locals.
        let raw = unsafe { entry.create_instance(&info, None) }.map_err(|result| match result {
            vk::Result::ERROR_INCOMPATIBLE_DRIVER => {
                anyhow!("no Vulkan driver of version 1.3: {DRIVERS}; {LOADER}")
            }
            vk::Result::ERROR_LAYER_NOT_PRESENT => {
                anyhow!("--validation needs the validation layer (Debian, Ubuntu: vulkan-validationlayers)")
            }
            vk::Result::ERROR_EXTENSION_NOT_PRESENT => {
                anyhow!("no Vulkan driver here can draw on this display: use --headless")
            }
            result => anyhow!("{}; {LOADER}", failed("vkCreateInstance")(result)),
        })?;
        let mut instance = Self { messenger: None, raw, entry };
        if validation {
            let ext = debug_utils::Instance::new(&instance.entry, &instance.raw);
            // SAFETY: the instance has the extension; the callback needs no data.
            let raw = unsafe { ext.create_debug_utils_messenger(&messages, None) }
                .map_err(failed("vkCreateDebugUtilsMessengerEXT"))?;
            instance.messenger = Some((ext, raw));
        }
        Ok(Arc::new(instance))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: the device and the surface each hold an `Arc` of the instance, so neither is left.
        unsafe {
            if let Some((ext, messenger)) = &self.messenger {
                ext.destroy_debug_utils_messenger(*messenger, None);
            }
            self.raw.destroy_instance(None);
        }
    }
}

pub struct Surface {
    pub raw: vk::SurfaceKHR,
    pub ext: khr::surface::Instance,
    pub instance: Arc<Instance>,
    pub window: Arc<Window>,
}

impl Surface {
    pub fn new(instance: &Arc<Instance>, window: &Arc<Window>) -> Result<Self> {
        let display = window.display_handle().context("the display has no handle")?.as_raw();
        let handle = window.window_handle().context("the window has no handle")?.as_raw();
        // SAFETY: the instance has the display's extension; the surface keeps the window alive.
        let raw =
            unsafe { ash_window::create_surface(&instance.entry, &instance.raw, display, handle, None) }
                .map_err(failed("making the window's surface"))?;
        let ext = khr::surface::Instance::new(&instance.entry, &instance.raw);
        Ok(Self { raw, ext, instance: instance.clone(), window: window.clone() })
    }

    /// Returns whether a queue of this family can present to the surface.
    pub fn is_reached_by(&self, physical: vk::PhysicalDevice, family: u32) -> bool {
        // SAFETY: a device of this instance, and one of its families.
        unsafe { self.ext.get_physical_device_surface_support(physical, family, self.raw) }.unwrap_or(false)
    }
}

impl Drop for Surface {
    fn drop(&mut self) {
        // SAFETY: its swapchain was destroyed before; the window is still alive.
        unsafe { self.ext.destroy_surface(self.raw, None) };
    }
}

/// Returns a function for `map_err` that adds the call, for calls without a device.
pub fn failed(call: &'static str) -> impl Fn(vk::Result) -> anyhow::Error {
    move |result| Error::Vulkan { call, device: "the Vulkan loader".into(), result }.into()
}

static MESSAGES: AtomicU64 = AtomicU64::new(0);

pub fn validation_messages() -> u64 {
    MESSAGES.load(Ordering::Relaxed)
}

unsafe extern "system" fn on_message(
    _: Severity,
    _: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    _: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: the layer passes a valid structure, whose text lives for the call.
    let text = unsafe { data.as_ref().and_then(|data| data.message_as_c_str()) };
    let text = text.unwrap_or_default().to_string_lossy();
    if !misses_cudas_signal(&text) {
        MESSAGES.fetch_add(1, Ordering::Relaxed);
        say(format_args!("validation: {text}"));
    }
    // Let the call that caused the message continue.
    vk::FALSE
}

/// Returns whether the message is wrong: the layer does not see CUDA's signals, and some versions (as
/// in Debian 13) report that a present waits forever. See KhronosGroup/Vulkan-ValidationLayers, issue 10211.
fn misses_cudas_signal(text: &str) -> bool {
    text.contains("vkQueuePresentKHR-pWaitSemaphores-03268") && text.contains("depends on timeline semaphore")
}
