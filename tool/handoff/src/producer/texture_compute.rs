use std::sync::Arc;

use ash::vk;
use bytemuck::{Pod, Zeroable};
use vulkan_cuda::ownership::whole_image;
use vulkan_cuda::{ExportedImage, image::picture};

use super::texture_host::{LAYOUT, own_images, slot};
use super::{
    Frame, ImageSlot, Producer, ProducerDesc, Profile, Source, TEXTURE_FORMAT, check_texture, each_slot,
};
use crate::contents::frame_stamp::{self, texel};
use crate::contents::texture;
use crate::contents::wave::{self, Grid};
use wavefield_gpu::Result;
use wavefield_gpu::vulkan::{
    Bound, Choices, ComputePipeline, Device, Image, ImageView, color_barrier, levels_of, pipeline_barrier,
    view, view_of_shared,
};

/// In texels, as in `paint.wgsl`.
const WORKGROUP: u32 = 8;

pub struct TextureComputeProducer {
    pipelines: Pipelines,
    // The views of a level go before its image.
    levels: Vec<Vec<ImageView>>,
    profile: Profile,
    _views: Vec<ImageView>,
    _memory: TextureMemory,
    size: Grid,
    stamped: bool,
    device: Device,
}

enum TextureMemory {
    Own { _images: Vec<Image> },
    Exported { _images: Vec<Arc<ExportedImage>> },
}

impl TextureComputeProducer {
    /// Makes slots in exported memory, if `exported`. Nobody imports it: this shows what exporting costs a
    /// draw.
    pub fn new(device: &Device, desc: &ProducerDesc, exported: bool) -> Result<Self> {
        let (size, stamped, depth) = (desc.grid, desc.stamped, desc.ring.depth());
        check_texture(device, size)?;
        let (slots, views, memory): (Vec<_>, _, _) = if exported {
            let request = picture(TEXTURE_FORMAT, size.cols, size.rows, texture::levels(size))?;
            let sharing = device.sharing()?;
            let image = || Ok(Arc::new(ExportedImage::new(sharing, &request)?));
            let images = each_slot(device, None, size, depth, image)?;
            let views = images.iter().map(|image| view_of_shared(device, image));
            let views = views.collect::<Result<Vec<_>>>()?;
            let slots = images.iter().zip(&views).map(|(image, view)| slot(image.raw(), view.raw()));
            (slots.collect(), views, TextureMemory::Exported { _images: images })
        } else {
            let images = own_images(device, size, depth, vk::ImageUsageFlags::STORAGE)?;
            let slots = images.iter().map(|image| slot(image.raw(), image.view()));
            (slots.collect(), Vec::new(), TextureMemory::Own { _images: images })
        };
        let levels =
            slots.iter().map(|slot| level_views(device, slot.image, size)).collect::<Result<Vec<_>>>()?;
        let pipelines = Pipelines::new(device, &levels)?;
        let slots = slots.into_iter().map(Source::Texture).collect();
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
        let compute = vk::PipelineStageFlags2::COMPUTE_SHADER;
        let written = (vk::ImageLayout::GENERAL, (compute, vk::AccessFlags2::SHADER_STORAGE_WRITE));
        let read = (LAYOUT, (compute | frame.reads.stage, frame.reads.access));
        // The content is overwritten, so it may be lost. The draw that read it K frames ago must be done.
        let old = (vk::ImageLayout::UNDEFINED, (frame.reads.stage, vk::AccessFlags2::NONE));
        let reuse = color_barrier(image, old, written);
        let parameters = ShaderParameters {
            phase: wave::phase(frame.time) as f32,
            stamp: if self.stamped { frame_stamp::of(frame.index) } else { texel::NONE },
        };
        // SAFETY: recording, outside a render pass; the image is alive.
        unsafe { pipeline_barrier(&self.device, commands, &[], &[reuse]) };
        for level in 0..self.levels[slot].len() {
            let size = texture::level(self.size, level as u32);
            // Read by the level below, and by the draw.
            let range = whole_image().base_mip_level(level as u32).level_count(1);
            let ready = color_barrier(image, written, read).subresource_range(range);
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

/// As in `paint.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct ShaderParameters {
    phase: f32,
    stamp: u32,
}

impl Pipelines {
    fn new(device: &Device, levels: &[Vec<ImageView>]) -> Result<Self> {
        let written = |view: &ImageView| Bound::Storage(view.raw());
        let read = |view: &ImageView| Bound::Sampled(view.raw(), LAYOUT);
        // Each slot's first level; all other levels; for each of those, the level above it.
        let first: Vec<_> = levels.iter().flat_map(|slot| slot.first()).map(written).collect();
        let below: Vec<_> = levels.iter().flat_map(|slot| slot.iter().skip(1)).map(written).collect();
        let above: Vec<_> =
            levels.iter().flat_map(|slot| &slot[..slot.len().saturating_sub(1)]).map(read).collect();
        let pipeline = |shader, sets: &[Choices<'_>]| {
            ComputePipeline::new(device, shader, size_of::<ShaderParameters>() as u32, sets)
        };
        let paint = const { wavefield_gpu::shaders::spirv("paint.paint") };
        let reduce = const { wavefield_gpu::shaders::spirv("paint.reduce") };
        Ok(Self {
            paint: pipeline((paint, c"paint"), &[Choices::These(&first)])?,
            reduce: pipeline((reduce, c"reduce"), &[Choices::These(&below), Choices::These(&above)])?,
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
        parameters: ShaderParameters,
    ) {
        let groups = [size.cols.div_ceil(WORKGROUP), size.rows.div_ceil(WORKGROUP)];
        let constants = bytemuck::bytes_of(&parameters);
        // SAFETY: the caller's promise; the lists were made in this order; the constants have their size.
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

/// Shaders write each level through its own view.
fn level_views(device: &Device, image: vk::Image, size: Grid) -> Result<Vec<ImageView>> {
    let of_level = |level| {
        let range = levels_of(vk::ImageAspectFlags::COLOR, level..level + 1);
        view(device, image, TEXTURE_FORMAT, vk::ImageViewType::TYPE_2D, range)
    };
    (0..texture::levels(size)).map(of_level).collect()
}
