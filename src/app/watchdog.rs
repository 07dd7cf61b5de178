//! Nobody waits for the GPU without an end.

use std::time::Duration;

use crate::producer::Producer;
use crate::vulkan::Device;
use crate::{Error, Result};

/// Looks after a wait that might never end.
pub(super) struct Watchdog<'a> {
    producer: &'a dyn Producer,
    device: &'a Device,
    timeout: Duration,
}

impl<'a> Watchdog<'a> {
    pub(super) fn new(producer: &'a dyn Producer, device: &'a Device, timeout: Duration) -> Self {
        Self { producer, device, timeout }
    }

    /// An error if the producer has failed, or nothing was finished for too long.
    pub(super) fn look(&self, waited: Duration) -> Result<()> {
        self.producer.is_idle()?;
        if waited < self.timeout {
            return Ok(());
        }
        let progress = self.producer.progress().unwrap_or_else(|| "Vulkan did not finish a frame".into());
        let device = self.device.info().name.clone();
        Err(Error::Stuck { device, seconds: waited.as_secs_f64(), progress })
    }
}
