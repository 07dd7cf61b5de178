use std::ffi::{CStr, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ash::vk;

use crate::{Error, Result};

/// Stands for the device in errors before there is a device.
pub(super) const LOADER: &str = "the Vulkan loader";

pub const LAYER: &CStr = c"VK_LAYER_KHRONOS_validation";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Validation {
    #[value(name = "on")]
    Required,
    #[default]
    Off,
    /// On if the layer is installed; otherwise a note says that it is missing.
    #[value(skip)]
    IfInstalled,
}

impl Validation {
    /// Returns the mode that applies without `--validation`.
    pub fn usual() -> Self {
        if cfg!(debug_assertions) { Self::IfInstalled } else { Self::Off }
    }
}

/// Counts the validation layer's messages. An `Arc` lets it outlive its instance, whose destruction may also
/// cause messages.
#[derive(Debug, Default)]
pub struct ValidationLog {
    errors: AtomicU64,
    warnings: AtomicU64,
}

impl ValidationLog {
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    pub fn warnings(&self) -> u64 {
        self.warnings.load(Ordering::Relaxed)
    }

    pub fn verdict(&self) -> Result<()> {
        match self.errors() {
            0 => Ok(()),
            count => Err(Error::Validation(count)),
        }
    }
}

/// Describes a messenger that counts in `log`, which must outlive the messenger.
pub(super) fn messenger_info(log: &Arc<ValidationLog>) -> vk::DebugUtilsMessengerCreateInfoEXT<'static> {
    vk::DebugUtilsMessengerCreateInfoEXT::default()
        .message_severity(
            vk::DebugUtilsMessageSeverityFlagsEXT::ERROR | vk::DebugUtilsMessageSeverityFlagsEXT::WARNING,
        )
        .message_type(
            vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION | vk::DebugUtilsMessageTypeFlagsEXT::PERFORMANCE,
        )
        .pfn_user_callback(Some(on_message))
        .user_data(Arc::as_ptr(log) as *mut c_void)
}

unsafe extern "system" fn on_message(
    severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    _kind: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    log: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: `log` is the Arc's pointee that outlives the messenger; it is only ever read through `&`.
    let log = unsafe { &*(log as *const ValidationLog) };
    // SAFETY: the layer passes a valid structure whose strings live for the call.
    let text = unsafe { data.as_ref().and_then(|data| data.message_as_c_str()) };
    let text = text.map(CStr::to_string_lossy).unwrap_or_default();
    if misses_cudas_signal(&text) {
        return vk::FALSE;
    }
    let kind = if severity.contains(vk::DebugUtilsMessageSeverityFlagsEXT::ERROR) {
        log.errors.fetch_add(1, Ordering::Relaxed);
        "error"
    } else {
        log.warnings.fetch_add(1, Ordering::Relaxed);
        "warning"
    };
    crate::note!("validation {kind}: {text}");
    // VK_FALSE lets the call that caused the message continue.
    vk::FALSE
}

/// Returns whether a message is wrong because the layer does not see CUDA's signals: some versions, as in
/// Debian 13, report a present that waits forever. See KhronosGroup/Vulkan-ValidationLayers, issue 10211.
fn misses_cudas_signal(text: &str) -> bool {
    text.contains("vkQueuePresentKHR-pWaitSemaphores-03268") && text.contains("depends on timeline semaphore")
}
