//! Submits a frame: one `vkQueueSubmit2`, with the semaphores of producer, window system and pacer.

use ash::vk;
use smallvec::SmallVec;

use super::producer_state::ProducerState;
use wavefield_gpu::Result;
use wavefield_gpu::vulkan::{Flight, Pacer, Queue};
use wavefield_handoff::producer::FrameSync;

#[derive(Default)]
pub struct AfterDraw<'a> {
    /// Records commands after the draw, in the same submission. The picture must stay in its final layout.
    /// They need barriers: the draw ends in the stages `COLOR_ATTACHMENT_OUTPUT` and `ALL_TRANSFER`.
    pub commands: Option<&'a mut dyn FnMut(vk::CommandBuffer) -> Result<()>>,
    /// For a picture that is presented: signalled once it is drawn. The draw waits for [`Flight::acquired`].
    pub present: Option<vk::Semaphore>,
}

type SemaphoreList = SmallVec<[vk::SemaphoreSubmitInfo<'static>; 3]>;

pub(super) fn submit(
    queue: &mut Queue,
    pacer: &Pacer,
    producer_state: &mut ProducerState,
    flight: &Flight,
    present: Option<vk::Semaphore>,
    more: Option<vk::CommandBuffer>,
) -> Result<()> {
    let semaphore = |raw, stage| vk::SemaphoreSubmitInfo::default().semaphore(raw).stage_mask(stage);
    let mut submit = |sync: FrameSync| {
        // On the stack: a frame waits for at most two, and signals at most three.
        let (mut waits, mut signals) = (SemaphoreList::new(), SemaphoreList::new());
        if let Some(rendered) = present {
            // Only writes to the picture wait for the window system; earlier work need not wait.
            waits.push(semaphore(flight.acquired, vk::PipelineStageFlags2::COLOR_ATTACHMENT_OUTPUT));
            signals.push(semaphore(rendered, vk::PipelineStageFlags2::ALL_COMMANDS));
        }
        waits.extend(sync.wait);
        signals.extend(sync.signal);
        signals.push(pacer.signal());
        let commands = [flight.before, flight.draw, more.unwrap_or_default()];
        let commands =
            commands.map(|commands| vk::CommandBufferSubmitInfo::default().command_buffer(commands));
        let commands = if more.is_some() { &commands[..] } else { &commands[..2] };
        let batch = vk::SubmitInfo2::default()
            .wait_semaphore_infos(&waits)
            .command_buffer_infos(commands)
            .signal_semaphore_infos(&signals);
        // A batch without commands: it signals once all earlier submissions are done.
        let before = sync.signal_before.map(|signal| [signal]);
        let before = before.as_ref().map(|signal| vk::SubmitInfo2::default().signal_semaphore_infos(signal));
        let both = [before.unwrap_or_default(), batch];
        let batches = if before.is_some() { &both[..] } else { &both[1..] };
        // SAFETY: the command buffers are recorded and not pending; `Drop` waits before anything named goes.
        unsafe { queue.submit(batches) }
    };
    // SAFETY: one submission, with the commands of the frame that was produced last; none after an error.
    unsafe { producer_state.producer.submit(&mut submit) }
}
