//! Watching a running engine: times of the last frames, states of the slots, the vertex under the pointer.

use super::Engine;
use super::probe::{Aim, Found, Probe};
use crate::Result;
use crate::scene::Scene;
use crate::trace::Recorder;

/// The state of a slot of the ring, as far as the CPU knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotNow {
    /// No frame has reached it yet.
    New,
    /// This frame was drawn; the producer may use the slot.
    Drawn(u64),
    /// This frame is being drawn, or CUDA still fills it.
    AtWork(u64),
    /// This frame is submitted, and waits for an earlier one.
    Submitted(u64),
    /// This frame was filled ahead, in a batch with an earlier one.
    Ahead(u64),
}

impl Engine {
    /// Starts to record the times of the last `frames` frames. Brings both APIs to rest, to tie their clocks.
    pub(crate) fn watch(&mut self, frames: usize) -> Result<()> {
        self.finish()?;
        self.look_at_all()?;
        let (fill, depth) = (self.producer.fill(), self.pacer.depth());
        self.observers.live = Some(Recorder::live(&mut self.queue, fill, depth, frames)?);
        Ok(())
    }

    pub(crate) fn unwatch(&mut self) {
        self.observers.live = None;
    }

    pub(crate) fn watched(&self) -> Option<&Recorder> {
        self.observers.live.as_ref()
    }

    /// Ties the clocks of the watched frames again, because they drift apart. Does not wait.
    pub(crate) fn tie_again(&mut self) -> Result<()> {
        match &mut self.observers.live {
            Some(live) => live.tie_again(&mut self.queue, self.producer.fill()),
            None => Ok(()),
        }
    }

    pub(crate) fn slots_now(&self) -> Result<Vec<SlotNow>> {
        let drawn = self.pacer.finished()?.saturating_sub(self.first);
        let submitted = self.pacer.submitted() - self.first;
        let slots = self.producer.profile().slots.len() as u64;
        Ok((0..slots).map(|slot| slot_now(slot, slots, drawn, submitted, self.filled)).collect())
    }

    /// From now on, finds what is at this point of the picture, in every frame. Both are in pixels. With `None`, looks for nothing.
    /// Returns true if the call brought both APIs to rest.
    pub(crate) fn point(&mut self, at: Option<(f32, f32)>, picture: (u32, u32)) -> Result<bool> {
        let array = *self.array();
        let at = at.filter(|_| self.scene == Scene::Field);
        let aim = at.and_then(|at| Aim::new(&array, &self.view.camera, at, picture));
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
    pub(crate) fn unpoint(&mut self) -> Result<()> {
        match self.observers.probe {
            Some(_) => self.set_probe(None),
            None => Ok(()),
        }
    }

    fn set_probe(&mut self, probe: Option<Probe>) -> Result<()> {
        self.finish()?;
        self.look_at_all()?;
        self.observers.probe = probe;
        // The number of shaders that read the slots has changed.
        self.forget_recorded();
        Ok(())
    }

    pub(crate) fn under_pointer(&self) -> Option<Found> {
        self.observers.probe.as_ref()?.found()
    }
}

/// The state of slot `slot` of `slots`. The last three arguments are numbers of frames.
fn slot_now(slot: u64, slots: u64, drawn: u64, submitted: u64, filled: u64) -> SlotNow {
    let end = filled.max(submitted);
    let Some(rounds) = end.checked_sub(slot + 1) else { return SlotNow::New };
    let frame = rounds / slots * slots + slot;
    match frame {
        frame if frame < drawn => SlotNow::Drawn(frame),
        frame if frame == drawn && frame < submitted => SlotNow::AtWork(frame),
        frame if frame < submitted => SlotNow::Submitted(frame),
        frame => SlotNow::Ahead(frame),
    }
}

#[cfg(test)]
mod tests {
    use super::SlotNow::*;
    use super::*;

    #[test]
    fn a_slot_changes_hands() {
        let ring =
            |drawn, submitted, filled| [0, 1, 2, 3].map(|slot| slot_now(slot, 4, drawn, submitted, filled));
        assert_eq!(ring(0, 0, 0), [New; 4]);
        assert_eq!(ring(0, 1, 2), [AtWork(0), Ahead(1), New, New]);
        assert_eq!(ring(1, 3, 4), [Drawn(0), AtWork(1), Submitted(2), Ahead(3)]);
        assert_eq!(ring(4, 6, 6), [AtWork(4), Submitted(5), Drawn(2), Drawn(3)]);
    }
}
