//! Your answers to the guide's exercises. To check them, run `EXERCISES=yours cargo test -p vulkan-cuda
//! --test library exercises::`.

use cudarc::driver::sys::{CUDA_ARRAY3D_DESCRIPTOR, CUarray_format};
use vulkan_cuda::{CudaInfo, VkInfo};

use super::{Minimised, Prediction, Signal, Told};

// ANCHOR: device
/// CUDA's number of the GPU that `vulkan` is, if the two can share memory and timelines.
pub fn device(vulkan: &VkInfo, cuda: &[CudaInfo]) -> Option<i32> {
    cuda.iter().find(|device| device.name == vulkan.name).map(|twin| twin.ordinal)
}
// ANCHOR_END: device

// ANCHOR: memory
/// A buffer of 1,000 bytes, for which Vulkan requires `VkMemoryRequirements { size: 1008, alignment: 256, ..
/// }`.
pub fn memory() -> [Told; 2] {
    // The buffer has a dedicated allocation.
    let alone = Told { import_size: 0, dedicated: false, offset: 0, mapping_size: 0 };
    // It is the second of two such buffers in one allocation, which is as small as possible.
    let second = Told { import_size: 0, dedicated: false, offset: 0, mapping_size: 0 };
    [alone, second]
}
// ANCHOR_END: memory

// ANCHOR: order
/// The signals in the order in which they happen. The last one breaks the rule.
pub fn order() -> Vec<Signal> {
    vec![Signal::Cuda(0), Signal::Vulkan(0)]
}
// ANCHOR_END: order

// ANCHOR: ring
/// Frame 11 in a ring of 4 that is filled in batches of 2.
pub fn ring() -> Prediction {
    Prediction {
        slot: 0,
        // The value of `free` that CUDA's stream waits for at this frame, if it waits.
        waits_for: None,
        // The largest value of `free` that it has waited for so far.
        has_waited_for: 0,
        signals_ready: 0,
        signals_free: 0,
    }
}
// ANCHOR_END: ring

// ANCHOR: frame
/// Frames 9 to 12 of a ring of 4 are written, but never submitted. The others are drawn.
pub fn frame() -> Minimised {
    Minimised {
        // By `Ring::turn`: the first frame that CUDA never writes, the value that it waits for, and the last
        // of `free`.
        stuck: 0,
        waits_for: 0,
        free: 0,
        // With `SharedRing`: the values that CUDA's stream waits for at these frames. `None` if it does not
        // wait again.
        ring_at_13: Some(0),
        ring_at_17: Some(0),
    }
}
// ANCHOR_END: frame

// ANCHOR: images
/// What `cuExternalMemoryGetMappedMipmappedArray` takes: `arrayDesc` and `numLevels`.
pub fn images() -> (CUDA_ARRAY3D_DESCRIPTOR, u32) {
    let array = CUDA_ARRAY3D_DESCRIPTOR {
        Width: 256,
        Height: 256,
        Depth: 1,
        Format: CUarray_format::CU_AD_FORMAT_FLOAT,
        NumChannels: 3,
        Flags: 0,
    };
    (array, 1)
}
// ANCHOR_END: images
