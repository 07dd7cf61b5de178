//! The error type: what was tried, on which device, what the driver answered, and what to do.

use std::sync::OnceLock;

use ash::vk;

/// [`std::result::Result`] with [`enum@Error`] as its default error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed, and what a user can do about it.
///
/// `Display` writes one line: the call, the device, the driver's answer in words, and advice if there is any.
///
/// # Examples
/// ```
/// use ash::vk;
/// use vulkan_cuda::Error;
///
/// let result = vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
/// let error = Error::Vulkan { call: "vkAllocateMemory", device: "My GPU".into(), result };
/// assert!(error.is_out_of_memory());
/// assert!(error.to_string().starts_with("vkAllocateMemory failed on My GPU: "));
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A Vulkan command returned an error code.
    #[error("{call} failed on {device}: {}", vulkan_words(*.result))]
    Vulkan {
        /// The Vulkan command.
        call: &'static str,
        /// The device's name.
        device: String,
        /// The driver's answer.
        result: vk::Result,
    },

    /// A function of CUDA's driver API returned an error code.
    #[error("{call} failed on {device}: {text} ({name}, {code}){}", cuda_advice(.call, *.code))]
    Cuda {
        /// The driver API function.
        call: &'static str,
        /// The device's name, or `the CUDA driver` if no device was chosen yet.
        device: String,
        /// `CUresult` as a number.
        code: u32,
        /// The code's name, from `cuGetErrorName`.
        name: String,
        /// The code's description, from `cuGetErrorString`.
        text: String,
    },

    /// The CUDA driver is missing or too old.
    #[error("the CUDA driver: {reason}; {hint}")]
    Driver {
        /// What is wrong with the driver.
        reason: String,
        /// What to do.
        hint: &'static str,
    },

    /// The Vulkan device and the CUDA device cannot share memory and semaphores.
    #[error("{vulkan} of Vulkan and {cuda} of CUDA cannot share: {reason}")]
    Mismatch {
        /// The Vulkan device's name and UUID.
        vulkan: String,
        /// The CUDA device's name and UUID.
        cuda: String,
        /// Why they cannot share.
        reason: Mismatch,
    },

    /// The GPU did not finish in time.
    #[error("{0}")]
    Timeout(String),

    /// The request breaks a rule of one of the two APIs. Most such requests fail before a driver is called.
    #[error("{0}")]
    Rule(String),

    /// The device or its driver cannot do what was requested. Another device may be able to.
    #[error("{0}")]
    DeviceLacks(String),

    /// This operating system, or what is installed on it, cannot do what was requested.
    #[error("{0}")]
    SystemLacks(String),

    /// The caller made the Vulkan device without an extension or a version that the request needs.
    #[error("{0}")]
    NotEnabled(String),

    /// The object is in use: the caller still holds a turn that needs it.
    #[error("{0}")]
    InUse(String),
}

impl Error {
    /// Returns `true` if device or host memory has run out: `VK_ERROR_OUT_OF_DEVICE_MEMORY`,
    /// `VK_ERROR_OUT_OF_HOST_MEMORY`, or CUDA's code 2 (`CUDA_ERROR_OUT_OF_MEMORY`).
    pub fn is_out_of_memory(&self) -> bool {
        use vk::Result as R;
        match self {
            Self::Vulkan { result, .. } => {
                matches!(*result, R::ERROR_OUT_OF_DEVICE_MEMORY | R::ERROR_OUT_OF_HOST_MEMORY)
            }
            Self::Cuda { code, .. } => *code == 2,
            _ => false,
        }
    }

    /// Returns `true` if this machine cannot do what was requested, because of its CUDA driver, its device or
    /// its operating system. A test may then be skipped.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Driver { .. } | Self::DeviceLacks(_) | Self::SystemLacks(_))
    }
}

/// Why a Vulkan device cannot share with CUDA. `Display` writes a clause about the Vulkan device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// No CUDA device has the Vulkan device's UUID. (If both APIs report a LUID, the LUIDs are compared.)
    #[error("no CUDA device has its UUID")]
    NoTwin,
    /// The Vulkan device was made from a device group with this number of physical devices. CUDA cannot
    /// import a group's memory.
    #[error("it is one of a device group of {0}")]
    Group(usize),
    /// The Vulkan device cannot export buffers.
    #[error("it cannot export a buffer as {HANDLES}")]
    Buffer,
    /// The Vulkan device cannot export timeline semaphores.
    #[error("it cannot export a timeline semaphore as {HANDLES}")]
    Timeline,
    /// The CUDA device of this GPU cannot import timeline semaphores.
    #[error("its CUDA driver cannot import timeline semaphores")]
    CudaTimeline,
}

