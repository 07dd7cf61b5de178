//! Looks at slots and times while frames are drawn: traces, the lanes of a window, what is under the pointer.

use bytemuck::{AnyBitPattern, NoUninit};

use super::probe::{Aim, FoundElement, Probe};
use super::{Engine, SlotNow};
use crate::watch::trace::{Recorder, Track};
use wavefield_gpu::Result;
use wavefield_gpu::report::Failures;
use wavefield_handoff::contents::scene::Scene;
use wavefield_handoff::producer::read_slot;

impl Engine {
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

    /// Reads the last frame's data in a slot: vertices, or texels by level. Waits for both APIs. For tests.
    pub fn read_slot<T: AnyBitPattern + NoUninit>(&mut self, slot: usize) -> Result<Vec<T>> {
        self.finish()?;
        let (array, profile) = (*self.array(), self.producer_state.profile());
        // SAFETY: one of the producer's slots, which hold this array.
        let bytes = unsafe { read_slot(&mut self.queue, profile.slots[slot], profile.owner, &array) }?;
        Ok(bytemuck::allocation::pod_collect_to_vec(&bytes))
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
