//! One frame: pace, produce, record, submit. The window and the headless run both drive this.

use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use ash::vk;
use tracing::trace_span;
use vulkan_cuda::ownership::Owner;

use super::scene::{field_producer, texture_producer};
use super::watchdog::{Patience, Watchdog};
use super::{Choice, Config, ProducerKind, Scene, Stop, Summary};
use crate::producer::{
    Blocked, CHECK_READS, CHECK_SAMPLES, DRAW_READS, DRAW_SAMPLES, Frame, Producer, level_regions,
};
use crate::render::{Camera, ColorMap, FieldRenderer, FieldRendererDesc, Picture, Slices, Source};
use crate::report::Failures;
use crate::texture::{self, Texel};
use crate::trace::{Recorder, SLICES, Track};
use crate::verify::tally::Tally;
use crate::verify::{Check, CheckDesc, Pass};
use crate::vulkan::{Device, Flight, Pacer, Queue, Timestamps, read_buffer, read_image_levels};
use crate::wave::{Grid, Vertex};
use crate::{Error, Result, report};

/// A producer, a renderer and the queue between them.
pub struct Engine {
    // Field order is drop order; `Drop` first waits for both APIs.
    /// Looks at every vertex, in a checked run.
    check: Option<Check>,
    renderer: FieldRenderer,
    // Dropped by hand: not while it is in use.
    producer: ManuallyDrop<Box<dyn Producer>>,
    pacer: Pacer,
    timestamps: Option<Timestamps<3>>,
    queue: Queue,
    /// What the CPU saw of each frame in flight.
    begun: Vec<Option<Begun>>,
    /// What is in each flight's command buffer, where it may be submitted again.
    recorded: Vec<Option<Recorded>>,
    finished: Option<FrameTiming>,
    /// The number of the frame that was, or would have been, this producer's frame 0.
    first: u64,
    grid: Grid,
    scene: Scene,
    patience: Patience,
    /// Collects when everything was, for `--trace`.
    recorder: Option<Recorder>,
    /// Something has failed, and was reported.
    failed: bool,
    /// The watchdog has given up: nothing is worth waiting for any more.
    stuck: bool,
}

/// The CPU's half of a frame's times.
#[derive(Clone, Copy)]
struct Begun {
    frame: u64,
    at: Instant,
    cpu: Duration,
}

/// What a flight's commands were recorded for.
///
/// Recording takes half of a frame's CPU time, and where the producer does its work on another queue the commands of two
/// frames differ in nothing else than this. The camera is in a uniform buffer, the values to wait for are in the submission.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Recorded {
    source: Source,
    image: vk::Image,
    view: vk::ImageView,
    extent: vk::Extent2D,
    traced: bool,
}

/// When a frame is, in the field's time.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Seconds since the start.
    pub time: f64,
    /// Seconds to the next frame, as far as is known.
    pub step: f64,
}

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
const BEGIN: usize = 0;
const DRAW: usize = 1;
const END: usize = 2;

/// Binary semaphores that tie a frame to the window system.
#[derive(Clone, Copy, Debug)]
pub struct PresentSync {
    /// Signalled when the picture may be drawn on.
    pub acquired: vk::Semaphore,
    /// To be signalled when it is drawn.
    pub rendered: vk::Semaphore,
}

impl Engine {
    /// Makes the producer that `config` asks for, and a renderer for pictures of `format`.
    pub fn new(queue: Queue, choice: &Choice, config: &Config, format: vk::Format) -> Result<Self> {
        Self::with_flights(queue, choice, config, format, 1)
    }

