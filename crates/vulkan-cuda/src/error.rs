//! One error type: what was tried, on which device, what the driver answered, what to do.

use std::sync::OnceLock;

use ash::vk;

/// [`std::result::Result`] with this crate's [`Error`], unless another is named.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something failed, and what a user can do about it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A Vulkan call answered with an error code.
    #[error("{call} failed on {device}: {}", vulkan_words(*.result))]
    Vulkan {
        /// The Vulkan command.
        call: &'static str,
        /// The device's name.
        device: String,
        /// The driver's answer.
        result: vk::Result,
    },

    /// A CUDA driver call answered with an error code.
    #[error("{call} failed on {device}: {text} ({name}, {code}){}", cuda_advice(.call, *.code))]
    Cuda {
        /// The driver API function.
        call: &'static str,
        /// The device's name, or `the CUDA driver` before there is one.
        device: String,
        /// `CUresult` as a number.
        code: u32,
        /// `CUresult` by name, as `cuGetErrorName` gives it.
        name: String,
        /// What `cuGetErrorString` says of it.
        text: String,
    },

    /// The CUDA driver is missing or too old.
    #[error("the CUDA driver: {reason}; {hint}")]
    Driver {
        /// What the system answered.
        reason: String,
        /// What to do.
        hint: &'static str,
    },

    /// The two devices share nothing.
    #[error("{vulkan} of Vulkan and {cuda} of CUDA cannot share: {reason}")]
    Mismatch {
        /// Vulkan's device, with its UUID.
        vulkan: String,
        /// CUDA's device, with its UUID.
        cuda: String,
        /// The reason, as text.
        reason: String,
    },

    /// The GPU did not do in time what it was given.
    #[error("{0}")]
    Timeout(String),

    /// What was asked breaks a rule of one of the two APIs, so neither was asked.
    #[error("{0}")]
    Rule(String),

    /// This machine cannot do what was asked.
    #[error("{0}")]
    Unsupported(String),
}

impl Error {
    /// Whether it says that device or host memory has run out.
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
}

/// `vk::Result` in words, with its name. Those that ash does not describe have the name only.
pub fn vulkan_words(result: vk::Result) -> String {
    let (text, name) = (result.to_string(), format!("{result:?}"));
    if text == name { name } else { format!("{} ({name})", text.trim_end_matches('.')) }
}

/// What to do about a CUDA error, behind a semicolon; empty where there is nothing to say.
pub fn cuda_advice(call: &str, code: u32) -> &'static str {
    match code {
        100 => "; no CUDA device is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES",
        304 if call.starts_with("cuImport") => {
            "; under WSL2 CUDA cannot import Vulkan's memory or semaphores: run on Linux itself"
        }
        // INVALID_VALUE, INVALID_HANDLE and UNKNOWN: drivers differ in what they call a handle that they cannot use.
        1 | 400 | 999 if matches!(call, "cuImportExternalMemory" | "cuImportExternalSemaphore") => {
            "; most likely the handle is not one that Vulkan exported on this GPU"
        }
        700 | 710 | 714..=719 => "; the kernel did this: run it under compute-sanitizer to see where",
        802 => "; the GPU fabric is not up yet: check the nvidia-fabricmanager service",
        803 => "; the CUDA library and the kernel module differ: reboot after a driver update",
        804 => "; this CUDA compatibility package does not support this GPU: remove it from LD_LIBRARY_PATH",
        999 => {
            "; often the driver's kernel module is not loaded or was updated under way: try nvidia-smi, then reboot"
        }
        _ => "",
    }
}

static CLEANUP: OnceLock<fn(&Error)> = OnceLock::new();

/// Chooses what happens to an error that a `Drop` meets and cannot return. The first choice stays; without one the error is
/// written to standard error.
pub fn on_cleanup_error(handler: fn(&Error)) {
    let _ = CLEANUP.set(handler);
}

/// Hands an error of a `Drop` to the handler.
pub(crate) fn cleanup_error(error: &Error) {
    match CLEANUP.get() {
        Some(handler) => handler(error),
        None => {
            use std::io::Write;
            // Standard error may be closed, and then `eprintln` would panic.
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
}
