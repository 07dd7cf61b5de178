//! Loading `libcuda` without panics, and what devices it has.

use std::ffi::{CStr, c_char};

use cudarc::driver::sys::{self, CUdevice_attribute};

use super::api::{self, Code};
use crate::identity::{DeviceUuid, Luid};
use crate::{Error, Result};

/// The CUDA version that brought timeline semaphores to external semaphores, as `cuDriverGetVersion` counts.
const FIRST_WITH_TIMELINES: i32 = 11_020;

/// Proof that the driver is loaded, new enough, and initialised.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    version: i32,
}

/// What CUDA says of one device, as far as sharing depends on it. Plain data: it opens nothing and keeps nothing alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaInfo {
    /// CUDA's number for it, after `CUDA_VISIBLE_DEVICES`.
    pub ordinal: i32,
    /// Its name.
    pub name: String,
    /// The identity that Vulkan reports for the same device.
    pub uuid: DeviceUuid,
    /// The identity that Windows gave the adapter; `None` elsewhere, and for a device that is no display adapter there.
    pub luid: Option<Luid>,
    /// Major and minor.
    pub compute_capability: (i32, i32),
    /// `CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED`.
    pub timeline_interop: bool,
}

impl Driver {
    /// Opens and initialises the driver.
    ///
    /// # Errors
    /// No library, a library too old (before CUDA 11.2), or what `cuInit` answers.
    pub fn load() -> Result<Self> {
        // SAFETY: opening runs the library's initialisers; it is the system's own CUDA driver.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::Driver {
                reason: "libcuda could not be opened".into(),
                hint: "install NVIDIA's driver",
            });
        }
        // SAFETY: the library is there, checked above.
        unsafe { api::look_up() }.map_err(|name| Error::Driver {
            reason: format!("it lacks {name}"),
            hint: "update NVIDIA's driver to one of CUDA 11.2 or later (460)",
        })?;
        let before = "the CUDA driver";
        // SAFETY: present, checked above; 0 is the only flag value.
        check("cuInit", before, unsafe { api::cuInit(0) })?;
        let mut version = 0;
        // SAFETY: writes one integer.
        check("cuDriverGetVersion", before, unsafe { api::cuDriverGetVersion(&mut version) })?;
        if version < FIRST_WITH_TIMELINES {
            return Err(Error::Driver {
                reason: format!("it is of CUDA {}", version_words(version)),
                hint: "timeline semaphores need CUDA 11.2 or later (driver 460): update NVIDIA's driver",
            });
        }
        Ok(Self { version })
    }

    /// The CUDA version that the driver implements, in words.
    pub fn version(self) -> String {
        version_words(self.version)
    }

    /// Every visible device.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn devices(self) -> Result<Vec<CudaInfo>> {
        let mut count = 0;
        // SAFETY: writes one integer.
        check("cuDeviceGetCount", "the CUDA driver", unsafe { api::cuDeviceGetCount(&mut count) })?;
        (0..count).map(CudaInfo::query).collect()
    }
}

impl CudaInfo {
    fn query(ordinal: i32) -> Result<Self> {
        let label = format!("CUDA device {ordinal}");
        let device = Self::device(ordinal, &label)?;
        let mut name = [0 as c_char; 256];
        // SAFETY: the length is the array's.
        check("cuDeviceGetName", &label, unsafe {
            api::cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, device)
        })?;
        // SAFETY: the driver terminates the name within the length that it was given.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        let attribute = |which| {
            let mut value = 0;
            // SAFETY: writes one integer.
            let code = unsafe { api::cuDeviceGetAttribute(&mut value, which, device) };
            check("cuDeviceGetAttribute", &name, code).map(|()| value)
        };
        let major = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let timeline =
            attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED)?;
        Ok(Self {
            ordinal,
            uuid: uuid(device, &name)?,
            luid: luid(device),
            compute_capability: (major, minor),
            timeline_interop: timeline != 0,
            name,
        })
    }

    /// CUDA's handle of the device with this number.
    pub(super) fn device(ordinal: i32, label: &str) -> Result<sys::CUdevice> {
        let mut device = 0;
        // SAFETY: writes one handle.
        check("cuDeviceGet", label, unsafe { api::cuDeviceGet(&mut device, ordinal) })?;
        Ok(device)
    }
}

