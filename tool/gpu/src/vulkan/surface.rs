use std::sync::Arc;

use ash::{khr, vk};
use winit::raw_window_handle::{HasDisplayHandle, HasWindowHandle};
use winit::window::Window;

use super::{Adapter, Instance, failed};
use crate::{Error, Result};

/// The surface of a window, for a [`super::Swapchain`]. It keeps its window alive.
pub struct WindowSurface {
    pub(super) raw: vk::SurfaceKHR,
    pub(super) ext: khr::surface::Instance,
    pub(super) instance: Instance,
    pub(super) window: Arc<Window>,
}

impl WindowSurface {
    pub fn new(instance: &Instance, window: Arc<Window>) -> Result<Arc<Self>> {
        let no_handle = |error: winit::raw_window_handle::HandleError| Error::Window {
            what: "asking the window for its handle",
            reason: error.to_string(),
        };
        let display = window.display_handle().map_err(no_handle)?.as_raw();
        let handle = window.window_handle().map_err(no_handle)?.as_raw();
        // SAFETY: the instance has the display's surface extension; the surface keeps its window alive.
        let raw =
            unsafe { ash_window::create_surface(instance.entry(), instance.raw(), display, handle, None) }
                .map_err(failed("creating the window's surface", "the Vulkan instance"))?;
        Ok(Arc::new(Self {
            raw,
            ext: khr::surface::Instance::new(instance.entry(), instance.raw()),
            instance: instance.clone(),
            window,
        }))
    }

    pub fn supported_by(&self, adapter: &Adapter, family: u32) -> bool {
        if !self.display_known_to(adapter, family) || !adapter.info().presents {
            return false;
        }
        // SAFETY: surface and physical device belong to the same instance; the family is one of the device's.
        let presents =
            unsafe { self.ext.get_physical_device_surface_support(adapter.raw(), family, self.raw) };
        presents.unwrap_or(false)
    }

    /// Returns whether the device's driver supports this kind of display. The loader offers a surface
    /// extension as soon as one driver has it. Another driver may then report support in
    /// `vkGetPhysicalDeviceSurfaceSupportKHR` and crash in the next call, as SwiftShader does for Xlib. For
    /// the calls here, the loader itself answers if a driver lacks them.
    fn display_known_to(&self, adapter: &Adapter, family: u32) -> bool {
        use winit::raw_window_handle::{RawDisplayHandle, RawWindowHandle};
        let (entry, vk, device) = (self.instance.entry(), self.instance.raw(), adapter.raw());
        let handles = (self.window.display_handle(), self.window.window_handle());
        let (Ok(display), Ok(window)) = handles else { return false };
        match (display.as_raw(), window.as_raw()) {
            (RawDisplayHandle::Xlib(display), RawWindowHandle::Xlib(window)) => {
                let Some(display) = display.display else { return false };
                let ext = khr::xlib_surface::Instance::new(entry, vk);
                let (display, visual) = (display.as_ptr().cast(), window.visual_id as vk::VisualID);
                // SAFETY: (here and below) the surface was made with this extension; device and family belong
                // to this instance; the window keeps its display open.
                unsafe { ext.get_physical_device_xlib_presentation_support(device, family, display, visual) }
            }
            (RawDisplayHandle::Wayland(display), _) => {
                let ext = khr::wayland_surface::Instance::new(entry, vk);
                // SAFETY: as above.
                let display = unsafe { &mut *display.display.as_ptr().cast() };
                // SAFETY: as above.
                unsafe { ext.get_physical_device_wayland_presentation_support(device, family, display) }
            }
            // On Windows there is only one kind of display, and all drivers support it.
            _ => true,
        }
    }
}

impl Drop for WindowSurface {
    fn drop(&mut self) {
        // SAFETY: a swapchain keeps its surface alive, so none is left; the window is still alive.
        unsafe { self.ext.destroy_surface(self.raw, None) };
    }
}
