//! How far the CPU may run ahead: a few frames' command buffers, and one timeline that says which are free again.

use std::time::{Duration, Instant};

use ash::vk;

use super::rhythm::{Rhythm, Step};
use super::{AdapterInfo, Device, Queue};
use crate::{Result, threads};

/// How the CPU waits until the GPU is done with a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Wait {
    /// Sleep until shortly before the frame should be done, then poll: at most a tenth of a core more.
    /// For frames under a millisecond, and on a software device, only sleep.
    #[default]
    Hybrid,
    /// Sleep: costs the least CPU time, but the CPU continues more slowly, because its caches are cold.
    Sleep,
    /// Poll all the time: costs a core.
    Poll,
}

impl Wait {
    /// This one, or what stands in for it on a device.
    pub fn on(self, info: &AdapterInfo) -> Self {
        match self {
            // Polling would take the CPU from the frame that is waited for.
            Self::Hybrid if info.kind == vk::PhysicalDeviceType::CPU => Self::Sleep,
            wait => wait,
        }
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hybrid => "hybrid",
            Self::Sleep => "sleep",
            Self::Poll => "poll",
        }
    }
}

/// What one frame in flight owns until the GPU is done with it.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    /// Its index, below [`Pacer::depth`].
    pub index: usize,
    /// For what comes before the draw. The GPU is done with all command buffers; each keeps its commands, to be submitted again,
    /// until it is recorded anew.
    pub before: vk::CommandBuffer,
    /// For the draw.
    pub draw: vk::CommandBuffer,
    /// For what is drawn over it, or done with the picture.
    pub behind: vk::CommandBuffer,
    /// For `vkAcquireNextImageKHR`: unsignalled, nobody waits on it.
    pub acquired: vk::Semaphore,
}

/// Bounds the frames in flight.
///
/// With the timeline hand-off this is where the CPU waits for the GPU, and only on a value that *Vulkan* signals: such a wait returns at once,
/// where a host wait on a value that CUDA signals was seen to return about 10 ms late.
pub struct Pacer {
    device: Device,
    pool: vk::CommandPool,
    flights: Vec<Flight>,
    done: vk::Semaphore,
    submitted: u64,
    wait: Wait,
    rhythm: Rhythm,
    /// Frames that may be in flight: at most as many as there are flights.
    limit: u64,
    blocking_waits: u64,
    /// The longest that was waited for one frame, once there is a finished one.
    slowest: Option<Duration>,
}

impl Pacer {
    /// `depth` frames may be in flight, 1 at least. The thread that makes it should be the one that waits.
    pub fn new(queue: &Queue, depth: usize, wait: Wait) -> Result<Self> {
        Self::counting_from(0, queue, depth, wait)
    }

    /// A pacer with another depth, in this one's place once none of its frames is in flight: it counts on.
    pub fn succeed(&self, queue: &Queue, depth: usize) -> Result<Self> {
        let mut successor = Self::counting_from(self.submitted, queue, depth, self.wait)?;
        (successor.blocking_waits, successor.slowest) = (self.blocking_waits, self.slowest);
        Ok(successor)
    }

    fn counting_from(submitted: u64, queue: &Queue, depth: usize, wait: Wait) -> Result<Self> {
        let device = queue.device().clone();
        if wait == Wait::Hybrid {
            threads::sleep_exactly();
        }
        let mut kind = vk::SemaphoreTypeCreateInfo::default()
            .semaphore_type(vk::SemaphoreType::TIMELINE)
            .initial_value(submitted);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: a live device with timeline semaphores enabled.
        let done = unsafe { device.raw().create_semaphore(&info, None) }
            .map_err(device.failed("vkCreateSemaphore"))?;
        // From here on Drop cleans up what was made.
        let mut pacer = Self {
            device,
            pool: vk::CommandPool::null(),
            flights: Vec::new(),
            done,
            submitted,
            wait,
            rhythm: Rhythm::default(),
            limit: depth.max(1) as u64,
            blocking_waits: 0,
            slowest: None,
        };
        pacer.add_flights(queue.family(), depth.max(1))?;
        Ok(pacer)
    }

    fn add_flights(&mut self, family: u32, count: usize) -> Result<()> {
        let device = &self.device;
        let info = vk::CommandPoolCreateInfo::default()
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
            .queue_family_index(family);
        // SAFETY: a live device and a family of its queue.
        self.pool = unsafe { device.raw().create_command_pool(&info, None) }
            .map_err(device.failed("vkCreateCommandPool"))?;
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(self.pool)
            .level(vk::CommandBufferLevel::PRIMARY)
            .command_buffer_count(3 * count as u32);
        // SAFETY: the pool was made above.
        let commands = unsafe { device.raw().allocate_command_buffers(&info) }
            .map_err(device.failed("vkAllocateCommandBuffers"))?;
        for (index, three) in commands.chunks_exact(3).enumerate() {
            // SAFETY: a live device.
            let acquired =
                unsafe { device.raw().create_semaphore(&vk::SemaphoreCreateInfo::default(), None) }
                    .map_err(device.failed("vkCreateSemaphore"))?;
            self.flights.push(Flight { index, before: three[0], draw: three[1], behind: three[2], acquired });
        }
        Ok(())
    }

    /// Frames that have resources of their own.
    pub fn depth(&self) -> usize {
        self.flights.len()
    }

    /// Allows only `frames` in flight from now on, 1 at least and no more than [`Pacer::depth`].
    pub fn set_limit(&mut self, frames: usize) {
        self.limit = frames.clamp(1, self.flights.len()) as u64;
    }

    /// Frames submitted so far.
    pub fn submitted(&self) -> u64 {
        self.submitted
    }

