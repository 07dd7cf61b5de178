//! Coming to rest: both APIs are idle, so that their objects can be read, exchanged or dropped. Every wait has a limit.

use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use super::{Engine, Health};
use crate::app::watchdog::Watchdog;
use crate::{Error, Result, report};

/// How long a frame may take once the producer has failed. The producer then signals the timelines that Vulkan waits for, so frames
/// end. But nothing can signal a binary semaphore in CUDA's place.
const AFTER_A_FAILURE: Duration = Duration::from_secs(3);

impl Engine {
    pub(crate) fn drain(&mut self) -> Result<()> {
        self.wait_drawn(self.pacer.submitted())
    }

    pub(crate) fn wait_drawn(&mut self, frames: u64) -> Result<()> {
        let watchdog =
            Watchdog::new(&**self.producer, self.queue.device(), &self.patience, self.pacer.slowest());
        let drawn = self.pacer.wait_for(frames, |since| watchdog.look(since));
        self.noting(drawn)
    }

    /// Waits until every frame is drawn and the producer is idle.
    pub fn finish(&mut self) -> Result<()> {
        self.drain()?;
        let idle = self.producer_idle();
        self.noting(idle)?;
        // A wait that was given up earlier has ended after all.
        self.health = self.health.min(Health::Failed);
        Ok(())
    }

    /// Waits for everything that the producer has enqueued, frames filled ahead included.
    fn producer_idle(&self) -> Result<()> {
        let watchdog =
            Watchdog::new(&**self.producer, self.queue.device(), &self.patience, self.pacer.slowest());
        let began = Instant::now();
        while !self.producer.is_idle()? {
            watchdog.look(began.elapsed())?;
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    /// Brings both APIs to rest, so that everything can be dropped. False if the GPU still uses everything and may never stop.
    pub(in crate::app) fn quiesce(&mut self) -> bool {
        if self.health == Health::Stuck {
            return false;
        }
        // If the producer has failed, or fails during the wait, release every waiter: what it enqueued will not run.
        let patience = self.patience.limit(self.pacer.slowest());
        let (producer, health) = (&mut self.producer, &mut self.health);
        let mut let_go = || {
            let failure = producer.is_idle().err();
            if let Some(error) = &failure {
                producer.abandon();
                health.report(error);
            }
            failure.is_some()
        };
        let_go();
        let drained = self.pacer.wait_all(|since| {
            let patience = if let_go() { patience.min(AFTER_A_FAILURE) } else { patience };
            match since < patience {
                true => Ok(()),
                false => Err(Error::Unsupported("still waiting".into())),
            }
        });
        let failed = let_go();
        if drained.is_ok()
            && let Err(error) = self.queue.wait_presented()
        {
            // All submitted work is done nevertheless.
            self.health.report(&error);
        }
        let vulkan = match drained {
            Ok(()) => true,
            Err(error) => {
                self.health.report(&error);
                // A lost device runs nothing, so it is at rest.
                matches!(error, Error::DeviceLost { .. })
            }
        };
        let producer = failed || self.producer_idle().is_ok() || self.producer.is_idle().is_err();
        let at_rest = vulkan && producer;
        if !at_rest {
            self.health = Health::Stuck;
        }
        at_rest
    }
}

impl Health {
    /// Prints the first failure during the end of a run. If the run has failed before, the user already knows.
    fn report(&mut self, error: &Error) {
        if *self == Self::Sound {
            *self = Self::Failed;
            report::cleanup_error(error);
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // First both APIs become idle. Then the fields go: CUDA's mappings and imports, Vulkan's objects, their
        // memory. If the GPU is stuck, leak what it uses. Code that owns more than the engine drops it with `retire`.
        if !self.quiesce() {
            return self.device().leave_running();
        }
        // SAFETY: (both) dropped only here, once; nothing uses them afterwards.
        unsafe {
            ManuallyDrop::drop(&mut self.producer);
            ManuallyDrop::drop(&mut self.context);
        }
    }
}
