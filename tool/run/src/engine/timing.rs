use std::time::{Duration, Instant};

use ash::vk;

use super::observers::Observers;
use crate::watch::observer::Finished;
use wavefield_gpu::Result;
use wavefield_gpu::vulkan::{Device, Timestamps};
use wavefield_handoff::producer::Producer;

#[derive(Clone, Copy, Debug)]
pub struct FrameTiming {
    pub frame: u64,
    /// From CUDA events, or from Vulkan timestamps if the kernel is in the command buffer.
    pub kernel: Option<Duration>,
    pub draw: Option<Duration>,
    /// The end of the draw, in nanoseconds of the GPU's clock.
    pub end_ns: Option<f64>,
    /// CPU time to produce, record and submit, without waits for the hand-off.
    pub cpu: Duration,
    /// From the start of production until the CPU noticed the end of the frame.
    pub latency: Duration,
}

/// Indices of a frame's marks: frame start, draw start, draw end.
pub(super) const BEGIN: usize = 0;
pub(super) const DRAW: usize = 1;
pub(super) const END: usize = 2;

pub(super) struct FrameTimer {
    timestamps: Option<Timestamps<3>>,
    /// Finished frames that [`FrameTimer::collect_finished`] has passed.
    pub(super) collected: u64,
    /// `None` if no new frame had finished when the current one began.
    pub(super) last: Option<FrameTiming>,
    /// Per flight, until taken.
    begun: Vec<Option<Begun>>,
}

#[derive(Clone, Copy)]
pub(super) struct Begun {
    pub(super) frame: u64,
    pub(super) at: Instant,
    pub(super) cpu: Duration,
}

impl FrameTimer {
    pub(super) fn new(device: &Device, flights: usize) -> Result<Self> {
        let timestamps = Timestamps::new(device, flights)?;
        Ok(Self { timestamps, collected: 0, last: None, begun: vec![None; flights] })
    }

    /// `commands` must be outside a render pass.
    pub(super) fn reset(&self, commands: vk::CommandBuffer, flight: usize) {
        if let Some(timestamps) = &self.timestamps {
            timestamps.reset(commands, flight);
        }
    }

    pub(super) fn mark(&self, commands: vk::CommandBuffer, flight: usize, mark: usize) {
        if let Some(timestamps) = &self.timestamps {
            timestamps.mark(commands, flight, mark);
        }
    }

    pub(super) fn submitted(&mut self, flight: usize, begun: Begun) {
        self.begun[flight] = Some(begun);
    }

    #[cfg(target_os = "linux")] // Only `exchange` calls this.
    pub(super) fn forget(&mut self) {
        self.begun.fill(None);
    }

    /// Tells the observers of every finished frame before `end` that they do not know yet, in order. Returns
    /// the times of the last. The GPU must have finished these frames.
    pub(super) fn collect_finished(
        &mut self,
        end: u64,
        producer: &dyn Producer,
        observers: &mut Observers,
    ) -> Result<Option<FrameTiming>> {
        let mut last = None;
        while self.collected < end {
            let flight = (self.collected % self.begun.len() as u64) as usize;
            self.collected += 1;
            let Some(begun) = self.begun[flight].take() else { continue };
            let marks = self.timestamps.as_ref().map_or(Ok(None), |timestamps| timestamps.read(flight));
            // Even if its times cannot be read, the observers are told of the frame.
            let known = marks.as_ref().ok().copied().flatten();
            let (timeline, cpu) = (producer.cuda_timeline(), (begun.at, begun.cpu));
            let finished = Finished { frame: begun.frame, flight, cpu, marks: known, timeline };
            observers.each_mut().try_for_each(|observer| observer.finished(&finished))?;
            last = Some(timing(begun, marks?, producer)?);
        }
        Ok(last)
    }
}

fn timing(begun: Begun, marks: Option<[f64; 3]>, producer: &dyn Producer) -> Result<FrameTiming> {
    let between = |from: usize, to: usize| {
        marks.map(|marks| Duration::from_secs_f64((marks[to] - marks[from]).max(0.0) * 1e-9))
    };
    let kernel = match producer.cuda_timeline() {
        Some(timeline) => timeline.time(begun.frame)?,
        None => None,
    };
    Ok(FrameTiming {
        frame: begun.frame,
        kernel: kernel.or_else(|| between(BEGIN, DRAW).filter(|_| producer.profile().in_queue)),
        draw: between(DRAW, END),
        end_ns: marks.map(|marks| marks[END]),
        cpu: begun.cpu,
        latency: begun.at.elapsed(),
    })
}

#[cfg(test)]
mod tests {
    use ash::vk;

    use super::*;
    use crate::engine::{AfterDraw, Moment};
    use crate::{Config, DeviceTable, Headless, ProducerKind};
    use wavefield_draw::OffscreenTarget;
    use wavefield_handoff::contents::wave::Grid;

    #[test]
    fn the_wait_before_a_resize_is_not_cpu_time() {
        let config = Config {
            grid: Grid { cols: 64, rows: 64 },
            producer: ProducerKind::Compute,
            size: vk::Extent2D { width: 1500, height: 1500 },
            ..Config::default()
        };
        let table = DeviceTable::headless(config.validation).unwrap();
        let mut run = Headless::new(&table.choose(None, config.producer).unwrap(), &config).unwrap();
        let moment = Moment { time: 0.5, step: 0.0 };
        for _ in 0..2 {
            run.frame_at(moment).unwrap();
        }
        // The large picture is still being drawn.
        let engine = run.engine();
        let extent = vk::Extent2D { width: 30, height: 30 };
        let small = OffscreenTarget::new(engine.device(), extent, OffscreenTarget::FORMAT).unwrap();
        let flight = engine.begin().unwrap();
        let (device, done) = (engine.device().clone(), engine.pacer.signal().semaphore);
        // When the CPU was done with the frame, and when the earlier frames were last seen unfinished.
        let (ended, unfinished) = std::thread::scope(|threads| {
            let watch = threads.spawn(move || {
                let mut unfinished = Instant::now();
                loop {
                    let now = Instant::now();
                    // SAFETY: the pacer's timeline, which outlives this thread.
                    if unsafe { device.raw().get_semaphore_counter_value(done) }.unwrap() >= 2 {
                        return unfinished;
                    }
                    unfinished = now;
                    std::thread::sleep(Duration::from_micros(200));
                }
            });
            engine.draw(&flight, moment, &small.picture(), AfterDraw::default()).unwrap();
            (Instant::now(), watch.join().unwrap())
        });
        engine.finish().unwrap();
        let timing = engine.collect_finished(engine.next_frame()).unwrap().unwrap();
        assert_eq!(timing.frame, 2);
        assert!(ended - timing.cpu >= unfinished, "{:?} until {ended:?}, {unfinished:?}", timing.cpu);
    }
}
