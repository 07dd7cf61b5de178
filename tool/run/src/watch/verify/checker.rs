//! The check on the GPU: `check.wgsl` over every vertex, or every level's texels. A frame's commands acquire
//! the slot, *look*, draw, *look again*, which shows what was written while the draw read, and copy the
//! counts. The CPU reads these without waiting, when the frame is finished and its flight is needed again.

use ash::vk;
use bytemuck::{Pod, Zeroable};
use gpu_allocator::MemoryLocation;
use vulkan_cuda::ownership::{Access, Owner, whole_image};

use super::tally::{Counts, Look, Looks};
use crate::watch::observer::At;
use wavefield_gpu::Result;
use wavefield_gpu::vulkan::{
    Bound, Buffer, BufferDesc, Choices, ComputePipeline, Device, Queue, buffer_barrier, groups,
    image_barrier, pipeline_barrier, to_host,
};
use wavefield_handoff::contents::{array::DrawnArray, frame_stamp, scene::Scene};
use wavefield_handoff::producer::{ImageSlot, Source, Vertices};

/// As in `check.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Default, Pod, Zeroable)]
struct RawCounts {
    /// Checked, stale, overwritten, missing.
    counts: [u32; 4],
    highest: u32,
    lowest: u32,
}

const FILL: Access =
    Access { stage: vk::PipelineStageFlags2::ALL_TRANSFER, access: vk::AccessFlags2::TRANSFER_WRITE };

/// One more than the largest key of `check.wgsl`.
const KEYS: u32 = frame_stamp::MASK + 2;

impl RawCounts {
    fn look(&self) -> Look {
        let [checked, stale, overwritten, missing] = self.counts.map(u64::from);
        let counts = Counts { checked, stale, overwritten, missing };
        Look { counts, keys: (self.highest > 0).then(|| (KEYS.wrapping_sub(self.lowest), self.highest)) }
    }
}

const COUNTS: u64 = 2 * size_of::<RawCounts>() as u64;

const SHADER_READS: (vk::PipelineStageFlags2, vk::AccessFlags2) =
    (vk::PipelineStageFlags2::COMPUTE_SHADER, vk::AccessFlags2::SHADER_STORAGE_READ);
const SHADER_SAMPLES: (vk::PipelineStageFlags2, vk::AccessFlags2) =
    (vk::PipelineStageFlags2::COMPUTE_SHADER, vk::AccessFlags2::SHADER_SAMPLED_READ);
const SHADER_COUNTS: (vk::PipelineStageFlags2, vk::AccessFlags2) = (
    vk::PipelineStageFlags2::COMPUTE_SHADER,
    vk::AccessFlags2::from_raw(
        vk::AccessFlags2::SHADER_STORAGE_READ.as_raw() | vk::AccessFlags2::SHADER_STORAGE_WRITE.as_raw(),
    ),
);

/// The queue must be idle when this is dropped.
pub struct Checker {
    pipeline: ComputePipeline,
    /// In GPU memory, because counting over the bus would be slow.
    counts: Vec<Buffer>,
    read_back: Vec<Buffer>,
    /// The stamp of each flight's frame. It is not in the commands, because later frames submit them again.
    expected: Vec<Buffer>,
    scene: Scene,
    /// When this changes, no frame may be in flight, and no old recording may be submitted again.
    pub(super) array: DrawnArray,
    pub(super) device: Device,
}

