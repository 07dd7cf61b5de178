//! Two binary semaphores around one slot: the classic scheme (NVIDIA's simpleVulkan uses it where timelines are missing).
//!
//! The GPU waits both ways, as with timelines, but the two sides take turns: each frame pays for two switches between
//! the CUDA context and the graphics context.

use std::time::Duration;

use vulkan_cuda::{Pair, SharedBinary, Turn};

use super::order::Order;
use crate::Result;
use crate::producer::{Fill, FrameSync};

/// The two semaphores of one slot. They check that each signal has one wait, and that nothing waits for a signal that was not
/// submitted.
pub(super) struct BinaryPair {
    /// Signalled by CUDA, waited for by Vulkan in the same frame.
    ready: SharedBinary,
    /// Signalled by Vulkan, waited for by CUDA in the next frame.
    free: SharedBinary,
    /// Vulkan will signal `free`: the next frame must wait for it.
    read: bool,
}

impl BinaryPair {
    pub(super) fn new(pair: &Pair) -> Result<Self> {
        let (ready, free) = (SharedBinary::new(pair)?, SharedBinary::new(pair)?);
        Ok(Self { ready, free, read: false })
    }
}

impl Order for BinaryPair {
    fn wait_free(&mut self, fill: &Fill, _turn: Turn) -> Result<()> {
        // Only a submitted signal can be waited for, and the previous frame was submitted. The first frame waits for
        // nothing.
        if !std::mem::take(&mut self.read) {
            return Ok(());
        }
        // SAFETY: the stream is idle before the semaphore is dropped.
        Ok(unsafe { self.free.cuda_wait(fill.stream()) }?)
    }

    fn signal_ready(&mut self, fill: &Fill, _turn: Turn) -> Result<Option<Duration>> {
        // SAFETY: as above.
        unsafe { self.ready.cuda_signal_after_kernels(fill.stream()) }?;
        Ok(None)
    }

    fn submission(&mut self, _turn: Turn) -> Result<FrameSync> {
        let (wait, signal) = (self.ready.vulkan_wait()?, self.free.vulkan_signal()?);
        Ok(FrameSync { signal_before: None, wait: Some(wait), signal: Some(signal) })
    }

    fn submitted(&mut self) {
        self.ready.submitted();
        self.free.submitted();
        self.read = true;
    }

    fn late_side(&self, fill: &Fill) -> Option<String> {
        Some(fill.late_side())
    }
}
