//! A window's surface.

use std::sync::Arc;

use ash::{khr, vk};
use winit::raw_window_handle::{HasDisplayHandle, HasWindowHandle};
use winit::window::Window;

use super::{Adapter, Instance};
use crate::{Error, Result};

/// What a [`super::Swapchain`] presents to. Keeps its window alive.
#[derive(Clone)]
pub struct Surface(Arc<Shared>);

struct Shared {
    raw: vk::SurfaceKHR,
    ext: khr::surface::Instance,
    instance: Instance,
    window: Arc<Window>,
}

impl Surface {
    pub(super) fn new(instance: &Instance, window: Arc<Window>) -> Result<Self> {
        let no_handle = |error: winit::raw_window_handle::HandleError| Error::Window {
            what: "asking the window for its handle",
            reason: error.to_string(),
        };
        let display = window.display_handle().map_err(no_handle)?.as_raw();
        let handle = window.window_handle().map_err(no_handle)?.as_raw();
        // SAFETY: the instance has the display's surface extension; the window outlives the surface, which holds it.
        let raw =
            unsafe { ash_window::create_surface(instance.entry(), instance.raw(), display, handle, None) }
                .map_err(|result| Error::Vulkan {
                    call: "creating the window's surface",
                    device: "the Vulkan instance".into(),
                    result,
                })?;
        Ok(Self(Arc::new(Shared {
            raw,
            ext: khr::surface::Instance::new(instance.entry(), instance.raw()),
            instance: instance.clone(),
            window,
        })))
    }

    /// A new surface of the same window, for when this one is lost.
    pub(super) fn remake(&self) -> Result<Self> {
        Self::new(&self.0.instance, self.0.window.clone())
    }

    /// The window behind it.
    pub fn window(&self) -> &Window {
        &self.0.window
    }

    /// The raw handle.
    pub(super) fn raw(&self) -> vk::SurfaceKHR {
        self.0.raw
    }

    /// The `VK_KHR_surface` functions.
    pub(super) fn ext(&self) -> &khr::surface::Instance {
        &self.0.ext
    }

    /// Whether a queue of `family` can present here.
    pub fn supported_by(&self, adapter: &Adapter, family: u32) -> bool {
        // Only a device with VK_KHR_swapchain may be asked to present at all.
        let vk = self.0.instance.raw();
        // SAFETY: a live physical device of the same instance.
        let extensions =
            unsafe { vk.enumerate_device_extension_properties(adapter.raw()) }.unwrap_or_default();
        let swapchain = extensions.iter().any(|e| e.extension_name_as_c_str() == Ok(khr::swapchain::NAME));
        // SAFETY: surface and physical device belong to the same instance; the family is one of the device's.
        let presents =
            unsafe { self.0.ext.get_physical_device_surface_support(adapter.raw(), family, self.0.raw) };
        swapchain && presents.unwrap_or(false)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: a swapchain holds a clone of its surface, so none is left; the window is still alive.
        unsafe { self.ext.destroy_surface(self.raw, None) };
    }
}
