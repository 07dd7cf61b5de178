//! Draws a frame: pace, produce, record, submit. The window and the headless run share this.

mod batching;
mod end;
#[cfg(target_os = "linux")]
mod exchange;
mod look;
mod observers;
mod probe;
mod producer_state;
mod recording;
mod setup;
mod side_views;
mod submission;
mod switch;
mod timing;

use std::time::Instant;

use ash::vk;
use tracing::trace_span;

use super::watchdog::WaitLimit;
use super::{Choice, Config, ContextThread, Scene, Stop};
use wavefield_draw::{ColorMap, FieldRenderer, FieldView, Picture, Placement, Style, has_color_map};
use wavefield_gpu::cuda::Cuda;
use wavefield_gpu::vulkan::{Device, Flight, Pacer, Queue};
use wavefield_gpu::{Error, Result};
use wavefield_handoff::contents::array::{ArrayKind, DrawnArray};
use wavefield_handoff::producer::{Frame, Producer, reads};

pub use batching::Batching;
#[cfg(target_os = "linux")]
pub use exchange::Installed;
use observers::Observers;
pub use probe::FoundElement;
use producer_state::ProducerState;
pub use producer_state::SlotNow;
use recording::{Recordings, What, record_behind};
use setup::Setup;
pub use side_views::FromTo;
use side_views::SideViews;
pub use submission::AfterDraw;
pub use timing::FrameTiming;
use timing::{Begun, FrameTimer};

pub struct Engine {
    // Field order is drop order; `Drop` first waits for both APIs.
    observers: Observers,
    drawer: Drawer,
    /// `None` until a client wants pictures.
    side_views: Option<SideViews>,
    producer_state: ProducerState,
    /// `None` until a producer needs CUDA.
    context: Option<Cuda>,
    pacer: Pacer,
    times: FrameTimer,
    recordings: Recordings,
    queue: Queue,
    /// At least this many frames in flight have resources.
    flights: usize,
    wait_limit: WaitLimit,
    health: Health,
}

struct Drawer {
    renderer: FieldRenderer,
    view: FieldView,
    scene: Scene,
    format: vk::Format,
}

/// The state of a run. A later variant is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Health {
    Sound,
    /// The error was returned or printed.
    Failed,
    /// A wait was given up: do not wait again.
    Stuck,
}

#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Seconds since the start.
    pub time: f64,
    /// Seconds to the next frame; an estimate in a window.
    pub step: f64,
}

impl Engine {
    /// Makes the producer that `config` asks for, and a renderer for pictures of `format`. Has resources for
    /// at least `flights` frames in flight, since later producers may need more.
    pub fn new(
        mut queue: Queue,
        context: ContextThread,
        choice: &Choice,
        config: &Config,
        format: vk::Format,
        flights: usize,
    ) -> Result<Self> {
        config.check_kernel(choice)?;
        let wait_limit = WaitLimit::new(&queue, choice, config);
        queue.set_patience(wait_limit.limit(None));
        let context = context.finish()?;
        let made = Setup::make(&mut queue, context.as_ref(), choice, config, (format, flights))?;
        let mut pacer = Pacer::new(&queue, made.flights)?;
        let Setup { producer, check, renderer, times, flights: _ } = made;
        // Nothing may fail from here on: that would leak the producer.
        let mut producer_state = ProducerState::new(producer, &config.parameters, config.batch);
        producer_state.begin(&mut pacer);
        let view = FieldView { camera: config.camera(), ..FieldView::of(&DrawnArray::mesh(config.grid)) };
        Ok(Self {
            observers: Observers { check, recorder: None, traced: None, live: None, probe: None },
            drawer: Drawer { renderer, view, scene: config.scene, format },
            side_views: None,
            producer_state,
            context,
            recordings: Recordings::new(pacer.depth()),
            pacer,
            times,
            queue,
            flights,
            wait_limit,
            health: Health::Sound,
        })
    }

