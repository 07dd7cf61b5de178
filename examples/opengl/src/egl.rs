//! OpenGL contexts without a window or a display: EGL lists the devices and makes a context on one of them.

use std::ffi::{c_int, c_void};
use std::rc::Rc;

use anyhow::{Context, Result};
use khronos_egl as egl;

use crate::Unavailable;

pub type Egl = egl::DynamicInstance<egl::EGL1_5>;

const PLATFORM_DEVICE: egl::Enum = 0x313f;

/// Opens the system's EGL.
///
/// # Errors
/// [`Unavailable`]: EGL 1.5 is not installed.
pub fn load() -> Result<Rc<Egl>> {
    // SAFETY: the system's own library.
    let egl = unsafe { Egl::load_required() }.map_err(|error| {
        Unavailable(format!("there is no EGL 1.5 (libEGL.so.1; Debian: libegl1): {error}"))
    })?;
    Ok(Rc::new(egl))
}

/// EGL's function that lists devices. It is in `EGL_EXT_device_enumeration`, and in the older
/// `EGL_EXT_device_base`, which is the only one that NVIDIA's driver reports.
pub struct Devices {
    query: QueryDevices,
}

type QueryDevices = extern "system" fn(c_int, *mut *mut c_void, *mut c_int) -> u32;

impl Devices {
    pub fn new(egl: &Egl) -> Result<Self> {
        let extensions = egl.query_string(None, egl::EXTENSIONS).unwrap_or_default().to_string_lossy();
        let has = |wanted: &[&str]| extensions.split(' ').any(|extension| wanted.contains(&extension));
        for wanted in
            [&["EGL_EXT_device_enumeration", "EGL_EXT_device_base"][..], &["EGL_EXT_platform_device"]]
        {
            if !has(wanted) {
                let wanted = wanted[0];
                let drivers =
                    "is a driver named in /usr/share/glvnd/egl_vendor.d (Debian: libegl-mesa0, or NVIDIA's)?";
                return Err(Unavailable(format!("EGL has no {wanted}, which lists GPUs: {drivers}")).into());
            }
        }
        let query = egl.get_proc_address("eglQueryDevicesEXT").context("EGL lacks eglQueryDevicesEXT")?;
        // SAFETY: the function has this type in the extension's specification.
        Ok(Self { query: unsafe { std::mem::transmute::<extern "system" fn(), QueryDevices>(query) } })
    }

    pub fn list(&self) -> Result<Vec<*mut c_void>> {
        let (mut devices, mut count) = ([std::ptr::null_mut(); 64], 0);
        if (self.query)(devices.len() as c_int, devices.as_mut_ptr(), &mut count) != egl::TRUE {
            // The loader may return an error if no driver has a device.
            return Ok(Vec::new());
        }
        Ok(devices[..count.max(0) as usize].to_vec())
    }

    /// Makes an OpenGL 4.5 context on a device, without a surface, and makes it current.
    pub fn context(&self, egl: &Rc<Egl>, device: *mut c_void) -> Result<Current, String> {
        let failed = |call: &'static str| move |error: egl::Error| format!("{call}: {error}");
        // SAFETY: one of the devices that EGL listed.
        let display = unsafe { egl.get_platform_display(PLATFORM_DEVICE, device, &[egl::ATTRIB_NONE]) }
            .map_err(failed("eglGetPlatformDisplay"))?;
        egl.initialize(display).map_err(failed("eglInitialize"))?;
        egl.bind_api(egl::OPENGL_API).map_err(failed("eglBindAPI(EGL_OPENGL_API)"))?;
        // Nothing is drawn on an EGL surface, so any configuration will do, or none
        // (`EGL_KHR_no_config_context`).
        let any = [egl::SURFACE_TYPE, egl::PBUFFER_BIT, egl::RENDERABLE_TYPE, egl::OPENGL_BIT, egl::NONE];
        let config = egl.choose_first_config(display, &any).ok().flatten();
        // SAFETY: a null pointer means no configuration.
        let config = config.unwrap_or_else(|| unsafe { egl::Config::from_ptr(std::ptr::null_mut()) });
        let attributes = [
            egl::CONTEXT_MAJOR_VERSION,
            4,
            egl::CONTEXT_MINOR_VERSION,
            5,
            egl::CONTEXT_OPENGL_PROFILE_MASK,
            egl::CONTEXT_OPENGL_CORE_PROFILE_BIT,
            egl::NONE,
        ];
        let context = egl
            .create_context(display, config, None, &attributes)
            .map_err(|error| format!("it cannot make an OpenGL 4.5 context (eglCreateContext: {error})"))?;
        let current = Current { egl: egl.clone(), display, context };
        egl.make_current(display, None, None, Some(context)).map_err(failed("eglMakeCurrent"))?;
        Ok(current)
    }
}

/// An EGL context. The display is never terminated, because that would end other contexts on it.
pub struct Current {
    pub egl: Rc<Egl>,
    display: egl::Display,
    context: egl::Context,
}

impl Drop for Current {
    fn drop(&mut self) {
        // Nothing can be done about a failure here.
        let _ = self.egl.make_current(self.display, None, None, None);
        let _ = self.egl.destroy_context(self.display, self.context);
    }
}
