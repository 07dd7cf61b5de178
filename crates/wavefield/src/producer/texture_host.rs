//! CPU threads paint the texture and its mip chain into memory that the CPU and the GPU can address. Vulkan copies it into
//! the image, because only the driver knows an image's memory layout.

use ash::vk;
use gpu_allocator::MemoryLocation;
use rayon::prelude::*;
use vulkan_cuda::ownership::{Access, whole_image};

use super::{
    Frame, ImageSlot, Produced, Producer, ProducerDesc, Profile, Source, TEXTURE_FORMAT, check_texture,
};
use crate::Result;
use crate::stamp::texel;
use crate::texture::{self, Texel};
use crate::vulkan::{
    Buffer, BufferDesc, Device, Image, ImageDesc, View, image_barrier, levels_of, pipeline_barrier, view,
};
use crate::wave::{Grid, phase};

/// Paints slots on the CPU; each row is a task.
pub struct TextureHostProducer {
    staging: Vec<Buffer>,
    _images: Vec<Image>,
    profile: Profile,
    size: Grid,
    stamped: bool,
    device: Device,
}

/// The layout in which the draw reads an image that only Vulkan writes.
pub(super) const LAYOUT: vk::ImageLayout = vk::ImageLayout::SHADER_READ_ONLY_OPTIMAL;

impl TextureHostProducer {
    pub fn new(device: &Device, request: &ProducerDesc) -> Result<Self> {
        let (size, depth) = (request.grid, request.ring.depth());
        check_texture(device, size)?;
        crate::threads::start()?;
        let desc = BufferDesc {
            label: "a texture on the host",
            size: texture::chain_bytes(size),
            usage: vk::BufferUsageFlags::TRANSFER_SRC,
            location: MemoryLocation::CpuToGpu,
        };
        let staging = (0..depth).map(|_| Buffer::new(device, &desc)).collect::<Result<Vec<_>>>()?;
        let images = own_images(device, size, depth, vk::ImageUsageFlags::empty())?;
        let slots = images.iter().map(own_slot).map(Source::Texture).collect();
        // No more frames in flight than slots, so that a buffer's last frame is done before `produce` writes the
        // buffer again.
        let profile = Profile { max_in_flight: depth, ..Profile::of_queue("host", slots) };
        Ok(Self { staging, _images: images, profile, size, stamped: request.stamped, device: device.clone() })
    }
}

pub(crate) fn own_slot(image: &Image) -> ImageSlot {
    ImageSlot { image: image.raw(), view: image.view(), layout: LAYOUT }
}

/// Vulkan's own images with mip chains. They can be sampled, read back, and cleared before a checked run; `more` adds
/// uses.
pub(crate) fn own_images(
    device: &Device,
    size: Grid,
    count: usize,
    more: vk::ImageUsageFlags,
) -> Result<Vec<Image>> {
    let desc = ImageDesc {
        label: "a slot of the ring",
        extent: vk::Extent2D { width: size.cols, height: size.rows },
        format: TEXTURE_FORMAT,
        levels: texture::levels(size),
        samples: vk::SampleCountFlags::TYPE_1,
        usage: vk::ImageUsageFlags::SAMPLED
            | vk::ImageUsageFlags::TRANSFER_SRC
            | vk::ImageUsageFlags::TRANSFER_DST
            | more,
        aspect: vk::ImageAspectFlags::COLOR,
    };
    (0..count).map(|_| Image::new(device, &desc)).collect()
}

/// A view for each single level, through which shaders write that level.
pub(crate) fn level_views(device: &Device, image: vk::Image, size: Grid) -> Result<Vec<View>> {
    let of_level = |level| {
        let range = levels_of(vk::ImageAspectFlags::COLOR, level..level + 1);
        view(device, image, TEXTURE_FORMAT, vk::ImageViewType::TYPE_2D, range)
    };
    (0..texture::levels(size)).map(of_level).collect()
}

impl Producer for TextureHostProducer {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn produce(&mut self, frame: &Frame) -> Result<Produced> {
        let (size, phase) = (self.size, phase(frame.time) as f32);
        let slot = self.profile.slot_of(frame.index);
        let bytes = self.staging[slot].bytes_mut()?;
        // Devices align such buffers to at least 16 bytes; the cast checks it.
        let bytes = &mut bytes[..texture::chain_bytes(size) as usize];
        let chain: &mut [Texel] = bytemuck::cast_slice_mut(bytes);
        texture::paint_chain(size, phase, chain);
        if self.stamped {
            chain.par_iter_mut().for_each(|texel| *texel = texel::apply(*texel, frame.index));
        }
        Ok(self.profile.produced(frame))
    }

    fn record_before_draw(&self, commands: vk::CommandBuffer, frame: &Frame, source: Source) {
        let Source::Texture(ImageSlot { image, .. }) = source else { return };
        let staging = self.staging[self.profile.slot_of(frame.index)].raw();
        // SAFETY: recording, outside a render pass; buffer and image are alive and of the same size.
        unsafe { record_upload(&self.device, commands, staging, image, self.size, frame.reads) };
    }
}

/// Records the copy of a whole chain from a buffer into Vulkan's own image. After the copy, `reads` may read the
/// image in [`LAYOUT`].
///
/// # Safety
/// `commands` is recording, outside a render pass; the buffer has [`texture::chain_bytes`] of `size`, and the image has the
/// levels of `size`.
pub(crate) unsafe fn record_upload(
    device: &Device,
    commands: vk::CommandBuffer,
    staging: vk::Buffer,
    image: vk::Image,
    size: Grid,
    reads: Access,
) {
    let color = vk::ImageAspectFlags::COLOR;
    let written = (vk::PipelineStageFlags2::ALL_TRANSFER, vk::AccessFlags2::TRANSFER_WRITE);
    let target = (vk::ImageLayout::TRANSFER_DST_OPTIMAL, written);
    // The image is overwritten, so its content may be lost. Reads by earlier frames must be done.
    let old = (vk::ImageLayout::UNDEFINED, (reads.stage, vk::AccessFlags2::NONE));
    let reuse = image_barrier(image, color, old, target).subresource_range(whole_image());
    let sampled = (LAYOUT, (reads.stage, reads.access));
    let ready = image_barrier(image, color, target, sampled).subresource_range(whole_image());
    let regions = level_regions(size);
    // SAFETY: recording, and buffer and image are alive and of this size (the caller's promise).
    unsafe {
        pipeline_barrier(device, commands, &[], &[reuse]);
        device.raw().cmd_copy_buffer_to_image(commands, staging, image, target.0, &regions);
        pipeline_barrier(device, commands, &[], &[ready]);
    }
}

/// One copy for each level. The levels follow one another in the buffer.
pub(crate) fn level_regions(size: Grid) -> Vec<vk::BufferImageCopy> {
    let mut offset = 0;
    (0..texture::levels(size))
        .map(|index| {
            let Grid { cols, rows } = texture::level(size, index);
            let region = vk::BufferImageCopy::default()
                .buffer_offset(offset)
                .image_subresource(
                    vk::ImageSubresourceLayers::default()
                        .aspect_mask(vk::ImageAspectFlags::COLOR)
                        .mip_level(index)
                        .layer_count(1),
                )
                .image_extent(vk::Extent3D { width: cols, height: rows, depth: 1 });
            offset += Grid { cols, rows }.count() * size_of::<Texel>() as u64;
            region
        })
        .collect()
}
