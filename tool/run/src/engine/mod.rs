//! Draws a frame: pace, produce, record, submit. The window and the headless run share this.
//!
//! [`Engine`] draws each frame; `commands` records and submits it. The engine has three parts: [`Observers`]
//! watch frames, the [`Drawer`] draws them, and [`Work`] owns the pending work of both APIs and waits for it.

mod batching;
mod commands;
mod drawer;
#[cfg(target_os = "linux")]
mod exchange;
mod observers;
mod probe;
mod producer_state;
mod raster_choice;
mod side_views;
mod switch;
mod timing;
mod work;

use std::mem::ManuallyDrop;
use std::time::Instant;

use ash::vk;
use tracing::trace_span;

use super::{Choice, Config, ContextThread, FrameTimes, RunSummary, Stop};
use wavefield_draw::{ColorMap, FieldView, Ink, Picture, Style};
use wavefield_gpu::vulkan::{Device, Flight, Pacer, Queue, begin, end, one_shot};
use wavefield_gpu::{Result, report::Failures};
use wavefield_handoff::contents::array::DrawnArray;
use wavefield_handoff::producer::{Frame, reads};

pub use batching::Batching;
pub use commands::AfterDraw;
use commands::Recordings;
pub use drawer::Drawer;
#[cfg(target_os = "linux")]
pub use exchange::ParkedProducer;
pub use observers::Observers;
pub use probe::FoundElement;
use producer_state::ProducerState;
pub use producer_state::SlotNow;
use raster_choice::RasterChoice;
use switch::Setup;
use timing::Begun;
pub use timing::FrameTiming;
pub use work::Work;
use work::{Health, WaitLimit};

pub struct Engine {
    // Field order is drop order; `Drop` first waits for both APIs.
    pub observers: Observers,
    pub drawer: Drawer,
    pub work: Work,
    /// `None` until a saved picture has marks.
    ink: Option<Ink>,
    /// The minimum number of frames in flight that have resources.
    flights: usize,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    /// Seconds since the start.
    pub time: f64,
    /// Seconds to the next frame; an estimate in a window.
    pub step: f64,
}

impl Engine {
    /// Makes the producer that `config` asks for, and a renderer for pictures of `format`. Allocates
    /// resources for at least `flights` frames in flight, because later producers may need more.
    pub fn new(
        mut queue: Queue,
        context: ContextThread,
        choice: &Choice,
        config: &Config,
        format: vk::Format,
        flights: usize,
    ) -> Result<Self> {
        config.check_kernel(choice)?;
        let mut choice = choice.clone();
        let context = choice.context(context.finish(), config)?;
        let choice = &choice;
        let wait_limit = WaitLimit::new(&queue, choice, config);
        queue.patience = wait_limit.limit(None);
        let made = Setup::make(&mut queue, context.as_ref(), choice, (config, &[]), (format, flights))?;
        let mut pacer = Pacer::new(&queue, made.times.begun.len())?;
        let Setup { producer, check, renderer, times } = made;
        // Nothing may fail from here on: that would leak the producer.
        let mut producer = ProducerState::new(producer, &config.parameters, config.batch);
        producer.begin(&mut pacer);
        let view = FieldView { camera: config.camera(), ..FieldView::of(&DrawnArray::mesh(config.grid)) };
        let recordings = Recordings { flights: vec![None; pacer.depth()], draws: 0 };
        Ok(Self {
            observers: Observers { check, recorder: None, traced: None, watched: None, probe: None, times },
            drawer: Drawer {
                renderer,
                view,
                scene: config.scene,
                format,
                recordings,
                choice: RasterChoice::new(config.grid.count()),
                last: None,
            },
            work: Work {
                side_views: None,
                producer,
                context,
                pacer,
                queue,
                wait_limit,
                health: Health::Sound,
            },
            ink: None,
            flights,
        })
    }

    /// Sets the stop request to obey. Once it is made, no wait for a frame lasts longer than two seconds.
    pub fn set_stop(&mut self, stop: &Stop) {
        self.work.wait_limit.stop = stop.clone();
    }

