//! Owns the producer, the queue and the pacer: what is enqueued, and every wait for it. Every wait has a limit.

use std::time::{Duration, Instant};

use ash::vk;

use super::ProducerState;
use super::side_views::SideViews;
use crate::{Choice, Config, Stop};
use wavefield_gpu::cuda::Cuda;
use wavefield_gpu::threads::cpu_time;
use wavefield_gpu::vulkan::{Device, Pacer, Queue};
use wavefield_gpu::{Error, Result, report};
use wavefield_handoff::producer::Producer;

/// How long `quiesce` waits for a frame once the producer has failed. A failed producer signals the timelines
/// that Vulkan waits for, so frames end, but nothing can signal a binary semaphore in CUDA's place.
const AFTER_A_FAILURE: Duration = Duration::from_secs(3);
/// The longest wait for a frame after a stop request.
const STOPPING: Duration = Duration::from_secs(2);

pub struct Work {
    // Field order is drop order. `Engine`'s `Drop` first waits for both APIs.
    /// `None` until a client wants pictures.
    pub(super) side_views: Option<SideViews>,
    pub producer: ProducerState,
    /// `None` until a producer needs CUDA.
    pub(super) context: Option<Cuda>,
    pub(super) pacer: Pacer,
    pub(super) queue: Queue,
    pub(super) wait_limit: WaitLimit,
    pub(super) health: Health,
}

/// The state of a run. A later variant is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Health {
    Sound,
    /// The error was returned or printed.
    Failed,
    /// A wait was given up. Dropping does not wait; a later [`Work::finish`] that succeeds ends this state.
    Stuck,
}

impl Work {
    /// Updates the health if `outcome` is a failure.
    pub(super) fn record_health<T>(&mut self, outcome: Result<T>) -> Result<T> {
        let seen = match &outcome {
            Ok(_) => Health::Sound,
            Err(Error::Stuck { .. } | Error::Stopped(_)) => Health::Stuck,
            Err(_) => Health::Failed,
        };
        self.health = self.health.max(seen);
        outcome
    }

    /// Returns the producer's own number for the next frame.
    pub(super) fn next(&self) -> u64 {
        self.pacer.submitted() - self.producer.first
    }

    pub fn has_failed(&self) -> bool {
        self.health != Health::Sound
    }

    /// Returns how many frames the GPU has finished.
    pub fn drawn(&self) -> Result<u64> {
        self.pacer.finished()
    }

    /// Returns how many frames and side views the GPU has finished, and how many were submitted.
    pub fn progress(&self) -> Result<(u64, u64)> {
        let (mut finished, mut submitted) = (0, 0);
        for pacer in [&self.pacer].into_iter().chain(self.side_views.as_ref().map(|side| &side.pacer)) {
            finished += pacer.finished()?;
            submitted += pacer.submitted();
        }
        Ok((finished, submitted))
    }

    /// Returns how often the CPU waited for the GPU, for pacing or the hand-off, but not for side views.
    pub fn blocking_waits(&self) -> u64 {
        self.pacer.blocking_waits + self.producer.waits
    }

    /// Waits until the GPU has finished every submitted frame and side view.
    pub fn drain(&mut self) -> Result<()> {
        self.wait_drawn(self.pacer.submitted())?;
        let Some(SideViews { pacer, .. }) = &mut self.side_views else { return Ok(()) };
        let look = self.wait_limit.watch(self.producer.get(), self.queue.device(), pacer.slowest);
        let drawn = pacer.wait_for(pacer.submitted(), look);
        self.record_health(drawn)
    }

    /// Waits until the GPU has finished the first `frames` frames. They must be submitted.
    pub fn wait_drawn(&mut self, frames: u64) -> Result<()> {
        let look = self.wait_limit.watch(self.producer.get(), self.queue.device(), self.pacer.slowest);
        let drawn = self.pacer.wait_for(frames, look);
        self.record_health(drawn)
    }

    /// Waits until the GPU has finished every frame and side view, and the producer is idle.
    pub fn finish(&mut self) -> Result<()> {
        self.drain()?;
        let idle = self.producer_idle();
        self.record_health(idle)?;
        // A wait that was given up earlier has ended after all.
        self.health = self.health.min(Health::Failed);
        Ok(())
    }

