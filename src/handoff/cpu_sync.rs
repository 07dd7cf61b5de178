//! One shared buffer and no semaphore: the CPU waits for CUDA before it submits to Vulkan, and for Vulkan before the next
//! frame. Nothing is copied, and nothing overlaps.

use std::time::{Duration, Instant};

use ash::vk;
use vulkan_cuda::SharedBuffer;
use vulkan_cuda::ownership::Owner;

use crate::Result;
use crate::cuda::{Cuda, KernelSource, Signature};
use crate::producer::{Blocked, Fill, Frame, FrameSync, Producer, barrier, check_grid, shared_slot};
use crate::vulkan::{Device, Queue};
use crate::wave::Grid;

/// One buffer, with the CPU as the messenger.
pub struct CpuSyncHandoff {
    fill: Fill,
    shared: SharedBuffer,
    slots: [vk::Buffer; 1],
    blocked: Blocked,
    timeout: Duration,
    device: Device,
    family: u32,
}

impl CpuSyncHandoff {
    /// `context` must be the same GPU as the queue's device: see [`vulkan_cuda::find_twin`].
    pub fn new(
        queue: &Queue,
        context: &Cuda,
        source: &KernelSource,
        grid: Grid,
        timeout: Duration,
    ) -> Result<Self> {
        let device = queue.device();
        check_grid(device, grid)?;
        let fill = Fill::new(context, source, Signature::Field, grid)?;
        let shared = shared_slot(&device.pair(context)?, grid)?;
        Ok(Self {
            fill,
            slots: [shared.vulkan()],
            shared,
            blocked: Blocked::default(),
            timeout,
            device: device.clone(),
            family: queue.family(),
        })
    }

    fn run(&mut self, frame: &Frame) -> Result<()> {
        // SAFETY: the buffer has 16 bytes a vertex; with one frame in flight Vulkan is done with it, and it gets it
        // back only after the wait below.
        unsafe { self.fill.enqueue(self.shared.cuda(), frame) }?;
        let began = Instant::now();
        self.fill.wait_idle(self.timeout)?;
        self.blocked.add(began.elapsed());
        Ok(())
    }
}

impl Producer for CpuSyncHandoff {
    fn name(&self) -> &'static str {
        "cuda, cpu-sync"
    }

    fn slots(&self) -> &[vk::Buffer] {
        &self.slots
    }

    /// The pacer's wait for the frame before is this scheme's wait for Vulkan.
    fn max_in_flight(&self) -> usize {
        1
    }

    fn produce(&mut self, frame: &Frame) -> Result<()> {
        self.run(frame).map_err(|error| self.fill.blame(error))
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

    fn sync(&mut self, _frame: &Frame) -> Result<FrameSync> {
        Ok(FrameSync::default())
    }

    fn owner(&self) -> Owner {
        Owner::External
    }

    fn blocked(&self) -> Blocked {
        self.blocked
    }

    fn fill(&self) -> Option<&Fill> {
        Some(&self.fill)
    }

    fn is_idle(&self) -> Result<bool> {
        self.fill.is_idle()
    }

    fn stamp_frames(&mut self) -> Result<()> {
        self.fill.stamp_frames()
    }
}
