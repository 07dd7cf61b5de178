//! One frame: pace, produce, record, submit. The window and the headless run both drive this.

mod batching;
mod ending;
#[cfg(target_os = "linux")]
mod exchange;
mod hold;
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
use crate::producer::{Frame, Produced, Producer, Source, reads};
use crate::render::{ColorMap, FieldRenderer, Picture, Placement, Style, View, has_colour_map};
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

/// A producer, a renderer and the queue between them.
pub struct Engine {
    // Field order is drop order; `Drop` first waits for both APIs.
    observers: Observers,
    renderer: FieldRenderer,
    // Both are dropped by hand: not while they are in use.
    producer: ManuallyDrop<Box<dyn Producer>>,
    /// CUDA, once a producer needed it.
    context: ManuallyDrop<Option<Cuda>>,
    pacer: Pacer,
    times: Times,
    queue: Queue,
    recordings: Recordings,
    finished: Option<FrameTiming>,
    /// The number of the frame that was, or would have been, this producer's frame 0.
    first: u64,
    /// How many frames were looked at.
    looked: u64,
    batching: Batching,
    /// Chooses the batch, where there is one to choose.
    auto: Option<AutoBatch>,
    /// The trace, once it has ended.
    traced: Option<Track>,
    /// Frames that are filled, or being filled, counted from `first`.
    filled: u64,
    /// The slot that is drawn again and again: see [`Engine::hold`].
    held: Option<Source>,
    /// How often a producer made the CPU wait.
    handoff_waits: u64,
    /// Of the producer's parameters: see [`crate::producer::Profile::parameters`].
    parameters: KernelValues,
    /// How the producer's arrays are looked at.
    view: View,
    scene: Scene,
    /// The pictures'.
    format: vk::Format,
    /// Frames in flight that there are resources for at least.
    flights: usize,
    patience: Patience,
    health: Health,
}

/// How a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Health {
    Sound,
    /// Something has failed, and was reported.
    Failed,
    /// The watchdog has given up: nothing is worth waiting for any more.
    Stuck,
}

/// When a frame is, in the field's time.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Seconds since the start.
    pub time: f64,
    /// Seconds to the next frame, as far as is known.
    pub step: f64,
}

impl Engine {
    /// Makes the producer that `config` asks for, and a renderer for pictures of `format`, with resources for `flights` frames
    /// in flight at least, for producers that come later.
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
        // From here on nothing fails: a producer in `ManuallyDrop` would be left.
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
            held: None,
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

    /// Lets a new producer begin.
    fn begin_producer(&mut self) {
        self.held = None;
        self.pacer.set_limit(self.producer.profile().max_in_flight);
        self.begin_batches();
    }

    /// Tells a new producer how many frames to fill in one go.
    fn begin_batches(&mut self) {
        let longest = self.producer.profile().longest_batch;
        self.auto = match self.batching {
            Batching::Fixed(_) => None,
            Batching::Auto { latency } => AutoBatch::new(longest, latency),
        };
        let frames = self.batch();
        self.producer.set_batch(frames);
    }

    /// How many frames the next batch has.
    pub(crate) fn batch(&self) -> usize {
        match (self.batching, &self.auto) {
            (_, Some(auto)) => auto.batch(),
            (Batching::Fixed(frames), None) => {
                (frames as usize).clamp(1, self.producer.profile().longest_batch)
            }
            (Batching::Auto { .. }, None) => 1,
        }
    }

    /// From now on waits no longer for a frame than seconds once `stop` is requested.
    pub(crate) fn heed(&mut self, stop: &Stop) {
        self.patience.stop = stop.clone();
    }

    /// How many frames CUDA fills in one go from the next batch on, as far as the hand-off can; with [`Batching::Auto`] until
    /// that chooses another.
    pub fn set_batch(&mut self, frames: usize) {
        self.producer.set_batch(frames);
    }

    /// Other values for the parameters of who fills the field ([`crate::producer::Profile::parameters`]), in their order and each brought into its
    /// range; those that are left out go to their defaults. They hold from the next frame that is filled: those that were
    /// filled ahead are as they are.
    pub fn set_parameters(&mut self, values: &[f32]) {
        self.parameters = self.producer.profile().parameters.values(values);
    }

    /// What they are now.
    pub fn parameters(&self) -> &[f32] {
        &self.parameters
    }

    /// Waits until a frame may begin, and hands out its resources. Nothing is enqueued yet: the frame may still be skipped.
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

    /// Looks at the frames before number `end`, which the GPU is done with, in order, as far as that was not done. Gives the times of
    /// the last.
    fn look_until(&mut self, end: u64) -> Result<Option<FrameTiming>> {
        let mut last = None;
        while self.looked < end {
            let flight = (self.looked % self.pacer.depth() as u64) as usize;
            self.looked += 1;
            if let Some(timed) = self.look(flight)? {
                // What is drawn again was filled before.
                let producer = (!self.is_held()).then_some(&**self.producer);
                last = Some(timing::timing(timed, producer)?);
            }
        }
        Ok(last)
    }

