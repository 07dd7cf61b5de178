//! CUDA fills memory of its own and copies it, on the device, into the shared slot: what libraries do that bring their own
//! allocator (Taichi and Warp, for example). The hand-off itself is that of `timeline`.

use ash::vk;
use vulkan_cuda::ownership::Owner;
use vulkan_cuda::{Ring, SharedBuffer};

use super::timeline::Timelines;
use crate::Result;
use crate::cuda::{Cuda, DeviceMemory, KernelSource, Signature};
use crate::producer::{Fill, Frame, FrameSync, Producer, barrier, check_grid, each_slot, shared_slot};
use crate::vulkan::{Device, Queue};
use crate::wave::Grid;

/// A ring of shared buffers behind a buffer of CUDA's own.
pub struct DeviceCopyHandoff {
    fill: Fill,
    timelines: Timelines,
    own: DeviceMemory,
    shared: Vec<SharedBuffer>,
    slots: Vec<vk::Buffer>,
    ring: Ring,
    device: Device,
    family: u32,
}

impl DeviceCopyHandoff {
    /// `context` must be the same GPU as the queue's device: see [`vulkan_cuda::find_twin`].
    pub fn new(queue: &Queue, context: &Cuda, source: &KernelSource, grid: Grid, ring: Ring) -> Result<Self> {
        let device = queue.device();
        check_grid(device, grid)?;
        let fill = Fill::new(context, source, Signature::Field, grid)?;
        let pair = device.pair(context)?;
        let shared = each_slot(device, Some(context), grid, ring.depth(), || shared_slot(&pair, grid))?;
        Ok(Self {
            fill,
            timelines: Timelines::new(&pair)?,
            own: DeviceMemory::new(context, grid.bytes())?,
            slots: shared.iter().map(SharedBuffer::vulkan).collect(),
            shared,
            ring,
            device: device.clone(),
            family: queue.family(),
        })
    }

    fn enqueue(&mut self, frame: &Frame) -> Result<()> {
        let turn = self.ring.turn(frame.index);
        let stream = self.fill.stream();
        // SAFETY: CUDA's own memory, 16 bytes a vertex, touched by this stream alone.
        unsafe { self.fill.enqueue(self.own.pointer(), frame) }?;
        // Only the copy must wait for the slot.
        if let Some(value) = turn.wait_free {
            self.timelines.cuda_wait(stream, value)?;
        }
        // SAFETY: both have the grid's bytes; the wait above keeps Vulkan out of the slot until the signal below.
        unsafe { self.own.copy_to(stream, self.shared[turn.slot].cuda()) }?;
        self.timelines.cuda_signal(stream, turn)
    }
}

impl Producer for DeviceCopyHandoff {
    fn name(&self) -> &'static str {
        "cuda, device-copy"
    }

    fn slots(&self) -> &[vk::Buffer] {
        &self.slots
    }

    fn produce(&mut self, frame: &Frame) -> Result<()> {
        self.enqueue(frame).map_err(|error| self.fill.blame(error))
    }

    fn record_before_draw(&self, commands: vk::CommandBuffer, frame: &Frame) {
        let slot = self.slots[self.slot_of(frame.index)];
        barrier(&self.device, commands, Owner::External.acquire(slot, self.family, frame.reads));
    }

    fn record_after_draw(&self, commands: vk::CommandBuffer, frame: &Frame) {
        let slot = self.slots[self.slot_of(frame.index)];
        barrier(&self.device, commands, Owner::External.release(slot, self.family, frame.reads));
    }

    fn commands_repeat(&self) -> bool {
        true
    }

    fn sync(&mut self, frame: &Frame) -> Result<FrameSync> {
        self.timelines.vulkan(self.ring.turn(frame.index), frame.reads.stage)
    }

    fn owner(&self) -> Owner {
        Owner::External
    }

    fn fill(&self) -> Option<&Fill> {
        Some(&self.fill)
    }

    fn ring(&self) -> Option<Ring> {
        Some(self.ring)
    }

    fn is_idle(&self) -> Result<bool> {
        self.fill.is_idle()
    }

    fn stamp_frames(&mut self) -> Result<()> {
        self.fill.stamp_frames()
    }

    fn progress(&self) -> Option<String> {
        self.timelines.progress(self.ring)
    }

    fn abandon(&mut self) {
        self.timelines.abandon();
    }
}
