//! Fills its slot only once, to measure the draw alone.

use vulkan_cuda::Ring;

use super::{Frame, Producer, Profile, reads};
use crate::Result;
use crate::cuda::KernelValues;
use crate::scene::Scene;
use crate::vulkan::{Queue, one_shot};

/// One slot, filled once by another producer whose work runs in Vulkan's queue.
pub struct StillProducer {
    _filled_by: Box<dyn Producer>,
    profile: Profile,
}

impl StillProducer {
    /// Shows frame 0 of `filled_by` in every frame. Waits for the queue.
    pub fn new(
        queue: &mut Queue,
        scene: Scene,
        parameters: KernelValues,
        filled_by: Box<dyn Producer>,
    ) -> Result<Self> {
        let slots = filled_by.profile().slots.clone();
        let first = Frame { index: 0, time: 0.0, step: 0.0, parameters, reads: reads(scene, false) };
        one_shot(queue, |commands| filled_by.record_before_draw(commands, &first, slots[0]))?;
        // As many frames in flight as with the default ring: nothing is ever overwritten.
        let max_in_flight = Ring::default().depth();
        let profile = Profile { max_in_flight, ..Profile::of_queue("still", slots) };
        Ok(Self { _filled_by: filled_by, profile })
    }
}

impl Producer for StillProducer {
    fn profile(&self) -> &Profile {
        &self.profile
    }
}
