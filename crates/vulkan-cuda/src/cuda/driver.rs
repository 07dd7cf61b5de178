//! Loads `libcuda` without panics, and lists its devices.

use std::ffi::{CStr, c_char};

use cudarc::driver::DriverError;
use cudarc::driver::sys::{self, CUdevice_attribute};

use super::api::{self, Code};
use crate::identity::DeviceUuid;
use crate::{Error, Result};

/// The first CUDA version whose external semaphores can be timelines, as `cuDriverGetVersion` reports it.
const FIRST_WITH_TIMELINES: i32 = 11_020;

/// Proof that CUDA's driver is loaded, initialised, and new enough. The library stays loaded until the process ends.
///
/// # Examples
/// ```no_run
/// # fn example() -> vulkan_cuda::Result<()> {
/// use vulkan_cuda::{Cuda, Driver};
///
/// let driver = Driver::load()?; // an error, not a panic, on a machine without a driver
/// println!("CUDA {}", driver.version());
/// for device in driver.devices()? {
///     let (free, total) = Cuda::primary(driver, &device)?.memory()?;
///     println!("{} ({}): {free} of {total} bytes are free", device.name, device.uuid);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    version: i32,
}

/// What CUDA reports about one device, from [`Driver::devices`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaInfo {
    /// CUDA's index of the device, after `CUDA_VISIBLE_DEVICES`.
    pub ordinal: i32,
    /// The device's name.
    pub name: String,
    /// The UUID that Vulkan reports for the same device.
    pub uuid: DeviceUuid,
    /// The LUID that Windows gave the adapter, and the bit of its node. `None` on other systems, and for a device that
    /// is not a display adapter.
    pub luid: Option<([u8; 8], u32)>,
    /// Major and minor version of the compute capability.
    pub compute_capability: (i32, i32),
    /// Whether it can import timeline semaphores (`CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED`).
    pub timeline_interop: bool,
}

impl Driver {
    /// Opens and initialises the driver (`cuInit`). Later calls are cheap.
    ///
    /// # Errors
    /// Fails if there is no library, or if it is too old (before CUDA 11.2). `cuInit` fails with 100 (`NO_DEVICE`), for
    /// example.
    pub fn load() -> Result<Self> {
        // SAFETY: opening runs the library's initialisers; it is the system's own CUDA driver.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::Driver {
                reason: "libcuda could not be opened".into(),
                hint: "install NVIDIA's driver",
            });
        }
        // SAFETY: the library is present, checked above.
        unsafe { api::look_up() }?;
        let before = "the CUDA driver";
        // SAFETY: present, checked above; 0 is the only flag value.
        check("cuInit", before, unsafe { api::cuInit(0) })?;
        let mut version = 0;
        // SAFETY: writes one integer.
        check("cuDriverGetVersion", before, unsafe { api::cuDriverGetVersion(&mut version) })?;
        if version < FIRST_WITH_TIMELINES {
            return Err(Error::Driver {
                reason: format!("it supports only CUDA {}", version_words(version)),
                hint: "timeline semaphores need CUDA 11.2 or later (driver 460): update NVIDIA's driver",
            });
        }
        Ok(Self { version })
    }

    /// Returns the CUDA version that the driver supports, such as `13.0`.
    pub fn version(self) -> String {
        version_words(self.version)
    }

    /// Returns every visible device.
    pub fn devices(self) -> Result<Vec<CudaInfo>> {
        let mut count = 0;
        // SAFETY: writes one integer.
        check("cuDeviceGetCount", "the CUDA driver", unsafe { api::cuDeviceGetCount(&mut count) })?;
        (0..count).map(CudaInfo::query).collect()
    }
}

impl CudaInfo {
    pub(super) fn query(ordinal: i32) -> Result<Self> {
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

    /// Returns CUDA's handle of the device with this index.
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

/// Returns `None` if there are no LUIDs. The driver then reports an error (801, `NOT_SUPPORTED`).
fn luid(device: sys::CUdevice) -> Option<([u8; 8], u32)> {
    // Other systems have no LUIDs. A call would fail, and tools like compute-sanitizer would report that as our fault.
    if cfg!(not(windows)) {
        return None;
    }
    let (mut bytes, mut node_mask) = ([0 as c_char; 8], 0);
    // SAFETY: writes 8 bytes and one integer.
    let code = unsafe { api::cuDeviceGetLuid(bytes.as_mut_ptr(), &mut node_mask, device) };
    luid_of(code, bytes, node_mask)
}

/// Returns what the driver wrote, if the call succeeded.
fn luid_of(code: Code, bytes: [c_char; 8], node_mask: u32) -> Option<([u8; 8], u32)> {
    (code == Code::SUCCESS).then_some((bytes.map(|byte| byte as u8), node_mask))
}

fn version_words(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// Turns a result into an error that names the call and the device.
pub(crate) fn check(call: &'static str, device: &str, code: Code) -> Result<()> {
    match code {
        Code::SUCCESS => Ok(()),
        code => Err(failure(call, device, code)),
    }
}

fn failure(call: &'static str, device: &str, code: Code) -> Error {
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
    Error::Cuda {
        call,
        device: device.to_owned(),
        code: code.0,
        name: text(api::cuGetErrorName),
        text: text(api::cuGetErrorString),
    }
}

impl Error {
    /// Says what cudarc's error means, and what to do. `call` is the function of the driver that failed, on `device`.
    /// (cudarc itself prints only the code.)
    pub fn from_cudarc(call: &'static str, device: &str, error: DriverError) -> Self {
        failure(call, device, Code(error.0 as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_nvidia_writes_them() {
        assert_eq!(version_words(11_020), "11.2");
        assert_eq!(version_words(13_000), "13.0");
    }

    /// A driver may refuse a LUID with any code. What it wrote is then ignored, and the UUID identifies the device.
    #[test]
    fn a_refused_luid_is_none() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, -1];
        for code in [1, 2, 3, 100, 101, 201, 304, 801, 999, 12_345] {
            assert_eq!(luid_of(Code(code), bytes, 1), None, "{code}");
        }
        assert_eq!(luid_of(Code::SUCCESS, bytes, 1), Some(([1, 2, 3, 4, 5, 6, 7, 255], 1)));
    }

    #[test]
    fn an_error_of_cudarc_has_the_words_of_this_crate() {
        let error = DriverError(sys::CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        let text = Error::from_cudarc("cuStreamSynchronize", "Toy GPU", error).to_string();
        for part in ["cuStreamSynchronize failed on Toy GPU", "700)", "compute-sanitizer"] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
    }

    /// On a machine without a driver this must be an error, not cudarc's panic. With a driver it must load.
    #[test]
    fn loading_never_panics() {
        match Driver::load() {
            Ok(driver) => assert!(!driver.version().is_empty()),
            Err(error) => assert!(error.to_string().contains("CUDA driver"), "{error}"),
        }
    }
}
