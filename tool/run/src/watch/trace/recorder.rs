use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ash::vk;

use super::clock::{CudaClock, GpuClock};
use crate::watch::observer::{At, Finished, Observer};
use wavefield_gpu::Result;
use wavefield_gpu::vulkan::{Device, Queue, Timestamps};
use wavefield_handoff::producer::{Batch, CudaTimeline, Frame, Produced, Profile, Source};

/// The number of slices of a traced draw, each timed. A switch to CUDA and back makes one slice longer.
pub const SLICES: usize = 16;

/// In nanoseconds of the GPU's clock.
#[derive(Clone, Debug)]
pub struct FrameSpans {
    pub frame: u64,
    pub batch: Batch,
    /// Frame start, draw start and draw end.
    pub vulkan: [f64; 3],
    pub slices: Option<[f64; SLICES]>,
    /// Start and end of the kernel on CUDA's stream.
    pub cuda: Option<(f64, f64)>,
    /// When the CPU began the frame, and how long it worked on it, excluding waits for the hand-off.
    pub cpu: (Instant, Duration),
}

pub struct Recorder {
    slices: Option<Timestamps<SLICES>>,
    pub clock: GpuClock,
    cuda: Option<CudaClock>,
    pub frames: VecDeque<FrameSpans>,
    most: usize,
    /// Whether a new frame replaces the oldest. Otherwise recording ends after `most` frames.
    live: bool,
    batches: Vec<Batch>,
}

impl Recorder {
    /// If `live`, records the last `most` frames, with whole draws; otherwise the first ones, with draws cut into
    /// slices. Waits for both APIs, to tie their clocks.
    pub fn new(
        queue: &mut Queue,
        timeline: Option<&CudaTimeline>,
        flights: usize,
        most: usize,
        live: bool,
    ) -> Result<Self> {
        let tie = |timeline: &CudaTimeline| CudaClock::tie(timeline.stream().context(), timeline.stream());
        Ok(Self {
            slices: if live { None } else { Timestamps::new(queue.device(), flights)? },
            clock: GpuClock::tie(queue)?,
            cuda: timeline.map(tie).transpose()?,
            frames: VecDeque::with_capacity(most),
            most,
            live,
            batches: vec![Batch::of_one(0); flights],
        })
    }

    /// Ties the clocks again, as far as that is possible without waiting.
    pub fn tie_again(&mut self, queue: &mut Queue, timeline: Option<&CudaTimeline>) -> Result<()> {
        if self.clock.calibrated {
            // If this fails, keep the old tie.
            self.clock = GpuClock::tie(queue).unwrap_or(self.clock);
        }
        match (&mut self.cuda, timeline) {
            (Some(clock), Some(timeline)) => {
                clock.move_on(timeline.stream()).map_err(|error| timeline.blame(error))
            }
            _ => Ok(()),
        }
    }

    fn wants(&self) -> bool {
        self.live || self.frames.len() < self.most
    }

    pub fn into_track(self, name: String, device: &Device, producer: &Profile) -> Track {
        Track {
            name,
            device: format!("{} ({})", device.info().name, device.info().driver),
            producer: producer.clone(),
            frames: self.frames.into(),
            vulkan_clock: self.clock,
            cuda_clock_error_ns: self.cuda.as_ref().map(|clock| clock.error_ns),
        }
    }
}

impl Observer for Recorder {
    fn slices(&self) -> usize {
        if self.slices.is_some() && self.wants() { SLICES } else { 0 }
    }

    unsafe fn record(&self, commands: vk::CommandBuffer, flight: usize, _source: Source, at: At) {
        let Some(slices) = self.slices.as_ref().filter(|_| self.wants()) else { return };
        match at {
            At::BeforeDraw => slices.reset(commands, flight),
            At::Slice(slice) if slice < SLICES => slices.mark(commands, flight, slice),
            At::Slice(_) | At::AfterDraw => {}
        }
    }

    fn submitted(&mut self, flight: usize, _frame: &Frame, produced: &Produced, _picture: vk::Extent2D) {
        self.batches[flight] = produced.batch;
    }

    fn finished(&mut self, done: &Finished<'_>) -> Result<()> {
        let Finished { frame, flight, cpu, marks, timeline } = *done;
        let Some(vulkan) = marks.filter(|_| self.wants()) else { return Ok(()) };
        let mut cuda = None;
        if let (Some(timeline), Some(clock)) = (timeline, &self.cuda)
            && let Some((before, after)) = timeline.events(frame)
        {
            let time = |event| clock.time_of(event).map_err(|error| timeline.blame(error));
            cuda = time(before)?.zip(time(after)?);
        }
        let slices = self.slices.as_ref().map(|slices| slices.read(flight)).transpose()?.flatten();
        if self.live && self.frames.len() == self.most {
            self.frames.pop_front();
        }
        self.frames.push_back(FrameSpans { frame, batch: self.batches[flight], vulkan, slices, cuda, cpu });
        Ok(())
    }
}

#[derive(Clone, Debug)]
pub struct Track {
    pub name: String,
    pub device: String,
    /// If it uses CUDA, the kernel runs on a stream or in Vulkan's command buffer.
    pub producer: Profile,
    pub frames: Vec<FrameSpans>,
    pub vulkan_clock: GpuClock,
    /// The largest possible error of tying CUDA's clock; `None` without a CUDA stream.
    pub cuda_clock_error_ns: Option<f64>,
}

impl Track {
    /// Returns the kind of program that the producer runs on the GPU; `None` if it runs nothing there.
    pub fn kernel(&self) -> Option<&'static str> {
        match (self.producer.uses_cuda, self.producer.in_queue) {
            (true, _) => Some("CUDA kernel"),
            (false, true) => Some("compute shader"),
            (false, false) => None,
        }
    }

    /// Returns a lower bound of the clocks' error, or 0 if the trace shows none. A kernel cannot end after
    /// its frame's draw, or begin before its slot is free. Times that contradict this prove an error.
    pub fn clock_violation_ns(&self) -> f64 {
        let mut worst: f64 = 0.0;
        for spans in &self.frames {
            let Some((begin, end)) = spans.cuda else { continue };
            worst = worst.max(end - spans.vulkan[2]);
            if let Some(freed) = self.freed_before(spans) {
                worst = worst.max(freed.vulkan[2] - begin);
            }
        }
        worst
    }

    /// Returns the frame whose draw CUDA waited for before it filled this frame's slot.
    pub fn freed_before(&self, spans: &FrameSpans) -> Option<&FrameSpans> {
        let freed = spans.batch.waits_for?;
        self.frames.iter().find(|spans| spans.frame == freed)
    }
}
