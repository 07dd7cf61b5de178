//! What watches frames without drawing them: for example the check of [`crate::verify`] and the recorder of [`crate::trace`].

use std::time::{Duration, Instant};

use ash::vk;

use wavefield_base::Result;
use wavefield_handoff::producer::{Fill, Frame, Produced, Source};

/// Is told of each frame three times: when it is produced, when it is submitted, and when the GPU has finished it. A frame that a
/// failed producer leaves unfinished is never reported as finished.
pub trait Observer {
    /// The frame was produced. Nothing is recorded yet, and the GPU has finished with the flight.
    fn produced(&mut self, _flight: usize, _produced: &Produced) -> Result<()> {
        Ok(())
    }

    /// Records the observer's own commands: before the draw, after each of its slices, and after the draw. The same recording may
    /// be submitted for later frames, so it must contain nothing that differs from frame to frame.
    ///
    /// # Safety
    /// `commands` is being recorded, inside a render pass for [`At::Slice`] and outside one otherwise; the GPU has finished with
    /// the flight; `source` belongs to the run's scene and is readable.
    unsafe fn record(&self, commands: vk::CommandBuffer, flight: usize, source: Source, at: At);

    fn submitted(&mut self, _flight: usize, _frame: &Frame, _produced: &Produced, _picture: vk::Extent2D) {}

    fn finished(&mut self, frame: &Finished<'_>) -> Result<()>;

    /// How many slices the observer wants the draw cut into, to record commands after each; 0 leaves the draw whole. It may get
    /// more if another observer wants more. A change makes the engine record the commands again.
    fn slices(&self) -> usize {
        0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    BeforeDraw,
    /// After this slice of the draw, counted from 0.
    Slice(usize),
    AfterDraw,
}

#[derive(Clone, Copy)]
pub struct Finished<'a> {
    pub frame: u64,
    pub flight: usize,
    /// When the CPU began the frame, and how long it worked on it, without waits for the hand-off.
    pub cpu: (Instant, Duration),
    /// Frame start, draw start and draw end, in nanoseconds of the GPU's clock. `None` without timestamps.
    pub marks: Option<[f64; 3]>,
    /// CUDA's stream, which holds the kernel's times; `None` if CUDA does not fill the frame.
    pub fill: Option<&'a Fill>,
}
