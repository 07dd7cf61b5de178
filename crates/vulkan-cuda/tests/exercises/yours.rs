//! Your answers to the guide's exercises (docs/guide/src/exercises.md). To check them, run
//! `EXERCISES=yours cargo test -p vulkan-cuda --test exercises`.

use vulkan_cuda::Turn;

use super::{Prediction, Signal};

// ANCHOR: frame_11
/// Exercise 2: frame 11 in a ring of 4 that is filled in batches of 2.
pub fn frame_11() -> Prediction {
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
// ANCHOR_END: frame_11

// ANCHOR: deadlock
/// Exercise 3: change one number of one frame so that the simulation deadlocks.
pub fn deadlock(plan: &mut [Turn]) {
    plan[0].wait_ready += 0;
}
// ANCHOR_END: deadlock

// ANCHOR: violation
/// Exercise 4: the signals in the order in which they happen. The last one breaks the rule.
pub fn violation() -> Vec<Signal> {
    vec![Signal::Cuda(0), Signal::Vulkan(0)]
}
// ANCHOR_END: violation
