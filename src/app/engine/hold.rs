//! The same slot drawn again and again: what a frame costs that nobody fills and nobody hands over.

use vulkan_cuda::ownership::Owner;

use super::Engine;
use crate::Result;
use crate::producer::{Source, Transfer, reads};
use crate::vulkan::one_shot;

impl Engine {
    /// From the next frame on draws the slot that was drawn last, again and again: the producer does nothing, and neither side
    /// waits for the other. Brings both sides to rest. False if there is nothing to draw again, or if a check or a trace looks at
    /// every frame.
    ///
    /// Such frames count as drawn, but not as the producer's: it goes on with the number that comes next. No observer hears of them.
    pub fn hold(&mut self) -> Result<bool> {
        let produced = self.pacer.submitted() - self.first;
        if produced == 0 || self.observers.check.is_some() || self.observers.recorder.is_some() {
            return Ok(false);
        }
        if !self.is_held() {
            self.finish()?;
            self.look_at_all()?;
            let profile = self.producer.profile();
            let slot = profile.slots[profile.slot_of(produced - 1)];
            self.transfer(Transfer::Acquire, slot)?;
            self.forget_recorded();
            self.held = Some(slot);
        }
        Ok(true)
    }

    /// The producer fills the next frame, as before [`Engine::hold`]. Brings both sides to rest.
    pub fn go_on(&mut self) -> Result<()> {
        let Some(slot) = self.held else { return Ok(()) };
        // The producer may write the slot as soon as it goes on.
        self.finish()?;
        self.look_at_all()?;
        self.transfer(Transfer::Release, slot)?;
        self.forget_recorded();
        self.held = None;
        let next = self.pacer.submitted() - self.first;
        if let Some(auto) = &mut self.auto {
            auto.rest(next);
        }
        Ok(())
    }

    /// Whether frames show the same slot again.
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Takes a slot from CUDA, or gives it back, where CUDA owns it between frames.
    fn transfer(&mut self, way: Transfer, slot: Source) -> Result<()> {
        if self.producer.profile().owner != Owner::External {
            return Ok(());
        }
        let (device, family) = (self.queue.device().clone(), self.queue.family());
        let reads = reads(self.scene, self.observers.read_by_compute());
        one_shot(&mut self.queue, |commands| {
            // SAFETY: recording, for this queue; the producer keeps the slot alive.
            unsafe { way.record(&device, commands, family, slot, reads) };
        })
    }
}
