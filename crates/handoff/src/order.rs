//! What keeps CUDA and Vulkan apart if they share one slot. Each order has its own file, for comparison: [`BinaryPair`],
//! [`CpuSync`]. A ring of slots is the library's: see [`timeline`](super::timeline).
//!
//! [`BinaryPair`]: super::binary::BinaryPair
//! [`CpuSync`]: super::cpu_sync::CpuSync

use std::time::Duration;

use crate::producer::{Fill, FrameSync, ProducerDesc, Submit};
use wavefield_base::Result;
use wavefield_gpu::{cuda::Cuda, vulkan::Queue};

/// Who waits for whom. For each frame, `wait_free` and `signal_ready` are called around the work that fills the slot.
/// Then `submit` makes Vulkan's submission that reads the slot.
pub(super) trait Order: Sized + 'static {
    /// The producer's; it begins with `cuda`.
    const NAME: &'static str;

    /// Whether the GPU does all the waiting. If not, the CPU waits, and one frame is in flight at a time.
    const ON_GPU: bool;

    fn new(queue: &Queue, context: &Cuda, desc: &ProducerDesc) -> Result<Self>;

    /// CUDA: work enqueued after this call writes the slot, so it must wait until Vulkan has read the slot.
    fn wait_free(&mut self, fill: &Fill) -> Result<()>;

    /// CUDA: work enqueued before this call fills the slot. Returns how long the CPU waited, if it did, for the summary's
    /// "waits of the CPU". Such a wait has a timeout: see [`Fill::wait_idle`].
    fn signal_ready(&mut self, fill: &Fill) -> Result<Option<Duration>>;

    /// Vulkan: makes the submission that reads the slot.
    ///
    /// # Safety
    /// As for [`Producer::submit`](crate::producer::Producer::submit).
    unsafe fn submit(&mut self, submit: Submit<'_>) -> Result<()> {
        submit(FrameSync::default())
    }

    /// Which side keeps the other waiting, for the error of a stuck run. `None` if the CPU waits: then that is known.
    fn late_side(&self, _fill: &Fill) -> Option<String> {
        None
    }
}