    /// The same with resources for `flights` frames in flight at least, for producers that come later.
    pub(crate) fn with_flights(
        mut queue: Queue,
        choice: &Choice,
        config: &Config,
        format: vk::Format,
        flights: usize,
    ) -> Result<Self> {
        if config.kernel.is_some()
            && (choice.cuda.is_none()
                || matches!(config.producer, ProducerKind::Compute | ProducerKind::Host))
        {
            let reason = choice.fallback.as_deref().unwrap_or("--producer asks for another");
            return Err(Error::Unsupported(format!("--kernel needs the CUDA producer: {reason}")));
        }
        let patience = Patience {
            timeout: config.timeout,
            software: queue.device().info().kind == vk::PhysicalDeviceType::CPU && choice.cuda.is_none(),
            stop: Stop::default(),
        };
        queue.set_patience(patience.limit(None));
        let mut producer = match config.scene {
            Scene::Field => field_producer(&queue, choice, config)?,
            Scene::Texture => texture_producer(&mut queue, choice, config)?,
        };
        if let Some(broken) = config.broken {
            producer.break_sync(broken)?;
        }
        let mut pacer = Pacer::new(&queue, producer.max_in_flight().max(flights), config.spin)?;
        pacer.set_limit(producer.max_in_flight());
        let desc = || CheckDesc {
            scene: config.scene,
            grid: config.grid,
            flights: pacer.depth(),
            has_reference: config.kernel.is_none(),
            broken: config.broken,
            machine: choice.machine(),
        };
        let check = config.verify.then(|| Check::new(&mut queue, &mut *producer, desc())).transpose()?;
        let renderer = FieldRenderer::new(
            &mut queue,
            &FieldRendererDesc {
                format,
                flights: pacer.depth(),
                surface: config.scene.surface(),
                grid: config.grid,
                color_map: config.color_map,
                samples: config.samples,
            },
        )?;
        let timestamps = Timestamps::new(queue.device(), pacer.depth())?;
        Ok(Self {
            check,
            renderer,
            producer: ManuallyDrop::new(producer),
            begun: vec![None; pacer.depth()],
            recorded: vec![None; pacer.depth()],
            pacer,
            timestamps,
            queue,
            finished: None,
            first: 0,
            grid: config.grid,
            scene: config.scene,
            patience,
            recorder: None,
            failed: false,
            stuck: false,
        })
    }

    /// From now on waits no longer for a frame than seconds once `stop` is requested.
    pub(crate) fn heed(&mut self, stop: &Stop) {
        self.patience.stop = stop.clone();
    }

    /// Waits until a frame may begin, and hands out its resources. Nothing is enqueued yet: the frame may still be skipped.
    pub(crate) fn begin(&mut self) -> Result<Flight> {
        let watchdog =
            Watchdog::new(&**self.producer, self.queue.device(), &self.patience, self.pacer.slowest());
        let flight = trace_span!("wait").in_scope(|| self.pacer.begin(|since| watchdog.look(since)));
        let flight = self.noting(flight)?;
        let finished = self.collect(flight.index);
        self.finished = self.noting(finished)?;
        if let Some(check) = &mut self.check {
            let checked = check.collect(flight.index);
            self.noting(checked)?;
        }
        Ok(flight)
    }

    /// Waits until every submitted frame is drawn.
    pub(crate) fn drain(&mut self) -> Result<()> {
        self.wait_drawn(self.pacer.submitted())
    }

    /// Waits until the first `frames` frames are drawn.
    pub(crate) fn wait_drawn(&mut self, frames: u64) -> Result<()> {
        let watchdog =
            Watchdog::new(&**self.producer, self.queue.device(), &self.patience, self.pacer.slowest());
        let drawn = self.pacer.wait_for(frames, |since| watchdog.look(since));
        self.noting(drawn)
    }

    /// Remembers a failure, and that the watchdog gave up or a stop did not wait.
    fn noting<T>(&mut self, outcome: Result<T>) -> Result<T> {
        self.failed |= outcome.is_err();
        self.stuck |= matches!(outcome, Err(Error::Stuck { .. } | Error::Stopped(_)));
        outcome
    }

    /// The times of the frame whose resources the frame at hand has taken over.
    pub fn finished(&self) -> Option<FrameTiming> {
        self.finished
    }

