//! A frame's commands, in two command buffers: what the producer does before the draw, and the draw.
//!
//! Recording takes longer than everything else that the CPU does for a frame, so it is done once, and the same commands are
//! submitted whenever their slot's turn comes. What differs from frame to frame is elsewhere: the camera is in a uniform
//! buffer, the values to wait for are in the submission. Only a producer whose work is in the queue has arguments that change,
//! and only what it does is then recorded anew.

use ash::vk;

use super::Engine;
use super::timing::{BEGIN, DRAW, END};
use crate::Result;
use crate::observer::{At, Observer};
use crate::producer::{Frame, Source};
use crate::render::{Picture, Slices};
use crate::vulkan::{Device, Flight};

/// What is in the flights' command buffers.
pub(super) struct Recordings {
    flights: Vec<Option<Recorded>>,
    draws: u64,
}

/// What a flight's commands were recorded for.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Recorded {
    source: Source,
    image: vk::Image,
    view: vk::ImageView,
    extent: vk::Extent2D,
    slices: usize,
}

impl Recordings {
    pub(super) fn new(flights: usize) -> Self {
        Self { flights: vec![None; flights], draws: 0 }
    }

    /// The same with so many flights, with nothing in them.
    pub(super) fn restart(&mut self, flights: usize) {
        self.flights = vec![None; flights];
    }
}

impl Engine {
    /// Records the frame's commands, unless those that the flight has still fit.
    pub(super) fn record(
        &mut self,
        flight: &Flight,
        frame: &Frame,
        source: Source,
        picture: &Picture,
    ) -> Result<()> {
        let Picture { image, view, extent, .. } = *picture;
        let slices = self.observers.each().map(Observer::slices).max().unwrap_or(0);
        let this = Recorded { source, image, view, extent, slices };
        let recorded = self.recordings.flights[flight.index].take() == Some(this);
        let in_queue = self.producer.profile().in_queue && !self.is_held();
        if in_queue || !recorded {
            self.record_before(flight, frame, source, in_queue)?;
        }
        if !recorded {
            self.record_draw(flight, frame, source, picture, slices)?;
            self.recordings.draws += 1;
        }
        self.recordings.flights[flight.index] = Some(this);
        Ok(())
    }

    /// What comes before the draw; `once`: it will not be submitted again.
    fn record_before(&self, flight: &Flight, frame: &Frame, source: Source, once: bool) -> Result<()> {
        let commands = flight.before;
        let usage = match once {
            true => vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT,
            false => vk::CommandBufferUsageFlags::empty(),
        };
        begin(self.queue.device(), commands, usage)?;
        // All of the frame's marks: those of the draw are in the command buffer that is submitted behind this one.
        self.times.reset(commands, flight.index);
        self.times.mark(commands, flight.index, BEGIN);
        if !self.is_held() {
            self.producer.record_before_draw(commands, frame, source);
        }
        end(self.queue.device(), commands)
    }

    /// The draw, with what observers want to see of it, and what comes after it.
    fn record_draw(
        &mut self,
        flight: &Flight,
        frame: &Frame,
        source: Source,
        picture: &Picture,
        slices: usize,
    ) -> Result<()> {
        let Self { observers, times, producer, held, renderer, queue, .. } = self;
        let commands = flight.draw;
        begin(queue.device(), commands, vk::CommandBufferUsageFlags::empty())?;
        let observe = |at| {
            for observer in observers.each() {
                // SAFETY: recording, in the draw's render pass for a slice of it and outside of one else; the pacer says that
                // the flight is free; the producer has made the source readable for all, as `Frame::reads` asks.
                unsafe { observer.record(commands, flight.index, source, at) };
            }
        };
        observe(At::BeforeDraw);
        times.mark(commands, flight.index, DRAW);
        let after = |slice| observe(At::Slice(slice));
        let slices = (slices > 0).then_some(Slices { count: slices, after: &after });
        // SAFETY: recording; the pacer says that the flight is free; the producer has made the source readable; the
        // picture is the caller's to draw on.
        unsafe { renderer.record(commands, flight.index, source, picture, slices) }?;
        times.mark(commands, flight.index, END);
        observe(At::AfterDraw);
        if held.is_none() {
            producer.record_after_draw(commands, frame, source);
        }
        end(queue.device(), commands)
    }

    /// Records what comes behind the draw, for this frame alone.
    pub(super) fn record_behind(
        &self,
        flight: &Flight,
        record: &mut dyn FnMut(vk::CommandBuffer) -> Result<()>,
    ) -> Result<vk::CommandBuffer> {
        let (device, commands) = (self.queue.device(), flight.behind);
        begin(device, commands, vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT)?;
        record(commands)?;
        end(device, commands)?;
        Ok(commands)
    }

    /// Forgets recorded commands: what they draw on, or from, may be gone, and something else may have the same handles.
    pub(crate) fn forget_recorded(&mut self) {
        self.recordings.flights.fill(None);
    }

    /// How often a draw was recorded: once for each flight, and again wherever one has another slot or picture.
    pub fn draws_recorded(&self) -> u64 {
        self.recordings.draws
    }
}

/// Begins to record anew.
fn begin(device: &Device, commands: vk::CommandBuffer, usage: vk::CommandBufferUsageFlags) -> Result<()> {
    let info = vk::CommandBufferBeginInfo::default().flags(usage);
    // SAFETY: the pacer says that the GPU is done with the flight's command buffers; those of its pool may be reset one by one.
    unsafe { device.raw().begin_command_buffer(commands, &info) }
        .map_err(device.failed("vkBeginCommandBuffer"))
}

fn end(device: &Device, commands: vk::CommandBuffer) -> Result<()> {
    // SAFETY: recording, outside a render pass.
    unsafe { device.raw().end_command_buffer(commands) }.map_err(device.failed("vkEndCommandBuffer"))
}
