//! What becomes of an engine in the end, where the GPU may never come to rest.

use std::sync::atomic::{AtomicBool, Ordering};

use super::Engine;

/// Something with an engine in it was left to the end of the process: see [`left_running`].
static LEFT_RUNNING: AtomicBool = AtomicBool::new(false);

/// Drops an engine's owner once both sides are at rest; where they never come to rest, leaves everything as it is, since
/// the GPU still uses it.
pub(crate) fn retire<T: AsMut<Engine>>(mut owner: T) {
    if !owner.as_mut().quiesce() {
        leave_running(owner);
    }
}

/// Leaves what the GPU still uses, and may use for ever, to the end of the process.
pub(crate) fn leave_running<T>(owner: T) {
    LEFT_RUNNING.store(true, Ordering::Relaxed);
    std::mem::forget(owner);
}

/// Whether the GPU was left running: then the process should end without the drivers' exit handlers, which would wait.
pub fn left_running() -> bool {
    LEFT_RUNNING.load(Ordering::Relaxed)
}
