use ash::vk;

use super::timing::FrameTimer;
use crate::scene::make_producer;
use crate::watch::verify::{Check, CheckDesc};
use crate::{Choice, Config};
use wavefield_draw::{FieldRenderer, FieldRendererDesc, Output};
use wavefield_gpu::Result;
use wavefield_gpu::{cuda::Cuda, vulkan::Queue};
use wavefield_handoff::contents::array::DrawnArray;
use wavefield_handoff::producer::Producer;

pub(super) struct Setup {
    pub(super) producer: Box<dyn Producer>,
    pub(super) check: Option<Check>,
    pub(super) renderer: FieldRenderer,
    pub(super) times: FrameTimer,
    pub(super) flights: usize,
}

impl Setup {
    /// Has resources for at least `flights` frames in flight. Waits for the queue.
    pub(super) fn make(
        queue: &mut Queue,
        context: Option<&Cuda>,
        choice: &Choice,
        config: &Config,
        (format, flights): (vk::Format, usize),
    ) -> Result<Self> {
        let producer = make_producer(queue, context, config)?;
        let profile = producer.profile();
        let flights = profile.max_in_flight.max(profile.slots.len()).max(flights);
        let array = DrawnArray::mesh(config.grid);
        let desc = || CheckDesc {
            scene: config.scene,
            array,
            flights,
            has_reference: config.shows_built_in(),
            broken: config.broken,
            machine: choice.machine(),
        };
        let check = config.verify.then(|| Check::new(queue, producer.profile(), desc())).transpose()?;
        let renderer = FieldRenderer::new(
            queue,
            &FieldRendererDesc {
                output: Output::Color(format),
                flights,
                views: 1,
                scene: config.scene,
                array,
                style: config.style,
                color_map: config.color_map,
                samples: config.samples,
            },
        )?;
        let times = FrameTimer::new(queue.device(), flights)?;
        Ok(Self { producer, check, renderer, times, flights })
    }
}
