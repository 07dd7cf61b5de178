//! What a run must not release because the GPU does not finish and may still use it.

use std::sync::atomic::{AtomicBool, Ordering};

static LEAKED: AtomicBool = AtomicBool::new(false);

pub fn leak<T>(owner: T) {
    LEAKED.store(true, Ordering::Relaxed);
    std::mem::forget(owner);
}

/// Returns whether to skip the drivers' exit handlers at the end of the process: they would wait for the GPU.
pub fn leaked() -> bool {
    LEAKED.load(Ordering::Relaxed)
}
