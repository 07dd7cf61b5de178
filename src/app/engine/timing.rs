//! How long the parts of a frame took.

use std::time::{Duration, Instant};

use ash::vk;

use crate::Result;
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
    /// When the CPU had submitted it.
    pub submitted: Instant,
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

    /// What the CPU saw of a flight's frame, which the GPU is done with, and its marks. Once for each frame.
    pub(super) fn take(&mut self, flight: usize) -> Option<(Begun, Result<Option<[f64; 3]>>)> {
        let begun = self.begun[flight].take()?;
        Some((begun, self.timestamps.as_ref().map_or(Ok(None), |timestamps| timestamps.read(flight))))
    }
}

/// What both sides' clocks say of a finished frame.
pub(super) struct Timed {
    pub(super) begun: Begun,
    pub(super) marks: Option<[f64; 3]>,
}

/// The times of a frame that `producer` has filled, if one has.
pub(super) fn timing(Timed { begun, marks }: Timed, producer: Option<&dyn Producer>) -> Result<FrameTiming> {
    let between = |from: usize, to: usize| {
        marks.map(|marks| Duration::from_secs_f64((marks[to] - marks[from]).max(0.0) * 1e-9))
    };
    let kernel = match producer.and_then(Producer::fill) {
        Some(fill) => fill.time(begun.frame)?,
        None => None,
    };
    let in_queue = producer.is_some_and(|producer| producer.profile().in_queue);
    Ok(FrameTiming {
        frame: begun.frame,
        kernel: kernel.or_else(|| between(BEGIN, DRAW).filter(|_| in_queue)),
        draw: between(DRAW, END),
        end_ns: marks.map(|marks| marks[END]),
        submitted: begun.at + begun.cpu,
        cpu: begun.cpu,
        latency: begun.at.elapsed(),
    })
}
