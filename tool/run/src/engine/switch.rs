//! Makes the objects for a run's settings, and changes the settings between two frames.

use ash::vk;

use super::Engine;
use super::timing::FrameTimer;
use super::work::WaitLimit;
use crate::scene::make_producer;
use crate::watch::verify::Check;
use crate::{Choice, Config, RISK};
use wavefield_draw::{ColorMap, FieldRenderer, FieldRendererDesc, FieldView, Output};
use wavefield_gpu::cuda::Cuda;
use wavefield_gpu::vulkan::{Queue, Timestamps};
use wavefield_gpu::{Error, Result};
use wavefield_handoff::Handoff;
use wavefield_handoff::contents::array::DrawnArray;
use wavefield_handoff::producer::Producer;

pub(super) struct Setup {
    pub(super) producer: Box<dyn Producer>,
    pub(super) check: Option<Check>,
    pub(super) renderer: FieldRenderer,
    pub(super) times: FrameTimer,
}

impl Setup {
    /// Allocates resources for at least `flights` frames in flight. `more_maps`: the colour maps of arrays behind the first.
    /// Waits for the queue.
    pub(super) fn make(
        queue: &mut Queue,
        context: Option<&Cuda>,
        choice: &Choice,
        (config, more_maps): (&Config, &[ColorMap]),
        (format, flights): (vk::Format, usize),
    ) -> Result<Self> {
        let producer = make_producer(queue, context, config)?;
        let profile = producer.profile();
        let flights = profile.max_in_flight.max(profile.slots.len()).max(flights);
        let check = config.verify.then(|| Check::new(queue, profile, choice, config, flights)).transpose()?;
        let renderer = FieldRenderer::new(
            queue,
            &FieldRendererDesc {
                output: Output::Color(format),
                flights,
                views: 1,
                scene: config.scene,
                array: DrawnArray::mesh(config.grid),
                style: config.style,
                color_maps: [&[config.color_map], more_maps].concat(),
                samples: config.samples,
                raster: config.raster,
            },
        )?;
        let timestamps = Timestamps::new(queue.device(), flights)?;
        let times = FrameTimer { timestamps, collected: 0, last: None, begun: vec![None; flights] };
        Ok(Self { producer, check, renderer, times })
    }
}

impl Engine {
    /// Changes all settings except the device and the window, from the next frame on. Waits for both APIs,
    /// and so for the frames in flight. Old and new objects need memory at the same time. An error changes
    /// nothing, and the engine can continue unless [`Work::has_failed`](super::Work::has_failed).
    pub fn switch(&mut self, choice: &Choice, config: &Config) -> Result<()> {
        let cuda = choice.twin.clone().filter(|_| config.producer.may_use_cuda());
        let mut choice = Choice { cuda, ..choice.clone() };
        config.check_kernel(&choice)?;
        let (handoff, _) = config.handoff.on(self.device().info());
        if config.has_own_kernel() && handoff == Handoff::Inline && !config.risk_the_gpu {
            return Err(Error::Unsupported(format!("a kernel of your own does not run inline: {RISK}")));
        }
        self.observers.settle(&mut self.work)?;
        self.forget_pictures()?;
        let Self { observers, drawer, work, flights, .. } = self;
        if let (Some((driver, info)), None) = (&choice.cuda, &work.context) {
            let made = Cuda::primary(*driver, info).map(Some).map_err(Error::from);
            work.context = choice.context(made, config)?;
        }
        let context = work.context.as_ref().filter(|_| choice.cuda.is_some());
        let more_maps = &drawer.renderer.color_maps()[1..];
        let made =
            Setup::make(&mut work.queue, context, &choice, (config, more_maps), (drawer.format, *flights))?;
        let pacer = work.pacer.succeed(&work.queue, made.times.begun.len())?;
        // Nothing may fail from here on.
        work.wait_limit =
            WaitLimit { stop: work.wait_limit.stop.clone(), ..WaitLimit::new(&work.queue, &choice, config) };
        work.queue.patience = work.wait_limit.limit(work.pacer.slowest);
        let before = observers.tally();
        observers.check = made.check.zip(before).map(|(mut check, before)| {
            check.tally = before;
            check
        });
        if observers.cut_trace(work, drawer) {
            wavefield_gpu::note!("note: the trace ends here, because the settings have changed");
        }
        (drawer.renderer, observers.times, work.pacer) = (made.renderer, made.times, pacer);
        drawer.measure_again();
        observers.times.collected = work.pacer.submitted();
        drawer.recordings.flights = vec![None; work.pacer.depth()];
        // Both APIs are at rest, so the old producer is not in use.
        *work.producer.producer = made.producer;
        work.producer.first = work.pacer.submitted();
        // These use the old producer's clocks and slots.
        (observers.watched, observers.probe) = (None, None);
        (work.producer.batching, drawer.scene) = (config.batch, config.scene);
        drawer.view = FieldView { camera: drawer.view.camera, ..FieldView::of(drawer.array()) };
        work.producer.set_parameters(&config.parameters);
        work.producer.begin(&mut work.pacer);
        Ok(())
    }
}
