//! One shared buffer and two binary semaphores: the classic scheme (NVIDIA's simpleVulkan has it where there are no timelines).
//!
//! The GPU waits both ways, as with timelines, but the two sides take turns: each frame pays for two switches between
//! the CUDA context and the graphics context.

use ash::vk;
use vulkan_cuda::Ring;
use vulkan_cuda::ownership::Owner;
use vulkan_cuda::{BinarySignal, Pair, SharedBinary, SharedBuffer, SignalToSubmit, WaitToSubmit};

use crate::cuda::{Cuda, KernelSource, Signature, Stream};
use crate::producer::{Fill, Frame, FrameSync, Producer, barrier, check_grid, shared_slot};
use crate::vulkan::{Device, Queue};
use crate::wave::Grid;
use crate::{Error, Result};

/// One buffer, filled and drawn in turn.
pub struct BinaryHandoff {
    fill: Fill,
    semaphores: BinaryPair,
    shared: SharedBuffer,
    slots: [vk::Buffer; 1],
    device: Device,
    family: u32,
}

impl BinaryHandoff {
    /// `context` must be the same GPU as the queue's device: see [`vulkan_cuda::find_twin`].
    pub fn new(queue: &Queue, context: &Cuda, source: &KernelSource, grid: Grid) -> Result<Self> {
        let device = queue.device();
        check_grid(device, grid)?;
        let fill = Fill::new(context, source, Signature::Field, grid)?;
        let pair = device.pair(context)?;
        let shared = shared_slot(&pair, grid)?;
        Ok(Self {
            fill,
            semaphores: BinaryPair::new(&pair)?,
            slots: [shared.vulkan()],
            shared,
            device: device.clone(),
            family: queue.family(),
        })
    }

    fn enqueue(&mut self, frame: &Frame) -> Result<()> {
        let stream = self.fill.stream();
        self.semaphores.cuda_wait(stream)?;
        // SAFETY: the buffer has 16 bytes a vertex; the wait above keeps Vulkan out of it until the signal below.
        unsafe { self.fill.enqueue(self.shared.cuda(), frame) }?;
        self.semaphores.cuda_signal(stream)
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
        self.semaphores.vulkan(frame.reads.stage)
    }

    fn submitted(&mut self) {
        self.semaphores.submitted();
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

/// The two semaphores of one slot, with whatever is under way. Each signal has exactly one wait, and nothing waits for what
/// was not submitted.
pub(super) struct BinaryPair {
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
}

impl BinaryPair {
    pub(super) fn new(pair: &Pair) -> Result<Self> {
        let (ready, free) = (SharedBinary::new(pair)?, SharedBinary::new(pair)?);
        Ok(Self { ready, free, written: None, submitting: None, read: None })
    }

    /// CUDA: what is enqueued from now on writes the slot.
    pub(super) fn cuda_wait(&mut self, stream: &Stream) -> Result<()> {
        // Only what was submitted can be waited for, and the frame before was. The first frame has none before it.
        match self.read.take() {
            // SAFETY: the stream comes to rest before the semaphore goes.
            Some(read) => Ok(unsafe { read.cuda_wait(stream) }?),
            None => Ok(()),
        }
    }

    /// CUDA: everything enqueued so far fills the slot.
    pub(super) fn cuda_signal(&mut self, stream: &Stream) -> Result<()> {
        // SAFETY: as in `cuda_wait`.
        self.written = Some(unsafe { self.ready.cuda_signal(stream) }?);
        Ok(())
    }

    /// Vulkan: what the submission, whose stages `reads` read the slot, waits for and signals.
    pub(super) fn vulkan(&mut self, reads: vk::PipelineStageFlags2) -> Result<FrameSync> {
        let written = self.written.take();
        let written =
            written.ok_or_else(|| Error::Rule("Vulkan cannot wait for what was not produced".into()))?;
        let (signal, free) = self.free.vulkan_signal(vk::PipelineStageFlags2::ALL_COMMANDS)?;
        let (wait, ready) = written.vulkan_wait(reads);
        self.submitting = Some((ready, free));
        Ok(FrameSync { signal_before: None, wait: Some(wait), signal: Some(signal) })
    }

    /// The submission was made.
    pub(super) fn submitted(&mut self) {
        if let Some((wait, signal)) = self.submitting.take() {
            wait.submitted();
            self.read = Some(signal.submitted());
        }
    }
}
