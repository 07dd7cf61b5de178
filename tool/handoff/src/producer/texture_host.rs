//! CPU threads that paint a buffer. Vulkan copies the buffer to an image, because only the driver knows an
//! image's memory layout.

use ash::vk;
use gpu_allocator::MemoryLocation;
use rayon::prelude::*;

use super::{
    Frame, ImageSlot, Produced, Producer, ProducerDesc, Profile, Source, TEXTURE_FORMAT, check_texture,
};
use crate::contents::frame_stamp::texel;
use crate::contents::texture::{self, Texel};
use crate::contents::wave::{Grid, phase};
use wavefield_gpu::Result;
use wavefield_gpu::vulkan::{Buffer, BufferDesc, Device, Image, ImageDesc, copy_of_level, record_upload};

pub struct TextureHostProducer {
    staging: Vec<Buffer>,
    _images: Vec<Image>,
    profile: Profile,
    regions: Vec<vk::BufferImageCopy>,
    desc: ProducerDesc,
    device: Device,
}

/// The layout of images that only Vulkan writes.
pub(super) const LAYOUT: vk::ImageLayout = vk::ImageLayout::SHADER_READ_ONLY_OPTIMAL;

impl TextureHostProducer {
    pub fn new(device: &Device, request: &ProducerDesc) -> Result<Self> {
        let (size, depth) = (request.grid, request.ring.depth());
        check_texture(device, size)?;
        wavefield_gpu::threads::start()?;
        let desc = BufferDesc {
            label: "a texture on the host",
            size: texture::chain_bytes(size),
            usage: vk::BufferUsageFlags::TRANSFER_SRC,
            location: MemoryLocation::CpuToGpu,
        };
        let staging = (0..depth).map(|_| Buffer::new(device, &desc)).collect::<Result<Vec<_>>>()?;
        let images = own_images(device, size, depth, vk::ImageUsageFlags::empty())?;
        let slots = images.iter().map(own_slot).collect();
        // With one frame in flight per buffer, its previous frame is done before `produce` writes it again.
        let profile = Profile { max_in_flight: depth, ..Profile::of_queue("host", slots) };
        let (regions, device) = (level_regions(size), device.clone());
        Ok(Self { staging, _images: images, profile, regions, desc: *request, device })
    }
}

/// Describes an image that only Vulkan writes.
pub(super) fn slot(image: vk::Image, view: vk::ImageView) -> ImageSlot {
    ImageSlot { image, view, layout: LAYOUT }
}

pub(crate) fn own_slot(image: &Image) -> Source {
    Source::Texture(slot(image.raw(), image.view()))
}

/// Makes images for sampling, read-back and clearing before a checked run. `more` adds usage flags.
pub(crate) fn own_images(
    device: &Device,
    size: Grid,
    count: usize,
    more: vk::ImageUsageFlags,
) -> Result<Vec<Image>> {
    let extent = vk::Extent2D { width: size.cols, height: size.rows };
    let usage = vk::ImageUsageFlags::SAMPLED
        | vk::ImageUsageFlags::TRANSFER_SRC
        | vk::ImageUsageFlags::TRANSFER_DST
        | more;
    let color = ImageDesc::color("a slot of the ring", extent, TEXTURE_FORMAT, usage);
    let desc = ImageDesc { levels: texture::levels(size), ..color };
    (0..count).map(|_| Image::new(device, &desc)).collect()
}

impl Producer for TextureHostProducer {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn produce(&mut self, frame: &Frame) -> Result<Produced> {
        let (size, phase) = (self.desc.grid, phase(frame.time) as f32);
        let slot = self.profile.slot_of(frame.index);
        let bytes = self.staging[slot].bytes_mut()?;
        // Devices align such buffers to at least 16 bytes, which the cast checks.
        let bytes = &mut bytes[..texture::chain_bytes(size) as usize];
        let chain: &mut [Texel] = bytemuck::cast_slice_mut(bytes);
        texture::paint_chain(size, phase, chain);
        if self.desc.stamped {
            chain.par_iter_mut().for_each(|texel| *texel = texel::apply(*texel, frame.index));
        }
        Ok(self.profile.produced(frame))
    }

    fn record_before_draw(&self, commands: vk::CommandBuffer, frame: &Frame, source: Source) {
        let Source::Texture(ImageSlot { image, .. }) = source else { return };
        let staging = self.staging[self.profile.slot_of(frame.index)].raw();
        let reads = (frame.reads.stage, frame.reads.access);
        let next = (vk::ImageLayout::SHADER_READ_ONLY_OPTIMAL, reads);
        // SAFETY: recording, outside a render pass; buffer and image are alive and of the same size.
        unsafe { record_upload(&self.device, commands, staging, image, &self.regions, next) };
    }
}

/// Returns a copy region for each level. The levels follow one another in the buffer.
pub(crate) fn level_regions(size: Grid) -> Vec<vk::BufferImageCopy> {
    let mut offset = 0;
    let region = |index| {
        let level = texture::level(size, index);
        let extent = vk::Extent2D { width: level.cols, height: level.rows };
        let region = copy_of_level(index, extent, offset);
        offset += level.count() * size_of::<Texel>() as u64;
        region
    };
    (0..texture::levels(size)).map(region).collect()
}
