//! How long the parts of a frame took.

use std::time::{Duration, Instant};

use ash::vk;

use crate::Result;
use crate::observer::Finished;
use crate::producer::Producer;
use crate::vulkan::{Device, Timestamps};

/// How long the parts of a finished frame took.
#[derive(Clone, Copy, Debug)]
pub struct FrameTiming {
    /// The frame's number.
    pub frame: u64,
    /// The kernel alone: by CUDA events, or by Vulkan timestamps where it is in the command buffer.
    pub kernel: Option<Duration>,
    /// The draw alone, by Vulkan timestamps.
    pub draw: Option<Duration>,
    /// When the draw was done, in nanoseconds of the GPU's clock.
    pub end_ns: Option<f64>,
    /// CPU time to produce, record and submit, waits left out.
    pub cpu: Duration,
    /// From the begin of production to when the CPU learnt of the frame's end.
    pub latency: Duration,
}

/// The marks of a frame: its begin, the begin of the draw, the end of the draw.
pub(super) const BEGIN: usize = 0;
pub(super) const DRAW: usize = 1;
pub(super) const END: usize = 2;

/// The times of the frames in flight.
pub(super) struct Times {
    timestamps: Option<Timestamps<3>>,
    /// What the CPU saw of each flight's frame.
    begun: Vec<Option<Begun>>,
}

/// The CPU's half of a frame's times.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    pub(super) frame: u64,
    pub(super) at: Instant,
    pub(super) cpu: Duration,
}

impl Times {
    pub(super) fn new(device: &Device, flights: usize) -> Result<Self> {
        Ok(Self { timestamps: Timestamps::new(device, flights)?, begun: vec![None; flights] })
    }

    /// Resets a flight's marks, outside a render pass.
    pub(super) fn reset(&self, commands: vk::CommandBuffer, flight: usize) {
        if let Some(timestamps) = &self.timestamps {
            timestamps.reset(commands, flight);
        }
    }

    /// Records one of the marks.
    pub(super) fn mark(&self, commands: vk::CommandBuffer, flight: usize, mark: usize) {
        if let Some(timestamps) = &self.timestamps {
            timestamps.mark(commands, flight, mark);
        }
    }

    /// A flight's frame was submitted.
    pub(super) fn submitted(&mut self, flight: usize, begun: Begun) {
        self.begun[flight] = Some(begun);
    }

    /// The times of the frames in flight are asked of nobody.
    #[cfg(target_os = "linux")] // Only `exchange` asks.
    pub(super) fn forget(&mut self) {
        self.begun.fill(None);
    }

    /// What the GPU, which is done with it, says of a flight's frame, and what the CPU saw of it. Once for each frame.
    pub(super) fn take<'a>(
        &mut self,
        flight: usize,
        producer: &'a dyn Producer,
    ) -> Result<Option<(Finished<'a>, Begun)>> {
        let Some(begun) = self.begun[flight].take() else { return Ok(None) };
        let marks = match &self.timestamps {
            Some(timestamps) => timestamps.read(flight)?,
            None => None,
        };
        Ok(Some((Finished { frame: begun.frame, flight, marks, fill: producer.fill() }, begun)))
    }
}

/// The times of a finished frame, whose kernel is in the draw's command buffer or not.
pub(super) fn timing(finished: &Finished<'_>, begun: Begun, in_queue: bool) -> Result<FrameTiming> {
    let Finished { frame, marks, fill, .. } = *finished;
    let between = |from: usize, to: usize| {
        marks.map(|marks| Duration::from_secs_f64((marks[to] - marks[from]).max(0.0) * 1e-9))
    };
    let kernel = match fill {
        Some(fill) => fill.time(frame)?,
        None => None,
    };
    Ok(FrameTiming {
        frame,
        kernel: kernel.or_else(|| between(BEGIN, DRAW).filter(|_| in_queue)),
        draw: between(DRAW, END),
        end_ns: marks.map(|marks| marks[END]),
        cpu: begun.cpu,
        latency: begun.at.elapsed(),
    })
}
