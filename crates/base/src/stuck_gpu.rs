//! What a run leaves behind if the GPU does not finish: it must not be released, because the GPU may still use it.

use std::sync::atomic::{AtomicBool, Ordering};

static LEAKED: AtomicBool = AtomicBool::new(false);

/// Never releases `owner`, until the process ends.
pub fn leak<T>(owner: T) {
    LEAKED.store(true, Ordering::Relaxed);
    std::mem::forget(owner);
}

/// Whether anything was leaked. If so, end the process without the drivers' exit handlers: they would wait for the GPU.
pub fn leaked() -> bool {
    LEAKED.load(Ordering::Relaxed)
}
