//! Two binary semaphores around one slot: the classic scheme (NVIDIA's simpleVulkan uses it where timelines are missing).
//!
//! The GPU waits both ways, as with timelines, but the two sides take turns: each frame pays for two switches between
//! the CUDA context and the graphics context.

use std::time::Duration;

use vulkan_cuda::{BinarySignal, Pair, SharedBinary, SignalToSubmit, Turn, WaitToSubmit};

use super::order::Order;
use crate::producer::{Fill, FrameSync};
use crate::{Error, Result};

/// The two semaphores of one slot, and their pending signals. Each signal has exactly one wait, and nothing waits for a
/// signal that was not submitted.
pub(super) struct BinaryPair {
    /// Signalled by CUDA, waited for by Vulkan in the same frame.
    ready: SharedBinary,
    /// Signalled by Vulkan, waited for by CUDA in the next frame.
    free: SharedBinary,
    /// CUDA has signalled `ready`: the current frame must wait for it.
    written: Option<BinarySignal>,
    /// Both halves of the submission that is about to be made.
    submitting: Option<(WaitToSubmit, SignalToSubmit)>,
    /// Vulkan will signal `free`: the next frame must wait for it.
    read: Option<BinarySignal>,
}

impl BinaryPair {
    pub(super) fn new(pair: &Pair) -> Result<Self> {
        let (ready, free) = (SharedBinary::new(pair)?, SharedBinary::new(pair)?);
        Ok(Self { ready, free, written: None, submitting: None, read: None })
    }
}

impl Order for BinaryPair {
    fn wait_free(&mut self, fill: &Fill, _turn: Turn) -> Result<()> {
        // Only a submitted signal can be waited for, and the previous frame was submitted. The first frame waits for
        // nothing.
        let Some(read) = self.read.take() else { return Ok(()) };
        // SAFETY: the stream is idle before the semaphore is dropped.
        Ok(unsafe { read.cuda_wait(fill.stream()) }?)
    }

    fn signal_ready(&mut self, fill: &Fill, _turn: Turn) -> Result<Option<Duration>> {
        // SAFETY: as above.
        self.written = Some(unsafe { self.ready.cuda_signal_after_kernels(fill.stream()) }?);
        Ok(None)
    }

    fn submission(&mut self, _turn: Turn) -> Result<FrameSync> {
        let written = self.written.take();
        let written =
            written.ok_or_else(|| Error::Rule("Vulkan cannot wait for what was not produced".into()))?;
        let (wait, ready) = written.vulkan_wait();
        let (signal, free) = self.free.vulkan_signal()?;
        self.submitting = Some((ready, free));
        Ok(FrameSync { signal_before: None, wait: Some(wait), signal: Some(signal) })
    }

    fn submitted(&mut self) {
        if let Some((wait, signal)) = self.submitting.take() {
            wait.submitted();
            self.read = Some(signal.submitted());
        }
    }

    fn late_side(&self, fill: &Fill) -> Option<String> {
        Some(fill.late_side())
    }
}
