//! Finds the CUDA device that is the same GPU as a Vulkan device.
//!
//! Neither index nor name identifies a GPU: each API numbers devices in its own way, and names repeat. The
//! UUID is the same on both sides: `VkPhysicalDeviceIDProperties::deviceUUID` and `cuDeviceGetUuid_v2`. On
//! Windows, the LUID and node mask decide if both sides report them (`deviceLUID`, `cuDeviceGetLuid`).
//!
//! Before you create a device, [`find_twin`] finds the CUDA device that it can share with. [`Pair::new`] then
//! checks that both are one GPU. All sharing begins with the pair, so CUDA never gets another GPU's handles.
//!
//! # Examples
//! Choose the first Vulkan device that CUDA can share with:
//!
//! ```no_run
//! use ash::vk;
//! use vulkan_cuda::{Driver, Result, VkInfo, find_twin};
//!
//! /// Returns the Vulkan device and its CUDA ordinal.
//! fn choose(
//!     instance: &ash::Instance,
//!     devices: &[vk::PhysicalDevice],
//! ) -> Result<Option<(vk::PhysicalDevice, i32)>> {
//!     let cuda = Driver::load()?.devices()?;
//!     for &physical in devices {
//!         // SAFETY: `physical` is one of this instance's devices.
//!         let vulkan = unsafe { VkInfo::query(instance, physical) }?;
//!         match find_twin(&vulkan, &cuda) {
//!             Ok(twin) => return Ok(Some((physical, twin.ordinal))),
//!             Err(mismatch) => eprintln!("{}: {mismatch}", vulkan.name),
//!         }
//!     }
//!     Ok(None)
//! }
//! ```

use crate::cuda::{Cuda, CudaInfo};
pub use crate::error::Mismatch;
use crate::vulkan::Vk;
use crate::vulkan_info::VkInfo;
use crate::{Error, Result};

// ANCHOR: find
/// Returns whether the two devices are the same GPU.
pub fn same_device(vulkan: &VkInfo, cuda: &CudaInfo) -> bool {
    match (vulkan.luid, cuda.luid) {
        (Some(vulkan), Some(cuda)) => vulkan == cuda,
        _ => vulkan.uuid == cuda.uuid,
    }
}

/// Returns the CUDA device that is the same GPU as `vulkan`, if the two can share memory and timeline
/// semaphores. Otherwise returns the first obstacle, in the order of [`Mismatch`]'s variants.
pub fn find_twin<'a>(vulkan: &VkInfo, cuda: &'a [CudaInfo]) -> Result<&'a CudaInfo, Mismatch> {
    let twin = same_gpu(vulkan, cuda)?;
    if vulkan.buffer_export.is_none() {
        return Err(Mismatch::Buffer);
    }
    if vulkan.timeline_export.is_none() {
        return Err(Mismatch::Timeline);
    }
    if !twin.timeline_interop {
        return Err(Mismatch::CudaTimeline);
    }
    Ok(twin)
}

/// Returns the CUDA device that is the same single GPU as `vulkan`, regardless of what the two can share.
fn same_gpu<'a>(vulkan: &VkInfo, cuda: &'a [CudaInfo]) -> Result<&'a CudaInfo, Mismatch> {
    let twin = cuda.iter().find(|device| same_device(vulkan, device)).ok_or(Mismatch::NoTwin)?;
    if vulkan.group_size > 1 {
        return Err(Mismatch::Group(vulkan.group_size));
    }
    Ok(twin)
}
// ANCHOR_END: find

fn one_gpu(vulkan: &VkInfo, cuda: &CudaInfo) -> Result<()> {
    same_gpu(vulkan, std::slice::from_ref(cuda)).map(|_| ()).map_err(|reason| Error::Mismatch {
        vulkan: format!("{} ({})", vulkan.name, vulkan.uuid),
        cuda: format!("{} ({})", cuda.name, cuda.uuid),
        reason,
    })
}

/// A Vulkan device and a CUDA context on the same GPU. Cloning is cheap. See the [example](crate).
#[derive(Clone)]
pub struct Pair {
    // Dropped first, because CUDA must release its objects before Vulkan does.
    cuda: Cuda,
    vk: Vk,
}

impl Pair {
    /// Pairs a device and a context, which must be on one GPU.
    ///
    /// # Errors
    /// Returns [`Error::Mismatch`] if they are different GPUs, or if Vulkan's is one of a group of devices. A
    /// missing capability is an error only when it is needed: a device without timelines can share buffers.
    pub fn new(vk: Vk, cuda: Cuda) -> Result<Self> {
        one_gpu(vk.info(), cuda.info())?;
        Ok(Self { cuda, vk })
    }

    /// Returns the Vulkan device.
    pub fn vk(&self) -> &Vk {
        &self.vk
    }

