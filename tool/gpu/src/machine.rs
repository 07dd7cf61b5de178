//! Describes the machine on which a figure was measured. A figure means nothing without its machine.

use serde::{Deserialize, Serialize};

use crate::vulkan::AdapterInfo;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    pub gpu: String,
    /// Whether the device is a CPU, whose times say nothing about GPUs. Older files lack this field.
    #[serde(default)]
    pub software: bool,
    pub driver: String,
    pub vulkan: String,
    pub cuda: Option<String>,
    pub cpu: String,
    /// The number of hardware threads that this process may use; 0 if unknown.
    pub threads: u32,
    pub os: String,
    pub wavefield: String,
    pub build: String,
}

impl Machine {
    pub fn describe(info: &AdapterInfo, cuda: Option<String>) -> Self {
        Self {
            gpu: info.name.clone(),
            software: info.kind == ash::vk::PhysicalDeviceType::CPU,
            driver: info.driver.clone(),
            vulkan: crate::vulkan::version(info.api_version),
            cuda,
            cpu: line_of("/proc/cpuinfo", "model name")
                // Windows has no `/proc`, but sets this variable.
                .or_else(|| std::env::var("PROCESSOR_IDENTIFIER").ok())
                .unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            threads: std::thread::available_parallelism().map_or(0, |count| count.get() as u32),
            os: system(),
            wavefield: env!("CARGO_PKG_VERSION").to_owned(),
            build: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
        }
    }
}

fn system() -> String {
    let name = line_of("/etc/os-release", "PRETTY_NAME").map(|name| name + ", ").unwrap_or_default();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{name}{} {}", std::env::consts::OS, kernel.trim()).trim().to_owned()
}

/// Returns what follows the first `:` or `=` in the first line that begins with `key`, without quotes.
fn line_of(path: &str, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    let (_, value) = line.split_once([':', '='])?;
    Some(value.trim().trim_matches('"').to_owned()).filter(|value| !value.is_empty())
}
