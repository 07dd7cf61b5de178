//! The process's descriptors and memory, which must not grow during a run.

use ash::vk;
use serde::{Deserialize, Serialize};

use wavefield_gpu::vulkan::Device;

/// The resources that the process held at one moment, as far as the system reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    pub frame: u64,
    /// The number of open descriptors, from `/proc/self/fd`.
    pub descriptors: Option<u64>,
    /// `VmRSS` from `/proc/self/status`.
    pub resident_bytes: Option<u64>,
    /// The memory of a GPU that this process uses, from `VK_EXT_memory_budget`.
    pub device_bytes: Option<u64>,
    /// Width and height, on which memory depends.
    pub picture: [u32; 2],
}

/// The bytes by which pools of drivers and allocators may grow. A leak in a long run exceeds this.
pub(super) const ALLOWANCE: u64 = 16 << 20;

impl Footprint {
    /// The frame by which every flight, slot and cache has been used.
    pub const SETTLED: u64 = 200;

    pub fn take(frame: u64, device: &Device, picture: [u32; 2]) -> Self {
        // A software device uses the machine's memory, which other processes use too.
        let own = device.info().kind != vk::PhysicalDeviceType::CPU;
        Self {
            frame,
            descriptors: open_descriptors(),
            resident_bytes: resident_bytes(),
            device_bytes: if own { device.memory_used() } else { None },
            picture,
        }
    }

    /// Describes what has grown but must not. Compares memory only between pictures of equal size.
    pub fn growth_since(&self, start: &Self) -> Vec<String> {
        let mut found = Vec::new();
        if let (Some(now), Some(then)) = (self.descriptors, start.descriptors)
            && now > then
        {
            found.push(format!("{then} open descriptors after frame {} became {now}", start.frame));
        }
        let memory = [
            ("resident memory", start.resident_bytes, self.resident_bytes),
            ("device memory", start.device_bytes, self.device_bytes),
        ];
        for (what, then, now) in memory {
            if let (Some(then), Some(now)) = (then, now)
                && self.picture == start.picture
                && now > then + ALLOWANCE
            {
                found.push(format!("{what} grew from {then} bytes after frame {} to {now}", start.frame));
            }
        }
        found
    }
}

fn open_descriptors() -> Option<u64> {
    // Wine shows Linux's files to programs of Windows.
    let directory = std::fs::read_dir("/proc/self/fd").ok().filter(|_| cfg!(unix))?;
    // Exclude the descriptor that reads the directory.
    Some(directory.count().saturating_sub(1) as u64)
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Footprint = Footprint {
        frame: 200,
        descriptors: Some(20),
        resident_bytes: Some(100 << 20),
        device_bytes: None,
        picture: [640, 480],
    };

    #[test]
    fn growth_is_found_and_breathing_is_not() {
        let later = Footprint { frame: 2000, ..START };
        assert!(later.growth_since(&START).is_empty());
        let breathing = Footprint { resident_bytes: Some(110 << 20), descriptors: Some(19), ..later };
        assert!(breathing.growth_since(&START).is_empty());

        let leaking = Footprint { descriptors: Some(21), resident_bytes: Some(117 << 20), ..later };
        let found = leaking.growth_since(&START).join("\n");
        assert!(found.contains("20 open descriptors") && found.contains("became 21"), "{found}");
        assert!(found.contains("resident memory grew"), "{found}");
    }

    #[test]
    fn memory_of_another_picture_is_not_compared() {
        let larger = Footprint { resident_bytes: Some(900 << 20), picture: [3840, 2160], ..START };
        assert!(larger.growth_since(&START).is_empty());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn linux_tells_both() {
        let before = open_descriptors().unwrap();
        assert!(before > 0 && resident_bytes().unwrap() > 1 << 20);
    }
}
