//! Leaks objects that must not be released, because a GPU that does not finish may still use them.

use std::sync::atomic::{AtomicBool, Ordering};

static LEAKED: AtomicBool = AtomicBool::new(false);

pub fn leak<T>(owner: T) {
    LEAKED.store(true, Ordering::Relaxed);
    std::mem::forget(owner);
}

/// Returns whether anything was leaked. If so, the process must end without the drivers' exit handlers, which
/// would wait for the GPU.
pub fn leaked() -> bool {
    LEAKED.load(Ordering::Relaxed)
}
