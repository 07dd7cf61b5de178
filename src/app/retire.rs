//! What becomes of an engine in the end, where the GPU may never come to rest.

use super::Engine;
use crate::left_running::leave_running;

/// Drops an engine's owner once both sides are at rest; where they never come to rest, leaves everything as it is, since
/// the GPU still uses it.
pub(crate) fn retire<T: AsMut<Engine>>(mut owner: T) {
    if !owner.as_mut().quiesce() {
        leave_running(owner);
    }
}
