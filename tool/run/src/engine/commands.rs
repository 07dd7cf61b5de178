//! A frame's commands and their submission. There are up to three command buffers: the producer's work before
//! the draw, the draw, and what comes after it (the overlay, a film's copy, a page's picture).
//!
//! Recording takes longer than all other CPU work for a frame, so each flight records its draw once and
//! submits it again as long as it is valid. The draw contains nothing that differs between frames: the camera
//! is in a uniform buffer, and the values to wait for are in the submission. Two things are recorded for
//! every frame: what comes after the draw, and the work of a producer in the queue, whose arguments change.

use ash::vk;
use smallvec::SmallVec;

use super::timing::{BEGIN, DRAW, END};
use super::{Drawer, Observers, Work};
use crate::watch::observer::{At, Observer};
use wavefield_draw::{Picture, Slices};
use wavefield_gpu::Result;
use wavefield_gpu::vulkan::{Flight, begin, end};
use wavefield_handoff::producer::{Frame, FrameSync, Source};

/// The inputs that a draw was recorded for: source, picture, number of slices.
type Recorded = (Source, Picture, usize);

pub struct Recordings {
    /// For each flight, the inputs of its recorded draw.
    pub(super) flights: Vec<Option<Recorded>>,
    /// The number of recorded draws: one per flight, and another one for each change of slot or picture.
    pub draws: u64,
}

impl Recordings {
    /// Call this when an object that commands refer to is destroyed: a new object may get the same handle.
    pub fn forget(&mut self) {
        self.flights.fill(None);
    }
}

#[derive(Default)]
pub struct AfterDraw<'a> {
    /// Records commands after the draw, in the same submission. They must leave the picture in its final
    /// layout, and need barriers: the draw ends in the stages `COLOR_ATTACHMENT_OUTPUT` and `ALL_TRANSFER`.
    pub commands: Option<&'a mut dyn FnMut(vk::CommandBuffer) -> Result<()>>,
    /// For a picture to present: signalled once it is drawn. The draw then waits for [`Flight::acquired`].
    pub present: Option<vk::Semaphore>,
}

impl Drawer {
    /// Records the commands that earlier frames of this flight have not recorded already.
    pub(super) fn record(
        &mut self,
        observers: &Observers,
        work: &Work,
        flight: &Flight,
        frame: &Frame,
        source: Source,
        picture: &Picture,
    ) -> Result<()> {
        let slices = observers.each().map(Observer::slices).max().unwrap_or(0);
        let this = (source, *picture, slices);
        // The pointer moves, so the draw under it is recorded for one frame only.
        let probes = observers.probes(flight.index);
        let recorded = self.recordings.flights[flight.index].take() == Some(this) && !probes;
        let in_queue = work.producer.profile().in_queue;
        if in_queue || !recorded {
            let (device, commands) = (work.queue.device(), flight.before);
            let usage = match in_queue {
                true => vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT,
                false => vk::CommandBufferUsageFlags::empty(),
            };
            begin(device, commands, usage)?;
            if let Some(timestamps) = &observers.times.timestamps {
                // Resets the draw's marks too: its command buffer is submitted after this one.
                timestamps.reset(commands, flight.index);
                timestamps.mark(commands, flight.index, BEGIN);
            }
            work.producer.get().record_before_draw(commands, frame, source);
            end(device, commands)?;
        }
        if !recorded {
            self.record_draw(observers, work, flight, frame, this)?;
            self.recordings.draws += 1;
        }
        self.recordings.flights[flight.index] = (!probes).then_some(this);
        Ok(())
    }

    fn record_draw(
        &mut self,
        observers: &Observers,
        work: &Work,
        flight: &Flight,
        frame: &Frame,
        (source, picture, slices): Recorded,
    ) -> Result<()> {
        let (device, commands) = (work.queue.device(), flight.draw);
        begin(device, commands, vk::CommandBufferUsageFlags::empty())?;
        let observe = |at| {
            for observer in observers.each() {
                // SAFETY: recording, in a render pass at most for a slice; the pacer says that the
                // flight is free; the producer has made the source readable for all of `Frame::reads`.
                unsafe { observer.record(commands, flight.index, source, at) };
            }
        };
        observe(At::BeforeDraw);
        let mark = |mark| {
            if let Some(timestamps) = &observers.times.timestamps {
                timestamps.mark(commands, flight.index, mark);
            }
        };
        mark(DRAW);
        let after = |slice| observe(At::Slice(slice));
        let slices = (slices > 0).then_some(Slices { count: slices, after: &after });
        // SAFETY: recording; the pacer says that the flight is free; the producer has made the source
        // readable; the picture is the caller's to draw on.
        unsafe { self.renderer.record(commands, flight.index, source, &picture, slices) }?;
        mark(END);
        observe(At::AfterDraw);
        work.producer.get().record_after_draw(commands, frame, source);
        end(device, commands)
    }
}

type SemaphoreList = SmallVec<[vk::SemaphoreSubmitInfo<'static>; 3]>;

impl Work {
    /// Calls `vkQueueSubmit2` once, with the semaphores of producer, window system and pacer. `more`: whether
    /// there are commands after the draw.
    pub(super) fn submit(
        &mut self,
        flight: &Flight,
        present: Option<vk::Semaphore>,
        more: bool,
    ) -> Result<()> {
        let Self { queue, pacer, producer, .. } = self;
        let semaphore = |raw, stage| vk::SemaphoreSubmitInfo::default().semaphore(raw).stage_mask(stage);
        let mut submit = |sync: FrameSync| {
            // On the stack: a frame waits for at most two semaphores, and signals at most three.
            let (mut waits, mut signals) = (SemaphoreList::new(), SemaphoreList::new());
            if let Some(rendered) = present {
                // Only writes to the picture wait for the window system; earlier work need not wait.
                waits.push(semaphore(flight.acquired, vk::PipelineStageFlags2::COLOR_ATTACHMENT_OUTPUT));
                signals.push(semaphore(rendered, vk::PipelineStageFlags2::ALL_COMMANDS));
            }
            waits.extend(sync.wait);
            signals.extend(sync.signal);
            signals.push(pacer.signal());
            let commands = [flight.before, flight.draw, flight.behind];
            let commands =
                commands.map(|commands| vk::CommandBufferSubmitInfo::default().command_buffer(commands));
            let commands = if more { &commands[..] } else { &commands[..2] };
            let batch = vk::SubmitInfo2::default()
                .wait_semaphore_infos(&waits)
                .command_buffer_infos(commands)
                .signal_semaphore_infos(&signals);
            // A batch without commands: it signals once all earlier submissions are done.
            let before = sync.signal_before.map(|signal| [signal]);
            let before =
                before.as_ref().map(|signal| vk::SubmitInfo2::default().signal_semaphore_infos(signal));
            let both = [before.unwrap_or_default(), batch];
            let batches = if before.is_some() { &both[..] } else { &both[1..] };
            // SAFETY: the command buffers are recorded and not pending; `Drop` waits before anything that
            // they use is destroyed.
            unsafe { queue.submit(batches) }
        };
        // SAFETY: one submission, with the commands of the frame that was produced last; none after an error.
        unsafe { producer.producer.submit(&mut submit) }?;
        pacer.end();
        Ok(())
    }
}