fn uuid(device: sys::CUdevice, name: &str) -> Result<DeviceUuid> {
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: writes 16 bytes.
    check("cuDeviceGetUuid", name, unsafe { api::cuDeviceGetUuid(&mut uuid, device) })?;
    Ok(DeviceUuid(uuid.bytes.map(|byte| byte as u8)))
}

/// `None` where there are no LUIDs, which the driver says with an error (801, `NOT_SUPPORTED`).
fn luid(device: sys::CUdevice) -> Option<Luid> {
    // Not asked in vain: a tool that watches calls, like compute-sanitizer, takes the refusal for a fault of ours.
    if cfg!(not(windows)) {
        return None;
    }
    let (mut bytes, mut node_mask) = ([0 as c_char; 8], 0);
    // SAFETY: writes 8 bytes and one integer.
    let code = unsafe { api::cuDeviceGetLuid(bytes.as_mut_ptr(), &mut node_mask, device) };
    luid_of(code, bytes, node_mask)
}

/// What the driver wrote, if it says that it did.
fn luid_of(code: Code, bytes: [c_char; 8], node_mask: u32) -> Option<Luid> {
    (code == Code::SUCCESS).then_some(Luid { bytes: bytes.map(|byte| byte as u8), node_mask })
}

/// For calls that only some runs need.
///
/// # Errors
/// Names the first one that the driver lacks, and `since`, the version that has it.
#[doc(hidden)]
pub fn require(names: &[&str], since: &str) -> Result<()> {
    match names.iter().find(|name| !api::has(name)) {
        None => Ok(()),
        Some(name) => {
            Err(Error::Unsupported(format!("the CUDA driver lacks {name}, which is there since {since}")))
        }
    }
}

fn version_words(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// Turns an answer into an error that names the call and the device.
pub(crate) fn check(call: &'static str, device: &str, code: Code) -> Result<()> {
    if code == Code::SUCCESS {
        return Ok(());
    }
    let text = |ask: unsafe fn(Code, *mut *const c_char) -> Code| {
        let mut text = std::ptr::null();
        // SAFETY: writes one pointer to a static string, or null for a code that the driver does not know.
        let answer = unsafe { ask(code, &mut text) };
        match answer == Code::SUCCESS && !text.is_null() {
            // SAFETY: a static, terminated string of the driver.
            true => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
            false => "unknown".into(),
        }
    };
    Err(Error::Cuda {
        call,
        device: device.to_owned(),
        code: code.0,
        name: text(api::cuGetErrorName),
        text: text(api::cuGetErrorString),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_nvidia_writes_them() {
        assert_eq!(version_words(11_020), "11.2");
        assert_eq!(version_words(13_000), "13.0");
    }

    /// A driver may refuse a LUID with any code. Whatever it wrote meanwhile does not count; the UUID identifies the device.
    #[test]
    fn a_refused_luid_is_none() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, -1];
        for code in [1, 2, 3, 100, 101, 201, 304, 801, 999, 12_345] {
            assert_eq!(luid_of(Code(code), bytes, 1), None, "{code}");
        }
        let luid = Luid { bytes: [1, 2, 3, 4, 5, 6, 7, 255], node_mask: 1 };
        assert_eq!(luid_of(Code::SUCCESS, bytes, 1), Some(luid));
    }

    /// On a machine with no driver this must be an error and not cudarc's panic; with one it must load.
    #[test]
    fn loading_never_panics() {
        match Driver::load() {
            Ok(driver) => assert!(!driver.version().is_empty()),
            Err(error) => assert!(error.to_string().contains("CUDA driver"), "{error}"),
        }
    }
}
