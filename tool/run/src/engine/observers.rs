//! Watches frames, slots and times while frames are drawn: for the check, traces, the lanes of a window, and
//! the element under the pointer.

use ash::vk;
use vulkan_cuda::ownership::Owner;

use super::probe::{FoundElement, Probe};
use super::timing::{FrameTimer, FrameTiming, timing};
use super::work::Health;
use super::{Drawer, Work};
use crate::watch::observer::{Finished, Observer};
use crate::watch::trace::{Recorder, Track};
use crate::watch::verify::{Check, tally::Tally};
use wavefield_gpu::Result;
use wavefield_gpu::report::Failures;
use wavefield_handoff::contents::scene::Scene;
use wavefield_handoff::producer::{Producer, Source};

pub struct Observers {
    /// For `wavefield verify` and `serve --verify`.
    pub(super) check: Option<Check>,
    /// For `--trace`.
    pub(super) recorder: Option<Recorder>,
    pub(crate) traced: Option<Track>,
    /// The times of the last frames, since [`Observers::watch`].
    pub watched: Option<Recorder>,
    /// For [`Observers::point`].
    pub(super) probe: Option<Probe>,
    pub(super) times: FrameTimer,
}

impl Observers {
    pub(super) fn each(&self) -> impl Iterator<Item = &dyn Observer> {
        let check = self.check.as_ref().map(|check| check as &dyn Observer);
        let recorders = [&self.recorder, &self.watched].into_iter().flatten();
        let probe = self.probe.as_ref().map(|probe| probe as &dyn Observer);
        check.into_iter().chain(recorders.map(|recorder| recorder as &dyn Observer)).chain(probe)
    }

    pub(super) fn each_mut(&mut self) -> impl Iterator<Item = &mut dyn Observer> {
        let check = self.check.as_mut().map(|check| check as &mut dyn Observer);
        let recorders = [&mut self.recorder, &mut self.watched].into_iter().flatten();
        let probe = self.probe.as_mut().map(|probe| probe as &mut dyn Observer);
        check.into_iter().chain(recorders.map(|recorder| recorder as &mut dyn Observer)).chain(probe)
    }

    /// Reports to the observers, in order, every frame before `end` that was not reported yet. Returns the
    /// times of the last one. The GPU must have finished these frames.
    pub(super) fn collect_finished(
        &mut self,
        end: u64,
        producer: &dyn Producer,
    ) -> Result<Option<FrameTiming>> {
        let mut last = None;
        while self.times.collected < end {
            let flight = (self.times.collected % self.times.begun.len() as u64) as usize;
            self.times.collected += 1;
            let Some(begun) = self.times.begun[flight].take() else { continue };
            let timestamps = self.times.timestamps.as_ref();
            let marks = timestamps.map_or(Ok(None), |timestamps| timestamps.read(flight));
            // Report the frame to the observers even if its times cannot be read.
            let known = marks.as_ref().ok().copied().flatten();
            let (timeline, cpu) = (producer.cuda_timeline(), (begun.at, begun.cpu));
            let finished = Finished { frame: begun.frame, flight, cpu, marks: known, timeline };
            self.each_mut().try_for_each(|observer| observer.finished(&finished))?;
            last = Some(timing(begun, marks?, producer)?);
        }
        Ok(last)
    }

    /// Calls [`Work::finish`], then reports every frame to the observers.
    pub(super) fn settle(&mut self, work: &mut Work) -> Result<()> {
        work.finish()?;
        let collected = self.collect_finished(work.pacer.submitted(), work.producer.get());
        work.record_health(collected).map(drop)
    }

    /// Waits for the frames in flight, then reports them. After a failure, reports only finished frames.
    pub(crate) fn collect_rest(&mut self, work: &mut Work, failures: &mut Failures) {
        let at_rest = match work.health {
            Health::Sound => {
                failures.catch(work.finish());
                true
            }
            Health::Failed => work.quiesce(),
            Health::Stuck => !work.wait_limit.software,
        };
        // Mesa returns a timestamp only once nothing is pending, so reading one would wait forever.
        if !at_rest {
            return;
        }
        let finished = work.pacer.finished().unwrap_or(0);
        for end in self.times.collected + 1..=finished {
            let collected = self.collect_finished(end, work.producer.get()).map(drop);
            // Do not report a mere consequence of an earlier failure.
            if !work.has_failed() {
                failures.catch(collected);
            }
        }
    }

    /// Traces the next `most` frames, see [`crate::watch::trace`]. Brings both APIs to rest.
    pub(crate) fn start_trace(&mut self, work: &mut Work, most: usize) -> Result<()> {
        self.settle(work)?;
        let (timeline, depth) = (work.producer.get().cuda_timeline(), work.pacer.depth());
        self.recorder = Some(Recorder::new(&mut work.queue, timeline, depth, most, false)?);
        Ok(())
    }

