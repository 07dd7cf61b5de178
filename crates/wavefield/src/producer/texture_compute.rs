//! A Vulkan compute shader paints the texture and its mip chain, in the same queue as the draw.

use std::sync::Arc;

use ash::vk;
use bytemuck::{Pod, Zeroable};
use vulkan_cuda::ownership::whole_image;
use vulkan_cuda::{ExportedImage, image::picture};

use super::texture_host::{LAYOUT, level_views, own_images, own_slot};
use super::{
    Frame, ImageSlot, Producer, ProducerDesc, Profile, Source, TEXTURE_FORMAT, check_texture, each_slot,
};
use crate::Result;
use crate::stamp::{self, texel};
use crate::texture;
use crate::vulkan::{
    Bound, Choices, ComputePipeline, ComputePipelineDesc, Device, Image, View, image_barrier,
    pipeline_barrier, view_of_shared,
};
use crate::wave::{self, Grid};

/// The side of a workgroup in texels, as in `shaders/paint.wgsl`.
const WORKGROUP: u32 = 8;

/// Paints slots with `shaders/paint.wgsl`.
pub struct TextureComputeProducer {
    pipelines: Pipelines,
    // The views of a level go before its image.
    levels: Vec<Vec<View>>,
    profile: Profile,
    _views: Vec<View>,
    _memory: Memory,
    size: Grid,
    stamped: bool,
    device: Device,
}

enum Memory {
    Own { _images: Vec<Image> },
    Exported { _images: Vec<Arc<ExportedImage>> },
}

impl TextureComputeProducer {
    pub fn new(device: &Device, desc: &ProducerDesc) -> Result<Self> {
        check_texture(device, desc.grid)?;
        let images = own_images(device, desc.grid, desc.ring.depth(), vk::ImageUsageFlags::STORAGE)?;
        let slots: Vec<_> = images.iter().map(own_slot).collect();
        Self::with(device, desc, &slots, Vec::new(), Memory::Own { _images: images })
    }

    /// Makes a producer with slots in exported memory that nobody imports, to measure what exporting costs a draw.
    pub fn exported(device: &Device, desc: &ProducerDesc) -> Result<Self> {
        let size = desc.grid;
        check_texture(device, size)?;
        let request = picture(TEXTURE_FORMAT, size.cols, size.rows, texture::levels(size))?;
        let sharing = device.sharing()?;
        let image = || Ok(Arc::new(ExportedImage::new(sharing, &request)?));
        let images = each_slot(device, None, size, desc.ring.depth(), image)?;
        let views = images.iter().map(|image| view_of_shared(device, image)).collect::<Result<Vec<_>>>()?;
        let slot = |(image, view): (&Arc<ExportedImage>, &View)| ImageSlot {
            image: image.raw(),
            view: view.raw(),
            layout: LAYOUT,
        };
        let slots: Vec<_> = images.iter().zip(&views).map(slot).collect();
        Self::with(device, desc, &slots, views, Memory::Exported { _images: images })
    }

    fn with(
        device: &Device,
        desc: &ProducerDesc,
        slots: &[ImageSlot],
        views: Vec<View>,
        memory: Memory,
    ) -> Result<Self> {
        let (size, stamped) = (desc.grid, desc.stamped);
        let levels =
            slots.iter().map(|slot| level_views(device, slot.image, size)).collect::<Result<Vec<_>>>()?;
        let pipelines = Pipelines::new(device, &levels)?;
        let slots = slots.iter().copied().map(Source::Texture).collect();
        let profile = Profile { in_queue: true, ..Profile::of_queue("compute", slots) };
        let device = device.clone();
        Ok(Self { pipelines, levels, profile, _views: views, _memory: memory, size, stamped, device })
    }
}

