//! Submits several turns at once.

use ash::vk;
use smallvec::SmallVec;

use crate::{Error, Result};

/// One or more turns for a single submission: a [`VulkanTurn`](crate::VulkanTurn), a
/// [`WriteTurn`](crate::WriteTurn), a pair of these (or of pairs), or a `Vec` of them. The turns may belong
/// to any rings, in either direction.
///
/// ```compile_fail,E0277
/// // Only this crate can mark a frame as submitted.
/// fn forged(turn: vulkan_cuda::VulkanTurn<vulkan_cuda::SharedBuffer>) {
///     vulkan_cuda::shared_ring::QueueTurn::submitted(turn, &Default::default());
/// }
/// ```
pub trait QueueTurn: Sized {
    /// Adds the semaphores that the submission waits for and signals. Fails if the turn may not be submitted.
    #[doc(hidden)]
    fn begin(&self, semaphores: &mut Semaphores) -> Result<()>;

    /// Notes that the submission was accepted. Without this call, the frame counts as not submitted.
    #[doc(hidden)]
    fn submitted(self, semaphores: &Semaphores);
}

impl<A: QueueTurn, B: QueueTurn> QueueTurn for (A, B) {
    fn begin(&self, semaphores: &mut Semaphores) -> Result<()> {
        self.0.begin(semaphores)?;
        self.1.begin(semaphores)
    }

    fn submitted(self, semaphores: &Semaphores) {
        self.0.submitted(semaphores);
        self.1.submitted(semaphores);
    }
}

impl<T: QueueTurn> QueueTurn for Vec<T> {
    fn begin(&self, semaphores: &mut Semaphores) -> Result<()> {
        self.iter().try_for_each(|turn| turn.begin(semaphores))
    }

    fn submitted(self, semaphores: &Semaphores) {
        self.into_iter().for_each(|turn| turn.submitted(semaphores));
    }
}

/// A list that stays on the stack for up to two turns, because every frame makes one.
type List = SmallVec<[vk::SemaphoreSubmitInfo<'static>; 2]>;

/// The waits and signals of one submission. Each list has a timeline at most once, with its greatest value.
pub struct Semaphores {
    waits: List,
    signals: List,
}

impl Semaphores {
    pub(crate) fn add(
        &mut self,
        wait: vk::SemaphoreSubmitInfo<'static>,
        signal: vk::SemaphoreSubmitInfo<'static>,
    ) {
        for (list, one) in [(&mut self.waits, wait), (&mut self.signals, signal)] {
            match list.iter_mut().find(|other| other.semaphore == one.semaphore) {
                Some(other) => other.value = other.value.max(one.value),
                None => list.push(one),
            }
        }
    }
}

/// Calls `submit` once for several turns, with the waits and the signals of that submission.
///
/// # Errors
/// Fails if `submit` does. Also fails, without calling `submit`, if a turn's frame or a later one was already
/// submitted. On failure, frames that Vulkan reads are given up, and frames that it writes never began.
///
/// # Safety
/// Same as [`VulkanTurn::submit`](crate::VulkanTurn::submit) and
/// [`WriteTurn::submit`](crate::WriteTurn::submit) for each turn, with all waits and all signals.
///
/// # Examples
/// Vulkan reads one ring's frame and writes another's, in the same submission.
///
/// ```no_run
/// # use ash::vk;
/// # use vulkan_cuda::{RingToCuda, SharedBuffer, SharedRing, shared_ring};
/// # fn example(
/// #     left: &mut SharedRing<SharedBuffer>, right: &mut RingToCuda<SharedBuffer>,
/// #     (device, queue): (ash::Device, vk::Queue), commands: vk::CommandBuffer,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// # let draw = |_: &SharedBuffer, _: &SharedBuffer| ();
/// let (Some(read), Some(write)) = (left.next_read(), right.write()) else { return Ok(()) };
/// // SAFETY: `commands` is being recorded for a queue of the family of both rings.
/// unsafe { read.record(commands, |from| write.record(commands, |to| draw(from, to))) };
/// // … end the recording …
/// let submit = |waits: &[_], signals: &[_]| -> Result<(), Box<dyn std::error::Error>> {
///     let buffers = [vk::CommandBufferSubmitInfo::default().command_buffer(commands)];
///     let submission = vk::SubmitInfo2::default()
///         .wait_semaphore_infos(waits)
///         .command_buffer_infos(&buffers)
///         .signal_semaphore_infos(signals);
///     Ok(unsafe { device.queue_submit2(queue, &[submission], vk::Fence::null()) }?)
/// };
/// // SAFETY: `submit` makes one submission with all semaphores. An error means that there was none.
/// unsafe { shared_ring::submit((read, write), submit) }?;
/// # Ok(())
/// # }
/// ```
pub unsafe fn submit<R, E: From<Error>>(
    turns: impl QueueTurn,
    submit: impl FnOnce(&[vk::SemaphoreSubmitInfo<'static>], &[vk::SemaphoreSubmitInfo<'static>]) -> Result<R, E>,
) -> Result<R, E> {
    let mut semaphores = Semaphores { waits: List::new(), signals: List::new() };
    turns.begin(&mut semaphores)?;
    let done = submit(&semaphores.waits, &semaphores.signals)?;
    turns.submitted(&semaphores);
    Ok(done)
}
