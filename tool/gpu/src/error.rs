//! One error type for the tool: what was tried, on which device, what the driver answered and what to do.

use std::path::PathBuf;

use ash::vk;
use vulkan_cuda::vulkan_words;

use crate::advice::{allocation_hint, cuda_hint, vulkan_hint};

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}{}{}", self.answer(), fault_words(.fault), vulkan_hint(.device, *.result))]
    Vulkan {
        call: &'static str,
        /// The device's name. Without a device, `the Vulkan loader` or `the Vulkan instance`.
        device: String,
        result: vk::Result,
        /// The driver's report from `VK_EXT_device_fault`, if the device was lost and there is a report.
        fault: Option<String>,
    },

    #[error("no memory on {device} for {asked}: {}{}; {}", free_words(*.free), .advice, .source.answer())]
    NoRoom {
        device: String,
        /// The requested slots in words: their number, grid and bytes.
        asked: String,
        /// The bytes that are free once the slots of this request are freed; `None` if the driver does not
        /// report them.
        free: Option<u64>,
        advice: String,
        source: Box<Error>,
    },

    #[error("{}{}", self.answer(), cuda_hint(.call, *.code))]
    Cuda { call: &'static str, device: String, code: u32, name: String, text: String },

    #[error("{what}: {reason}; {hint}")]
    Missing { what: &'static str, reason: String, hint: &'static str },

    /// A problem with a kernel: for example, the compiler refused it, or it lacks the requested entry.
    #[error("kernel {kernel}: {problem}")]
    Kernel { kernel: String, problem: String },

    /// gpu-allocator failed, which allocates all memory that is not shared with CUDA.
    #[error("{}{}", self.answer(), allocation_hint(.what))]
    Allocation { what: &'static str, bytes: u64, device: String, source: gpu_allocator::AllocationError },

    /// The request breaks a rule of Vulkan or CUDA. The library's other errors become this one, too.
    #[error("{0}")]
    Rule(String),

    #[error("{0}")]
    Unsupported(String),

    /// The request is wrong on any machine. The exit code is 2.
    #[error("{0}")]
    Usage(String),

    #[error("{what}: {reason}")]
    Window { what: &'static str, reason: String },

    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// The verb of the message, for example `read`.
        action: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },

    /// `wavefield verify` found wrong data, or missed a fault that `--break` injected.
    #[error("{0}")]
    Check(String),

    #[error("the validation layer reported {0} error(s), shown above")]
    Validation(u64),

    /// The GPU did not finish within the timeout. Objects that it may still use are leaked.
    #[error("no frame was finished for {seconds:.0} s on {device} ({progress}); --timeout allows more")]
    Stuck { device: String, seconds: f64, progress: String },

    #[error("{0}")]
    Stopped(String),
}

/// Converts the library's errors into the tool's, which also tell the user what to do.
impl From<vulkan_cuda::Error> for Error {
    fn from(error: vulkan_cuda::Error) -> Self {
        use vulkan_cuda::Error as E;
        match error {
            E::Vulkan { call, device, result } => Self::Vulkan { call, device, result, fault: None },
            E::Cuda { call, device, code, name, text } => Self::Cuda { call, device, code, name, text },
            E::Driver { reason, hint } => Self::Missing { what: "the CUDA driver", reason, hint },
            E::DeviceLacks(text) | E::SystemLacks(text) | E::NotEnabled(text) => Self::Unsupported(text),
            other => Self::Rule(other.to_string()),
        }
    }
}

impl Error {
    pub fn is_out_of_memory(&self) -> bool {
        use vk::Result as R;
        match self {
            Error::Vulkan { result, .. } => {
                matches!(*result, R::ERROR_OUT_OF_DEVICE_MEMORY | R::ERROR_OUT_OF_HOST_MEMORY)
            }
            Error::Cuda { code, .. } => *code == 2,
            Error::Allocation { source, .. } => matches!(source, gpu_allocator::AllocationError::OutOfMemory),
            _ => false,
        }
    }

    fn answer(&self) -> String {
        match self {
            Error::Vulkan { call, device, result, .. } => {
                format!("{call} failed on {device}: {}", vulkan_words(*result))
            }
            Error::Cuda { call, device, code, name, text } => {
                format!("{call} failed on {device}: {text} ({name}, {code})")
            }
            Error::Allocation { what, bytes, device, source } => {
                let answer = match source {
                    // The allocator returns this only if `vkAllocateMemory` ran out of memory.
                    gpu_allocator::AllocationError::OutOfMemory => {
                        format!("vkAllocateMemory: {}", vulkan_words(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY))
                    }
                    other => other.to_string(),
                };
                format!("no memory for {what} ({bytes} bytes) on {device}: {answer}")
            }
            other => other.to_string(),
        }
    }

    /// Returns 2 for a request that is wrong on any machine, otherwise 1.
    pub fn exit_code(&self) -> u8 {
        if matches!(self, Error::Usage(_)) { 2 } else { 1 }
    }
}

fn fault_words(fault: &Option<String>) -> String {
    fault.as_ref().map_or(String::new(), |fault| format!("; VK_EXT_device_fault: {fault}"))
}

fn free_words(free: Option<u64>) -> String {
    free.map_or("the driver does not say how much is free".into(), |free| format!("{free} bytes are free"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vulkan_error_says_call_device_words_and_what_to_do() {
        let error = Error::Vulkan {
            call: "vkAllocateMemory",
            device: "Toy GPU".into(),
            result: vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
            fault: None,
        };
        let text = error.to_string();
        for part in ["vkAllocateMemory", "Toy GPU", "memory", "ERROR_OUT_OF_DEVICE_MEMORY", "--grid"] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
        assert_eq!(error.exit_code(), 1);
    }

    #[test]
    fn nonsense_is_exit_code_2() {
        assert_eq!(Error::Usage("--ring 0".into()).exit_code(), 2);
    }
}
