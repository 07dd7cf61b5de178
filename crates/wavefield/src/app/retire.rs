//! Dropping an engine, even if the GPU never comes to rest.

use super::Engine;
use crate::left_running::leave_running;

/// Drops an engine's owner once both APIs are idle. If they never become idle, leaks it: the GPU still uses it.
pub(crate) fn retire<T: AsMut<Engine>>(mut owner: T) {
    if !owner.as_mut().quiesce() {
        leave_running(owner);
    }
}
