//! Waits for the GPU when drawing an array takes longer than `--timeout`: the GPU cannot be interrupted.

use std::time::{Duration, Instant};

use ash::vk;

use super::statistics::cpu_time;
use wavefield_gpu::{Error, Result};
use wavefield_run::Engine;

/// How long the GPU may make no progress. Only waiting distinguishes a slow GPU from one that hangs.
const LIMIT: Duration = Duration::from_secs(300);

pub(super) struct StuckDraw {
    pub(super) began: Instant,
    /// When the GPU last made progress, and how much it had finished by then.
    progress: Instant,
    finished: u64,
    /// This process's CPU time at that moment.
    cpu: Duration,
}

impl StuckDraw {
    pub(super) fn begin(engine: &Engine) -> Result<Self> {
        let (now, (finished, _)) = (Instant::now(), engine.work.progress()?);
        Ok(Self { began: now, progress: now, finished, cpu: cpu_time() })
    }

    /// Returns whether the GPU is still drawing. Fails if it has finished nothing for [`LIMIT`]. On a
    /// software device, fails only if the process has also used hardly any CPU time since.
    pub(super) fn goes_on(&mut self, engine: &Engine, client: &str) -> Result<bool> {
        let (finished, submitted) = engine.work.progress()?;
        // A software device uses CPU time while it draws.
        let works =
            engine.device().info().kind == vk::PhysicalDeviceType::CPU && cpu_time() > self.cpu + LIMIT / 10;
        if finished > self.finished || works {
            (self.finished, self.progress, self.cpu) = (finished, Instant::now(), cpu_time());
        }
        if finished < submitted && self.progress.elapsed() >= LIMIT {
            return Err(Error::Stuck {
                device: engine.device().info().name.clone(),
                seconds: self.progress.elapsed().as_secs_f64(),
                progress: format!("it was given what {client} wrote, and may hang"),
            });
        }
        Ok(finished < submitted)
    }
}
