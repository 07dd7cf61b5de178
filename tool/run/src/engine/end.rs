//! Brings both APIs to rest, and ends a run. Every wait has a limit.

use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use super::{Engine, Health};
use crate::{FrameTimes, RunSummary};
use wavefield_gpu::report::{self, Failures};
use wavefield_gpu::{Error, Result};

/// Once the producer has failed, it signals the timelines that Vulkan waits for, so frames end. But nothing
/// can signal a binary semaphore in CUDA's place.
const AFTER_A_FAILURE: Duration = Duration::from_secs(3);

impl Engine {
    /// Waits until every submitted frame is drawn.
    pub fn drain(&mut self) -> Result<()> {
        self.wait_drawn(self.pacer.submitted())?;
        self.wait_side_views()
    }

    /// Waits until the first `frames` frames are drawn. They must be submitted.
    pub fn wait_drawn(&mut self, frames: u64) -> Result<()> {
        let (producer, device) = (&**self.producer_state.producer, self.queue.device());
        let look = self.wait_limit.watch(producer, device, self.pacer.slowest());
        let drawn = self.pacer.wait_for(frames, look);
        self.record_health(drawn)
    }

    /// Waits until every frame is drawn and the producer is idle.
    pub fn finish(&mut self) -> Result<()> {
        self.drain()?;
        let idle = self.producer_idle();
        self.record_health(idle)?;
        // A wait that was given up earlier has ended after all.
        self.health = self.health.min(Health::Failed);
        Ok(())
    }

    /// Like [`Engine::finish`], and tells the observers of every frame.
    pub(super) fn settle(&mut self) -> Result<()> {
        self.finish()?;
        let collected = self.collect_finished(self.pacer.submitted());
        self.record_health(collected).map(drop)
    }

    /// Waits for everything that the producer has enqueued, frames filled ahead included.
    fn producer_idle(&self) -> Result<()> {
        let (producer, device) = (&**self.producer_state.producer, self.queue.device());
        let look = self.wait_limit.watch(producer, device, self.pacer.slowest());
        let began = Instant::now();
        while !self.producer_state.producer.is_idle()? {
            look(began.elapsed())?;
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    /// Brings both APIs to rest, so that everything can be dropped. Returns false if the GPU may never stop.
    pub fn quiesce(&mut self) -> bool {
        if self.health == Health::Stuck {
            return false;
        }
        // After a failure of the producer, release every waiter: what it enqueued will not run.
        let patience = self.wait_limit.limit(self.pacer.slowest());
        let (producer, health) = (&mut self.producer_state.producer, &mut self.health);
        let mut let_go = || {
            let failure = producer.is_idle().err();
            if let Some(error) = &failure {
                producer.abandon();
                health.report(error);
            }
            failure.is_some()
        };
        let_go();
        let mut look = |since| {
            let patience = if let_go() { patience.min(AFTER_A_FAILURE) } else { patience };
            match since < patience {
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
        let producer =
            failed || self.producer_idle().is_ok() || self.producer_state.producer.is_idle().is_err();
        let at_rest = vulkan && producer;
        if !at_rest {
            self.health = Health::Stuck;
        }
        at_rest
    }

    /// Looks at the frames in flight, after waiting for them. After a failure, looks only at finished ones.
    pub(super) fn collect_rest(&mut self, failures: &mut Failures) {
        if !self.has_failed() {
            failures.catch(self.finish());
        } else if self.health == Health::Failed && !self.quiesce() {
            // Mesa returns a timestamp only once nothing is pending, so reading one would wait forever.
            return;
        }
        let finished = self.pacer.finished().unwrap_or(0);
        for end in self.times.collected + 1..=finished {
            let collected = self.collect_finished(end).map(drop);
            // Do not report what only follows from an earlier failure.
            if !self.has_failed() {
                failures.catch(collected);
            }
        }
    }

    /// Reads every slot back in a checked run, unless something failed. Waits for both APIs.
    pub fn summary(&mut self, times: FrameTimes, skipped: u64, failures: &mut Failures) -> RunSummary {
        self.collect_rest(failures);
        let (drawn, failed) = (self.pacer.submitted(), self.has_failed());
        let profile = self.producer_state.profile();
        let checked = self.observers.check.as_mut().map(|check| {
            let whole = (!failed).then(|| check.finish(&mut self.queue, profile, drawn));
            let whole = whole.and_then(|whole| failures.catch(whole));
            whole.unwrap_or_else(|| check.so_far(drawn))
        });
        let info = self.queue.device().info();
        let instance = self.queue.device().instance();
        RunSummary {
            checked,
            recorded: None,
            parts: None,
            frames: drawn,
            skipped,
            times,
            pacing_waits: self.pacer.blocking_waits(),
            handoff_waits: self.producer_state.waits,
            ring: profile.slots.len(),
            batch: self.producer_state.batch(),
            batch_changes: self.producer_state.batch_changes(),
            scene: self.drawer.scene,
            grid: self.drawer.renderer.drawing().array().grid(),
            producer: profile.name,
            device: format!("{} ({})", info.name, info.driver),
            validation: instance.validates().then(|| instance.validation_log().warnings()),
        }
    }
}

impl Health {
    /// Prints a failure at the end of a run, unless the run has failed before: then the user already knows.
    fn report(&mut self, error: &Error) {
        if *self == Self::Sound {
            *self = Self::Failed;
            report::cleanup_error(error);
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Once both APIs are idle, the fields go: CUDA's mappings, Vulkan's objects, their memory. If the GPU
        // is stuck, what it may use stays, and CUDA's context too, whose release would wait.
        match self.quiesce() {
            // SAFETY: dropped only here, once; nothing uses it afterwards.
            true => unsafe { ManuallyDrop::drop(&mut self.producer_state.producer) },
            false => {
                self.device().mark_stuck();
                std::mem::forget(self.context.take());
            }
        }
    }
}