    /// The times of the frame that used a flight, once the GPU is done with it.
    fn collect(&mut self, flight: usize) -> Result<Option<FrameTiming>> {
        let Some(begun) = self.begun[flight].take() else { return Ok(None) };
        let marks = match &self.timestamps {
            Some(timestamps) => timestamps.read(flight)?,
            None => None,
        };
        if let (Some(recorder), Some(marks)) = (&mut self.recorder, marks) {
            recorder.add(&**self.producer, begun.frame, flight, marks)?;
        }
        self.timing(marks, begun).map(Some)
    }

    fn timing(&self, marks: Option<[f64; 3]>, begun: Begun) -> Result<FrameTiming> {
        let between = |from: usize, to: usize| {
            marks.map(|marks| Duration::from_secs_f64((marks[to] - marks[from]).max(0.0) * 1e-9))
        };
        let in_queue = || between(BEGIN, DRAW).filter(|_| self.producer.runs_in_queue());
        let kernel = match self.producer.fill() {
            Some(fill) => fill.time(begun.frame)?,
            None => None,
        };
        Ok(FrameTiming {
            frame: begun.frame,
            kernel: kernel.or_else(in_queue),
            draw: between(DRAW, END),
            end_ns: marks.map(|marks| marks[END]),
            cpu: begun.cpu,
            latency: begun.at.elapsed(),
        })
    }

    /// The number that the next frame will have: frames drawn so far.
    pub fn next_frame(&self) -> u64 {
        self.pacer.submitted()
    }

    /// Produces and draws one frame.
    ///
    /// From here on nothing may be skipped: the producer's signal is enqueued before the submission that waits for it,
    /// so whatever Vulkan waits for has been promised.
    ///
    /// After an error the engine can only be finished with.
    pub(crate) fn draw(
        &mut self,
        flight: &Flight,
        moment: Moment,
        camera: &Camera,
        picture: &Picture,
        present: Option<PresentSync>,
    ) -> Result<()> {
        let drawn = self.try_draw(flight, moment, camera, picture, present);
        self.noting(drawn)
    }

    fn try_draw(
        &mut self,
        flight: &Flight,
        moment: Moment,
        camera: &Camera,
        picture: &Picture,
        present: Option<PresentSync>,
    ) -> Result<()> {
        let (began, blocked) = (Instant::now(), self.producer.blocked());
        let frame = Frame {
            index: self.pacer.submitted() - self.first,
            time: moment.time,
            step: moment.step,
            reads: match (self.scene, &self.check) {
                (Scene::Texture, None) => DRAW_SAMPLES,
                (Scene::Texture, Some(_)) => CHECK_SAMPLES,
                (Scene::Field, None) => DRAW_READS,
                (Scene::Field, Some(_)) => CHECK_READS,
            },
        };
        if self.renderer.needs_resize(picture.extent) {
            self.drain()?;
            self.renderer.resize(picture.extent)?;
            self.recorded.fill(None);
        }
        trace_span!("produce", frame = frame.index).in_scope(|| self.producer.produce(&frame))?;
        let number = self.producer.stamped_as(frame.index);
        self.renderer.set_view(flight.index, camera, picture.extent)?;
        if let Some(check) = &mut self.check {
            check.expect(flight.index, number)?;
        }
        trace_span!("record", frame = frame.index).in_scope(|| self.record(flight, &frame, picture))?;

        let sync = self.producer.sync(&frame)?;
        let semaphore = |raw, stage| vk::SemaphoreSubmitInfo::default().semaphore(raw).stage_mask(stage);
        let mut waits = Batch::new();
        let mut signals = Batch::new();
        if let Some(present) = present {
            // Only writing to the picture waits for the window system; everything before may go ahead.
            waits.push(semaphore(present.acquired, vk::PipelineStageFlags2::COLOR_ATTACHMENT_OUTPUT));
            signals.push(semaphore(present.rendered, vk::PipelineStageFlags2::ALL_COMMANDS));
        }
        sync.wait.into_iter().for_each(|wait| waits.push(wait));
        sync.signal.into_iter().for_each(|signal| signals.push(signal));
        signals.push(self.pacer.signal());
        let commands = [vk::CommandBufferSubmitInfo::default().command_buffer(flight.commands)];
        let batch = vk::SubmitInfo2::default()
            .wait_semaphore_infos(waits.as_slice())
            .command_buffer_infos(&commands)
            .signal_semaphore_infos(signals.as_slice());
        // A batch without commands: its signal comes when everything that was submitted before is done.
        let before = sync.signal_before.map(|signal| [signal]);
        let before = before.as_ref().map(|signal| vk::SubmitInfo2::default().signal_semaphore_infos(signal));
        let both = [before.unwrap_or_default(), batch];
        let batches = if before.is_some() { &both[..] } else { &both[1..] };
        // SAFETY: recorded just now and not pending; `Drop` waits before anything that it names goes away.
        trace_span!("submit", frame = frame.index).in_scope(|| unsafe { self.queue.submit_all(batches) })?;
        self.producer.submitted();
        self.pacer.end();
        if let Some(check) = &mut self.check {
            check.submitted(flight.index, &frame, number, picture.extent);
        }
        let waited = self.producer.blocked().time - blocked.time;
        let cpu = began.elapsed().saturating_sub(waited);
        self.begun[flight.index] = Some(Begun { frame: frame.index, at: began, cpu });
        Ok(())
    }

