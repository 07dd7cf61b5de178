//! One shared buffer and two binary semaphores: the classic scheme (NVIDIA's simpleVulkan has it where there are no timelines).
//!
//! The GPU waits both ways, as with timelines, but the two sides take turns: each frame pays for two switches between
//! the CUDA context and the graphics context.

use std::sync::Arc;

use ash::vk;

use super::Fill;
use crate::cuda::{Context, KernelSource};
use crate::interop::Ring;
use crate::interop::ownership::Owner;
use crate::interop::{BinarySignal, SharedBinary, SharedBuffer, SignalToSubmit, WaitToSubmit};
use crate::producer::{Frame, FrameSync, Producer, SLOT_USAGE, barrier, check_grid};
use crate::vulkan::{Device, Queue};
use crate::wave::Grid;
use crate::{Error, Result};

/// One buffer, filled and drawn in turn.
pub struct BinaryHandoff {
    fill: Fill,
    /// Signalled by CUDA, waited for by Vulkan in the same frame.
    ready: SharedBinary,
    /// Signalled by Vulkan, waited for by CUDA in the next frame.
    free: SharedBinary,
    /// CUDA has signalled `ready`: the frame at hand is to wait for it.
    written: Option<BinarySignal>,
    /// Both halves of the submission that the engine is about to make.
    submitting: Option<(WaitToSubmit, SignalToSubmit)>,
    /// Vulkan will signal `free`: the next frame is to wait for it.
    read: Option<BinarySignal>,
    shared: SharedBuffer,
    slots: [vk::Buffer; 1],
    device: Device,
    family: u32,
}

impl BinaryHandoff {
    /// `context` must be the same GPU as the queue's device: see [`crate::interop::find_twin`].
    pub fn new(queue: &Queue, context: &Arc<Context>, source: &KernelSource, grid: Grid) -> Result<Self> {
        let device = queue.device();
        check_grid(device, grid)?;
        let fill = Fill::new(context, source, grid)?;
        let shared = SharedBuffer::new(device, context, grid.bytes(), SLOT_USAGE)?;
        Ok(Self {
            fill,
            ready: SharedBinary::new(device, context)?,
            free: SharedBinary::new(device, context)?,
            written: None,
            submitting: None,
            read: None,
            slots: [shared.vulkan()],
            shared,
            device: device.clone(),
            family: queue.family(),
        })
    }

    fn enqueue(&mut self, frame: &Frame) -> Result<()> {
        let stream = self.fill.stream();
        // Only what was submitted can be waited for, and the frame before was. The first frame has none before it.
        if let Some(read) = self.read.take() {
            read.cuda_wait(stream)?;
        }
        // SAFETY: the buffer has 16 bytes a vertex; the wait above keeps Vulkan out of it until the signal below.
        unsafe { self.fill.enqueue(self.shared.cuda(), frame) }?;
        self.written = Some(self.ready.cuda_signal(stream)?);
        Ok(())
    }
}

impl Producer for BinaryHandoff {
    fn name(&self) -> &'static str {
        "cuda, binary"
    }

    fn slots(&self) -> &[vk::Buffer] {
        &self.slots
    }

    fn produce(&mut self, frame: &Frame) -> Result<()> {
        self.enqueue(frame).map_err(|error| self.fill.blame(error))
    }

    fn record_before_draw(&self, commands: vk::CommandBuffer, frame: &Frame) {
        barrier(&self.device, commands, Owner::External.acquire(self.slots[0], self.family, frame.reads));
    }

    fn record_after_draw(&self, commands: vk::CommandBuffer, frame: &Frame) {
        barrier(&self.device, commands, Owner::External.release(self.slots[0], self.family, frame.reads));
    }

    fn commands_repeat(&self) -> bool {
        true
    }

    fn sync(&mut self, frame: &Frame) -> Result<FrameSync> {
        let written = self.written.take();
        let written =
            written.ok_or_else(|| Error::Rule("Vulkan cannot wait for what was not produced".into()))?;
        let (signal, free) = self.free.vulkan_signal(vk::PipelineStageFlags2::ALL_COMMANDS)?;
        let (wait, ready) = written.vulkan_wait(frame.reads.stage);
        self.submitting = Some((ready, free));
        Ok(FrameSync { signal_before: None, wait: Some(wait), signal: Some(signal) })
    }

    fn submitted(&mut self) {
        if let Some((wait, signal)) = self.submitting.take() {
            wait.submitted();
            self.read = Some(signal.submitted());
        }
    }

    fn owner(&self) -> Owner {
        Owner::External
    }

    fn fill(&self) -> Option<&Fill> {
        Some(&self.fill)
    }

    fn ring(&self) -> Option<Ring> {
        Ring::new(1)
    }

    fn progress(&self) -> Option<String> {
        Some(self.fill.late_side())
    }

    fn is_idle(&self) -> Result<bool> {
        self.fill.is_idle()
    }

    fn stamp_frames(&mut self) -> Result<()> {
        self.fill.stamp_frames()
    }
}
