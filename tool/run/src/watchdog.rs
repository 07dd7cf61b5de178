//! Limits every wait for the GPU.

use std::time::Duration;

use ash::vk;

use super::{Choice, Config, Stop};
use wavefield_gpu::vulkan::{Device, Queue};
use wavefield_gpu::{Error, Result};
use wavefield_handoff::producer::Producer;

pub(crate) struct WaitLimit {
    pub(crate) timeout: Duration,
    /// Whether the CPU alone fills and draws; a large frame may then take longer than `timeout`.
    pub(crate) software: bool,
    /// Once a stop is requested, no wait lasts longer than [`STOPPING`].
    pub(crate) stop: Stop,
}

const STOPPING: Duration = Duration::from_secs(2);

impl WaitLimit {
    pub(crate) fn new(queue: &Queue, choice: &Choice, config: &Config) -> Self {
        let is_software = queue.device().info().kind == vk::PhysicalDeviceType::CPU;
        Self {
            timeout: config.timeout,
            software: is_software && choice.cuda.is_none(),
            stop: Stop::default(),
        }
    }

    /// Returns how long to wait for a frame. `slowest` is the longest wait so far.
    pub(crate) fn limit(&self, slowest: Option<Duration>) -> Duration {
        match (self.software, slowest) {
            (false, _) => self.timeout,
            (true, None) => self.timeout.saturating_mul(30),
            (true, Some(slowest)) => self.timeout.max(slowest.saturating_mul(10)),
        }
    }

    /// Returns what to call during a wait, with its duration so far. It fails with the producer, or once
    /// the wait exceeds the limit or, after a stop request, [`STOPPING`].
    pub(crate) fn watch<'a>(
        &'a self,
        producer: &'a dyn Producer,
        device: &'a Device,
        slowest: Option<Duration>,
    ) -> impl Fn(Duration) -> Result<()> + 'a {
        let limit = self.limit(slowest);
        move |waited| {
            producer.is_idle()?;
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

#[cfg(test)]
mod tests {
    use super::*;

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
