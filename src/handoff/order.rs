//! What keeps CUDA and Vulkan apart. Each order is a file of its own, made to be compared with the others: [`Timelines`],
//! [`BinaryPair`], [`CpuSync`].
//!
//! [`Timelines`]: super::timeline::Timelines
//! [`BinaryPair`]: super::binary::BinaryPair
//! [`CpuSync`]: super::cpu_sync::CpuSync

use std::time::Duration;

use vulkan_cuda::Turn;

use crate::Result;
use crate::producer::{Fill, FrameSync};

/// Who waits for whom. For each frame `wait_free` and `signal_ready` are called around the work that fills its slot; then
/// `submission` before Vulkan's submission that reads the slot, and `submitted` after it.
pub(super) trait Order {
    /// Whether the GPU does all the waiting. If not, the CPU waits, and one frame is in flight at a time.
    fn is_on_gpu(&self) -> bool {
        true
    }

    /// CUDA: what is enqueued from now on writes the turn's slot, so Vulkan must have read it.
    fn wait_free(&mut self, fill: &Fill, turn: Turn) -> Result<()>;

    /// CUDA: everything enqueued so far fills the slot. Gives how long the CPU waited, if it did, for the summary's "waits of the
    /// CPU". Such a wait has an end: see [`Fill::wait_idle`].
    fn signal_ready(&mut self, fill: &Fill, turn: Turn) -> Result<Option<Duration>>;

    /// Vulkan: what the submission that reads the slot waits for and signals.
    fn submission(&mut self, turn: Turn) -> Result<FrameSync>;

    /// The submission was made.
    fn submitted(&mut self) {}

    /// Who keeps the other waiting, in words, for the error of a run that got stuck; `None` where that is known already, because
    /// the CPU itself waits.
    fn late_side(&self, fill: &Fill) -> Option<String>;

    /// CUDA has failed, and signals nothing more: lets go of whatever Vulkan waits for.
    fn abandon(&self) {}
}