    /// Records the frame's commands, unless those that the flight has from an earlier frame will do.
    fn record(&mut self, flight: &Flight, frame: &Frame, picture: &Picture) -> Result<()> {
        let source = self.scene.source(&**self.producer, frame.index);
        let recorder = self.recorder.as_ref().filter(|recorder| recorder.wants());
        let Picture { image, view, extent, .. } = *picture;
        let this = Recorded { source, image, view, extent, traced: recorder.is_some() };
        if self.recorded[flight.index] == Some(this) {
            return Ok(());
        }
        self.recorded[flight.index] = None;
        self.pacer.reset(flight)?;
        let repeats = self.producer.commands_repeat();
        let device = self.queue.device().clone();
        let commands = flight.commands;
        let begin = vk::CommandBufferBeginInfo::default().flags(match repeats {
            true => vk::CommandBufferUsageFlags::empty(),
            false => vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT,
        });
        // SAFETY: the pacer says that the flight's command buffer is free, and reset it.
        unsafe { device.raw().begin_command_buffer(commands, &begin) }
            .map_err(device.failed("vkBeginCommandBuffer"))?;
        let mark = |mark| {
            if let Some(timestamps) = &self.timestamps {
                timestamps.mark(commands, flight.index, mark);
            }
        };
        if let Some(timestamps) = &self.timestamps {
            timestamps.reset(commands, flight.index);
        }
        mark(BEGIN);
        self.producer.record_before_draw(commands, frame);
        let look = |pass| {
            if let Some(check) = &self.check {
                // SAFETY: recording, outside a render pass; the pacer says that the flight is free; the producer has
                // made the slot readable for the check too, as `Frame::reads` asks.
                unsafe { check.record(commands, flight.index, source, pass) };
            }
        };
        look(Pass::BeforeDraw);
        mark(DRAW);
        if let Some(recorder) = recorder {
            recorder.reset(commands, flight.index);
        }
        let mark_slice = |slice| {
            if let Some(recorder) = recorder {
                recorder.mark(commands, flight.index, slice);
            }
        };
        let slices = recorder.map(|_| Slices { count: SLICES, after: &mark_slice });
        // SAFETY: recording; the pacer says that the flight is free; the producer has made the source readable; the
        // picture is the caller's to draw on.
        unsafe { self.renderer.record(commands, flight.index, source, picture, slices) }?;
        mark(END);
        look(Pass::AfterDraw);
        self.producer.record_after_draw(commands, frame);
        // SAFETY: recording.
        unsafe { device.raw().end_command_buffer(commands) }.map_err(device.failed("vkEndCommandBuffer"))?;
        self.recorded[flight.index] = repeats.then_some(this);
        Ok(())
    }