impl Checker {
    /// Makes a checker for arrays in storage buffers, or for images of the array's grid with all levels.
    pub fn new(device: &Device, scene: Scene, array: DrawnArray, flights: usize) -> Result<Self> {
        let make = |label, size, usage, location| {
            let desc = BufferDesc { label, size, usage, location };
            (0..flights).map(|_| Buffer::new(device, &desc)).collect::<Result<Vec<_>>>()
        };
        let counts = make(
            "the check's counts",
            COUNTS,
            vk::BufferUsageFlags::STORAGE_BUFFER
                | vk::BufferUsageFlags::TRANSFER_DST
                | vk::BufferUsageFlags::TRANSFER_SRC,
            MemoryLocation::GpuOnly,
        )?;
        let read_back = make(
            "the check's counts for the CPU",
            COUNTS,
            vk::BufferUsageFlags::TRANSFER_DST,
            MemoryLocation::GpuToCpu,
        )?;
        let expected = make(
            "the check's expectation",
            size_of::<u32>() as u64,
            vk::BufferUsageFlags::STORAGE_BUFFER,
            MemoryLocation::CpuToGpu,
        )?;
        let bound =
            |buffers: &[Buffer]| buffers.iter().map(|buffer| Bound::from(buffer.raw())).collect::<Vec<_>>();
        let slot = match scene {
            Scene::Field => vk::DescriptorType::STORAGE_BUFFER,
            Scene::Texture => vk::DescriptorType::SAMPLED_IMAGE,
        };
        let shader = match scene {
            Scene::Field => (const { wavefield_gpu::shaders::spirv("check.check") }, c"check"),
            Scene::Texture => {
                (const { wavefield_gpu::shaders::spirv("check.check_texels") }, c"check_texels")
            }
        };
        let pipeline = ComputePipeline::new(
            device,
            shader,
            12,
            &[
                // The descriptor is written when the flight's commands are recorded.
                Choices::Later(slot, flights),
                Choices::These(&bound(&counts)),
                Choices::These(&bound(&expected)),
            ],
        )?;
        Ok(Self { pipeline, counts, read_back, expected, scene, array, device: device.clone() })
    }

    pub fn stamps(&self) -> u64 {
        match self.scene {
            Scene::Field => self.array.stamps(),
            Scene::Texture => self.scene.element_count(self.array.grid()),
        }
    }

    /// Fills buffers with [`frame_stamp::BLANK`], and clears images, so that the check finds what is never
    /// written. Waits for the queue. The slots belong to `owner` before and after.
    pub fn blank(&self, queue: &mut Queue, slots: &[Source], owner: Owner) -> Result<()> {
        let family = queue.family();
        wavefield_gpu::vulkan::one_shot(queue, |commands| {
            for &slot in slots {
                // SAFETY: recording; the slots live until `one_shot` has waited, and are not in use yet.
                unsafe {
                    match slot {
                        Source::Vertices(Vertices { buffer, .. }) => {
                            // No acquire, because the old contents are not needed.
                            let released = [owner.release(buffer, family, FILL)];
                            let vk = self.device.raw();
                            vk.cmd_fill_buffer(commands, buffer, 0, vk::WHOLE_SIZE, frame_stamp::BLANK);
                            pipeline_barrier(&self.device, commands, &released, &[]);
                        }
                        Source::Texture(slot) => self.blank_image(commands, slot, owner, family),
                    }
                }
            }
        })
    }

    /// Clears an image to zero, a value that no stamped texel has.
    ///
    /// # Safety
    /// `commands` is recording, outside a render pass; nothing else uses the slot.
    unsafe fn blank_image(&self, commands: vk::CommandBuffer, slot: ImageSlot, owner: Owner, family: u32) {
        let device = &self.device;
        let barrier = |barrier| {
            // SAFETY: recording, and nothing else uses the slot (the caller's promise).
            unsafe { pipeline_barrier(device, commands, &[], &[barrier]) };
        };
        let transition = |from, to| {
            let scope = (FILL.stage, FILL.access);
            barrier(image_barrier(slot.image, (from, scope), (to, scope)));
        };
        let cleared = vk::ImageLayout::TRANSFER_DST_OPTIMAL;
        match owner {
            // The ownership transfer changes no layout: see `vulkan_cuda::ownership`.
            Owner::External => {
                barrier(owner.acquire_image(slot.image, family, FILL));
                transition(slot.layout, cleared);
            }
            Owner::Queue => transition(vk::ImageLayout::UNDEFINED, cleared),
        }
        let (zeros, whole) = (vk::ClearColorValue { float32: [0.0; 4] }, [whole_image()]);
        // SAFETY: recording, and nothing else uses the slot (the caller's promise).
        unsafe { device.raw().cmd_clear_color_image(commands, slot.image, cleared, &zeros, &whole) };
        transition(cleared, slot.layout);
        if owner == Owner::External {
            barrier(owner.release_image(slot.image, family, FILL));
        }
    }