    /// Waits until a frame may begin, and returns its resources. The frame may still be skipped.
    pub fn begin(&mut self) -> Result<Flight> {
        let Self { observers, work, .. } = self;
        let look = work.wait_limit.watch(work.producer.get(), work.queue.device(), work.pacer.slowest);
        let flight = trace_span!("wait").in_scope(|| work.pacer.begin(look));
        let flight = work.record_health(flight)?;
        let collected = observers.collect_finished(work.pacer.awaited(), work.producer.get());
        observers.times.last = work.record_health(collected)?;
        let next = work.next();
        if let (Some(timing), Some(auto)) = (&observers.times.last, &mut work.producer.auto)
            && let Some(frames) = auto.drawn(timing, next)
        {
            work.producer.set_batch(frames);
        }
        self.choose_raster();
        Ok(flight)
    }

    /// Returns whether more frames are needed to choose what draws the views that were asked for, even if nobody looks at these
    /// frames.
    pub fn needs_frames(&self) -> bool {
        let Self { drawer, work, .. } = self;
        let draws_views = work.side_views.as_ref().is_some_and(|side| !side.views.is_empty());
        draws_views && drawer.renderer.may_choose() && drawer.choice.needs_frames()
    }

    fn choose_raster(&mut self) {
        let Self { observers, drawer, .. } = self;
        let now = drawer.renderer.by_compute();
        if let Some(timing) = observers.times.last.filter(|_| drawer.renderer.may_choose()) {
            let next = drawer.choice.drawn(&timing, now);
            drawer.renderer.set_by_compute(next, drawer.choice.suits_many_views());
            if next != now {
                drawer.recordings.forget();
            }
        }
    }

    /// Produces and draws one frame, which can no longer be skipped: the producer's signal is enqueued before
    /// the submission that waits for it, so every signal that Vulkan waits for is certain to come. After an
    /// error the engine cannot draw again unless its producer is exchanged.
    pub fn draw(
        &mut self,
        flight: &Flight,
        moment: Moment,
        picture: &Picture,
        after: AfterDraw<'_>,
    ) -> Result<()> {
        let drawn = self.try_draw(flight, moment, picture, after);
        self.work.record_health(drawn)
    }

    fn try_draw(
        &mut self,
        flight: &Flight,
        moment: Moment,
        picture: &Picture,
        after: AfterDraw<'_>,
    ) -> Result<()> {
        let Self { observers, drawer, work, .. } = self;
        if drawer.renderer.extent() != Some(picture.extent) {
            work.drain()?;
            drawer.resize(&mut work.queue, picture.extent)?;
        }
        // Exclude the wait for earlier frames from this frame's CPU time.
        let began = Instant::now();
        let frame = Frame {
            index: work.next(),
            time: moment.time,
            step: moment.step,
            parameters: work.producer.parameters,
            reads: reads(drawer.scene, observers.check.is_some() || observers.probe.is_some()),
        };
        let produced =
            trace_span!("produce", frame = frame.index).in_scope(|| work.producer.produce(&frame))?;
        observers.each_mut().try_for_each(|observer| observer.produced(flight.index, &produced))?;
        drawer.last = None;
        drawer.renderer.set_view(flight.index, &drawer.view, picture.extent)?;
        trace_span!("record", frame = frame.index)
            .in_scope(|| drawer.record(observers, work, flight, &frame, produced.source, picture))?;
        let more = after.commands.is_some();
        if let Some(record) = after.commands {
            let (device, commands) = (work.queue.device(), flight.behind);
            begin(device, commands, vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT)?;
            record(commands)?;
            end(device, commands)?;
        }
        trace_span!("submit", frame = frame.index).in_scope(|| work.submit(flight, after.present, more))?;
        for observer in observers.each_mut() {
            observer.submitted(flight.index, &frame, &produced, picture.extent);
        }
        let cpu = began.elapsed().saturating_sub(produced.blocked.unwrap_or_default());
        observers.times.begun[flight.index] =
            Some(Begun { frame: frame.index, at: began, cpu, by_compute: drawer.renderer.by_compute() });
        drawer.last = picture.stays.then_some((*picture, drawer.view));
        Ok(())
    }

    /// Returns the times of the last frame that had finished when this frame began; `None` if none was new.
    pub fn finished(&self) -> Option<FrameTiming> {
        self.observers.times.last
    }

    /// Returns the number of the next frame, which equals the number of frames submitted so far.
    pub fn next_frame(&self) -> u64 {
        self.work.pacer.submitted()
    }

    /// Prepares for pictures of this size. No frame may be in flight.
    pub fn resize(&mut self, extent: vk::Extent2D) -> Result<()> {
        self.keep_picture()?;
        self.drawer.resize(&mut self.work.queue, extent)
    }

