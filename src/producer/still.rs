//! Fills its slot once and never again: the draw alone, for comparison.

use ash::vk;
use vulkan_cuda::Ring;

use super::{Frame, Producer, Profile, Source};

/// One slot that another producer, whose work is in the draw's command buffer, fills in the first frame.
pub struct StillProducer {
    filled_by: Box<dyn Producer>,
    profile: Profile,
}

impl StillProducer {
    /// Shows frame 0 of `filled_by` for good.
    pub fn new(filled_by: Box<dyn Producer>) -> Self {
        let slots = filled_by.profile().slots.clone();
        // As many as the default ring allows: nothing is ever overwritten.
        let max_in_flight = Ring::default().depth();
        Self { filled_by, profile: Profile { max_in_flight, ..Profile::of_queue("still", slots) } }
    }
}

impl Producer for StillProducer {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn record_before_draw(&self, commands: vk::CommandBuffer, frame: &Frame, source: Source) {
        if frame.index == 0 {
            self.filled_by.record_before_draw(commands, frame, source);
        }
    }
}