/// The names of the types in `ExportType::HERE`. They are repeated here because `handle` imports this module.
const HANDLES: &str = if cfg!(windows) { "OPAQUE_WIN32 or OPAQUE_WIN32_KMT" } else { "OPAQUE_FD" };

/// Returns the description of a `VkResult`, followed by its name.
pub fn vulkan_words(result: vk::Result) -> String {
    let (text, name) = (result.to_string(), format!("{result:?}"));
    // For some codes, `Display` writes only the name, too.
    if text == name { name } else { format!("{} ({name})", text.trim_end_matches('.')) }
}

/// Returns advice on a CUDA error, or an empty string. `call` is the function that failed, and `code` is its
/// `CUresult` as a number. The advice begins with a semicolon, because it follows the text of the error.
pub fn cuda_advice(call: &str, code: u32) -> &'static str {
    match code {
        34 => "; this file is only for linking: take its folder (stubs) out of LD_LIBRARY_PATH",
        46 => {
            "; another process has this GPU to itself: end that process, or set the compute mode to default (nvidia-smi -c 0)"
        }
        100 => "; no CUDA device is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES",
        209 => "; this code was built for other GPUs: build it for this one, or as PTX",
        304 if call.starts_with("cuImport") => {
            "; under WSL2 CUDA cannot import Vulkan's memory or semaphores: run on Linux itself"
        }
        // INVALID_VALUE, INVALID_HANDLE or UNKNOWN: each driver has its own code for an unusable handle.
        1 | 400 | 999 if matches!(call, "cuImportExternalMemory" | "cuImportExternalSemaphore") => {
            "; most likely the handle is not one that Vulkan exported on this GPU"
        }
        700 | 710 | 714..=719 => "; the kernel did this: run it under compute-sanitizer to see where",
        801 if call == "cuStreamWriteValue32" => {
            "; before CUDA 12.0 it needs the option NVreg_EnableStreamMemOPs=1 of the kernel module: set it, update the driver, \
             or signal without the guard (`signal_after_kernels`)"
        }
        802 => "; the GPU fabric is not up yet: check the nvidia-fabricmanager service",
        803 => "; the CUDA library and the kernel module differ: reboot after a driver update",
        804 => "; this CUDA compatibility package does not support this GPU: remove it from LD_LIBRARY_PATH",
        999 => {
            "; often the driver's kernel module is not loaded, or was updated while loaded: try nvidia-smi, then reboot"
        }
        _ => "",
    }
}

static CLEANUP: OnceLock<fn(&Error)> = OnceLock::new();

/// Sets the handler for errors that occur in a `Drop`, which cannot return them. Without a handler, they are
/// written to standard error. Only the first call of this function has an effect.
pub fn on_cleanup_error(handler: fn(&Error)) {
    let _ = CLEANUP.set(handler);
}

pub(crate) fn cleanup_error(error: &Error) {
    match CLEANUP.get() {
        Some(handler) => handler(error),
        None => {
            use std::io::Write;
            // `eprintln` would panic if standard error is closed.
            let _ = writeln!(std::io::stderr().lock(), "vulkan-cuda: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_call_device_answer_and_what_to_do() {
        let error = Error::Vulkan {
            call: "vkAllocateMemory",
            device: "Toy GPU".into(),
            result: vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
        };
        let text = error.to_string();
        for part in ["vkAllocateMemory", "Toy GPU", "memory", "ERROR_OUT_OF_DEVICE_MEMORY"] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
        let code = |call, code| Error::Cuda {
            call,
            device: "Toy GPU".into(),
            code,
            name: "CUDA_ERROR".into(),
            text: "words".into(),
        };
        assert!(code("cuImportExternalMemory", 304).to_string().contains("WSL2"));
        assert!(!code("cuInit", 304).to_string().contains("WSL2"));
        assert!(code("cuImportExternalSemaphore", 1).to_string().contains("not one that Vulkan exported"));
    }

    #[test]
    fn a_mismatch_names_the_handle_types_of_this_system() {
        let names = crate::handle::ExportType::names();
        assert_eq!(Mismatch::Buffer.to_string(), format!("it cannot export a buffer as {names}"));
        assert!(Mismatch::Timeline.to_string().ends_with(&names));
    }
}
