//! Fills its slot once and never again: the draw alone, for comparison.

use ash::vk;
use vulkan_cuda::Ring;
use vulkan_cuda::ownership::Owner;

use super::{ComputeProducer, Frame, FrameSync, ImageSlot, Producer, TextureComputeProducer};
use crate::vulkan::Device;
use crate::wave::Grid;
use crate::{Error, Result};

/// One slot that a compute shader fills in the first frame.
pub struct StillProducer(Box<dyn Producer>);

impl StillProducer {
    /// The slot is ordinary device memory. Works on every Vulkan device.
    pub fn new(device: &Device, grid: Grid) -> Result<Self> {
        let ring = Ring::new(1).unwrap_or_default();
        Ok(Self(Box::new(ComputeProducer::new(device, grid, ring)?)))
    }

    /// The slot is memory that could be shared, which costs a draw nothing if all is well. Works on devices that export
    /// memory.
    pub fn exported(device: &Device, grid: Grid) -> Result<Self> {
        Ok(Self(Box::new(ComputeProducer::exported(device, grid)?)))
    }

    /// The slot is an image of ordinary device memory.
    pub fn texture(device: &Device, size: Grid) -> Result<Self> {
        let ring = Ring::new(1).unwrap_or_default();
        Ok(Self(Box::new(TextureComputeProducer::new(device, size, ring)?)))
    }

    /// The slot is an image in memory that could be shared.
    pub fn exported_texture(device: &Device, size: Grid) -> Result<Self> {
        Ok(Self(Box::new(TextureComputeProducer::exported(device, size)?)))
    }
}

impl Producer for StillProducer {
    fn name(&self) -> &'static str {
        "still"
    }

    fn slots(&self) -> &[vk::Buffer] {
        self.0.slots()
    }

    fn images(&self) -> &[ImageSlot] {
        self.0.images()
    }

    /// As many as the default ring allows: nothing is ever overwritten.
    fn max_in_flight(&self) -> usize {
        Ring::default().depth()
    }

    fn produce(&mut self, _frame: &Frame) -> Result<()> {
        Ok(())
    }

    fn record_before_draw(&self, commands: vk::CommandBuffer, frame: &Frame) {
        if frame.index == 0 {
            self.0.record_before_draw(commands, frame);
        }
    }

    fn record_after_draw(&self, _commands: vk::CommandBuffer, _frame: &Frame) {}

    fn sync(&mut self, _frame: &Frame) -> Result<FrameSync> {
        Ok(FrameSync::default())
    }

    fn owner(&self) -> Owner {
        Owner::Queue
    }

    fn stamp_frames(&mut self) -> Result<()> {
        Err(Error::Usage("the draw alone has no frames to tell apart, so it cannot be checked".into()))
    }
}
