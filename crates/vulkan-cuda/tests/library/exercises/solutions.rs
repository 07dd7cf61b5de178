//! The solutions to the guide's exercises.

use cudarc::driver::sys;
use vulkan_cuda::{CudaInfo, VkInfo};

use super::{Minimised, Prediction, Signal, Told};

/// On Windows it must also compare the LUIDs, as `find_twin` does.
pub fn device(vulkan: &VkInfo, cuda: &[CudaInfo]) -> Option<i32> {
    let twin = cuda.iter().find(|device| device.uuid == vulkan.uuid)?;
    let exports = vulkan.buffer_export.is_some() && vulkan.timeline_export.is_some();
    (vulkan.group_size == 1 && exports && twin.timeline_interop).then_some(twin.ordinal)
}

/// A dedicated allocation has exactly the size that Vulkan requires. The second of two buffers begins at the
/// next multiple of 256 after 1008, and Vulkan requires 1008 bytes from there on. CUDA maps the 1000 bytes of
/// the buffer.
pub fn memory() -> [Told; 2] {
    let alone = Told { import_size: 1008, dedicated: true, offset: 0, mapping_size: 1000 };
    let second = Told { import_size: 1024 + 1008, dedicated: false, offset: 1024, mapping_size: 1000 };
    [alone, second]
}

/// Frame 0 is read, so CUDA may write frames 1 and 2. It signals 3 and 5. Then Vulkan has read frame 1, and
/// signals 4.
pub fn order() -> Vec<Signal> {
    vec![Signal::Cuda(0), Signal::Vulkan(0), Signal::Cuda(1), Signal::Cuda(2), Signal::Vulkan(1)]
}

/// Frames 10 and 11 are one batch. Frame 7 was the last to use slot 11 mod 4, and Vulkan signals 8 when it
/// has read frame 7. The batch waits for that value at frame 10, so frame 11 waits for nothing more.
pub fn ring() -> Prediction {
    Prediction { slot: 3, waits_for: None, has_waited_for: 8, signals_ready: 12, signals_free: 12 }
}

/// Frame 13 needs the slot of frame 9, so it waits for 10. Vulkan has signalled 9, for frame 8. Its half of
/// frame 13 waits for CUDA. A `SharedRing` waits only for what was submitted: at frame 12 for 9, at frame 13
/// for nothing more, at frame 17 for frame 13.
pub fn frame() -> Minimised {
    Minimised { stuck: 13, waits_for: 10, free: 9, ring_at_13: None, ring_at_17: Some(14) }
}

/// Two cubes are 12 layers. A full chain from 256 texels down to 1 has 9 levels. A normalised format is an
/// array of integers.
pub fn images() -> (sys::CUDA_ARRAY3D_DESCRIPTOR, u32) {
    let array = sys::CUDA_ARRAY3D_DESCRIPTOR {
        Width: 256,
        Height: 256,
        Depth: 12,
        Format: sys::CUarray_format::CU_AD_FORMAT_UNSIGNED_INT8,
        NumChannels: 4,
        Flags: sys::CUDA_ARRAY3D_CUBEMAP
            | sys::CUDA_ARRAY3D_LAYERED
            | sys::CUDA_ARRAY3D_COLOR_ATTACHMENT
            | sys::CUDA_ARRAY3D_SURFACE_LDST,
    };
    (array, 9)
}
