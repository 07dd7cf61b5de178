//! What somebody sees who watches a running engine.

use super::Engine;
use super::probe::{Found, Probe};
use crate::Result;
use crate::array::Kind;
use crate::render::{Ray, Trail};
use crate::scene::Scene;
use crate::trace::Recorder;

/// What a slot of the ring is in use for, as far as the CPU knows at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotNow {
    /// No frame has reached it yet.
    New,
    /// The frame of this number was drawn; the producer may have the slot.
    Drawn(u64),
    /// The frame is drawn now, or CUDA still fills it.
    AtWork(u64),
    /// The frame is behind another one, submitted.
    Submitted(u64),
    /// The frame was filled ahead of its time, together with an earlier one.
    Ahead(u64),
}

impl Engine {
    /// Collects when the last `frames` frames were, from now on. Brings both sides to rest, to tie their clocks.
    pub(crate) fn watch(&mut self, frames: usize) -> Result<()> {
        self.finish()?;
        self.look_at_all()?;
        let (fill, depth) = (self.producer.fill(), self.pacer.depth());
        self.observers.live = Some(Recorder::live(&mut self.queue, fill, depth, frames)?);
        Ok(())
    }

    /// No longer.
    pub(crate) fn unwatch(&mut self) {
        self.observers.live = None;
    }

    /// The last frames, while they are watched.
    pub(crate) fn watched(&self) -> Option<&Recorder> {
        self.observers.live.as_ref()
    }

    /// Ties the clocks of what is watched again, since they run apart over time. Waits for nobody.
    pub(crate) fn tie_again(&mut self) -> Result<()> {
        match &mut self.observers.live {
            Some(live) => live.tie_again(&mut self.queue, self.producer.fill()),
            None => Ok(()),
        }
    }

    /// What each slot of the ring is in use for.
    pub(crate) fn slots_now(&self) -> Result<Vec<SlotNow>> {
        let drawn = self.pacer.finished()?.saturating_sub(self.first);
        let submitted = self.pacer.submitted() - self.first;
        let slots = self.producer.profile().slots.len() as u64;
        Ok((0..slots).map(|slot| slot_now(slot, slots, drawn, submitted, self.filled)).collect())
    }

    /// Looks for the vertex that is seen in this ray, in every frame from now on; in none with `None`. True: for that both sides
    /// were brought to rest.
    pub(crate) fn point(&mut self, ray: Option<Ray>) -> Result<bool> {
        let (array, scene) = (*self.array(), self.scene);
        let ray = ray.filter(|_| scene == Scene::Field && array.kind() == Kind::Mesh);
        let begins = ray.is_some() && self.observers.probe.is_none();
        if begins {
            let probe = Probe::new(self.queue.device(), array.grid(), self.pacer.depth())?;
            self.set_probe(Some(probe))?;
        }
        if let Some(probe) = &mut self.observers.probe {
            probe.aim(ray.and_then(|ray| Trail::new(ray, array.grid())));
        }
        Ok(begins)
    }

    /// No longer; waits for both sides if it did.
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
        // The slots are read by one more shader now, or by one less.
        self.forget_recorded();
        Ok(())
    }

    /// The vertex that was found there.
    pub(crate) fn found_vertex(&self) -> Option<Found> {
        self.observers.probe.as_ref()?.found()
    }
}

/// What slot `slot` of `slots` is in use for, where so many frames were drawn, submitted and filled.
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
