//! A CUDA kernel fills memory that Vulkan exported. This is the hand-off that the crate exists to show.

use std::sync::Arc;

use ash::vk;

use super::{DRAW_READS, Frame, FrameSync, Producer, SLOT_USAGE, check_grid};
use crate::cuda::{Context, Kernel, KernelSource, Stream};
use crate::interop::ownership::Owner;
use crate::interop::{Ring, SharedBuffer, SharedTimeline};
use crate::vulkan::{Device, Queue};
use crate::wave::Grid;
use crate::{Error, Result};

/// Fills slots with a CUDA kernel, ordered with Vulkan by two timelines and nothing else.
pub struct CudaProducer {
    // Field order is drop order: the stream before what it uses, CUDA's objects before the context that they hold.
    stream: Stream,
    kernel: Kernel,
    /// Set by CUDA: the slot is written.
    ready: SharedTimeline,
    /// Set by Vulkan: the slot was read.
    free: SharedTimeline,
    shared: Vec<SharedBuffer>,
    slots: Vec<vk::Buffer>,
    ring: Ring,
    /// The last value of `ready` that the stream was asked to signal.
    promised: u64,
    kernel_name: String,
    grid: Grid,
    device: Device,
    family: u32,
}

impl CudaProducer {
    /// `context` must be the same GPU as the queue's device: see [`crate::interop::find_twin`].
    pub fn new(
        queue: &Queue,
        context: &Arc<Context>,
        source: &KernelSource,
        grid: Grid,
        ring: Ring,
    ) -> Result<Self> {
        let device = queue.device();
        check_grid(device, grid)?;
        // First the kernel: a bad one should be known before gigabytes are allocated.
        let kernel = Kernel::load(context, source)?;
        let shared = (0..ring.depth())
            .map(|_| SharedBuffer::new(device, context, grid.bytes(), SLOT_USAGE))
            .collect::<Result<Vec<_>>>()?;
        Ok(Self {
            stream: Stream::new(context)?,
            kernel,
            ready: SharedTimeline::new(device, context)?,
            free: SharedTimeline::new(device, context)?,
            slots: shared.iter().map(SharedBuffer::vulkan).collect(),
            shared,
            ring,
            promised: 0,
            kernel_name: source.name.clone(),
            grid,
            device: device.clone(),
            family: queue.family(),
        })
    }
}

impl CudaProducer {
    /// CUDA's half of the hand-off: wait for the slot, fill it, say so. Returns before any of it has run.
    fn enqueue(&mut self, frame: &Frame) -> Result<()> {
        let turn = self.ring.turn(frame.index);
        if let Some(value) = turn.wait_free {
            self.free.cuda_wait(&self.stream, value)?;
        }
        let (vertices, Grid { cols, rows }) = (self.shared[turn.slot].cuda(), self.grid);
        // SAFETY: the slot has 16 bytes a vertex; the wait above and the ring keep Vulkan out of it until the signal
        // below. That the kernel has the documented signature is what `--kernel` asks of its user.
        unsafe { self.kernel.launch(&self.stream, vertices, cols, rows, frame.index, frame.time) }?;
        self.ready.cuda_signal(&self.stream, turn.signal_ready)?;
        self.promised = turn.signal_ready;
        Ok(())
    }

    /// Once a kernel has faulted, every call on its context fails with the same code: name the kernel, not the call.
    fn blame(&self, error: Error) -> Error {
        match error {
            Error::Cuda { code: 700..=720, .. } => {
                Error::Kernel { kernel: self.kernel_name.clone(), problem: error.to_string() }
            }
            other => other,
        }
    }
}

impl Producer for CudaProducer {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn slots(&self) -> &[vk::Buffer] {
        &self.slots
    }

    fn produce(&mut self, frame: &Frame) -> Result<()> {
        self.enqueue(frame).map_err(|error| self.blame(error))
    }

    fn record_before_draw(&self, commands: vk::CommandBuffer, frame: &Frame) {
        let slot = self.slots[self.ring.turn(frame.index).slot];
        let acquire = [Owner::External.acquire(slot, self.family, DRAW_READS)];
        let info = vk::DependencyInfo::default().buffer_memory_barriers(&acquire);
        // SAFETY: recording, outside a render pass; the slot is alive.
        unsafe { self.device.raw().cmd_pipeline_barrier2(commands, &info) };
    }

    fn record_after_draw(&self, commands: vk::CommandBuffer, frame: &Frame) {
        let slot = self.slots[self.ring.turn(frame.index).slot];
        let release = [Owner::External.release(slot, self.family, DRAW_READS)];
        let info = vk::DependencyInfo::default().buffer_memory_barriers(&release);
        // SAFETY: as above.
        unsafe { self.device.raw().cmd_pipeline_barrier2(commands, &info) };
    }

    fn sync(&self, frame: &Frame) -> FrameSync {
        let turn = self.ring.turn(frame.index);
        FrameSync {
            // Only the stage that reads waits; what comes before it (and the frame before) goes on.
            wait: Some(self.ready.vulkan(turn.wait_ready, DRAW_READS.stage)),
            // All commands, because the release barrier must be done too.
            signal: Some(self.free.vulkan(turn.signal_free, vk::PipelineStageFlags2::ALL_COMMANDS)),
        }
    }

    fn owner(&self) -> Owner {
        Owner::External
    }

    fn check(&self) -> Result<()> {
        self.stream.check().map_err(|error| self.blame(error))
    }

    fn progress(&self) -> Option<String> {
        let (ready, free) = (self.ready.value().ok()?, self.free.value().ok()?);
        let late = if ready < self.promised { "CUDA" } else { "Vulkan" };
        Some(format!(
            "{late} did not signal: CUDA's `ready` is at {ready} of {}, Vulkan's `free` at {free}",
            self.promised
        ))
    }

    fn abandon(&mut self) {
        // A value that CUDA has signalled already is an error here, and needs no letting go.
        let _ = self.ready.signal_from_host(self.promised);
    }

    fn wait_idle(&mut self) -> Result<()> {
        self.stream.synchronize().map_err(|error| self.blame(error))
    }
}
