use std::ffi::{CStr, c_char};
use std::sync::{Arc, OnceLock};

use ash::ext::debug_utils;
use ash::vk;
use winit::raw_window_handle::RawDisplayHandle;

use super::failed;
use super::validation::{LAYER, LOADER, Validation, ValidationLog, messenger_info};
use crate::{Error, Result};

/// The first Vulkan version with timeline semaphores, synchronization2 and dynamic rendering in core.
pub const API_VERSION: u32 = vk::API_VERSION_1_3;

/// A Vulkan instance. Cheap to clone; destroyed with its last clone.
#[derive(Clone)]
pub struct Instance(Arc<InstanceInner>);

struct InstanceInner {
    raw: ash::Instance,
    entry: ash::Entry,
    messenger: Option<(debug_utils::Instance, vk::DebugUtilsMessengerEXT)>,
    log: Arc<ValidationLog>,
}

impl Instance {
    /// Loads Vulkan and creates an instance. `display` is the windows' display, or `None` for headless runs.
    pub fn new(validation: Validation, display: Option<RawDisplayHandle>) -> Result<Self> {
        let _span = tracing::trace_span!("Vulkan instance").entered();
        // SAFETY: loading runs the loader's initialisers; it is the system's own Vulkan loader.
        let entry = unsafe { ash::Entry::load() }.map_err(|error| Error::Missing {
            what: "the Vulkan loader",
            reason: error.to_string(),
            hint: "install it (Debian and Ubuntu: libvulkan1) together with the GPU's driver, \
                   or mesa-vulkan-drivers for a software device",
        })?;
        // SAFETY: no preconditions.
        let version = unsafe { entry.try_enumerate_instance_version() }
            .map_err(failed("vkEnumerateInstanceVersion", LOADER))?
            .unwrap_or(vk::API_VERSION_1_0);
        if version < API_VERSION {
            return Err(Error::Missing {
                what: "Vulkan 1.3",
                reason: format!("the loader has {}", super::version(version)),
                hint: "update the Vulkan loader",
            });
        }

        let with_layer = match validation {
            Validation::Off => false,
            wish => {
                // SAFETY: no preconditions.
                let layers = unsafe { entry.enumerate_instance_layer_properties() }
                    .map_err(failed("vkEnumerateInstanceLayerProperties", LOADER))?;
                let installed = layers.iter().any(|layer| layer.layer_name_as_c_str() == Ok(LAYER));
                if !installed && wish == Validation::Required {
                    return Err(Error::Missing {
                        what: "the validation layer",
                        reason: format!("{} is not installed", LAYER.to_string_lossy()),
                        hint: "install it (Debian and Ubuntu: vulkan-validationlayers), or run without --validation",
                    });
                }
                if !installed {
                    crate::note!(
                        "note: validation is off because its layer is not installed (vulkan-validationlayers)"
                    );
                }
                installed
            }
        };

        let mut extensions: Vec<*const c_char> = match display {
            Some(display) => ash_window::enumerate_required_extensions(display)
                .map_err(failed("choosing the surface extension", LOADER))?
                .to_vec(),
            None => Vec::new(),
        };
        let mut layers = Vec::new();
        if with_layer {
            layers.push(LAYER.as_ptr());
            extensions.push(ash::ext::debug_utils::NAME.as_ptr());
        }
        require_extensions(&entry, &extensions)?;

        let log = Arc::new(ValidationLog::default());
        let app = vk::ApplicationInfo::default().application_name(c"wavefield").api_version(API_VERSION);
        let mut info = vk::InstanceCreateInfo::default()
            .application_info(&app)
            .enabled_layer_names(&layers)
            .enabled_extension_names(&extensions);
        let enables = [vk::ValidationFeatureEnableEXT::SYNCHRONIZATION_VALIDATION];
        let mut features = vk::ValidationFeaturesEXT::default().enabled_validation_features(&enables);
        // The messenger in pNext receives the messages of vkCreateInstance and vkDestroyInstance.
        let mut early = messenger_info(&log);
        if with_layer {
            info = info.push_next(&mut features).push_next(&mut early);
        }
        // SAFETY: every pointer in `info` points to a local; `log` outlives the instance.
        let raw =
            unsafe { entry.create_instance(&info, None) }.map_err(failed("vkCreateInstance", LOADER))?;
        let mut shared = InstanceInner { raw, entry, messenger: None, log };
        if with_layer {
            let ext = debug_utils::Instance::new(&shared.entry, &shared.raw);
            // SAFETY: the instance was made with VK_EXT_debug_utils, and keeps the log alive.
            let messenger = unsafe { ext.create_debug_utils_messenger(&messenger_info(&shared.log), None) }
                .map_err(failed("vkCreateDebugUtilsMessengerEXT", LOADER))?;
            shared.messenger = Some((ext, messenger));
        }
        Ok(Self(Arc::new(shared)))
    }

    /// Returns the log, whose counts stay zero if the layer is not loaded.
    pub fn validation_log(&self) -> &Arc<ValidationLog> {
        &self.0.log
    }

    pub fn validates(&self) -> bool {
        self.0.messenger.is_some()
    }

    pub fn entry(&self) -> &ash::Entry {
        &self.0.entry
    }

    pub fn raw(&self) -> &ash::Instance {
        &self.0.raw
    }
}

/// A bare instance that outlives all others. When no instance is left, the loader unloads its drivers. Each
/// reload of NVIDIA's driver permanently takes some of the C library's static thread-local storage. After
/// about 30 reloads, loading fails ("cannot allocate memory in static TLS block").
static ANCHOR: OnceLock<Option<(ash::Entry, ash::Instance)>> = OnceLock::new();

impl Drop for InstanceInner {
    fn drop(&mut self) {
        // Created only now, so that a program does not wait for two instances when it starts.
        ANCHOR.get_or_init(|| {
            // SAFETY: a plain description; the entry is kept beside the instance.
            let bare = unsafe { self.entry.create_instance(&vk::InstanceCreateInfo::default(), None) };
            Some((self.entry.clone(), bare.ok()?))
        });
        // SAFETY: the messenger belongs to this instance. Devices and surfaces each hold a clone of the
        // `Instance`, so none is left.
        unsafe {
            if let Some((ext, messenger)) = &self.messenger {
                ext.destroy_debug_utils_messenger(*messenger, None);
            }
            self.raw.destroy_instance(None);
        }
    }
}

/// Fails with a missing extension's name. `vkCreateInstance` would only say that some extension is missing.
fn require_extensions(entry: &ash::Entry, wanted: &[*const c_char]) -> Result<()> {
    // SAFETY: no preconditions.
    let present = unsafe { entry.enumerate_instance_extension_properties(None) }
        .map_err(failed("vkEnumerateInstanceExtensionProperties", LOADER))?;
    for &name in wanted {
        // SAFETY: ash and ash-window give static, terminated names.
        let name = unsafe { CStr::from_ptr(name) };
        let from_layer = name == ash::ext::debug_utils::NAME;
        if !from_layer && !present.iter().any(|e| e.extension_name_as_c_str() == Ok(name)) {
            return Err(Error::Unsupported(format!(
                "no Vulkan driver here can draw on this display ({} is missing): use --headless{}",
                name.to_string_lossy(),
                crate::advice::driver_obstacles()
            )));
        }
    }
    Ok(())
}
