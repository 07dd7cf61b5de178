//! A texture from device to host to device: what a program does whose two APIs know nothing of each other. Here to show what
//! it costs.

use std::time::{Duration, Instant};

use ash::vk;
use gpu_allocator::MemoryLocation;
use vulkan_cuda::ownership::Owner;

use super::chain::{Chain, Painter};
use crate::cuda::{Cuda, KernelSource, Signature};
use crate::producer::{
    Blocked, Fill, Frame, FrameSync, ImageSlot, Producer, check_texture, own_images, own_slot, record_upload,
};
use crate::vulkan::{Buffer, BufferDesc, Device, Image, Queue};
use crate::wave::Grid;
use crate::{Result, texture};

/// A mip chain of CUDA's own, host memory, and an image of Vulkan's own.
pub struct TextureHostCopyHandoff {
    // Field order is drop order: the stream before what it uses.
    fill: Fill,
    painter: Painter,
    own: Chain,
    staging: Buffer,
    images: Vec<Image>,
    slots: [ImageSlot; 1],
    size: Grid,
    blocked: Blocked,
    timeout: Duration,
    context: Cuda,
    device: Device,
}

impl TextureHostCopyHandoff {
    /// Works with any pair of devices; nothing is shared.
    pub fn new(
        queue: &Queue,
        context: &Cuda,
        source: &KernelSource,
        size: Grid,
        timeout: Duration,
    ) -> Result<Self> {
        let device = queue.device();
        check_texture(device, size)?;
        let images = own_images(device, size, 1, vk::ImageUsageFlags::empty())?;
        Ok(Self {
            fill: Fill::new(context, source, Signature::Texture, size)?,
            painter: Painter::new(context)?,
            own: Chain::own(context, size)?,
            // Cached host memory, because CUDA's copy is faster into it than into write-combined memory.
            staging: Buffer::new(
                device,
                &BufferDesc {
                    label: "the texture on the host",
                    size: texture::chain_bytes(size),
                    usage: vk::BufferUsageFlags::TRANSFER_SRC,
                    location: MemoryLocation::GpuToCpu,
                },
            )?,
            slots: [own_slot(&images[0])],
            images,
            size,
            blocked: Blocked::default(),
            timeout,
            context: context.clone(),
            device: device.clone(),
        })
    }

    fn run(&mut self, frame: &Frame) -> Result<()> {
        // SAFETY: CUDA's own memory, touched by this stream alone.
        unsafe { self.painter.paint(&self.fill, &self.own, frame) }?;
        let began = Instant::now();
        // The copy itself would wait too, but not give up.
        self.fill.wait_idle(self.timeout)?;
        let bytes = self.staging.bytes_mut()?;
        // SAFETY: the stream is idle, and nobody else has the chain.
        unsafe { self.own.read(self.fill.stream(), bytes) }?;
        self.blocked.add(began.elapsed());
        Ok(())
    }
}

impl Producer for TextureHostCopyHandoff {
    fn name(&self) -> &'static str {
        "cuda, host-copy"
    }

    fn slots(&self) -> &[vk::Buffer] {
        &[]
    }

    fn images(&self) -> &[ImageSlot] {
        &self.slots
    }

    /// There is one staging buffer: the pacer's wait says that Vulkan has read it.
    fn max_in_flight(&self) -> usize {
        1
    }

    fn produce(&mut self, frame: &Frame) -> Result<()> {
        self.run(frame).map_err(|error| self.fill.blame(error))
    }

    fn record_before_draw(&self, commands: vk::CommandBuffer, frame: &Frame) {
        let (staging, image) = (self.staging.raw(), self.images[0].raw());
        // SAFETY: recording, outside a render pass; buffer and image are alive and of the same size.
        unsafe { record_upload(&self.device, commands, staging, image, self.size, frame.reads) };
    }

    fn record_after_draw(&self, _commands: vk::CommandBuffer, _frame: &Frame) {}

    fn commands_repeat(&self) -> bool {
        true
    }

    fn sync(&mut self, _frame: &Frame) -> Result<FrameSync> {
        Ok(FrameSync::default())
    }

    fn owner(&self) -> Owner {
        Owner::Queue
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
        self.painter.stamp_frames(&self.context)
    }
}