    /// Ends the trace and keeps it, with the settings of its frames. Returns false if no trace is on.
    pub(crate) fn cut_trace(&mut self, work: &Work, drawer: &Drawer) -> bool {
        let Some(recorder) = self.recorder.take() else { return false };
        let profile = work.producer.profile();
        // The producer or hand-off may differ from the one asked for.
        let name = format!("{}, {}, ring {}", drawer.array().grid(), profile.name, profile.slots.len());
        self.traced = Some(recorder.into_track(name, work.queue.device(), profile));
        true
    }

    /// Starts to record the times of the last `frames` frames. Brings both APIs to rest, to tie their clocks.
    pub fn watch(&mut self, work: &mut Work, frames: usize) -> Result<()> {
        self.settle(work)?;
        let (timeline, depth) = (work.producer.get().cuda_timeline(), work.pacer.depth());
        self.watched = Some(Recorder::new(&mut work.queue, timeline, depth, frames, true)?);
        Ok(())
    }

    /// Ties the clocks of the watched frames again, because they drift apart. Does not wait.
    pub fn tie_again(&mut self, work: &mut Work) -> Result<()> {
        match &mut self.watched {
            Some(watched) => watched.tie_again(&mut work.queue, work.producer.get().cuda_timeline()),
            None => Ok(()),
        }
    }

    /// Looks for the array's element under this pixel in the next frame; with `None`, forgets what was found.
    /// Returns whether this waited for both APIs.
    pub fn point(
        &mut self,
        work: &mut Work,
        drawer: &mut Drawer,
        at: Option<(f32, f32)>,
        picture: vk::Extent2D,
    ) -> Result<bool> {
        let aim = at.filter(|_| drawer.scene == Scene::Field).map(|at| (drawer.view, at, picture));
        let begins = aim.is_some() && self.start_probe(work, drawer)?;
        if let Some(probe) = &mut self.probe {
            probe.point(aim);
        }
        Ok(begins)
    }

    /// Looks once for the element under this pixel, see [`Observers::take_clicked`].
    pub fn click(
        &mut self,
        work: &mut Work,
        drawer: &mut Drawer,
        at: (f32, f32),
        picture: vk::Extent2D,
    ) -> Result<()> {
        if drawer.scene == Scene::Field {
            self.start_probe(work, drawer)?;
        }
        if let Some(probe) = &mut self.probe {
            probe.click((drawer.view, at, picture));
        }
        Ok(())
    }

    /// Returns the element that was clicked, once it is found.
    pub fn take_clicked(&mut self) -> Option<FoundElement> {
        self.probe.as_mut()?.clicked.take()
    }

    /// Returns whether this waited for both APIs.
    fn start_probe(&mut self, work: &mut Work, drawer: &mut Drawer) -> Result<bool> {
        if self.probe.is_some() {
            return Ok(false);
        }
        let probe = Probe::new(&mut work.queue, &drawer.renderer, work.pacer.depth())?;
        self.set_probe(work, drawer, Some(probe)).map(|()| true)
    }

    /// Ends [`Observers::point`]. Waits for both APIs if it was on.
    pub fn unpoint(&mut self, work: &mut Work, drawer: &mut Drawer) -> Result<()> {
        match self.probe {
            Some(_) => self.set_probe(work, drawer, None),
            None => Ok(()),
        }
    }

    fn set_probe(&mut self, work: &mut Work, drawer: &mut Drawer, probe: Option<Probe>) -> Result<()> {
        self.settle(work)?;
        self.probe = probe;
        // The set of shaders that read the slots has changed.
        drawer.recordings.forget();
        Ok(())
    }

    /// Returns whether this flight's frame looks for the element under the pointer.
    pub(super) fn probes(&self, flight: usize) -> bool {
        self.probe.as_ref().is_some_and(|probe| probe.asked[flight])
    }

    pub fn under_pointer(&self) -> Option<FoundElement> {
        self.probe.as_ref()?.found
    }

    /// Blanks slots that are not in use yet, in a checked run. Waits for the GPU.
    pub fn blank(&self, work: &mut Work, slots: &[Source], owner: Owner) -> Result<()> {
        let Some(check) = &self.check else { return Ok(()) };
        work.drain()?;
        check.checker.blank(&mut work.queue, slots, owner)
    }

    /// Returns `None` in an unchecked run. After [`super::Engine::summary`] the tally covers every frame.
    pub fn tally(&self) -> Option<Tally> {
        self.check.as_ref().map(|check| check.tally)
    }
}
