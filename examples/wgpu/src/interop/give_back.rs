//! The end of the recipe: wgpu releases the slots, then the ring destroys them.

use std::sync::Arc;
use std::time::Duration;

use vulkan_cuda::shared_ring::Slot;

use super::Frames;

impl<S: Slot, W> Drop for Frames<'_, S, W> {
    fn drop(&mut self) {
        self.slots.clear();
        // After a fault of CUDA wgpu would wait for its signals for ever. This ends the wait.
        let _ = self.ring.check();
        let limit = wgpu::PollType::Wait { submission_index: None, timeout: Some(Duration::from_secs(5)) };
        if self.gpu.device.poll(limit).is_err() || Arc::strong_count(&self.lent) > 1 {
            self.gpu.pair.vk().abandon(); // Leaks everything that wgpu or the GPU still uses.
        }
    }
}
