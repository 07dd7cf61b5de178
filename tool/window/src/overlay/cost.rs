use std::time::Duration;

use ash::vk;

use super::FLIGHTS;
use wavefield_gpu::Result;
use wavefield_gpu::vulkan::{Device, Timestamps};

/// The weight of the newest frame in a smoothed time.
const SMOOTH: f64 = 0.02;

/// The overlay's own time per frame, smoothed, in seconds.
pub(crate) struct OverlayCost {
    pub(super) cpu: f64,
    /// Includes the copy for a film.
    pub(super) gpu: f64,
    /// GPU timestamps at the start and the end of the commands after the draw.
    marks: Option<Timestamps<2>>,
    marked: [bool; FLIGHTS],
}

impl OverlayCost {
    pub(super) fn new(device: &Device) -> Result<Self> {
        Ok(Self { cpu: 0.0, gpu: 0.0, marks: Timestamps::new(device, FLIGHTS)?, marked: [false; FLIGHTS] })
    }

    /// Call this before recording the overlay's commands. The GPU must have finished the flight's earlier
    /// commands.
    pub(super) fn begin(&mut self, commands: vk::CommandBuffer, flight: usize) -> Result<()> {
        let Some(marks) = self.marks.as_ref().filter(|_| flight < FLIGHTS) else { return Ok(()) };
        if std::mem::replace(&mut self.marked[flight], true)
            && let Some([begin, end]) = marks.read(flight)?
        {
            self.gpu += ((end - begin) * 1e-9 - self.gpu) * SMOOTH;
        }
        marks.reset(commands, flight);
        marks.mark(commands, flight, 0);
        Ok(())
    }

    /// Call this after recording all commands that follow the draw.
    pub(crate) fn end(&mut self, commands: vk::CommandBuffer, flight: usize) {
        self.cpu *= 1.0 - SMOOTH;
        if let Some(marks) = self.marks.as_ref().filter(|_| flight < FLIGHTS) {
            marks.mark(commands, flight, 1);
        }
    }

    pub(super) fn spend(&mut self, time: Duration) {
        self.cpu += time.as_secs_f64() * SMOOTH;
    }
}