    /// Sets the frame that the flight's next submission must show. The GPU must be done with the flight.
    pub fn expect(&mut self, flight: usize, frame: u64) -> Result<()> {
        self.expected[flight].bytes_mut()?.copy_from_slice(&frame_stamp::of(frame).to_ne_bytes());
        Ok(())
    }

    /// Records a look at `source`, which is of the scene's kind. The first look resets the counts; the second
    /// copies them to the CPU. The commands may be submitted again after another [`Checker::expect`].
    ///
    /// # Safety
    /// `commands` is recording, outside a render pass (for a slice, nothing is recorded). The flight's
    /// previous frame is done, and its commands are not submitted again. `source` has the size of the
    /// checker's array, and the check may read it ([`wavefield_handoff::producer::reads`]). Both looks are
    /// recorded in order, for the same source.
    pub unsafe fn record(&self, commands: vk::CommandBuffer, flight: usize, source: Source, at: At) {
        let (vk, device) = (self.device.raw(), &self.device);
        let counts = self.counts[flight].raw();
        let read_back = self.read_back[flight].raw();
        let filled = (FILL.stage, FILL.access);
        let copied = (vk::PipelineStageFlags2::ALL_TRANSFER, vk::AccessFlags2::TRANSFER_READ);
        let count = self.stamps();
        let constants = [count as u32, u32::from(at == At::AfterDraw), self.array.stamp_words() as u32];
        let look = || {
            let (chosen, constants) = ([flight, flight, flight], bytemuck::bytes_of(&constants));
            // An array may be too small for a stamp.
            if count == 0 {
                return;
            }
            // SAFETY: recording (the caller's promise), with a place in each list for every flight and 12
            // bytes of constants. The barriers below order the counts, and the caller's the slot.
            unsafe { self.pipeline.dispatch(commands, chosen, constants, groups(count)) };
        };
        // SAFETY: recording (the caller's promise); the buffers are alive, and not in use by the GPU.
        unsafe {
            match at {
                At::BeforeDraw => {
                    let bound = match source {
                        Source::Vertices(vertices) => Bound::Buffer(vertices.whole(&self.array)),
                        Source::Texture(slot) => Bound::Sampled(slot.view, slot.layout),
                    };
                    self.pipeline.bindings.point(0, flight, [bound]);
                    vk.cmd_fill_buffer(commands, counts, 0, vk::WHOLE_SIZE, 0);
                    pipeline_barrier(device, commands, &[buffer_barrier(counts, filled, SHADER_COUNTS)], &[]);
                    look();
                }
                At::Slice(_) => {}
                At::AfterDraw => {
                    // The draw's shaders must finish before this look. No barrier can name CUDA's writes,
                    // but this one makes the look read memory again, rather than its caches.
                    let drawn = (
                        vk::PipelineStageFlags2::ALL_GRAPHICS | vk::PipelineStageFlags2::COMPUTE_SHADER,
                        vk::AccessFlags2::MEMORY_WRITE,
                    );
                    match source {
                        Source::Vertices(vertices) => {
                            let again = buffer_barrier(vertices.buffer, drawn, SHADER_READS);
                            pipeline_barrier(device, commands, &[again], &[]);
                        }
                        Source::Texture(slot) => {
                            let layout = slot.layout;
                            let again = image_barrier(slot.image, (layout, drawn), (layout, SHADER_SAMPLES));
                            pipeline_barrier(device, commands, &[], &[again]);
                        }
                    }
                    look();
                    pipeline_barrier(device, commands, &[buffer_barrier(counts, SHADER_COUNTS, copied)], &[]);
                    let region = [vk::BufferCopy::default().size(COUNTS)];
                    vk.cmd_copy_buffer(commands, counts, read_back, &region);
                    pipeline_barrier(device, commands, &[to_host(read_back)], &[]);
                }
            }
        }
    }

    /// Returns the counts of both looks. The GPU must have finished with the flight.
    pub fn read(&self, flight: usize) -> Result<Looks> {
        let bytes = self.read_back[flight].bytes()?;
        let mut counts = [RawCounts::default(); 2];
        bytemuck::bytes_of_mut(&mut counts).copy_from_slice(&bytes[..COUNTS as usize]);
        Ok(Looks { before: counts[0].look(), after: counts[1].look() })
    }
}