    fn next(&self) -> u64 {
        self.pacer.submitted() - self.producer_state.first
    }

    pub fn batch(&self) -> usize {
        self.producer_state.batch()
    }

    /// Obeys `stop`: once it is requested, no wait for a frame lasts longer than two seconds.
    pub fn set_stop(&mut self, stop: &Stop) {
        self.wait_limit.stop = stop.clone();
    }

    /// Sets how many frames CUDA fills at once, from the next batch on, up to the hand-off's limit. With
    /// [`Batching::Auto`] this holds until the next automatic choice.
    pub fn set_batch(&mut self, frames: usize) {
        self.producer_state.producer.set_batch(frames);
    }

    /// Sets the producer's parameters, in the order of [`wavefield_handoff::producer::Profile::parameters`].
    /// Clamps them; missing ones take their defaults. Frames that were filled ahead do not change.
    pub fn set_parameters(&mut self, values: &[f32]) {
        self.producer_state.parameters = self.producer_state.profile().parameters.values(values);
    }

    pub fn parameters(&self) -> &[f32] {
        &self.producer_state.parameters
    }

    /// Waits until a frame may begin, and returns its resources. It may still be skipped.
    pub fn begin(&mut self) -> Result<Flight> {
        let (producer, device) = (&**self.producer_state.producer, self.queue.device());
        let look = self.wait_limit.watch(producer, device, self.pacer.slowest());
        let flight = trace_span!("wait").in_scope(|| self.pacer.begin(look));
        let flight = self.record_health(flight)?;
        let collected = self.collect_finished(self.pacer.awaited());
        self.times.last = self.record_health(collected)?;
        if let Some(timing) = &self.times.last {
            self.producer_state.choose_batch(timing, self.next());
        }
        Ok(flight)
    }

    fn collect_finished(&mut self, end: u64) -> Result<Option<FrameTiming>> {
        self.times.collect_finished(end, &**self.producer_state.producer, &mut self.observers)
    }

    /// Worsens [`Engine::health`] after a failure.
    fn record_health<T>(&mut self, outcome: Result<T>) -> Result<T> {
        let seen = match &outcome {
            Ok(_) => Health::Sound,
            Err(Error::Stuck { .. } | Error::Stopped(_)) => Health::Stuck,
            Err(_) => Health::Failed,
        };
        self.health = self.health.max(seen);
        outcome
    }

    pub fn has_failed(&self) -> bool {
        self.health != Health::Sound
    }

