//! Leaking what the GPU may still use when the program ends.

use std::sync::atomic::{AtomicBool, Ordering};

static LEFT_RUNNING: AtomicBool = AtomicBool::new(false);

/// Leaks `owner`: the GPU may still use it.
pub(crate) fn leave_running<T>(owner: T) {
    LEFT_RUNNING.store(true, Ordering::Relaxed);
    std::mem::forget(owner);
}

/// Whether the GPU was left running. If so, end the process without the drivers' exit handlers: they would wait for the GPU.
pub fn left_running() -> bool {
    LEFT_RUNNING.load(Ordering::Relaxed)
}
