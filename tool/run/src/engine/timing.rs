use std::time::{Duration, Instant};

use wavefield_gpu::Result;
use wavefield_gpu::vulkan::Timestamps;
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
    /// Whether compute shaders drew it.
    pub by_compute: bool,
    /// From the start of production until the CPU noticed the end of the frame.
    pub latency: Duration,
}

/// Indices of a frame's marks: frame start, draw start, draw end.
pub(super) const BEGIN: usize = 0;
pub(super) const DRAW: usize = 1;
pub(super) const END: usize = 2;

pub(super) struct FrameTimer {
    pub(super) timestamps: Option<Timestamps<3>>,
    /// How many frames [`Observers::collect_finished`](super::Observers::collect_finished) has passed.
    pub(super) collected: u64,
    /// `None` if no new frame had finished when the current one began.
    pub(super) last: Option<FrameTiming>,
    /// Each flight's frame, until it is collected.
    pub(super) begun: Vec<Option<Begun>>,
}

#[derive(Clone, Copy)]
pub(super) struct Begun {
    pub(super) frame: u64,
    pub(super) at: Instant,
    pub(super) cpu: Duration,
    pub(super) by_compute: bool,
}

pub(super) fn timing(begun: Begun, marks: Option<[f64; 3]>, producer: &dyn Producer) -> Result<FrameTiming> {
    let between = |from: usize, to: usize| {
        marks.map(|marks| Duration::from_secs_f64((marks[to] - marks[from]).max(0.0) * 1e-9))
    };
    let kernel = producer.cuda_timeline().map_or(Ok(None), |timeline| timeline.time(begun.frame))?;
    Ok(FrameTiming {
        frame: begun.frame,
        kernel: kernel.or_else(|| between(BEGIN, DRAW).filter(|_| producer.profile().in_queue)),
        draw: between(DRAW, END),
        end_ns: marks.map(|marks| marks[END]),
        cpu: begun.cpu,
        by_compute: begun.by_compute,
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
        run.frame_at(moment).unwrap();
        // The second frame is held back until another thread lets it go.
        let device = run.engine().device().clone();
        let held = device.timeline(0).unwrap();
        let stage_mask = vk::PipelineStageFlags2::ALL_COMMANDS;
        let wait = [vk::SemaphoreSubmitInfo::default().semaphore(held.raw()).value(1).stage_mask(stage_mask)];
        let batch = vk::SubmitInfo2::default().wait_semaphore_infos(&wait);
        // SAFETY: the semaphore lives until `finish` below has waited for this submission.
        unsafe { run.engine().queue().submit(&[batch]) }.unwrap();
        run.frame_at(moment).unwrap();
        let engine = run.engine();
        let extent = vk::Extent2D { width: 30, height: 30 };
        let small = OffscreenTarget::new(&device, extent, OffscreenTarget::FORMAT).unwrap();
        let flight = engine.begin().unwrap();
        let (ended, released) = std::thread::scope(|threads| {
            let release = threads.spawn(|| {
                // Long enough that the frame below has begun to wait.
                std::thread::sleep(Duration::from_millis(50));
                let released = Instant::now();
                let signal = vk::SemaphoreSignalInfo::default().semaphore(held.raw()).value(1);
                // SAFETY: a live timeline semaphore of this device, which nothing else signals.
                unsafe { device.raw().signal_semaphore(&signal) }.unwrap();
                released
            });
            engine.draw(&flight, moment, &small.picture(), AfterDraw::default()).unwrap();
            (Instant::now(), release.join().unwrap())
        });
        engine.work.finish().unwrap();
        let (end, producer) = (engine.next_frame(), engine.work.producer.get());
        let timing = engine.observers.collect_finished(end, producer).unwrap().unwrap();
        assert_eq!(timing.frame, 2);
        assert!(ended - timing.cpu >= released, "{:?} until {ended:?}, {released:?}", timing.cpu);
    }
}
