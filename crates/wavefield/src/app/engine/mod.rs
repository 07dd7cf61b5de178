//! Drawing a frame: pace, produce, record, submit. Both the window and the headless run use this.

mod batching;
mod ending;
#[cfg(target_os = "linux")]
mod exchange;
mod observers;
mod probe;
mod recording;
mod rest;
mod setup;
mod submission;
mod switch;
mod timing;
mod watch;

use std::mem::ManuallyDrop;
use std::time::Instant;

use ash::vk;
use tracing::trace_span;

use super::watchdog::{Patience, Watchdog};
use super::{Choice, Config, EarlyContext, Scene, Stop};
use crate::array::{Array, Kind};
use crate::cuda::{Cuda, KernelValues};
use crate::observer::Finished;
use crate::producer::{Frame, Produced, Producer, reads};
use crate::render::{ColorMap, FieldRenderer, Picture, Placement, Style, View, has_color_map};
use crate::trace::Track;
use crate::vulkan::{Device, Flight, Pacer, Queue};
use crate::{Error, Result};

use batching::AutoBatch;
pub use batching::Batching;
#[cfg(target_os = "linux")]
pub(crate) use exchange::Installed;
use observers::Observers;
pub(crate) use probe::Found;
use recording::Recordings;
use setup::Setup;
pub use submission::{Behind, PresentSync};
pub use timing::FrameTiming;
use timing::{Begun, Timed, Times};
pub(crate) use watch::SlotNow;

/// Draws frames: holds the producer, the renderer and the queue.
pub struct Engine {
    // Field order is drop order; `Drop` first waits for both APIs.
    observers: Observers,
    renderer: FieldRenderer,
    // `Drop` drops these two by hand, and only if they are no longer in use.
    producer: ManuallyDrop<Box<dyn Producer>>,
    /// CUDA's context, once a producer has needed it.
    context: ManuallyDrop<Option<Cuda>>,
    pacer: Pacer,
    times: Times,
    queue: Queue,
    recordings: Recordings,
    finished: Option<FrameTiming>,
    /// The difference between a frame's number and the producer's own number for it.
    first: u64,
    /// How many finished frames [`Engine::look_until`] has passed.
    looked: u64,
    batching: Batching,
    /// Chooses the batch, if there is a choice.
    auto: Option<AutoBatch>,
    /// The trace, once it has ended.
    traced: Option<Track>,
    /// Frames that are filled, or being filled, counted from `first`.
    filled: u64,
    /// How often a producer made the CPU wait.
    handoff_waits: u64,
    /// The values of the producer's parameters: see [`crate::producer::Profile::parameters`].
    parameters: KernelValues,
    /// The view of the producer's arrays.
    view: View,
    scene: Scene,
    /// The format of the pictures.
    format: vk::Format,
    /// The least number of frames in flight to have resources for.
    flights: usize,
    patience: Patience,
    health: Health,
}

/// The state of a run. A later variant is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Health {
    Sound,
    /// Something has failed; the error was returned or printed.
    Failed,
    /// A wait was given up: do not wait again.
    Stuck,
}

/// The time of a frame, on the field's clock.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Seconds since the start.
    pub time: f64,
    /// Seconds to the next frame; an estimate in a window.
    pub step: f64,
}

impl Engine {
    /// Makes the producer that `config` asks for, and a renderer for pictures of `format`. Later producers may need more frames in
    /// flight, so there are resources for at least `flights`.
    pub(crate) fn new(
        mut queue: Queue,
        context: EarlyContext,
        choice: &Choice,
        config: &Config,
        format: vk::Format,
        flights: usize,
    ) -> Result<Self> {
        config.check_kernel(choice)?;
        let patience = Patience::new(&queue, choice, config);
        queue.set_patience(patience.limit(None));
        let context = context.finish()?;
        let made = Setup::make(&mut queue, context.as_ref(), choice, config, (format, flights))?;
        let parameters = made.producer.profile().parameters.values(&config.parameters);
        let wait = config.wait.on(queue.device().info());
        let pacer = Pacer::new(&queue, made.flights, wait)?;
        let Setup { producer, check, renderer, times, flights: _ } = made;
        // Nothing may fail from here on: that would leak the producer in `ManuallyDrop`.
        let mut engine = Self {
            observers: Observers { check, recorder: None, live: None, probe: None },
            renderer,
            producer: ManuallyDrop::new(producer),
            context: ManuallyDrop::new(context),
            recordings: Recordings::new(pacer.depth()),
            pacer,
            times,
            queue,
            finished: None,
            first: 0,
            looked: 0,
            batching: config.batch,
            auto: None,
            traced: None,
            filled: 0,
            handoff_waits: 0,
            parameters,
            view: View { camera: config.camera(), ..View::of(&Array::mesh(config.grid)) },
            scene: config.scene,
            format,
            flights,
            patience,
            health: Health::Sound,
        };
        engine.begin_producer();
        Ok(engine)
    }

