//! What a run must not release because the GPU does not finish and may still use it.

use std::sync::atomic::{AtomicBool, Ordering};

static LEAKED: AtomicBool = AtomicBool::new(false);

pub fn leak<T>(owner: T) {
    LEAKED.store(true, Ordering::Relaxed);
    std::mem::forget(owner);
}

/// If anything was leaked, end the process without the drivers' exit handlers, which would wait for the GPU.
pub fn leaked() -> bool {
    LEAKED.load(Ordering::Relaxed)
}