    /// Returns the CUDA context.
    pub fn cuda(&self) -> &Cuda {
        &self.cuda
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cuda::tests::cuda_device;
    use crate::handle::ExportType;
    use crate::identity::DeviceUuid;

    fn vulkan_device(uuid: u8) -> VkInfo {
        VkInfo {
            name: format!("Vulkan {uuid}"),
            uuid: DeviceUuid([uuid; 16]),
            driver_uuid: [0; 16],
            luid: None,
            group_size: 1,
            buffer_export: Some(ExportType::HERE[0]),
            timeline_export: Some(ExportType::HERE[0]),
            binary_export: Some(ExportType::HERE[0]),
        }
    }

    #[test]
    fn the_uuid_pairs_whatever_the_order() {
        for order in [[1, 2, 3], [3, 1, 2], [2, 3, 1]] {
            let cuda: Vec<_> = order.iter().enumerate().map(|(i, &id)| cuda_device(i as i32, id)).collect();
            for id in [1, 2, 3] {
                assert_eq!(find_twin(&vulkan_device(id), &cuda).map(|d| d.uuid), Ok(DeviceUuid([id; 16])));
            }
            assert_eq!(find_twin(&vulkan_device(4), &cuda), Err(Mismatch::NoTwin));
        }
    }

    /// On Windows the LUID and the node mask decide, if both sides have them.
    #[test]
    fn the_luid_pairs_where_both_sides_have_one() {
        let luid = |byte, node_mask| Some(([byte; 8], node_mask));
        let vulkan = |uuid, luid| VkInfo { luid, ..vulkan_device(uuid) };
        let cuda = |uuid, luid| CudaInfo { luid, ..cuda_device(0, uuid) };
        for (vulkan, cuda, same) in [
            (vulkan(1, luid(7, 1)), cuda(1, luid(7, 1)), true),
            (vulkan(1, luid(7, 1)), cuda(2, luid(7, 1)), true),
            (vulkan(1, luid(7, 1)), cuda(1, luid(8, 1)), false),
            // Two nodes of one linked adapter.
            (vulkan(1, luid(7, 1)), cuda(1, luid(7, 2)), false),
            // CUDA has no LUID without Windows' display driver model.
            (vulkan(1, luid(7, 1)), cuda(1, None), true),
            (vulkan(1, None), cuda(2, luid(7, 1)), false),
        ] {
            assert_eq!(same_device(&vulkan, &cuda), same, "{:?} {:?}", vulkan.luid, cuda.luid);
        }
    }

    #[test]
    fn every_obstacle_is_named() {
        let cuda = [cuda_device(0, 1)];
        let verdict = |change: fn(&mut VkInfo)| {
            let mut info = vulkan_device(1);
            change(&mut info);
            find_twin(&info, &cuda).map(|d| d.ordinal)
        };
        assert_eq!(verdict(|_| ()), Ok(0));
        assert_eq!(verdict(|i| i.group_size = 2), Err(Mismatch::Group(2)));
        assert_eq!(verdict(|i| i.buffer_export = None), Err(Mismatch::Buffer));
        assert_eq!(verdict(|i| i.timeline_export = None), Err(Mismatch::Timeline));
        let old = CudaInfo { timeline_interop: false, ..cuda_device(0, 1) };
        assert_eq!(find_twin(&vulkan_device(1), &[old]), Err(Mismatch::CudaTimeline));
    }

    /// The error of `Pair::new` says which two, and a program can match the reason.
    #[test]
    fn a_mismatch_keeps_its_reason() {
        let error = one_gpu(&vulkan_device(2), &cuda_device(0, 1)).unwrap_err();
        assert!(matches!(error, Error::Mismatch { reason: Mismatch::NoTwin, .. }), "{error:?}");
        let text = error.to_string();
        assert!(
            text.starts_with("Vulkan 2 (02020202-") && text.ends_with("no CUDA device has its UUID"),
            "{text}"
        );
    }

    #[test]
    fn a_pair_is_one_gpu_and_no_group() {
        let gpu = [cuda_device(0, 1)];
        assert_eq!(same_gpu(&vulkan_device(1), &gpu), Ok(&gpu[0]));
        assert_eq!(same_gpu(&vulkan_device(2), &gpu), Err(Mismatch::NoTwin));
        let group = VkInfo { group_size: 2, ..vulkan_device(1) };
        assert_eq!(same_gpu(&group, &gpu), Err(Mismatch::Group(2)));
        // What the device can export does not matter here.
        let poor =
            VkInfo { buffer_export: None, timeline_export: None, binary_export: None, ..vulkan_device(1) };
        assert_eq!(same_gpu(&poor, &gpu), Ok(&gpu[0]));
    }
}
