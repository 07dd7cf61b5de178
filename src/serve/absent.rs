//! Nobody: what the engine holds while its producer is being exchanged after a fault. It is never drawn from.

use ash::vk;
use vulkan_cuda::ownership::Owner;

use crate::producer::{Frame, FrameSync, Producer};
use crate::{Error, Result};

pub(super) struct Absent;

impl Producer for Absent {
    fn name(&self) -> &'static str {
        "nobody"
    }

    fn slots(&self) -> &[vk::Buffer] {
        &[]
    }

    fn produce(&mut self, _frame: &Frame) -> Result<()> {
        Err(Error::Unsupported("there is no producer".into()))
    }

    fn record_before_draw(&self, _commands: vk::CommandBuffer, _frame: &Frame) {}

    fn record_after_draw(&self, _commands: vk::CommandBuffer, _frame: &Frame) {}

    fn sync(&mut self, _frame: &Frame) -> Result<FrameSync> {
        Ok(FrameSync::default())
    }

    fn stamp_frames(&mut self) -> Result<()> {
        Ok(())
    }

    fn owner(&self) -> Owner {
        Owner::Queue
    }
}