    /// Waits for everything that the producer has enqueued, including frames filled ahead.
    fn producer_idle(&self) -> Result<()> {
        let look = self.wait_limit.watch(self.producer.get(), self.queue.device(), self.pacer.slowest);
        let began = Instant::now();
        while !self.producer.get().is_idle()? {
            look(began.elapsed())?;
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    /// Waits until both APIs are idle, so that everything can be dropped. Returns false if the GPU is stuck.
    pub fn quiesce(&mut self) -> bool {
        if self.health == Health::Stuck {
            return false;
        }
        // Once the producer has failed, what it enqueued will not run: release every waiter.
        let patience = self.wait_limit.limit(self.pacer.slowest);
        let (producer, health) = (&mut self.producer.producer, &mut self.health);
        let mut let_go = || {
            let failure = producer.is_idle().err();
            if let Some(error) = &failure {
                producer.abandon();
                health.report(error);
            }
            failure.is_some()
        };
        let_go();
        let drawn = self.wait_limit.drawn();
        let mut look = |since| {
            let patience = if let_go() { patience.min(AFTER_A_FAILURE) } else { patience };
            match drawn(since) < patience {
                true => Ok(()),
                false => Err(Error::Unsupported("still waiting".into())),
            }
        };
        let side_views = self.side_views.as_mut().map(|side| &mut side.pacer);
        let drained = [&mut self.pacer]
            .into_iter()
            .chain(side_views)
            .try_for_each(|pacer| pacer.wait_for(pacer.submitted(), &mut look));
        let failed = let_go();
        if drained.is_ok()
            && let Err(error) = self.queue.wait_presented()
        {
            // All submitted work has finished nevertheless.
            self.health.report(&error);
        }
        let vulkan = match drained {
            Ok(()) => true,
            Err(error) => {
                self.health.report(&error);
                // A lost device runs nothing, so it is at rest.
                matches!(error, Error::Vulkan { result: vk::Result::ERROR_DEVICE_LOST, .. })
            }
        };
        let producer = failed || self.producer_idle().is_ok() || self.producer.get().is_idle().is_err();
        let at_rest = vulkan && producer;
        if !at_rest {
            self.health = Health::Stuck;
        }
        at_rest
    }
}

impl Health {
    /// Prints a failure at the end of a run, unless an earlier failure was already reported.
    fn report(&mut self, error: &Error) {
        if *self == Self::Sound {
            *self = Self::Failed;
            report::cleanup_error(error);
        }
    }
}

pub(super) struct WaitLimit {
    pub(super) timeout: Duration,
    /// Whether the CPU alone fills and draws; a large frame may then take longer than `timeout`.
    pub(super) software: bool,
    /// Once a stop is requested, no wait for a frame lasts longer than [`STOPPING`].
    pub(super) stop: Stop,
}

impl WaitLimit {
    pub(super) fn new(queue: &Queue, choice: &Choice, config: &Config) -> Self {
        let is_software = queue.device().info().kind == vk::PhysicalDeviceType::CPU;
        Self {
            timeout: config.timeout,
            software: is_software && choice.cuda.is_none(),
            stop: Stop::default(),
        }
    }

    /// Returns how long to wait for a frame. `slowest` is the longest wait for a frame so far.
    pub(super) fn limit(&self, slowest: Option<Duration>) -> Duration {
        match (self.software, slowest) {
            (false, _) => self.timeout,
            (true, None) => self.timeout.saturating_mul(30),
            (true, Some(slowest)) => self.timeout.max(slowest.saturating_mul(10)),
        }
    }

    /// Begins a wait. Returns a function from the time that passed to the time that counts: see [`drawn_for`].
    fn drawn(&self) -> impl Fn(Duration) -> Duration + use<> {
        let began = self.software.then(cpu_time).flatten();
        move |waited| drawn_for(waited, began.and_then(|began| Some(cpu_time()?.saturating_sub(began))))
    }

    /// Returns a function to call during a wait, with the time since a frame last finished. It fails if the
    /// producer has failed, or once the time exceeds the limit: after a stop request, at most [`STOPPING`].
    pub(super) fn watch<'a>(
        &'a self,
        producer: &'a dyn Producer,
        device: &'a Device,
        slowest: Option<Duration>,
    ) -> impl Fn(Duration) -> Result<()> + 'a {
        let limit = self.limit(slowest);
        let drawn = self.drawn();
        move |waited| {
            producer.is_idle()?;
            let waited = drawn(waited);
            if self.stop.requested() && waited >= STOPPING {
                let progress = producer.progress().map_or(String::new(), |progress| format!(" ({progress})"));
                return Err(Error::Stopped(format!(
                    "stopped before the current frame was done: {} has worked on it for more than {:.0} s{progress}",
                    device.info().name,
                    waited.as_secs_f64()
                )));
            }
            if waited < limit {
                return Ok(());
            }
            let progress = producer.progress().unwrap_or_else(|| "Vulkan did not finish a frame".into());
            let device = device.info().name.clone();
            Err(Error::Stuck { device, seconds: waited.as_secs_f64(), progress })
        }
    }
}

/// Returns how long a frame was being drawn. A software device draws only while this process runs, and `ran`
/// is its CPU time. On a busy machine that may be much less than the time that passed, but a device that hangs
/// may use none, so at least a fifth of the time counts.
fn drawn_for(waited: Duration, ran: Option<Duration>) -> Duration {
    ran.map_or(waited, |ran| waited.min(ran.max(waited / 5)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_software_device_on_a_busy_machine_has_more_time() {
        let seconds = |waited, ran: Option<u64>| {
            drawn_for(Duration::from_secs(waited), ran.map(Duration::from_secs)).as_secs()
        };
        assert_eq!([seconds(10, None), seconds(10, Some(20)), seconds(10, Some(7))], [10, 10, 7]);
        assert_eq!([seconds(10, Some(0)), seconds(50, Some(0))], [2, 10], "a device that hangs");
    }

    #[test]
    fn a_software_device_has_as_long_as_its_frames_take() {
        let limit = |software, slowest: Option<u64>| {
            let timeout = Duration::from_secs(10);
            let wait_limit = WaitLimit { timeout, software, stop: Stop::default() };
            wait_limit.limit(slowest.map(Duration::from_secs)).as_secs()
        };
        assert_eq!([limit(false, None), limit(false, Some(9))], [10, 10]);
        assert_eq!([limit(true, None), limit(true, Some(0)), limit(true, Some(7))], [300, 10, 70]);
    }

    #[test]
    fn a_timeout_without_end_is_no_panic() {
        let wait_limit = WaitLimit { timeout: Duration::MAX, software: true, stop: Stop::default() };
        assert_eq!([None, Some(Duration::MAX)].map(|slowest| wait_limit.limit(slowest)), [Duration::MAX; 2]);
    }
}