    /// Another producer from the next frame on; gives the old one back, with nothing of it in use. Waits for both sides.
    ///
    /// # Errors
    /// The old producer failed, or nothing came to rest: then both are where they were. (Where a kernel never ends,
    /// nothing of CUDA may be dropped: that would wait for it.)
    #[cfg(target_os = "linux")]
    pub(crate) fn swap(&mut self, incoming: &mut Option<Installed>) -> Result<Installed> {
        self.finish()?;
        // Of the producer that goes, everything is counted.
        if let Some(check) = &mut self.check {
            let counted = (0..self.pacer.depth()).try_for_each(|flight| check.collect(flight));
            self.noting(counted)?;
        }
        match incoming.take() {
            Some(incoming) => Ok(self.put(incoming)),
            None => Err(Error::Unsupported("there is no producer to exchange".into())),
        }
    }

    /// The same after the producer has failed: it lets go first. `None` where nothing comes to rest.
    #[cfg(target_os = "linux")]
    pub(crate) fn swap_failed(&mut self, incoming: Installed) -> Option<Installed> {
        self.quiesce().then(|| {
            if let Some(check) = &mut self.check {
                check.exchanged(true);
            }
            self.put(incoming)
        })
    }

    /// Nothing is in flight: the old producer can be exchanged.
    #[cfg(target_os = "linux")]
    fn put(&mut self, incoming: Installed) -> Installed {
        let submitted = self.pacer.submitted();
        let next = submitted - self.first;
        if let Some(check) = &mut self.check {
            check.exchanged(false);
        }
        // The times of its last frames are asked of nobody.
        self.begun.fill(None);
        self.recorded.fill(None);
        self.pacer.set_limit(incoming.producer.max_in_flight());
        self.first = submitted - incoming.next;
        Installed { producer: std::mem::replace(&mut *self.producer, incoming.producer), next }
    }

    /// In a checked run: makes a producer that has not produced yet stamp its frames, and blanks its slots, before it is
    /// [swapped](Self::swap) in. Waits for the GPU.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))] // Only `serve` asks.
    pub(crate) fn follow(&mut self, producer: &mut dyn Producer) -> Result<()> {
        if self.check.is_some() {
            self.drain()?;
        }
        match &mut self.check {
            Some(check) => check.follow(&mut self.queue, producer),
            None => Ok(()),
        }
    }

    /// In a checked run: blanks slots that nobody uses yet. Waits for the GPU.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))] // Only `serve` asks.
    pub(crate) fn blank(&mut self, slots: &[vk::Buffer], owner: Owner) -> Result<()> {
        if self.check.is_some() {
            self.drain()?;
        }
        match &self.check {
            Some(check) => check.blank(&mut self.queue, slots, owner),
            None => Ok(()),
        }
    }

    /// What the check has found so far, in a checked run: everything, once [`Engine::summary`] was asked for.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))] // Only `serve` asks.
    pub(crate) fn found(&self) -> Option<Tally> {
        self.check.as_ref().map(Check::tally)
    }

    /// Frames that the GPU has finished drawing.
    #[cfg(target_os = "linux")]
    pub(crate) fn frames_finished(&self) -> Result<u64> {
        self.pacer.finished()
    }

    /// Waits until every frame is drawn and the producer is idle.
    pub fn finish(&mut self) -> Result<()> {
        self.drain()?;
        let idle = self.producer_idle();
        self.noting(idle)?;
        // Whatever the watchdog gave up before has come to an end after all.
        self.stuck = false;
        Ok(())
    }

    /// Traces the frames from now on, at most `most` of them; see [`crate::trace`]. Brings both sides to rest.
    pub(crate) fn start_trace(&mut self, most: usize) -> Result<()> {
        self.finish()?;
        // What was drawn before is not part of it.
        self.begun.fill(None);
        let recorder = Recorder::new(&mut self.queue, &**self.producer, self.pacer.depth(), most)?;
        self.recorder = Some(recorder);
        Ok(())
    }

