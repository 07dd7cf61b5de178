//! A frame's commands, in two command buffers: the producer's work before the draw, and the draw.
//!
//! Recording takes longer than all other CPU work for a frame, so each flight records its commands once and
//! submits them again as long as they fit. Nothing in them differs from frame to frame: the camera is in a
//! uniform buffer, and the values to wait for are in the submission. The exception is a producer whose work
//! is in the queue: its arguments change, so its commands are recorded for every frame.

use ash::vk;

use super::observers::Observers;
use super::producer_state::ProducerState;
use super::timing::{BEGIN, DRAW, END, FrameTimer};
use crate::watch::observer::{At, Observer};
use wavefield_draw::{FieldRenderer, Picture, Slices};
use wavefield_gpu::Result;
use wavefield_gpu::vulkan::{Device, Flight, begin, end};
use wavefield_handoff::producer::{Frame, Source};

pub(super) struct Recordings {
    /// Per flight, what its commands were recorded for: source, picture, number of slices.
    pub(super) flights: Vec<Option<(Source, Picture, usize)>>,
    pub(super) draws: u64,
}

impl Recordings {
    pub(super) fn new(flights: usize) -> Self {
        Self { flights: vec![None; flights], draws: 0 }
    }

    pub(super) fn forget(&mut self) {
        self.flights.fill(None);
    }

    pub(super) fn record(
        &mut self,
        mut what: What<'_>,
        flight: &Flight,
        frame: &Frame,
        source: Source,
        picture: &Picture,
    ) -> Result<()> {
        let slices = what.observers.each().map(Observer::slices).max().unwrap_or(0);
        let this = (source, *picture, slices);
        let recorded = self.flights[flight.index].take() == Some(this);
        let in_queue = what.producer_state.profile().in_queue;
        if in_queue || !recorded {
            what.record_before(flight, frame, source, in_queue)?;
        }
        if !recorded {
            what.record_draw(flight, frame, source, picture, slices)?;
            self.draws += 1;
        }
        self.flights[flight.index] = Some(this);
        Ok(())
    }
}

pub(super) struct What<'a> {
    pub(super) device: &'a Device,
    pub(super) observers: &'a Observers,
    pub(super) times: &'a FrameTimer,
    pub(super) producer_state: &'a ProducerState,
    pub(super) renderer: &'a mut FieldRenderer,
}

impl What<'_> {
    /// Records the producer's commands. With `once`, they will not be submitted again.
    fn record_before(&self, flight: &Flight, frame: &Frame, source: Source, once: bool) -> Result<()> {
        let commands = flight.before;
        let usage = match once {
            true => vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT,
            false => vk::CommandBufferUsageFlags::empty(),
        };
        begin(self.device, commands, usage)?;
        // Resets the draw's marks too: its command buffer is submitted after this one.
        self.times.reset(commands, flight.index);
        self.times.mark(commands, flight.index, BEGIN);
        self.producer_state.producer.record_before_draw(commands, frame, source);
        end(self.device, commands)
    }

    fn record_draw(
        &mut self,
        flight: &Flight,
        frame: &Frame,
        source: Source,
        picture: &Picture,
        slices: usize,
    ) -> Result<()> {
        let commands = flight.draw;
        begin(self.device, commands, vk::CommandBufferUsageFlags::empty())?;
        let observers = self.observers;
        let observe = |at| {
            for observer in observers.each() {
                // SAFETY: recording, in the draw's render pass only for a slice; the pacer says that the
                // flight is free; the producer has made the source readable for all of `Frame::reads`.
                unsafe { observer.record(commands, flight.index, source, at) };
            }
        };
        observe(At::BeforeDraw);
        self.times.mark(commands, flight.index, DRAW);
        let after = |slice| observe(At::Slice(slice));
        let slices = (slices > 0).then_some(Slices { count: slices, after: &after });
        // SAFETY: recording; the pacer says that the flight is free; the producer has made the source
        // readable; the picture is the caller's to draw on.
        unsafe { self.renderer.record(commands, flight.index, source, picture, slices) }?;
        self.times.mark(commands, flight.index, END);
        observe(At::AfterDraw);
        self.producer_state.producer.record_after_draw(commands, frame, source);
        end(self.device, commands)
    }
}

pub(super) fn record_behind(
    device: &Device,
    flight: &Flight,
    record: &mut dyn FnMut(vk::CommandBuffer) -> Result<()>,
) -> Result<vk::CommandBuffer> {
    let commands = flight.behind;
    begin(device, commands, vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT)?;
    record(commands)?;
    end(device, commands)?;
    Ok(commands)
}
