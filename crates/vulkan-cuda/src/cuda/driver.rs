//! Loads `libcuda` without panics, and lists CUDA's devices.

use std::error::Error as _;
use std::ffi::{CStr, c_char};
use std::path::Path;

use cudarc::driver::DriverError;
use cudarc::driver::sys::{self, CUdevice_attribute};

use super::api::{self, Code, Functions};
use super::look_up::{self, LIBRARY, Library};
use crate::identity::DeviceUuid;
use crate::{Error, Result};

/// The first CUDA version whose external semaphores can be timelines, as `cuDriverGetVersion` reports it.
const FIRST_WITH_TIMELINES: i32 = 11_020;

/// Returns the files to try, in order. The driver installs `libcuda.so.1`; a toolkit has a `libcuda.so` that
/// is only for linking. The usual folders follow, in case these names resolve to another machine's copy.
fn files() -> Vec<String> {
    const USUAL: &str =
        "lib/x86_64-linux-gnu lib/aarch64-linux-gnu lib64 lib lib/wsl/lib ../run/opengl-driver/lib";
    let usual = USUAL.split(' ').map(|folder| format!("/usr/{folder}/libcuda.so.1"));
    let names = if cfg!(windows) { ["nvcuda.dll"].as_slice() } else { &["libcuda.so.1", "libcuda.so"] };
    names.iter().map(|name| name.to_string()).chain(usual.filter(|file| Path::new(file).exists())).collect()
}

/// Opens the first of [`files`] that has all functions and whose `cuInit` succeeds.
fn open() -> Result<Library> {
    let (mut tried, mut refused, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for file in files() {
        // SAFETY: opening runs initialisers: those of NVIDIA's driver, or of the user's replacement for it.
        match unsafe { Library::new(&file) } {
            // The error says only that `dlopen` failed. Its source says why.
            Err(error) => missing.push(error.source().map_or(error.to_string(), ToString::to_string)),
            // The same library under another name: it was tried already.
            Ok(library) if tried.contains(&address(&library)) => {}
            Ok(library) => {
                tried.push(address(&library));
                match initialise(&library, &file) {
                    Ok(()) => return Ok(library),
                    Err(error) => refused.push(error),
                }
                std::mem::forget(library); // stays open, because it may have started threads
            }
        }
    }
    if refused.len() == 1 {
        return Err(refused.remove(0));
    }
    let all = refused.iter().map(Error::to_string).chain(missing).collect::<Vec<_>>().join("; ");
    // The system's error names the file only on Linux.
    let name = if cfg!(windows) { "nvcuda.dll" } else { "libcuda" };
    Err(Error::Driver { reason: format!("no {name} works: {all}"), hint: "install NVIDIA's driver" })
}

fn initialise(library: &Library, file: &str) -> Result<()> {
    // SAFETY: the library has the name of CUDA's driver, and is open while the functions are used.
    let functions = unsafe { Functions::of(library) }?;
    // SAFETY: `library` is open, and 0 is the only valid flag value.
    match unsafe { (functions.cuInit)(0) } {
        Code::SUCCESS => Ok(()),
        code => Err(failure(Some(&functions), "cuInit", &format!("the CUDA driver, {file}"), code)),
    }
}

/// Returns the address of the library's `cuInit`, which is different in each library.
fn address(library: &Library) -> Option<usize> {
    // SAFETY: the symbol is read as an address, which is only compared.
    unsafe { look_up::find(library, &["cuInit"]) }
}

/// Returns the address of `cuInit` in the library that cudarc calls, or `None` if there is none.
#[allow(unused_imports, clippy::needless_borrow)]
fn cudarcs() -> Option<usize> {
    // If cudarc opens the driver itself, these names are its functions. If it is linked with the driver, it has no such
    // functions, and the names are those below.
    use cudarc::driver::sys::*;
    // SAFETY: cudarc may open libraries with the names of CUDA's driver, which runs their initialisers.
    unsafe { is_culib_present().then(|| address(&culib())).flatten() }
}

/// A program that is linked with the driver does not start without it.
#[allow(dead_code)]
unsafe fn is_culib_present() -> bool {
    true
}

/// Returns the library of the driver that the program is linked with.
#[allow(dead_code)]
unsafe fn culib() -> Library {
    #[cfg(unix)] // The program's symbols include those of the libraries that it is linked with.
    return libloading::os::unix::Library::this().into();
    #[cfg(windows)]
    libloading::os::windows::Library::open_already_loaded("nvcuda.dll").expect("it is linked").into()
}

/// Proof that CUDA's driver is loaded, initialised and new enough. It stays loaded until the process ends.
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
    /// CUDA's index of the device, among those that `CUDA_VISIBLE_DEVICES` makes visible.
    pub ordinal: i32,
    /// The device's name.
    pub name: String,
    /// The device's UUID. Vulkan reports the same one.
    pub uuid: DeviceUuid,
    /// The LUID and node mask on Windows. `None` elsewhere, and for a device that is not a display adapter.
    pub luid: Option<([u8; 8], u32)>,
    /// Major and minor version of the compute capability.
    pub compute_capability: (i32, i32),
    /// Whether the device can import timeline semaphores
    /// (`CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED`).
    pub timeline_interop: bool,
}