impl Producer for TextureComputeProducer {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn record_before_draw(&self, commands: vk::CommandBuffer, frame: &Frame, source: Source) {
        let Source::Texture(ImageSlot { image, .. }) = source else { return };
        let slot = self.profile.slot_of(frame.index);
        let color = vk::ImageAspectFlags::COLOR;
        let compute = vk::PipelineStageFlags2::COMPUTE_SHADER;
        let written = (vk::ImageLayout::GENERAL, (compute, vk::AccessFlags2::SHADER_STORAGE_WRITE));
        let read = (LAYOUT, (compute | frame.reads.stage, frame.reads.access));
        // The image is overwritten, so its content may be lost. The draw that read it K frames ago must be done.
        let old = (vk::ImageLayout::UNDEFINED, (frame.reads.stage, vk::AccessFlags2::NONE));
        let reuse = image_barrier(image, color, old, written).subresource_range(whole_image());
        let parameters = Parameters {
            phase: wave::phase(frame.time) as f32,
            stamp: if self.stamped { stamp::of(frame.index) } else { texel::NONE },
        };
        // SAFETY: recording, outside a render pass; the image is alive.
        unsafe { pipeline_barrier(&self.device, commands, &[], &[reuse]) };
        for level in 0..self.levels[slot].len() {
            let size = texture::level(self.size, level as u32);
            // Read by the level below, and by the draw.
            let range = whole_image().base_mip_level(level as u32).level_count(1);
            let ready = image_barrier(image, color, written, read).subresource_range(range);
            // SAFETY: as above; the barriers order this level's writes with the reads before and after.
            unsafe {
                self.pipelines.dispatch(commands, (slot, level), size, parameters);
                pipeline_barrier(&self.device, commands, &[], &[ready]);
            }
        }
    }
}

/// `paint` for the first level of each slot, `reduce` for those below.
struct Pipelines {
    paint: ComputePipeline,
    reduce: ComputePipeline,
    below: usize,
}

/// The constants, laid out as in `shaders/paint.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Parameters {
    phase: f32,
    stamp: u32,
}

impl Pipelines {
    fn new(device: &Device, levels: &[Vec<View>]) -> Result<Self> {
        let written = |view: &View| Bound::Storage(view.raw());
        let read = |view: &View| Bound::Sampled(view.raw(), LAYOUT);
        // Each slot's first level; all levels but the first; for each of those, the level above it.
        let first: Vec<_> = levels.iter().flat_map(|slot| slot.first()).map(written).collect();
        let below: Vec<_> = levels.iter().flat_map(|slot| slot.iter().skip(1)).map(written).collect();
        let above: Vec<_> =
            levels.iter().flat_map(|slot| &slot[..slot.len().saturating_sub(1)]).map(read).collect();
        let pipeline = |spirv, entry, sets: &[Choices<'_>]| {
            ComputePipeline::new(
                device,
                &ComputePipelineDesc { spirv, entry, constants: size_of::<Parameters>() as u32, sets },
            )
        };
        let paint = include_bytes!(concat!(env!("OUT_DIR"), "/paint.paint.spv"));
        let reduce = include_bytes!(concat!(env!("OUT_DIR"), "/paint.reduce.spv"));
        Ok(Self {
            paint: pipeline(&paint[..], c"paint", &[Choices::These(&first)])?,
            reduce: pipeline(&reduce[..], c"reduce", &[Choices::These(&below), Choices::These(&above)])?,
            below: below.len() / levels.len().max(1),
        })
    }

    /// # Safety
    /// As for [`ComputePipeline::dispatch`].
    unsafe fn dispatch(
        &self,
        commands: vk::CommandBuffer,
        (slot, level): (usize, usize),
        size: Grid,
        parameters: Parameters,
    ) {
        let groups = [size.cols.div_ceil(WORKGROUP), size.rows.div_ceil(WORKGROUP)];
        let constants = bytemuck::bytes_of(&parameters);
        // SAFETY: recording, and barriers order the images (the caller's promise); the lists were made in this order, and the constants have their type's size.
        unsafe {
            match level.checked_sub(1) {
                None => self.paint.dispatch(commands, [slot], constants, groups),
                Some(level) => {
                    let chosen = slot * self.below + level;
                    self.reduce.dispatch(commands, [chosen, chosen], constants, groups);
                }
            }
        }
    }
}