    /// Prepares the engine for a new producer.
    fn begin_producer(&mut self) {
        self.pacer.set_limit(self.producer.profile().max_in_flight);
        self.begin_batches();
    }

    /// Sets a new producer's batch.
    fn begin_batches(&mut self) {
        let longest = self.producer.profile().longest_batch;
        self.auto = match self.batching {
            Batching::Fixed(_) => None,
            Batching::Auto { latency } => AutoBatch::new(longest, latency),
        };
        let frames = self.batch();
        self.producer.set_batch(frames);
    }

    /// The number of frames in the next batch.
    pub(crate) fn batch(&self) -> usize {
        match (self.batching, &self.auto) {
            (_, Some(auto)) => auto.batch(),
            (Batching::Fixed(frames), None) => {
                (frames as usize).clamp(1, self.producer.profile().longest_batch)
            }
            (Batching::Auto { .. }, None) => 1,
        }
    }

    /// Obeys `stop`: once it is requested, no wait for a frame lasts longer than two seconds.
    pub(crate) fn heed(&mut self, stop: &Stop) {
        self.patience.stop = stop.clone();
    }

    /// Sets how many frames CUDA fills at once, from the next batch on. The hand-off limits the number. With
    /// [`Batching::Auto`] the number holds until the next automatic choice.
    pub fn set_batch(&mut self, frames: usize) {
        self.producer.set_batch(frames);
    }

    /// Sets the values of the producer's parameters, in the order of [`crate::producer::Profile::parameters`]. Each is clamped to its
    /// range; missing ones take their defaults. The values hold from the next frame that is filled; frames that were filled ahead
    /// do not change.
    pub fn set_parameters(&mut self, values: &[f32]) {
        self.parameters = self.producer.profile().parameters.values(values);
    }

    /// The current values of the producer's parameters.
    pub fn parameters(&self) -> &[f32] {
        &self.parameters
    }

    /// Waits until a frame may begin, and returns its resources. Nothing is enqueued yet: the frame may still be skipped.
    pub(crate) fn begin(&mut self) -> Result<Flight> {
        let watchdog =
            Watchdog::new(&**self.producer, self.queue.device(), &self.patience, self.pacer.slowest());
        let flight = trace_span!("wait").in_scope(|| self.pacer.begin(|since| watchdog.look(since)));
        let flight = self.noting(flight)?;
        let looked = self.look_until(self.pacer.awaited());
        self.finished = self.noting(looked)?;
        let next = self.pacer.submitted() - self.first;
        if let (Some(auto), Some(timing)) = (&mut self.auto, &self.finished)
            && let Some(frames) = auto.drawn(timing, next)
        {
            self.producer.set_batch(frames);
        }
        Ok(flight)
    }

    /// Looks at every finished frame before number `end` that was not looked at before, in order. Returns the times of the last.
    /// The GPU must have finished these frames.
    fn look_until(&mut self, end: u64) -> Result<Option<FrameTiming>> {
        let mut last = None;
        while self.looked < end {
            let flight = (self.looked % self.pacer.depth() as u64) as usize;
            self.looked += 1;
            if let Some(timed) = self.look(flight)? {
                last = Some(timing::timing(timed, &**self.producer)?);
            }
        }
        Ok(last)
    }

    /// Tells the observers that the GPU has finished the frame that used a flight.
    fn look(&mut self, flight: usize) -> Result<Option<Timed>> {
        let Some((begun, marks)) = self.times.take(flight) else { return Ok(None) };
        // Even if its times cannot be read, the observers are told of the frame.
        let known = marks.as_ref().ok().copied().flatten();
        let fill = self.producer.fill();
        let cpu = (begun.at, begun.cpu);
        let finished = Finished { frame: begun.frame, flight, cpu, marks: known, fill };
        self.observers.each_mut().try_for_each(|observer| observer.finished(&finished))?;
        Ok(Some(Timed { begun, marks: marks? }))
    }

    /// Looks at all submitted frames. Both APIs must be at rest.
    fn look_at_all(&mut self) -> Result<()> {
        let looked = self.look_until(self.pacer.submitted());
        self.noting(looked).map(drop)
    }

    /// Records a failure in [`Engine::health`], and whether it is a wait that was given up.
    fn noting<T>(&mut self, outcome: Result<T>) -> Result<T> {
        let seen = match &outcome {
            Ok(_) => Health::Sound,
            Err(Error::Stuck { .. } | Error::Stopped(_)) => Health::Stuck,
            Err(_) => Health::Failed,
        };
        self.health = self.health.max(seen);
        outcome
    }

    /// Whether something has failed since the last exchange of the producer.
    pub(crate) fn has_failed(&self) -> bool {
        self.health != Health::Sound
    }