impl Driver {
    /// Opens and initialises the driver (`cuInit`). Later calls are cheap.
    ///
    /// # Errors
    /// Fails if there is no `libcuda`, if it is too old (before CUDA 11.2), or if `cuInit` fails, for example
    /// with 100 (`NO_DEVICE`). Also fails if cudarc would load a different `libcuda`, or none.
    pub fn load() -> Result<Self> {
        let driver = Self::load_without_cudarc()?;
        match cudarcs() == LIBRARY.get().and_then(address) {
            true => Ok(driver),
            false => Err(Error::Driver {
                reason: "cudarc finds another libcuda first, or none".into(),
                hint: "set LD_LIBRARY_PATH to the driver's folder, without a toolkit's (stubs) or another machine's",
            }),
        }
    }

    /// Like [`Driver::load`], but ignores which `libcuda` cudarc would load. For programs that call none of
    /// cudarc's functions.
    #[doc(hidden)]
    pub fn load_without_cudarc() -> Result<Self> {
        if LIBRARY.get().is_none() {
            let library = open()?;
            // If another thread has set it first, `library` is a second handle to the same library: drop it.
            LIBRARY.get_or_init(|| library);
        }
        api::look_up()?;
        let before = "the CUDA driver";
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

    /// Returns what CUDA reports about each visible device.
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
        // SAFETY: writes at most as many bytes as the array has.
        check("cuDeviceGetName", &label, unsafe {
            api::cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, device)
        })?;
        // SAFETY: the driver has terminated the name inside the array.
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
        let mut uuid = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: writes 16 bytes.
        check("cuDeviceGetUuid", &name, unsafe { api::cuDeviceGetUuid(&mut uuid, device) })?;
        Ok(Self {
            ordinal,
            uuid: DeviceUuid(uuid.bytes.map(|byte| byte as u8)),
            luid: luid(device),
            compute_capability: (major, minor),
            timeline_interop: timeline != 0,
            name,
        })
    }

    pub(crate) fn device(ordinal: i32, label: &str) -> Result<sys::CUdevice> {
        let mut device = 0;
        // SAFETY: writes one handle.
        check("cuDeviceGet", label, unsafe { api::cuDeviceGet(&mut device, ordinal) })?;
        Ok(device)
    }
}

/// Returns the LUID and node mask, or `None` if the call fails (for example with 801, `NOT_SUPPORTED`).
fn luid(device: sys::CUdevice) -> Option<([u8; 8], u32)> {
    // Only Windows has LUIDs. Elsewhere the call would fail, and compute-sanitizer would report that.
    if cfg!(not(windows)) {
        return None;
    }
    let (mut bytes, mut node_mask) = ([0 as c_char; 8], 0);
    // SAFETY: writes 8 bytes and one integer.
    let code = unsafe { api::cuDeviceGetLuid(bytes.as_mut_ptr(), &mut node_mask, device) };
    luid_of(code, bytes, node_mask)
}

fn luid_of(code: Code, bytes: [c_char; 8], node_mask: u32) -> Option<([u8; 8], u32)> {
    (code == Code::SUCCESS).then_some((bytes.map(|byte| byte as u8), node_mask))
}

fn version_words(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

pub(crate) fn check(call: &'static str, device: &str, code: Code) -> Result<()> {
    match code {
        Code::SUCCESS => Ok(()),
        code => Err(failure(api::FUNCTIONS.get(), call, device, code)),
    }
}

fn failure(functions: Option<&Functions>, call: &'static str, device: &str, code: Code) -> Error {
    let text = |ask: fn(&Functions) -> unsafe extern "C" fn(Code, *mut *const c_char) -> Code| {
        let mut text = std::ptr::null();
        // SAFETY: writes one pointer to a static string, or null for a code that the driver does not know.
        let answer = functions.map_or(code, |functions| unsafe { ask(functions)(code, &mut text) });
        match answer == Code::SUCCESS && !text.is_null() {
            // SAFETY: not null: the driver has set it to a static, terminated string.
            true => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
            false => "unknown".into(),
        }
    };
    Error::Cuda {
        call,
        device: device.to_owned(),
        code: code.0,
        name: text(|functions| functions.cuGetErrorName),
        text: text(|functions| functions.cuGetErrorString),
    }
}

impl Error {
    /// Converts cudarc's error, which prints only its code, into an error that explains the code and gives
    /// advice. `call` is the function of the driver that failed on `device`.
    pub fn from_cudarc(call: &'static str, device: &str, error: DriverError) -> Self {
        failure(api::FUNCTIONS.get(), call, device, Code(error.0 as u32))
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

    /// A driver may refuse a LUID with any code. What it wrote is then ignored, and the UUID identifies the
    /// device.
    #[test]
    fn a_refused_luid_is_none() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 255_u8 as c_char];
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