    /// Copies the last picture to its image if compute shaders have left it elsewhere. Waits for the queue.
    pub fn keep_picture(&mut self) -> Result<()> {
        let Self { drawer, work, .. } = self;
        let Some((picture, _)) = &drawer.last else { return Ok(()) };
        // SAFETY: recording; the picture stays, and `one_shot` waits for the queue.
        one_shot(&mut work.queue, |commands| unsafe { drawer.renderer.record_copy(commands, picture) })
    }

    /// Returns a saved picture with its marks, if it has any: four bytes per pixel, sRGB, red first. Waits for the queue.
    pub fn marked(&mut self, map: ColorMap, extent: vk::Extent2D, pixels: Vec<u8>) -> Result<Vec<u8>> {
        let marks = self.drawer.marks(map);
        if !marks.are_saved() {
            return Ok(pixels);
        }
        let queue = &mut self.work.queue;
        let mut ink = self.ink.take().map_or_else(|| Ink::new(queue), Ok)?;
        let painted = ink.paint(queue, &marks, extent, &pixels)?;
        self.ink = Some(ink);
        Ok(painted)
    }

    /// Forgets what clients' pictures are copied from and drawn on, because the next ones look different. The image of the
    /// last picture stays. Nothing may be in flight.
    fn forget_pictures(&mut self) -> Result<()> {
        self.keep_picture()?;
        (self.work.side_views, self.drawer.last) = (None, None);
        Ok(())
    }

    /// Changes the colour maps of the arrays of a slot with these numbers from the next frame on. Waits for the GPU if there
    /// are any.
    pub fn set_color_maps(&mut self, changed: &[(usize, ColorMap)]) -> Result<()> {
        if changed.is_empty() {
            return Ok(());
        }
        self.work.drain()?;
        self.forget_pictures()?;
        self.drawer.renderer.set_color_maps(&mut self.work.queue, changed)
    }

    /// Changes how the field is drawn from the next frame on. Waits for the GPU.
    pub fn set_style(&mut self, style: Style) -> Result<()> {
        self.work.drain()?;
        self.forget_pictures()?;
        self.observers.probe = None;
        self.drawer.recordings.forget();
        self.drawer.measure_again();
        self.drawer.renderer.set_style(style)
    }

    pub fn queue(&mut self) -> &mut Queue {
        &mut self.work.queue
    }

    pub fn device(&self) -> &Device {
        self.work.queue.device()
    }

    /// Returns the run's summary. Waits for both APIs unless the GPU is stuck. A checked run reads every slot
    /// back, unless something failed or the producer was exchanged.
    pub fn summary(&mut self, times: FrameTimes, skipped: u64, failures: &mut Failures) -> RunSummary {
        let Self { observers, drawer, work, .. } = self;
        observers.collect_rest(work, failures);
        let (drawn, failed) = (work.pacer.submitted(), work.has_failed());
        let profile = work.producer.profile();
        let checked = observers.check.as_mut().map(|check| {
            let whole = (!failed).then(|| check.finish(&mut work.queue, profile, drawn));
            let whole = whole.and_then(|whole| failures.catch(whole));
            whole.unwrap_or_else(|| check.so_far(drawn))
        });
        let info = work.queue.device().info();
        let instance = work.queue.device().instance();
        RunSummary {
            checked,
            recorded: None,
            parts: None,
            frames: drawn,
            skipped,
            times,
            pacing_waits: work.pacer.blocking_waits,
            handoff_waits: work.producer.waits,
            ring: profile.slots.len(),
            batch: work.producer.batch(),
            batch_changes: work.producer.auto.as_ref().map(|auto| auto.changes),
            scene: drawer.scene,
            grid: drawer.array().grid(),
            producer: profile.name,
            raster: drawer.renderer.may_choose().then(|| drawer.choice.to_string()),
            device: format!("{} ({})", info.name, info.driver),
            validation: instance.validates().then(|| instance.validation_log().warnings()),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Once both APIs are idle, drop the fields: CUDA's mappings, Vulkan's objects, their memory. If the
        // GPU is stuck, leak everything that it may use, and CUDA's context, whose release would wait.
        match self.work.quiesce() {
            // SAFETY: dropped only here, once; nothing uses it afterwards.
            true => unsafe { ManuallyDrop::drop(&mut self.work.producer.producer) },
            false => {
                self.device().mark_stuck();
                std::mem::forget(self.work.context.take());
            }
        }
    }
}
