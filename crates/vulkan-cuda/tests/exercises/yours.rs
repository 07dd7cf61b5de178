//! Your answers to the exercises of the guide (docs/guide/src/exercises.md). To check them:
//! `EXERCISES=yours cargo test -p vulkan-cuda --test exercises`

use vulkan_cuda::Turn;

use super::{Prediction, Signal};

// ANCHOR: frame_11
/// Exercise 2: frame 11 in a ring of 4 that is filled in batches of 2.
pub fn frame_11() -> Prediction {
    Prediction {
        slot: 0,
        // The value of `free` that CUDA's stream waits for at this frame, if it waits.
        waits_for: None,
        // The greatest value that it has waited for by then.
        has_waited_for: 0,
        signals_ready: 0,
        signals_free: 0,
    }
}
// ANCHOR_END: frame_11

// ANCHOR: deadlock
/// Exercise 3: change one number of one frame, so that the simulation deadlocks.
pub fn deadlock(plan: &mut [Turn]) {
    plan[0].wait_ready += 0;
}
// ANCHOR_END: deadlock

// ANCHOR: violation
/// Exercise 4: signals in the order in which they happen; the last one breaks the rule.
pub fn violation() -> Vec<Signal> {
    vec![Signal::Cuda(0), Signal::Vulkan(0)]
}
// ANCHOR_END: violation
