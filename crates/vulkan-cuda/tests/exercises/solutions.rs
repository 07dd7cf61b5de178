//! Solutions of the exercises of the guide.

use vulkan_cuda::Turn;

use super::{Prediction, Signal};

/// Frames 10 and 11 are one batch. Frame 7 was the last to use slot 11 mod 4, and Vulkan marks its end with 8. The batch waits for
/// that at frame 10, and frame 11 waits for nothing more.
pub fn frame_11() -> Prediction {
    Prediction { slot: 3, waits_for: None, has_waited_for: 8, signals_ready: 12, signals_free: 12 }
}

/// Frame 2 should wait for `free` = 1, the end of frame 0. With 4 it waits for the end of frame 3, which comes after it on the
/// same stream. Vulkan has read frames 0 and 1: `ready` and `free` are both 2.
pub fn deadlock(plan: &mut [Turn]) {
    plan[2].wait_free = Some(4);
}

/// CUDA may be two frames ahead. It writes frame 0 and signals 1, writes frame 1 and signals 3. Then Vulkan has read frame 0, and
/// signals 2.
pub fn violation() -> Vec<Signal> {
    vec![Signal::Cuda(0), Signal::Cuda(1), Signal::Vulkan(0)]
}
