//! Copies each frame device → host → device, to show the cost if the two APIs could share no memory.

use std::any::Any;
use std::time::{Duration, Instant};

use ash::vk;
use gpu_allocator::MemoryLocation;

use super::scene_kernels::{Destination, SceneKernels};
use super::{FieldKernels, HandoffEntry, TextureKernels};
use crate::contents::scene::Scene;
use crate::producer::{
    CudaTimeline, Frame, ImageSlot, Produced, Producer, ProducerDesc, Profile, SLOT_USAGE, Source, Vertices,
    level_regions, own_images, own_slot,
};
use wavefield_gpu::Result;
use wavefield_gpu::cuda::{Cuda, KernelSource};
use wavefield_gpu::vulkan::{
    Buffer, BufferDesc, Device, Queue, buffer_barrier, pipeline_barrier, record_upload,
};

pub(super) const HOST_COPY: HandoffEntry = HandoffEntry {
    name: "host-copy",
    brief: "Through the CPU's memory",
    help: "A copy from the device to the host and back, as without interop",
    one_slot: true,
    supports: |_| Ok(()),
    field: HostCopyHandoff::<FieldKernels>::make,
    texture: Some(HostCopyHandoff::<TextureKernels>::make),
};

struct HostCopyHandoff<K: SceneKernels> {
    // Fields are dropped in this order: the stream before what it uses.
    timeline: CudaTimeline,
    kernels: K,
    scratch: K::Scratch,
    staging: Buffer,
    /// A buffer or an image, depending on the scene.
    _slot: Box<dyn Any>,
    profile: Profile,
    levels: Vec<vk::BufferImageCopy>,
    timeout: Duration,
    device: Device,
}

impl<K: SceneKernels> HostCopyHandoff<K> {
    fn make(
        queue: &mut Queue,
        context: &Cuda,
        source: &KernelSource,
        desc: &ProducerDesc,
    ) -> Result<Box<dyn Producer>> {
        let (device, size) = (queue.device(), desc.grid);
        let kernels = K::new(device, context, source, desc)?;
        let scratch = kernels.scratch(context)?;
        let make = |label, usage, location| {
            let bytes = desc.scene.frame_bytes(size);
            Buffer::new(device, &BufferDesc { label, size: bytes, usage, location })
        };
        let (label, drawn, slot): (_, Source, Box<dyn Any>) = match desc.scene {
            Scene::Field => {
                let buffer = make("the field", SLOT_USAGE, MemoryLocation::GpuOnly)?;
                ("the field on the host", buffer.raw().into(), Box::new(buffer))
            }
            Scene::Texture => {
                let image = own_images(device, size, 1, vk::ImageUsageFlags::empty())?.remove(0);
                ("the texture on the host", own_slot(&image), Box::new(image))
            }
        };
        // One frame is in flight, so Vulkan has read the staging buffer before CUDA writes it again.
        let parameters = kernels.parameters().clone();
        let usual = Profile::of_queue("cuda, host-copy", vec![drawn]);
        let profile = Profile { max_in_flight: 1, uses_cuda: true, parameters, ..usual };
        Ok(Box::new(Self {
            timeline: CudaTimeline::new(context, &source.name)?,
            kernels,
            scratch,
            // Use cached host memory, because CUDA copies faster into it than into write-combined memory.
            staging: make(label, vk::BufferUsageFlags::TRANSFER_SRC, MemoryLocation::GpuToCpu)?,
            _slot: slot,
            profile,
            levels: level_regions(size),
            timeout: desc.timeout,
            device: device.clone(),
        }))
    }

    fn run(&mut self, frame: &Frame) -> Result<Produced> {
        // SAFETY: nothing else uses `scratch`.
        unsafe { self.kernels.enqueue(&self.timeline, frame, Destination::Scratch(&self.scratch)) }?;
        let began = Instant::now();
        // `read` waits too, but without a timeout.
        self.timeline.wait_idle(self.timeout)?;
        K::read(&self.scratch, self.timeline.stream(), self.staging.bytes_mut()?)?;
        Ok(Produced { blocked: Some(began.elapsed()), ..self.profile.produced(frame) })
    }
}

impl<K: SceneKernels> Producer for HostCopyHandoff<K> {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn produce(&mut self, frame: &Frame) -> Result<Produced> {
        self.run(frame).map_err(|error| self.timeline.blame(error))
    }

    fn record_before_draw(&self, commands: vk::CommandBuffer, frame: &Frame, source: Source) {
        let (device, staging) = (&self.device, self.staging.raw());
        let reads = (frame.reads.stage, frame.reads.access);
        match source {
            Source::Vertices(Vertices { buffer, .. }) => {
                let writes = (vk::PipelineStageFlags2::ALL_TRANSFER, vk::AccessFlags2::TRANSFER_WRITE);
                let reuse = buffer_barrier(buffer, (reads.0, vk::AccessFlags2::NONE), writes);
                let written = buffer_barrier(buffer, writes, reads);
                let copy = [vk::BufferCopy::default().size(self.staging.size())];
                // SAFETY: recording, outside a render pass; both buffers are alive and of the same size.
                unsafe {
                    pipeline_barrier(device, commands, &[reuse], &[]);
                    device.raw().cmd_copy_buffer(commands, staging, buffer, &copy);
                    pipeline_barrier(device, commands, &[written], &[]);
                }
            }
            // SAFETY: as above.
            Source::Texture(ImageSlot { image, .. }) => unsafe {
                let next = (vk::ImageLayout::SHADER_READ_ONLY_OPTIMAL, reads);
                record_upload(device, commands, staging, image, &self.levels, next);
            },
        }
    }

    fn cuda_timeline(&self) -> Option<&CudaTimeline> {
        Some(&self.timeline)
    }
}
