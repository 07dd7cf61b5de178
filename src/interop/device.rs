//! Step 1: which CUDA device is this Vulkan device?
//!
//! Both APIs number devices as they please (`CUDA_VISIBLE_DEVICES` reorders one and not the other), and names repeat.
//! Only the UUID is the same on both sides: `VkPhysicalDeviceIDProperties::deviceUUID` and `cuDeviceGetUuid_v2`
//! (drivers before CUDA 11.4 have only `cuDeviceGetUuid`).
//!
//! On Windows there is the LUID too, by which the system itself and Direct3D know an adapter, with a mask that says which
//! node of a linked adapter is meant: `deviceLUID` and `deviceNodeMask` there, `cuDeviceGetLuid` here. Where both sides have
//! one, it decides.

use std::fmt;

use super::handle::ExportType;
use crate::Error;
use crate::cuda;
use crate::vulkan::{AdapterInfo, Device};

/// Why a Vulkan device cannot share with CUDA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// No CUDA device has its UUID.
    NoTwin,
    /// It stands for several physical devices; memory of a group cannot be imported.
    Group(usize),
    /// Its buffers cannot be exported.
    Buffer,
    /// Its timeline semaphores cannot be exported.
    Timeline,
    /// Its CUDA twin cannot import timeline semaphores.
    CudaTimeline,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTwin => f.write_str("no CUDA device has its UUID"),
            Self::Group(size) => write!(f, "it is one of a device group of {size}"),
            Self::Buffer => write!(f, "it cannot export a buffer as {}", ExportType::names()),
            Self::Timeline => write!(f, "it cannot export a timeline semaphore as {}", ExportType::names()),
            Self::CudaTimeline => f.write_str("its CUDA driver cannot import timeline semaphores"),
        }
    }
}

/// Whether the two are the same hardware.
pub fn same_device(vulkan: &AdapterInfo, cuda: &cuda::DeviceInfo) -> bool {
    match (vulkan.luid, cuda.luid) {
        (Some(vulkan), Some(cuda)) => vulkan == cuda,
        _ => vulkan.uuid == cuda.uuid,
    }
}

/// For what one exports and the other imports: CUDA must not be given another GPU's handles.
///
/// # Errors
/// They are different hardware.
pub(super) fn require_same_device(device: &Device, context: &cuda::Context) -> Result<(), Error> {
    let (vulkan, cuda) = (device.info(), context.info());
    if same_device(vulkan, cuda) {
        return Ok(());
    }
    Err(Error::Rule(format!(
        "{} ({}) of Vulkan is not {} ({}) of CUDA, so they share nothing: find_twin finds the one that is",
        vulkan.name, vulkan.uuid, cuda.name, cuda.uuid
    )))
}

