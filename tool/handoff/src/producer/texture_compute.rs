use std::any::Any;

use ash::vk;
use vulkan_cuda::ownership::whole_image;
use vulkan_cuda::{ExportedImage, image::picture};

use super::texture_host::{LAYOUT, own_images, slot};
use super::{
    Frame, ImageSlot, Producer, ProducerDesc, Profile, Source, TEXTURE_FORMAT, check_texture, each_slot,
};
use crate::contents::frame_stamp::{self, texel};
use crate::contents::scene::Scene;
use crate::contents::texture;
use crate::contents::wave::{self, Grid};
use wavefield_gpu::Result;
use wavefield_gpu::vulkan::{
    Bound, Choices, ComputePipeline, Device, ImageView, image_barrier, pipeline_barrier, view, view_of_shared,
};

/// The width and height of a workgroup in texels, as in `paint.wgsl`.
const WORKGROUP: u32 = 8;

pub struct TextureComputeProducer {
    /// For the first level of each slot.
    paint: ComputePipeline,
    /// For the levels below.
    reduce: ComputePipeline,
    // Views are dropped before their images.
    _levels: Vec<Vec<ImageView>>,
    /// The images of the slots, after their views.
    _memory: Box<dyn Any>,
    profile: Profile,
    desc: ProducerDesc,
    device: Device,
}

/// The phase's bits and the stamp, as in `paint.wgsl`.
type ShaderConstants = [u32; 2];

impl TextureComputeProducer {
    /// Makes the slots, in exported memory if `exported`. Nothing imports that memory: the option shows how
    /// much slower a draw from exported memory is.
    pub fn new(device: &Device, desc: &ProducerDesc, exported: bool) -> Result<Self> {
        let (size, depth) = (desc.grid, desc.ring.depth());
        check_texture(device, size)?;
        let (slots, memory): (Vec<_>, Box<dyn Any>) = if exported {
            let request = picture(TEXTURE_FORMAT, size.cols, size.rows, texture::levels(size))?;
            let sharing = device.sharing()?;
            let image = || Ok(ExportedImage::new(sharing, &request)?);
            let images = each_slot(device, None, (Scene::Texture, size), depth, image)?;
            let views = images.iter().map(|image| view_of_shared(device, image));
            let views = views.collect::<Result<Vec<_>>>()?;
            let slots = images.iter().zip(&views).map(|(image, view)| slot(image.raw(), view.raw()));
            (slots.collect(), Box::new((views, images)))
        } else {
            let images = own_images(device, size, depth, vk::ImageUsageFlags::STORAGE)?;
            let slots = images.iter().map(|image| slot(image.raw(), image.view()));
            (slots.collect(), Box::new(images))
        };
        // Shaders write each level through a view of that level only.
        let level_view = |image, level| {
            let range = whole_image().base_mip_level(level).level_count(1);
            view(device, image, TEXTURE_FORMAT, vk::ImageViewType::TYPE_2D, range)
        };
        let level_views = |slot: &ImageSlot| -> Result<Vec<ImageView>> {
            (0..texture::levels(size)).map(|level| level_view(slot.image, level)).collect()
        };
        let levels = slots.iter().map(level_views).collect::<Result<Vec<_>>>()?;
        let written = |view: &ImageView| Bound::Storage(view.raw());
        let read = |view: &ImageView| Bound::Sampled(view.raw(), LAYOUT);
        // Lists of the first level of each slot, of all other levels, and of the level above each of those.
        let first: Vec<_> = levels.iter().flat_map(|slot| slot.first()).map(written).collect();
        let below: Vec<_> = levels.iter().flat_map(|slot| slot.iter().skip(1)).map(written).collect();
        let above: Vec<_> =
            levels.iter().flat_map(|slot| &slot[..slot.len().saturating_sub(1)]).map(read).collect();
        let pipeline = |shader, sets: &[Choices<'_>]| {
            ComputePipeline::new(device, shader, size_of::<ShaderConstants>() as u32, sets)
        };
        let paint = const { wavefield_gpu::shaders::spirv("paint.paint") };
        let reduce = const { wavefield_gpu::shaders::spirv("paint.reduce") };
        let paint = pipeline((paint, c"paint"), &[Choices::These(&first)])?;
        let reduce = pipeline((reduce, c"reduce"), &[Choices::These(&below), Choices::These(&above)])?;
        let slots = slots.into_iter().map(Source::Texture).collect();
        let profile = Profile { in_queue: true, ..Profile::of_queue("compute", slots) };
        let (desc, device) = (*desc, device.clone());
        Ok(Self { paint, reduce, _levels: levels, _memory: memory, profile, desc, device })
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
        // The old texels may be lost, as all are overwritten. The draw that read them K frames ago must be
        // done.
        let old = (vk::ImageLayout::UNDEFINED, (frame.reads.stage, vk::AccessFlags2::NONE));
        let reuse = image_barrier(image, old, written);
        let stamp = if self.desc.stamped { frame_stamp::of(frame.index) } else { texel::NONE };
        let constants: ShaderConstants = [(wave::phase(frame.time) as f32).to_bits(), stamp];
        let constants = bytemuck::bytes_of(&constants);
        // SAFETY: recording, outside a render pass; the image is alive.
        unsafe { pipeline_barrier(&self.device, commands, &[], &[reuse]) };
        let levels = texture::levels(self.desc.grid);
        for level in 0..levels {
            let Grid { cols, rows } = texture::level(self.desc.grid, level);
            let groups = [cols.div_ceil(WORKGROUP), rows.div_ceil(WORKGROUP)];
            // The dispatch for the next level and the draw read this level.
            let range = whole_image().base_mip_level(level).level_count(1);
            let ready = image_barrier(image, written, read).subresource_range(range);
            // SAFETY: as above. The indices follow the order of the lists, and the constants have their
            // type's size. The barriers order this level's writes with the reads before and after.
            unsafe {
                match level.checked_sub(1) {
                    None => self.paint.dispatch(commands, [slot], constants, groups),
                    Some(below) => {
                        let chosen = slot * (levels - 1) as usize + below as usize;
                        self.reduce.dispatch(commands, [chosen, chosen], constants, groups);
                    }
                }
                pipeline_barrier(&self.device, commands, &[], &[ready]);
            }
        }
    }
}
