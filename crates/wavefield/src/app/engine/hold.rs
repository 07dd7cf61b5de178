//! Drawing the same slot again and again, to measure a frame without a producer and a hand-off.

use vulkan_cuda::ownership::Owner;

use super::Engine;
use crate::Result;
use crate::producer::{Source, Transfer, reads};
use crate::vulkan::one_shot;

impl Engine {
    /// From the next frame on, draws the last drawn slot again and again. The producer does nothing, and neither API waits for the
    /// other. Brings both APIs to rest. Returns false, and changes nothing, if no frame was drawn yet or if a check or a trace is on.
    ///
    /// Held frames count as drawn, but not for the producer: its numbers continue without a gap. Observers are not told of them.
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

    /// Ends [`Engine::hold`]: the producer fills the next frame again. Brings both APIs to rest.
    pub fn go_on(&mut self) -> Result<()> {
        let Some(slot) = self.held else { return Ok(()) };
        // The producer may write the slot as soon as it continues.
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

    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Acquires a slot from CUDA, or releases it to CUDA, if CUDA owns it between frames.
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
