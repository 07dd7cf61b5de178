//! Nobody waits for the GPU without an end.

use std::time::Duration;

use super::Stop;
use crate::producer::Producer;
use crate::vulkan::Device;
use crate::{Error, Result};

/// How long a run waits.
pub(super) struct Patience {
    /// For a GPU.
    pub(super) timeout: Duration,
    /// The device is a processor, and nobody but itself keeps a frame from being finished: a large frame takes its time there.
    pub(super) software: bool,
    /// Whoever asked for a stop does not wait so long.
    pub(super) stop: Stop,
}

/// After a stop was asked for, a frame that takes longer is not waited for.
const STOPPING: Duration = Duration::from_secs(2);

impl Patience {
    /// How long nothing may be finished, where the slowest frame so far took as long as that.
    pub(super) fn limit(&self, slowest: Option<Duration>) -> Duration {
        match (self.software, slowest) {
            (false, _) => self.timeout,
            (true, None) => self.timeout * 30,
            (true, Some(slowest)) => self.timeout.max(slowest * 10),
        }
    }
}

/// Looks after a wait that might never end.
pub(super) struct Watchdog<'a> {
    producer: &'a dyn Producer,
    device: &'a Device,
    limit: Duration,
    stop: &'a Stop,
}

impl<'a> Watchdog<'a> {
    pub(super) fn new(
        producer: &'a dyn Producer,
        device: &'a Device,
        patience: &'a Patience,
        slowest: Option<Duration>,
    ) -> Self {
        Self { producer, device, limit: patience.limit(slowest), stop: &patience.stop }
    }

    /// An error if the producer has failed, nothing was finished for too long, or a stop was asked for and this takes long.
    pub(super) fn look(&self, waited: Duration) -> Result<()> {
        self.producer.is_idle()?;
        if self.stop.requested() && waited >= STOPPING {
            let device = &self.device.info().name;
            return Err(Error::Stopped(format!(
                "stopped without the frame at hand, for which {device} takes longer than {:.0} s",
                waited.as_secs_f64()
            )));
        }
        if waited < self.limit {
            return Ok(());
        }
        let progress = self.producer.progress().unwrap_or_else(|| "Vulkan did not finish a frame".into());
        let device = self.device.info().name.clone();
        Err(Error::Stuck { device, seconds: waited.as_secs_f64(), progress })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_software_device_has_as_long_as_its_frames_take() {
        let limit = |software, slowest: Option<u64>| {
            let timeout = Duration::from_secs(10);
            let patience = Patience { timeout, software, stop: Stop::default() };
            patience.limit(slowest.map(Duration::from_secs)).as_secs()
        };
        assert_eq!([limit(false, None), limit(false, Some(9))], [10, 10]);
        assert_eq!([limit(true, None), limit(true, Some(0)), limit(true, Some(7))], [300, 10, 70]);
    }
}