    /// Produces and draws one frame.
    ///
    /// The frame can no longer be skipped: the producer's signal is enqueued before the submission that waits for it, so every
    /// signal that Vulkan waits for is certain to come.
    ///
    /// After an error the engine cannot draw again, unless its producer is exchanged.
    pub(crate) fn draw(
        &mut self,
        flight: &Flight,
        moment: Moment,
        picture: &Picture,
        behind: Behind<'_>,
    ) -> Result<()> {
        let drawn = self.try_draw(flight, moment, picture, behind);
        self.noting(drawn)
    }

    fn try_draw(
        &mut self,
        flight: &Flight,
        moment: Moment,
        picture: &Picture,
        behind: Behind<'_>,
    ) -> Result<()> {
        if self.renderer.needs_resize(picture.extent) {
            self.drain()?;
            self.renderer.resize(picture.extent)?;
            self.forget_recorded();
        }
        // After the wait for earlier frames, which is not this frame's CPU time.
        let began = Instant::now();
        let frame = Frame {
            index: self.pacer.submitted() - self.first,
            time: moment.time,
            step: moment.step,
            parameters: self.parameters,
            reads: reads(self.scene, self.observers.read_by_compute()),
        };
        let produced = self.produce(flight, &frame)?;
        self.renderer.set_view(flight.index, &self.view, picture.extent)?;
        trace_span!("record", frame = frame.index)
            .in_scope(|| self.record(flight, &frame, produced.source, picture))?;
        let more = behind.commands.map(|commands| self.record_behind(flight, commands)).transpose()?;
        trace_span!("submit", frame = frame.index).in_scope(|| self.submit(flight, behind.present, more))?;
        self.pacer.end();
        for observer in self.observers.each_mut() {
            observer.submitted(flight.index, &frame, &produced, picture.extent);
        }
        let cpu = began.elapsed().saturating_sub(produced.blocked.unwrap_or_default());
        self.times.submitted(flight.index, Begun { frame: frame.index, at: began, cpu });
        Ok(())
    }

    fn produce(&mut self, flight: &Flight, frame: &Frame) -> Result<Produced> {
        let produced =
            trace_span!("produce", frame = frame.index).in_scope(|| self.producer.produce(frame))?;
        self.handoff_waits += u64::from(produced.blocked.is_some());
        self.filled = produced.batch.end();
        for observer in self.observers.each_mut() {
            observer.produced(flight.index, &produced)?;
        }
        Ok(produced)
    }

    /// The times of the last frame that had finished when the current frame began; `None` if there was no new one.
    pub fn finished(&self) -> Option<FrameTiming> {
        self.finished
    }

    /// The number of the next frame, which is the number of frames submitted so far.
    pub fn next_frame(&self) -> u64 {
        self.pacer.submitted()
    }

    /// The array in each slot. For a texture, its size is that of the first level.
    pub fn array(&self) -> &Array {
        self.renderer.drawing().array()
    }

    /// The view of the array.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The view of the array, to change it from the next frame on.
    pub fn view_mut(&mut self) -> &mut View {
        &mut self.view
    }

    /// The quantity that the colour map shows, and the values of its two ends; `None` if no colour map is used.
    pub(crate) fn legend(&self) -> Option<(&'static str, [f32; 2])> {
        // The texture holds colours, so it needs no colour map.
        let shown = self.scene == Scene::Field && has_color_map(self.array());
        let name = match self.array().kind() {
            Kind::Mesh => "w",
            Kind::Surface => "height",
            Kind::Points | Kind::Image => "value",
        };
        shown.then_some((name, self.view.limits))
    }

    /// Where the array lies in a picture, if the array is an image.
    pub(crate) fn image_in(&self, picture: vk::Extent2D) -> Option<Placement> {
        let size = (picture.width, picture.height);
        let place = || Placement::new(self.array().grid(), &self.view.camera, size);
        (self.array().kind() == Kind::Image).then(place)
    }

    /// Changes the colours from the next frame on. Waits for the GPU.
    pub fn set_color_map(&mut self, map: ColorMap) -> Result<()> {
        self.drain()?;
        self.renderer.set_color_map(&mut self.queue, map)
    }

    /// Changes how the field is drawn from the next frame on. Waits for the GPU.
    pub fn set_style(&mut self, style: Style) -> Result<()> {
        self.drain()?;
        self.forget_recorded();
        self.renderer.set_style(style)
    }

    /// The queue, for presenting and reading back.
    pub fn queue(&mut self) -> &mut Queue {
        &mut self.queue
    }

    /// The device.
    pub fn device(&self) -> &Device {
        self.queue.device()
    }

    /// How often the CPU had to wait for the GPU, for pacing or the hand-off.
    pub fn blocking_waits(&self) -> u64 {
        self.pacer.blocking_waits() + self.handoff_waits
    }

    /// The producer that fills the field.
    pub fn producer(&self) -> &dyn Producer {
        &**self.producer
    }
}