/// The CUDA device that is the same hardware as `vulkan`, if the two can share memory and semaphores.
///
/// # Errors
/// The first reason that stands in the way, in the order in which a user could do something about it.
pub fn find_twin<'a>(
    vulkan: &AdapterInfo,
    cuda: &'a [cuda::DeviceInfo],
) -> Result<&'a cuda::DeviceInfo, Mismatch> {
    let twin = cuda.iter().find(|device| same_device(vulkan, device)).ok_or(Mismatch::NoTwin)?;
    if vulkan.group_size > 1 {
        return Err(Mismatch::Group(vulkan.group_size));
    }
    if vulkan.exports.buffer.is_none() {
        return Err(Mismatch::Buffer);
    }
    if vulkan.exports.timeline.is_none() {
        return Err(Mismatch::Timeline);
    }
    if !twin.timeline_interop {
        return Err(Mismatch::CudaTimeline);
    }
    Ok(twin)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::identity::{DeviceUuid, Luid};
    use crate::vulkan::Exports;

    pub(crate) fn adapter(uuid: u8) -> AdapterInfo {
        AdapterInfo {
            name: format!("Vulkan {uuid}"),
            uuid: DeviceUuid([uuid; 16]),
            luid: None,
            kind: ash::vk::PhysicalDeviceType::DISCRETE_GPU,
            driver: "driver".into(),
            driver_id: ash::vk::DriverId::default(),
            api_version: ash::vk::API_VERSION_1_3,
            group_size: 1,
            exports: Exports {
                buffer: Some(ExportType::HERE[0]),
                timeline: Some(ExportType::HERE[0]),
                binary: Some(ExportType::HERE[0]),
            },
            missing_features: Vec::new(),
            queue_family: Some(0),
            largest_buffer: (1 << 32, "maxBufferSize"),
            largest_allocation: 1 << 32,
            largest_picture: 16384,
            inline: None,
            inline_images: false,
            compute_family: None,
            calibrated_timestamps: false,
            device_fault: false,
            memory_budget: false,
            timestamp_period: Some(1.0),
        }
    }

    pub(crate) fn cuda_device(ordinal: i32, uuid: u8) -> cuda::DeviceInfo {
        cuda::DeviceInfo {
            ordinal,
            name: format!("CUDA {uuid}"),
            uuid: DeviceUuid([uuid; 16]),
            luid: None,
            compute_capability: (9, 0),
            timeline_interop: true,
        }
    }

    #[test]
    fn the_uuid_pairs_whatever_the_order() {
        for order in [[1, 2, 3], [3, 1, 2], [2, 3, 1]] {
            let cuda: Vec<_> = order.iter().enumerate().map(|(i, &id)| cuda_device(i as i32, id)).collect();
            for id in [1, 2, 3] {
                assert_eq!(find_twin(&adapter(id), &cuda).map(|d| d.uuid), Ok(DeviceUuid([id; 16])));
            }
            assert_eq!(find_twin(&adapter(4), &cuda), Err(Mismatch::NoTwin));
        }
    }

    /// On Windows: the LUID and the node mask decide, where both have them.
    #[test]
    fn the_luid_pairs_where_both_sides_have_one() {
        let luid = |byte, node_mask| Some(Luid { bytes: [byte; 8], node_mask });
        let vulkan = |uuid, luid| AdapterInfo { luid, ..adapter(uuid) };
        let cuda = |uuid, luid| cuda::DeviceInfo { luid, ..cuda_device(0, uuid) };
        for (vulkan, cuda, same) in [
            (vulkan(1, luid(7, 1)), cuda(1, luid(7, 1)), true),
            (vulkan(1, luid(7, 1)), cuda(2, luid(7, 1)), true),
            (vulkan(1, luid(7, 1)), cuda(1, luid(8, 1)), false),
            // Two nodes of one linked adapter.
            (vulkan(1, luid(7, 1)), cuda(1, luid(7, 2)), false),
            // CUDA has none without Windows' display driver model.
            (vulkan(1, luid(7, 1)), cuda(1, None), true),
            (vulkan(1, None), cuda(2, luid(7, 1)), false),
        ] {
            assert_eq!(same_device(&vulkan, &cuda), same, "{:?} {:?}", vulkan.luid, cuda.luid);
        }
    }

    #[test]
    fn every_obstacle_is_named() {
        let cuda = [cuda_device(0, 1)];
        let verdict = |change: fn(&mut AdapterInfo)| {
            let mut info = adapter(1);
            change(&mut info);
            find_twin(&info, &cuda).map(|d| d.ordinal)
        };
        assert_eq!(verdict(|_| ()), Ok(0));
        assert_eq!(verdict(|i| i.group_size = 2), Err(Mismatch::Group(2)));
        assert_eq!(verdict(|i| i.exports.buffer = None), Err(Mismatch::Buffer));
        assert_eq!(verdict(|i| i.exports.timeline = None), Err(Mismatch::Timeline));
        let old = cuda::DeviceInfo { timeline_interop: false, ..cuda_device(0, 1) };
        assert_eq!(find_twin(&adapter(1), &[old]), Err(Mismatch::CudaTimeline));
    }
}