    /// Produces and draws one frame. It can no longer be skipped: the producer's signal is enqueued before
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
        self.record_health(drawn)
    }

    fn try_draw(
        &mut self,
        flight: &Flight,
        moment: Moment,
        picture: &Picture,
        after: AfterDraw<'_>,
    ) -> Result<()> {
        if self.picture_size() != Some(picture.extent) {
            self.drain()?;
            self.resize(picture.extent)?;
        }
        // After the wait for earlier frames, which is not this frame's CPU time.
        let began = Instant::now();
        let frame = Frame {
            index: self.next(),
            time: moment.time,
            step: moment.step,
            parameters: self.producer_state.parameters,
            reads: reads(self.drawer.scene, self.observers.read_by_compute()),
        };
        let produced = self.producer_state.produce(&frame)?;
        self.observers.each_mut().try_for_each(|observer| observer.produced(flight.index, &produced))?;
        self.drawer.renderer.set_view(flight.index, &self.drawer.view, picture.extent)?;
        let Self { observers, drawer, producer_state, pacer, times, recordings, queue, .. } = self;
        trace_span!("record", frame = frame.index).in_scope(|| {
            let (device, renderer) = (queue.device(), &mut drawer.renderer);
            let what = What { device, observers, times, producer_state, renderer };
            recordings.record(what, flight, &frame, produced.source, picture)
        })?;
        let after_draw = after.commands.map(|record| record_behind(queue.device(), flight, record));
        let more = after_draw.transpose()?;
        trace_span!("submit", frame = frame.index)
            .in_scope(|| submission::submit(queue, pacer, producer_state, flight, after.present, more))?;
        self.pacer.end();
        for observer in self.observers.each_mut() {
            observer.submitted(flight.index, &frame, &produced, picture.extent);
        }
        let cpu = began.elapsed().saturating_sub(produced.blocked.unwrap_or_default());
        self.times.submitted(flight.index, Begun { frame: frame.index, at: began, cpu });
        Ok(())
    }

    /// Prepares for pictures of this size. No frame may be in flight.
    pub fn resize(&mut self, extent: vk::Extent2D) -> Result<()> {
        self.recordings.forget();
        self.drawer.renderer.resize(extent)
    }

    /// Returns the times of the last frame that had finished when this one began, if it is new.
    pub fn finished(&self) -> Option<FrameTiming> {
        self.times.last
    }

    /// Returns the number of the next frame, which is how many were submitted so far.
    pub fn next_frame(&self) -> u64 {
        self.pacer.submitted()
    }

    pub fn drawn(&self) -> Result<u64> {
        self.pacer.finished()
    }

    /// For a texture, the array's size is that of the first level.
    pub fn array(&self) -> &DrawnArray {
        self.drawer.renderer.drawing().array()
    }

    pub fn view(&self) -> &FieldView {
        &self.drawer.view
    }

    pub fn view_mut(&mut self) -> &mut FieldView {
        &mut self.drawer.view
    }

    /// Returns `None` before the first frame.
    pub fn picture_size(&self) -> Option<vk::Extent2D> {
        self.drawer.renderer.extent()
    }

    /// Returns what quantity the colour map shows, and the values at its ends; `None` without a colour map.
    pub fn legend(&self) -> Option<(&'static str, [f32; 2])> {
        // A texture holds colours.
        let shown = self.drawer.scene == Scene::Field && has_color_map(self.array());
        let name = match self.array().kind() {
            ArrayKind::Mesh => "w",
            ArrayKind::Surface => "height",
            ArrayKind::Points | ArrayKind::Image => "value",
        };
        shown.then_some((name, self.drawer.view.limits))
    }

    /// Returns where the array lies in a picture, if it is an image.
    pub fn image_in(&self, picture: vk::Extent2D) -> Option<Placement> {
        let size = (picture.width, picture.height);
        let place = || Placement::new(self.array().grid(), &self.drawer.view.camera, size);
        (self.array().kind() == ArrayKind::Image).then(place)
    }

    /// Changes the colours from the next frame on. Waits for the GPU.
    pub fn set_color_map(&mut self, map: ColorMap) -> Result<()> {
        self.drain()?;
        self.side_views = None;
        self.drawer.renderer.set_color_map(&mut self.queue, map)
    }

    /// Changes how the field is drawn from the next frame on. Waits for the GPU.
    pub fn set_style(&mut self, style: Style) -> Result<()> {
        self.drain()?;
        self.side_views = None;
        self.recordings.forget();
        self.drawer.renderer.set_style(style)
    }

    /// Forgets recorded commands. Call it when an object in them is destroyed: a new one may get its handle.
    pub fn forget_recorded(&mut self) {
        self.recordings.forget();
    }

    /// Counts recorded draws: one per flight, and again for another slot or picture.
    pub fn draws_recorded(&self) -> u64 {
        self.recordings.draws
    }

    pub fn queue(&mut self) -> &mut Queue {
        &mut self.queue
    }

    pub fn device(&self) -> &Device {
        self.queue.device()
    }

    /// Counts the CPU's waits for the GPU, for pacing or the hand-off.
    pub fn blocking_waits(&self) -> u64 {
        self.pacer.blocking_waits() + self.producer_state.waits
    }

    pub fn producer(&self) -> &dyn Producer {
        &**self.producer_state.producer
    }
}