    /// Tells the observers of the frame that used a flight, which the GPU is done with.
    fn look(&mut self, flight: usize) -> Result<Option<Timed>> {
        let Some((begun, marks)) = self.times.take(flight) else { return Ok(None) };
        if self.is_held() {
            return Ok(Some(Timed { begun, marks: marks? }));
        }
        // Who can do without the times hears of the frame in any case.
        let known = marks.as_ref().ok().copied().flatten();
        let fill = self.producer.fill();
        let cpu = (begun.at, begun.cpu);
        let finished = Finished { frame: begun.frame, flight, cpu, marks: known, fill };
        self.observers.each_mut().try_for_each(|observer| observer.finished(&finished))?;
        Ok(Some(Timed { begun, marks: marks? }))
    }

    /// The same for all flights, at rest.
    fn look_at_all(&mut self) -> Result<()> {
        let looked = self.look_until(self.pacer.submitted());
        self.noting(looked).map(drop)
    }

    /// Remembers a failure, and that the watchdog gave up or a stop did not wait.
    fn noting<T>(&mut self, outcome: Result<T>) -> Result<T> {
        let seen = match &outcome {
            Ok(_) => Health::Sound,
            Err(Error::Stuck { .. } | Error::Stopped(_)) => Health::Stuck,
            Err(_) => Health::Failed,
        };
        self.health = self.health.max(seen);
        outcome
    }

    /// Whether something has failed: then the engine can only be finished with.
    pub(crate) fn has_failed(&self) -> bool {
        self.health != Health::Sound
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
        let began = Instant::now();
        let frame = Frame {
            index: self.pacer.submitted() - self.first,
            time: moment.time,
            step: moment.step,
            parameters: self.parameters,
            reads: reads(self.scene, self.observers.read_by_compute()),
        };
        if self.renderer.needs_resize(picture.extent) {
            self.drain()?;
            self.renderer.resize(picture.extent)?;
            self.forget_recorded();
        }
        let produced = self.produce(flight, &frame)?;
        self.renderer.set_view(flight.index, &self.view, picture.extent)?;
        trace_span!("record", frame = frame.index)
            .in_scope(|| self.record(flight, &frame, produced.source, picture))?;
        let more = behind.commands.map(|commands| self.record_behind(flight, commands)).transpose()?;
        trace_span!("submit", frame = frame.index)
            .in_scope(|| self.submit(flight, &produced.sync, behind.present, more))?;
        self.pacer.end();
        if self.is_held() {
            // It was none of the producer's.
            self.first += 1;
        } else {
            self.producer.submitted();
            for observer in self.observers.each_mut() {
                observer.submitted(flight.index, &frame, &produced, picture.extent);
            }
        }
        let cpu = began.elapsed().saturating_sub(produced.blocked.unwrap_or_default());
        self.times.submitted(flight.index, Begun { frame: frame.index, at: began, cpu });
        Ok(())
    }

    /// Has the producer fill the frame, unless the last slot is drawn again.
    fn produce(&mut self, flight: &Flight, frame: &Frame) -> Result<Produced> {
        if let Some(source) = self.held {
            return Ok(Produced { source, ..self.producer.profile().produced(frame) });
        }
        let produced =
            trace_span!("produce", frame = frame.index).in_scope(|| self.producer.produce(frame))?;
        self.handoff_waits += u64::from(produced.blocked.is_some());
        self.filled = produced.batch.end();
        for observer in self.observers.each_mut() {
            observer.produced(flight.index, &produced)?;
        }
        Ok(produced)
    }

    /// The times of the frame whose resources the frame at hand has taken over.
    pub fn finished(&self) -> Option<FrameTiming> {
        self.finished
    }

    /// The number that the next frame will have: frames drawn so far.
    pub fn next_frame(&self) -> u64 {
        self.pacer.submitted()
    }

    /// What a slot holds; of a texture, the size of its first level.
    pub fn array(&self) -> &Array {
        self.renderer.drawing().array()
    }

    /// How it is looked at.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The same, to look at it in another way from the next frame on.
    pub fn view_mut(&mut self) -> &mut View {
        &mut self.view
    }

    /// What the colour map shows, and what its ends stand for; `None` where it is not shown.
    pub(crate) fn legend(&self) -> Option<(&'static str, [f32; 2])> {
        // The texture's colours are its own.
        let shown = self.scene == Scene::Field && has_colour_map(self.array());
        let name = match self.array().kind() {
            Kind::Mesh => "w",
            Kind::Surface => "height",
            Kind::Points | Kind::Image => "value",
        };
        shown.then_some((name, self.view.limits))
    }

    /// Where the image lies in a picture, if it is one.
    pub(crate) fn image_in(&self, picture: vk::Extent2D) -> Option<Placement> {
        let size = (picture.width, picture.height);
        let place = || Placement::new(self.array().grid(), &self.view.camera, size);
        (self.array().kind() == Kind::Image).then(place)
    }

    /// Other colours from the next frame on; waits for the GPU.
    pub fn set_color_map(&mut self, map: ColorMap) -> Result<()> {
        self.drain()?;
        self.renderer.set_color_map(&mut self.queue, map)
    }

    /// Draws the field in another way from the next frame on; waits for the GPU.
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

    /// How often the CPU had to wait for the GPU, wherever.
    pub fn blocking_waits(&self) -> u64 {
        self.pacer.blocking_waits() + self.handoff_waits
    }

    /// Who fills the field.
    pub fn producer(&self) -> &dyn Producer {
        &**self.producer
    }
}