    /// How often the CPU really had to wait.
    pub fn blocking_waits(&self) -> u64 {
        self.blocking_waits
    }

    /// The longest that the CPU waited for one frame so far; `None` before one was finished.
    pub fn slowest(&self) -> Option<Duration> {
        self.slowest
    }

    /// Waits until the next frame's resources are free. Calling it again without a submit in between gives the same.
    ///
    /// While it waits, it calls `alive` ten times a second, or more often, with the time since a frame was last finished (or the wait
    /// began); an error of `alive` ends the wait.
    pub fn begin(&mut self, alive: impl FnMut(Duration) -> Result<()>) -> Result<Flight> {
        // Frame number `submitted - limit` signals that number plus 1. The one that used this flight before is not later.
        if self.submitted >= self.limit {
            self.wait_for(self.submitted - self.limit + 1, alive)?;
        }
        Ok(self.flights[(self.submitted % self.flights.len() as u64) as usize])
    }

    /// How many frames [`Pacer::begin`] has waited for, and every frame before them is done too.
    pub fn awaited(&self) -> u64 {
        (self.submitted + 1).saturating_sub(self.limit)
    }

    /// What the frame's submission must signal for [`Pacer::begin`] to see its end.
    pub fn signal(&self) -> vk::SemaphoreSubmitInfo<'static> {
        vk::SemaphoreSubmitInfo::default()
            .semaphore(self.done)
            .value(self.submitted + 1)
            .stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)
    }

    /// Call after the submission that carries [`Pacer::signal`].
    pub fn end(&mut self) {
        self.submitted += 1;
    }

    /// Waits until every submitted frame is done; `alive` as for [`Pacer::begin`].
    pub fn wait_all(&mut self, alive: impl FnMut(Duration) -> Result<()>) -> Result<()> {
        self.wait_for(self.submitted, alive)
    }

    /// Frames that the GPU has finished.
    pub fn finished(&self) -> Result<u64> {
        // SAFETY: a live timeline semaphore of this device.
        unsafe { self.device.raw().get_semaphore_counter_value(self.done) }
            .map_err(self.device.failed("vkGetSemaphoreCounterValue"))
    }

    /// Waits until the first `value` frames are done, which must have been submitted; `alive` as for [`Pacer::begin`].
    pub fn wait_for(&mut self, value: u64, mut alive: impl FnMut(Duration) -> Result<()>) -> Result<()> {
        let mut finished = self.finished()?;
        if finished > 0 {
            self.slowest.get_or_insert_default();
        }
        if finished >= value {
            self.rhythm.unseen();
            return Ok(());
        }
        self.blocking_waits += 1;
        let mut since = Instant::now();
        while !self.arrives(value)? {
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

    /// Whether `value` is there before it is time to look up.
    fn arrives(&mut self, value: u64) -> Result<bool> {
        let step = match self.wait {
            Wait::Hybrid => self.rhythm.step(Instant::now()),
            Wait::Sleep => Step::Sleep,
            Wait::Poll => Step::Poll(LOOK_UP),
        };
        let arrived = match step {
            Step::Nap(time) => {
                // Not in the driver, whose limits are not known to be exact to the microsecond.
                std::thread::sleep(time);
                if self.finished()? >= value {
                    self.rhythm.overslept(Instant::now());
                    return Ok(true);
                }
                false
            }
            Step::Poll(time) => self.poll(value, time)?,
            Step::Sleep => self.sleep(value)?,
        };
        if arrived {
            self.rhythm.arrived(Instant::now());
        }
        Ok(arrived)
    }

    fn poll(&self, value: u64, time: Duration) -> Result<bool> {
        let began = Instant::now();
        while began.elapsed() < time {
            if self.finished()? >= value {
                return Ok(true);
            }
            std::hint::spin_loop();
        }
        Ok(false)
    }

    fn sleep(&self, value: u64) -> Result<bool> {
        let (semaphores, values) = ([self.done], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: a live timeline semaphore of this device; the value is one that a submission will signal.
        match unsafe { self.device.raw().wait_semaphores(&info, LOOK_UP.as_nanos() as u64) } {
            Ok(()) => Ok(true),
            Err(vk::Result::TIMEOUT) => Ok(false),
            Err(result) => Err(self.device.failed("vkWaitSemaphores")(result)),
        }
    }
}

/// How long a wait goes on before it looks up: what it waits for may never come.
const LOOK_UP: Duration = Duration::from_millis(100);

impl Drop for Pacer {
    fn drop(&mut self) {
        if self.device.is_left_running() {
            return;
        }
        // SAFETY: whoever drops a resource waits first (see the module `vulkan`); null handles are allowed.
        unsafe {
            for flight in &self.flights {
                self.device.raw().destroy_semaphore(flight.acquired, None);
            }
            self.device.raw().destroy_command_pool(self.pool, None);
            self.device.raw().destroy_semaphore(self.done, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn names_are_those_of_the_command_line() {
        for wait in Wait::value_variants() {
            assert_eq!(wait.to_possible_value().unwrap().get_name(), wait.name());
        }
    }

    #[test]
    fn a_software_device_is_not_polled_unless_asked_for() {
        let on = |kind| {
            let info = AdapterInfo { kind, ..AdapterInfo::unreal(1) };
            [Wait::Hybrid, Wait::Sleep, Wait::Poll].map(|wait| wait.on(&info))
        };
        assert_eq!(on(vk::PhysicalDeviceType::CPU), [Wait::Sleep, Wait::Sleep, Wait::Poll]);
        assert_eq!(on(vk::PhysicalDeviceType::DISCRETE_GPU), [Wait::Hybrid, Wait::Sleep, Wait::Poll]);
    }
}
