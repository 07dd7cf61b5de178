//! Who looks on while frames are drawn, without a part in drawing them: the check of [`crate::verify`], the recorder of
//! [`crate::trace`].

use std::time::{Duration, Instant};

use ash::vk;

use crate::Result;
use crate::producer::{Fill, Frame, Produced, Source};

/// Hears of each frame when it is produced, when it is submitted, and when the GPU is done with it. (Not of those that a producer
/// which has failed leaves unfinished.)
pub trait Observer {
    /// The frame was produced, and nothing is recorded yet. The GPU is done with the flight.
    fn produced(&mut self, _flight: usize, _produced: &Produced) -> Result<()> {
        Ok(())
    }

    /// Records commands of its own, ahead of the draw, behind each of its slices, and behind it. Commands that are submitted again
    /// for a later frame are not recorded again, so what differs from frame to frame has no place in them.
    ///
    /// # Safety
    /// `commands` is being recorded, in a render pass for [`At::Slice`] and outside of one else; the GPU is done with the
    /// flight; `source` is of the run's scene and readable.
    unsafe fn record(&self, commands: vk::CommandBuffer, flight: usize, source: Source, at: At);

    /// The frame was submitted.
    fn submitted(&mut self, _flight: usize, _frame: &Frame, _produced: &Produced, _picture: vk::Extent2D) {}

    /// The GPU is done with the frame.
    fn finished(&mut self, frame: &Finished<'_>) -> Result<()>;

    /// Into how many slices it wants the draw cut, to record something behind each; 0 for a whole one. It may get more, if another
    /// observer wants more. Commands are recorded anew when this changes.
    fn slices(&self) -> usize {
        0
    }
}

/// Where in a frame's commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Ahead of the draw.
    BeforeDraw,
    /// Behind this slice of the draw.
    Slice(usize),
    /// Behind the draw.
    AfterDraw,
}

/// A frame that the GPU has finished.
#[derive(Clone, Copy)]
pub struct Finished<'a> {
    /// Its number.
    pub frame: u64,
    /// The flight that it used.
    pub flight: usize,
    /// When the CPU began with it, and how long it worked on it, waits left out.
    pub cpu: (Instant, Duration),
    /// The begin of its commands, the begin of the draw and its end, in nanoseconds of the GPU's clock, where that has one.
    pub marks: Option<[f64; 3]>,
    /// CUDA's stream, which knows the times of the kernel.
    pub fill: Option<&'a Fill>,
}
