use std::time::{Duration, Instant};

use ash::vk;

use super::{AutoDestroy, CommandPool, Queue};
use crate::Result;

/// The resources of one frame in flight. A later frame reuses them once this one is done.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    /// The number of these resources, below [`Pacer::depth`].
    pub index: usize,
    /// For commands before the draw. When [`Pacer::begin`] returns, none of the three is pending.
    pub before: vk::CommandBuffer,
    pub draw: vk::CommandBuffer,
    /// For commands after the draw.
    pub behind: vk::CommandBuffer,
    /// For `vkAcquireNextImageKHR`: unsignalled, and no wait is pending.
    pub acquired: vk::Semaphore,
}

/// Limits how far the CPU runs ahead of the GPU. A timeline semaphore counts the frames that are done.
///
/// With the timeline hand-off, the CPU waits for the GPU only here, and only for values that *Vulkan*
/// signals. A host wait for a value that CUDA signals was seen to return about 10 ms late.
pub struct Pacer {
    _pool: CommandPool,
    flights: Vec<Flight>,
    _acquired: Vec<AutoDestroy<vk::Semaphore>>,
    done: AutoDestroy<vk::Semaphore>,
    submitted: u64,
    /// The maximum number of frames in flight; at most the number of flights.
    limit: u64,
    pub blocking_waits: u64,
    /// The longest wait for one frame so far; `None` until a frame has finished.
    pub slowest: Option<Duration>,
}

impl Pacer {
    pub fn new(queue: &Queue, depth: usize) -> Result<Self> {
        Self::counting_from(0, queue, depth)
    }

    /// Makes a pacer of another depth that continues this pacer's counts. No frame may be in flight.
    pub fn succeed(&self, queue: &Queue, depth: usize) -> Result<Self> {
        let mut successor = Self::counting_from(self.submitted, queue, depth)?;
        (successor.blocking_waits, successor.slowest) = (self.blocking_waits, self.slowest);
        Ok(successor)
    }

    fn counting_from(submitted: u64, queue: &Queue, depth: usize) -> Result<Self> {
        let device = queue.device();
        let depth = depth.max(1);
        let pool = CommandPool::of_queue(queue, vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)?;
        let commands = pool.allocate(3 * depth as u32)?;
        let acquired = (0..depth).map(|_| device.semaphore()).collect::<Result<Vec<_>>>()?;
        let flights =
            commands.chunks_exact(3).zip(&acquired).enumerate().map(|(index, (three, acquired))| Flight {
                index,
                before: three[0],
                draw: three[1],
                behind: three[2],
                acquired: acquired.raw(),
            });
        Ok(Self {
            flights: flights.collect(),
            _acquired: acquired,
            done: device.timeline(submitted)?,
            _pool: pool,
            submitted,
            limit: depth as u64,
            blocking_waits: 0,
            slowest: None,
        })
    }

    pub fn depth(&self) -> usize {
        self.flights.len()
    }

    /// Allows at most `frames` in flight, clamped to 1..=[`Pacer::depth`].
    pub fn set_limit(&mut self, frames: usize) {
        self.limit = frames.clamp(1, self.flights.len()) as u64;
    }

    pub fn submitted(&self) -> u64 {
        self.submitted
    }

    /// Waits until the next frame's resources are free, and returns them: the same ones until [`Pacer::end`].
    ///
    /// Calls `alive` at least ten times a second, with the time since a frame last finished. An error from
    /// `alive` ends the wait.
    pub fn begin(&mut self, alive: impl FnMut(Duration) -> Result<()>) -> Result<Flight> {
        // Frame n signals n + 1. The flight's previous frame is `submitted - limit`, or an earlier one.
        if self.submitted >= self.limit {
            self.wait_for(self.submitted - self.limit + 1, alive)?;
        }
        Ok(self.flights[(self.submitted % self.flights.len() as u64) as usize])
    }

    /// Returns the number of frames that are certainly done, because [`Pacer::begin`] has waited for them.
    pub fn awaited(&self) -> u64 {
        (self.submitted + 1).saturating_sub(self.limit)
    }

    /// Returns the signal that the frame's submission must include, so that [`Pacer::begin`] sees its end.
    pub fn signal(&self) -> vk::SemaphoreSubmitInfo<'static> {
        vk::SemaphoreSubmitInfo::default()
            .semaphore(self.done.raw())
            .value(self.submitted + 1)
            .stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)
    }

    /// Counts the frame as submitted. Call this after the submission that includes [`Pacer::signal`].
    pub fn end(&mut self) {
        self.submitted += 1;
    }

    pub fn finished(&self) -> Result<u64> {
        let device = self.done.device();
        // SAFETY: a live timeline semaphore of this device.
        unsafe { device.raw().get_semaphore_counter_value(self.done.raw()) }
            .map_err(device.failed("vkGetSemaphoreCounterValue"))
    }

    /// Waits until the first `value` submitted frames are done. For `alive`, see [`Pacer::begin`].
    pub fn wait_for(&mut self, value: u64, mut alive: impl FnMut(Duration) -> Result<()>) -> Result<()> {
        let mut finished = self.finished()?;
        if finished > 0 {
            self.slowest.get_or_insert_default();
        }
        if finished >= value {
            return Ok(());
        }
        self.blocking_waits += 1;
        let mut since = Instant::now();
        while !self.done.device().wait(&self.done, value, LOOK_UP)? {
            let now = self.finished()?;
            if now > finished {
                self.slowest = self.slowest.max(Some(since.elapsed()));
                (finished, since) = (now, Instant::now());
            }
            alive(since.elapsed())?;
        }
        self.slowest = self.slowest.max(Some(since.elapsed()));
        Ok(())
    }
}

/// The interval at which a wait calls `alive`, because the frame may never finish.
const LOOK_UP: Duration = Duration::from_millis(100);
