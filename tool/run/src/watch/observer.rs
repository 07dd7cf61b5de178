use std::time::{Duration, Instant};

use ash::vk;

use wavefield_gpu::Result;
use wavefield_handoff::producer::{CudaTimeline, Frame, Produced, Source};

/// Watches frames without drawing them, like [`crate::watch::verify`] and [`crate::watch::trace`]. If a
/// frame's producer fails, [`Observer::finished`] is never called for that frame.
pub trait Observer {
    /// Called before anything is recorded for the frame. The GPU has finished with the flight.
    fn produced(&mut self, _flight: usize, _produced: &Produced) -> Result<()> {
        Ok(())
    }

    /// Records commands. Later frames may submit them again, so they must not depend on the frame.
    ///
    /// # Safety
    /// `commands` is recording, perhaps inside a render pass for [`At::Slice`] and outside one otherwise. The GPU has
    /// finished with the flight. `source` belongs to the run's scene and is readable.
    unsafe fn record(&self, commands: vk::CommandBuffer, flight: usize, source: Source, at: At);

    fn submitted(&mut self, _flight: usize, _frame: &Frame, _produced: &Produced, _picture: vk::Extent2D) {}

    fn finished(&mut self, frame: &Finished<'_>) -> Result<()>;

    /// Returns the number of slices to cut the draw into, to record commands after each; 0 leaves it whole.
    /// Another observer may ask for more. If the number changes, the engine records the commands again.
    fn slices(&self) -> usize {
        0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    BeforeDraw,
    /// Counted from 0.
    Slice(usize),
    AfterDraw,
}

#[derive(Clone, Copy)]
pub struct Finished<'a> {
    pub frame: u64,
    pub flight: usize,
    /// When the CPU began the frame, and how long it worked on it, excluding waits for the hand-off.
    pub cpu: (Instant, Duration),
    /// Frame start, draw start and draw end, in nanoseconds of the GPU's clock. `None` without timestamps.
    pub marks: Option<[f64; 3]>,
    /// The source of the kernel's times; `None` if CUDA does not fill the frame.
    pub timeline: Option<&'a CudaTimeline>,
}