    /// Ends the trace, if there is one, and gives what it collected.
    pub(crate) fn end_trace(&mut self, name: String, failures: &mut Failures) -> Option<Track> {
        self.collect_rest(failures);
        let device = self.queue.device();
        self.recorder.take().map(|recorder| recorder.into_track(name, device, self.grid, &**self.producer))
    }

    /// Waits for the frames in flight and takes in what they say. After a failure it waits for nothing, and takes in those
    /// that the GPU has finished all the same.
    fn collect_rest(&mut self, failures: &mut Failures) {
        if !self.failed {
            failures.catch(self.finish());
        }
        let depth = self.pacer.depth() as u64;
        let finished = self.pacer.finished().unwrap_or(0);
        // In the order in which they were drawn.
        for frame in self.pacer.submitted().saturating_sub(depth)..finished {
            let flight = (frame % depth) as usize;
            let traced = match self.recorder {
                Some(_) => self.collect(flight).map(drop),
                None => Ok(()),
            };
            let collected = traced.and_then(|()| match &mut self.check {
                Some(check) => check.collect(flight),
                None => Ok(()),
            });
            // What follows from an earlier failure is no news.
            if !self.failed {
                failures.catch(collected);
            }
        }
    }

    /// Forgets recorded commands: what they draw on, or from, may be gone, and something else may have the same handles.
    pub(crate) fn forget_recorded(&mut self) {
        self.recorded.fill(None);
    }

