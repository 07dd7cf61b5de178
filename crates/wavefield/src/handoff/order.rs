//! What keeps CUDA and Vulkan apart. Each order has its own file, for comparison: [`Timelines`], [`BinaryPair`],
//! [`CpuSync`].
//!
//! [`Timelines`]: super::timeline::Timelines
//! [`BinaryPair`]: super::binary::BinaryPair
//! [`CpuSync`]: super::cpu_sync::CpuSync

use std::time::Duration;

use vulkan_cuda::Turn;

use crate::Result;
use crate::producer::{Fill, FrameSync};

/// Who waits for whom. For each frame, `wait_free` and `signal_ready` are called around the work that fills the slot.
/// Then `submission` is called before Vulkan's submission that reads the slot, and `submitted` after it.
pub(super) trait Order {
    /// Whether the GPU does all the waiting. If not, the CPU waits, and one frame is in flight at a time.
    fn is_on_gpu(&self) -> bool {
        true
    }

    /// CUDA: work enqueued after this call writes the turn's slot, so it must wait until Vulkan has read the slot.
    fn wait_free(&mut self, fill: &Fill, turn: Turn) -> Result<()>;

    /// CUDA: work enqueued before this call fills the slot. Returns how long the CPU waited, if it did, for the summary's
    /// "waits of the CPU". Such a wait has a timeout: see [`Fill::wait_idle`].
    fn signal_ready(&mut self, fill: &Fill, turn: Turn) -> Result<Option<Duration>>;

    /// Vulkan: what the submission that reads the slot waits for and signals.
    fn submission(&mut self, turn: Turn) -> Result<FrameSync>;

    /// Called after the submission.
    fn submitted(&mut self) {}

    /// Which side keeps the other waiting, in words, for the error of a run that is stuck. `None` if the CPU does the
    /// waiting: then the side is already known.
    fn late_side(&self, fill: &Fill) -> Option<String>;

    /// CUDA has failed and signals nothing more: releases every wait of Vulkan.
    fn abandon(&self) {}
}
