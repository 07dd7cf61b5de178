//! One `vkQueueSubmit2` a frame: its commands, between what the producer, the window system and the pacer wait for and signal.

use ash::vk;

use super::Engine;
use crate::Result;
use crate::producer::FrameSync;
use crate::vulkan::Flight;

/// Binary semaphores that tie a frame to the window system.
#[derive(Clone, Copy, Debug)]
pub struct PresentSync {
    /// Signalled when the picture may be drawn on.
    pub acquired: vk::Semaphore,
    /// To be signalled when it is drawn.
    pub rendered: vk::Semaphore,
}

/// What comes behind a frame's draw.
#[derive(Default)]
pub struct Behind<'a> {
    /// Records commands that run behind the draw, in the same submission: the picture is in its final layout then, and must be
    /// left in it. Barriers are theirs to record: the draw's last scope is `COLOR_ATTACHMENT_OUTPUT` and `ALL_TRANSFER`.
    pub commands: Option<&'a mut dyn FnMut(vk::CommandBuffer) -> Result<()>>,
    /// Who else waits and is waited for, where the picture is presented.
    pub present: Option<PresentSync>,
}

impl Engine {
    /// Submits what was recorded for a flight, and `more` behind it.
    pub(super) fn submit(
        &mut self,
        flight: &Flight,
        sync: &FrameSync,
        present: Option<PresentSync>,
        more: Option<vk::CommandBuffer>,
    ) -> Result<()> {
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
        let commands = [flight.before, flight.draw, more.unwrap_or_default()];
        let commands =
            commands.map(|commands| vk::CommandBufferSubmitInfo::default().command_buffer(commands));
        let commands = if more.is_some() { &commands[..] } else { &commands[..2] };
        let batch = vk::SubmitInfo2::default()
            .wait_semaphore_infos(waits.as_slice())
            .command_buffer_infos(commands)
            .signal_semaphore_infos(signals.as_slice());
        // A batch without commands: its signal comes when everything that was submitted before is done.
        let before = sync.signal_before.map(|signal| [signal]);
        let before = before.as_ref().map(|signal| vk::SubmitInfo2::default().signal_semaphore_infos(signal));
        let both = [before.unwrap_or_default(), batch];
        let batches = if before.is_some() { &both[..] } else { &both[1..] };
        // SAFETY: recorded and not pending; `Drop` waits before anything that it names goes away.
        unsafe { self.queue.submit_all(batches) }
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