    /// Waits for what the producer has enqueued, ahead of its time perhaps.
    fn producer_idle(&self) -> Result<()> {
        let watchdog =
            Watchdog::new(&**self.producer, self.queue.device(), &self.patience, self.pacer.slowest());
        let began = Instant::now();
        while !self.producer.is_idle()? {
            watchdog.look(began.elapsed())?;
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    /// Brings both sides to rest, for dropping. False: the GPU still uses everything and may never stop.
    pub(super) fn quiesce(&mut self) -> bool {
        if self.stuck {
            return false;
        }
        // A producer that fails, now or meanwhile, must keep nobody waiting: it lets go, and what it enqueued will not run.
        let (producer, patience, reported) =
            (&mut self.producer, self.patience.limit(self.pacer.slowest()), &mut self.failed);
        let mut let_go = || {
            let failure = producer.is_idle().err();
            if let Some(error) = &failure {
                producer.abandon();
                if !std::mem::replace(reported, true) {
                    report::cleanup_error(error);
                }
            }
            failure.is_some()
        };
        let_go();
        let drained = self.pacer.wait_all(|since| {
            let_go();
            match since < patience {
                true => Ok(()),
                false => Err(Error::Unsupported("still waiting".into())),
            }
        });
        let failed = let_go();
        if drained.is_ok()
            && let Err(error) = self.queue.wait_presented()
            && !std::mem::replace(&mut self.failed, true)
        {
            // All that was submitted is done all the same.
            report::cleanup_error(&error);
        }
        let vulkan = match drained {
            Ok(()) => true,
            Err(error) => {
                if !std::mem::replace(&mut self.failed, true) {
                    report::cleanup_error(&error);
                }
                // A lost device runs nothing any more.
                matches!(error, Error::DeviceLost { .. })
            }
        };
        let producer = failed || self.producer_idle().is_ok() || self.producer.is_idle().is_err();
        self.stuck = !(vulkan && producer);
        !self.stuck
    }

    /// Other colours from the next frame on; waits for the GPU.
    pub fn set_color_map(&mut self, map: ColorMap) -> Result<()> {
        self.drain()?;
        self.renderer.set_color_map(&mut self.queue, map)
    }

    /// The queue, for presenting and reading back.
    pub fn queue(&mut self) -> &mut Queue {
        &mut self.queue
    }

    /// The device.
    pub fn device(&self) -> &Device {
        self.queue.device()
    }

    /// How often the CPU had to wait for the GPU, wherever.
    pub fn blocking_waits(&self) -> u64 {
        let Blocked { count, .. } = self.producer.blocked();
        self.pacer.blocking_waits() + count
    }

    /// Who fills the field.
    pub fn producer(&self) -> &dyn Producer {
        &**self.producer
    }

    /// The vertices of a slot, as the last frame that used it left them. Waits for both APIs; for tests.
    pub fn read_slot(&mut self, slot: usize) -> Result<Vec<Vertex>> {
        self.finish()?;
        let buffer = self.producer.slots()[slot];
        let bytes = read_buffer(&mut self.queue, buffer, self.grid.bytes(), self.producer.owner())?;
        Ok(bytemuck::allocation::pod_collect_to_vec(&bytes))
    }

    /// The texels of a slot that is an image, level after level, as the last frame that used it left them. Waits for both
    /// APIs; for tests.
    pub fn read_texture(&mut self, slot: usize) -> Result<Vec<Texel>> {
        self.finish()?;
        let slot = self.producer.images()[slot];
        let bytes = read_image_levels(
            &mut self.queue,
            (slot.image, slot.layout),
            &level_regions(self.grid),
            texture::chain_bytes(self.grid),
            self.producer.owner(),
        )?;
        Ok(bytemuck::allocation::pod_collect_to_vec(&bytes))
    }

    /// What was run, for the end; and what the check found, in a checked run: then it reads every slot back. Waits for both
    /// APIs. After a failure it waits for nothing, reads no slot, and says what is known.
    pub fn summary(&mut self, times: super::FrameTimes, skipped: u64, failures: &mut Failures) -> Summary {
        self.collect_rest(failures);
        let drawn = self.pacer.submitted();
        let checked = self.check.as_mut().map(|check| {
            let whole = (!self.failed).then(|| check.finish(&mut self.queue, &**self.producer, drawn));
            let whole = whole.and_then(|whole| failures.catch(whole));
            whole.unwrap_or_else(|| check.so_far(drawn))
        });
        let info = self.device().info();
        Summary {
            checked,
            frames: self.pacer.submitted(),
            skipped,
            times,
            pacing_waits: self.pacer.blocking_waits(),
            handoff_waits: self.producer.blocked().count,
            ring: self.producer.slot_count(),
            scene: self.scene,
            grid: self.grid,
            producer: self.producer.name(),
            device: format!("{} ({})", info.name, info.driver),
            validation: self
                .device()
                .instance()
                .validates()
                .then(|| self.device().instance().validation_log().warnings()),
        }
    }
}

/// A producer, and the number of its next frame: each counts its own frames without gaps, whoever drew in between.
#[cfg(target_os = "linux")]
pub(crate) struct Installed {
    pub(crate) producer: Box<dyn Producer>,
    pub(crate) next: u64,
}

#[cfg(target_os = "linux")]
impl Installed {
    /// A producer that has not produced yet.
    pub(crate) fn new(producer: Box<dyn Producer>) -> Self {
        Self { producer, next: 0 }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Both sides idle, then the fields: CUDA's mappings and imports before Vulkan's objects before their memory.
        // What a stuck GPU uses is left: whoever owns more than the engine goes through `retire`.
        if !self.quiesce() {
            return self.device().leave_running();
        }
        // SAFETY: once, here; nobody looks at it any more.
        unsafe { ManuallyDrop::drop(&mut self.producer) };
    }
}

/// A few semaphores without a heap allocation: a frame has three at most of each kind.
struct Batch {
    infos: [vk::SemaphoreSubmitInfo<'static>; 3],
    count: usize,
}

impl Batch {
    fn new() -> Self {
        Self { infos: [vk::SemaphoreSubmitInfo::default(); 3], count: 0 }
    }

    fn push(&mut self, info: vk::SemaphoreSubmitInfo<'static>) {
        self.infos[self.count] = info;
        self.count += 1;
    }

    fn as_slice(&self) -> &[vk::SemaphoreSubmitInfo<'static>] {
        &self.infos[..self.count]
    }
}
