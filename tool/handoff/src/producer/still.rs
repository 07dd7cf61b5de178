use super::{Frame, Producer, Profile, reads};
use crate::contents::scene::Scene;
use wavefield_gpu::Result;
use wavefield_gpu::cuda::KernelValues;
use wavefield_gpu::vulkan::{Queue, one_shot};

/// A producer whose slots are filled only once. Frames use the slots in turn, because a single slot would
/// stay in the GPU's cache and be faster to draw.
pub struct StillProducer {
    _filled_by: Box<dyn Producer>,
    profile: Profile,
}

impl StillProducer {
    /// Fills all slots of `filled_by`, which works in Vulkan's queue, with one picture. Waits for the queue.
    pub fn new(
        queue: &mut Queue,
        scene: Scene,
        parameters: KernelValues,
        filled_by: Box<dyn Producer>,
    ) -> Result<Self> {
        let slots = filled_by.profile().slots.clone();
        for (index, &slot) in (0..).zip(&slots) {
            let frame = Frame { index, time: 0.0, step: 0.0, parameters, reads: reads(scene, false) };
            one_shot(queue, |commands| filled_by.record_before_draw(commands, &frame, slot))?;
        }
        Ok(Self { _filled_by: filled_by, profile: Profile::of_queue("still", slots) })
    }
}

impl Producer for StillProducer {
    fn profile(&self) -> &Profile {
        &self.profile
    }
}
