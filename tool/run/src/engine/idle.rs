//! What needs both APIs at rest: changing settings, ending a run, reading back. Every wait has a limit.

use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use bytemuck::{AnyBitPattern, NoUninit};

use super::probe::{Aim, FoundElement, Probe};
use super::setup::Setup;
use super::{Engine, Health, SlotNow};
use crate::watch::trace::{Recorder, Track};
use crate::watchdog::WaitLimit;
use crate::{Choice, Config, FrameTimes, RISK, RunSummary};
use wavefield_draw::FieldView;
use wavefield_gpu::cuda::Cuda;
use wavefield_gpu::report::{self, Failures};
use wavefield_gpu::{Error, Result};
use wavefield_handoff::Handoff;
use wavefield_handoff::contents::scene::Scene;
use wavefield_handoff::producer::read_slot;

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

    /// Changes the settings from the next frame on: all except the device and the window. Waits for both
    /// APIs; frames in flight are drawn first. Old and new objects need memory at the same time. An error
    /// changes nothing, and the engine can go on unless [`Engine::has_failed`].
    pub fn switch(&mut self, choice: &Choice, config: &Config) -> Result<()> {
        let cuda = choice.twin.clone().filter(|_| config.producer.may_use_cuda());
        let choice = Choice { cuda, ..choice.clone() };
        config.check_kernel(&choice)?;
        let (handoff, _) = config.handoff.on(self.device().info());
        if config.has_own_kernel() && handoff == Handoff::Inline && !config.risk_the_gpu {
            return Err(Error::Unsupported(format!("a kernel of your own does not run inline: {RISK}")));
        }
        self.settle()?;
        if let (Some((driver, info)), None) = (&choice.cuda, &self.context) {
            self.context = Some(Cuda::primary(*driver, info)?);
        }
        let context = self.context.as_ref().filter(|_| choice.cuda.is_some());
        let made =
            Setup::make(&mut self.queue, context, &choice, config, (self.drawer.format, self.flights))?;
        let pacer = self.pacer.succeed(&self.queue, made.flights)?;
        // Nothing may fail from here on.
        self.side_views = None;
        let Setup { producer, check, renderer, times, flights } = made;
        self.wait_limit =
            WaitLimit { stop: self.wait_limit.stop.clone(), ..WaitLimit::new(&self.queue, &choice, config) };
        self.queue.set_patience(self.wait_limit.limit(self.pacer.slowest()));
        let before = self.observers.check.take().map(|check| check.tally());
        self.observers.check = check.zip(before).map(|(check, before)| check.with_earlier(before));
        if self.cut_trace() {
            wavefield_gpu::note!("note: the trace ends here, because the settings have changed");
        }
        (self.drawer.renderer, self.times, self.pacer) = (renderer, times, pacer);
        self.times.collected = self.pacer.submitted();
        self.recordings.flights = vec![None; flights];
        // Both APIs are at rest, so the old producer is not in use.
        *self.producer_state.producer = producer;
        (self.producer_state.first, self.producer_state.filled) = (self.pacer.submitted(), 0);
        // Their clocks and slots are the old producer's.
        (self.observers.live, self.observers.probe) = (None, None);
        (self.producer_state.batching, self.drawer.scene) = (config.batch, config.scene);
        self.drawer.view = FieldView { camera: self.drawer.view.camera, ..FieldView::of(self.array()) };
        self.producer_state.parameters = self.producer_state.profile().parameters.values(&config.parameters);
        self.producer_state.begin(&mut self.pacer);
        Ok(())
    }

    /// Traces the next `most` frames, see [`crate::watch::trace`]. Brings both APIs to rest.
    pub fn start_trace(&mut self, most: usize) -> Result<()> {
        self.settle()?;
        let timeline = self.producer_state.producer.cuda_timeline();
        self.observers.recorder = Some(Recorder::new(&mut self.queue, timeline, self.pacer.depth(), most)?);
        Ok(())
    }

    pub fn end_trace(&mut self, failures: &mut Failures) -> Option<Track> {
        self.collect_rest(failures);
        self.cut_trace();
        self.observers.traced.take()
    }

    /// Keeps the trace with the settings of its frames. Returns false if no trace is on.
    pub(super) fn cut_trace(&mut self) -> bool {
        let Some(recorder) = self.observers.recorder.take() else { return false };
        let (device, profile) = (self.queue.device(), self.producer_state.profile());
        // The producer or hand-off may differ from the one asked for.
        let name = format!("{}, {}, ring {}", self.array().grid(), profile.name, profile.slots.len());
        self.observers.traced = Some(recorder.into_track(name, device, profile));
        true
    }

    /// Looks at the frames in flight, after waiting for them. After a failure, looks only at finished ones.
    fn collect_rest(&mut self, failures: &mut Failures) {
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

    /// Reads the last frame's data in a slot: vertices, or texels by level. Waits for both APIs. For tests.
    pub fn read_slot<T: AnyBitPattern + NoUninit>(&mut self, slot: usize) -> Result<Vec<T>> {
        self.finish()?;
        let (array, profile) = (*self.array(), self.producer_state.profile());
        // SAFETY: one of the producer's slots, which hold this array.
        let bytes = unsafe { read_slot(&mut self.queue, profile.slots[slot], profile.owner, &array) }?;
        Ok(bytemuck::allocation::pod_collect_to_vec(&bytes))
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

    /// Starts to record the times of the last `frames` frames. Brings both APIs to rest, to tie their clocks.
    pub fn watch(&mut self, frames: usize) -> Result<()> {
        self.settle()?;
        let (timeline, depth) = (self.producer_state.producer.cuda_timeline(), self.pacer.depth());
        self.observers.live = Some(Recorder::live(&mut self.queue, timeline, depth, frames)?);
        Ok(())
    }

    pub fn unwatch(&mut self) {
        self.observers.live = None;
    }

    pub fn watched(&self) -> Option<&Recorder> {
        self.observers.live.as_ref()
    }

    /// Ties the clocks of the watched frames again, because they drift apart. Does not wait.
    pub fn tie_again(&mut self) -> Result<()> {
        match &mut self.observers.live {
            Some(live) => live.tie_again(&mut self.queue, self.producer_state.producer.cuda_timeline()),
            None => Ok(()),
        }
    }

    pub fn slots_now(&self) -> Result<Vec<SlotNow>> {
        Ok(self.producer_state.slots_now(self.pacer.finished()?, self.pacer.submitted()))
    }

    /// Starts to find what is at this pixel; `None` stops that. Returns whether both APIs came to rest.
    pub fn point(&mut self, at: Option<(f32, f32)>, picture: (u32, u32)) -> Result<bool> {
        let array = *self.array();
        let at = at.filter(|_| self.drawer.scene == Scene::Field);
        let aim = at.and_then(|at| Aim::new(&array, &self.drawer.view.camera, at, picture));
        let begins = aim.is_some() && self.observers.probe.is_none();
        if begins {
            let probe = Probe::new(self.queue.device(), array, self.pacer.depth())?;
            self.set_probe(Some(probe))?;
        }
        if let Some(probe) = &mut self.observers.probe {
            probe.aim(aim);
        }
        Ok(begins)
    }

    /// Ends [`Engine::point`]. Waits for both APIs if it was on.
    pub fn unpoint(&mut self) -> Result<()> {
        match self.observers.probe {
            Some(_) => self.set_probe(None),
            None => Ok(()),
        }
    }

    fn set_probe(&mut self, probe: Option<Probe>) -> Result<()> {
        self.settle()?;
        self.observers.probe = probe;
        // The number of shaders that read the slots has changed.
        self.recordings.forget();
        Ok(())
    }

    pub fn under_pointer(&self) -> Option<FoundElement> {
        self.observers.probe.as_ref()?.found()
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
