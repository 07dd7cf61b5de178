//! A CUDA kernel fills memory that Vulkan exported. This is the hand-off that the crate exists to show.

use std::sync::Arc;

use ash::vk;

use super::{DRAW_READS, Frame, FrameSync, Producer, SLOT_USAGE, check_grid};
use crate::Result;
use crate::cuda::{Context, Kernel, KernelSource, Stream};
use crate::interop::ownership::Owner;
use crate::interop::{Ring, SharedBuffer, SharedTimeline};
use crate::vulkan::{Device, Queue};
use crate::wave::Grid;

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
            grid,
            device: device.clone(),
            family: queue.family(),
        })
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
        let turn = self.ring.turn(frame.index);
        if let Some(value) = turn.wait_free {
            self.free.cuda_wait(&self.stream, value)?;
        }
        let vertices = self.shared[turn.slot].cuda();
        // SAFETY: the slot has 16 bytes a vertex; the wait above and the ring keep Vulkan out of it until the signal
        // below. That the kernel has the documented signature is what `--kernel` asks of its user.
        unsafe {
            self.kernel.launch(
                &self.stream,
                vertices,
                self.grid.cols,
                self.grid.rows,
                frame.index,
                frame.time,
            )
        }?;
        self.ready.cuda_signal(&self.stream, turn.signal_ready)
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

    fn wait_idle(&mut self) -> Result<()> {
        self.stream.synchronize()
    }
}
