//! CPU threads paint the texture and its mip chain into memory that both can address; Vulkan copies it into the image,
//! because only the driver knows how an image's texels lie.

use ash::vk;
use gpu_allocator::MemoryLocation;
use rayon::prelude::*;

use super::{DRAW_SAMPLES, Frame, FrameSync, ImageSlot, Producer, TEXTURE_FORMAT, check_texture, no_stamps};
use crate::interop::Ring;
use crate::interop::ownership::{Owner, whole_image};
use crate::texture::{self, Texel};
use crate::vulkan::{Buffer, BufferDesc, Device, Image, ImageDesc, image_barrier, pipeline_barrier};
use crate::wave::{Grid, turn};
use crate::{Error, Result};

/// Paints slots on the CPU, one row a task.
pub struct TextureHostProducer {
    staging: Vec<Buffer>,
    images: Vec<Image>,
    slots: Vec<ImageSlot>,
    size: Grid,
    device: Device,
}

/// Where the draw finds it.
const LAYOUT: vk::ImageLayout = vk::ImageLayout::SHADER_READ_ONLY_OPTIMAL;

impl TextureHostProducer {
    /// Works on every Vulkan device.
    pub fn new(device: &Device, size: Grid, ring: Ring) -> Result<Self> {
        check_texture(device, size)?;
        let desc = BufferDesc {
            label: "a texture on the host",
            size: texture::chain_bytes(size),
            usage: vk::BufferUsageFlags::TRANSFER_SRC,
            location: MemoryLocation::CpuToGpu,
        };
        let staging = (0..ring.depth()).map(|_| Buffer::new(device, &desc)).collect::<Result<Vec<_>>>()?;
        let images = own_images(device, size, ring.depth(), vk::ImageUsageFlags::TRANSFER_DST)?;
        let slot = |image: &Image| ImageSlot { image: image.raw(), view: image.view(), layout: LAYOUT };
        let slots = images.iter().map(slot).collect();
        Ok(Self { staging, images, slots, size, device: device.clone() })
    }
}

/// Images of Vulkan's own with mip chains, for sampling and read-back and `more`.
pub(super) fn own_images(
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
        usage: vk::ImageUsageFlags::SAMPLED | vk::ImageUsageFlags::TRANSFER_SRC | more,
        aspect: vk::ImageAspectFlags::COLOR,
    };
    (0..count).map(|_| Image::new(device, &desc)).collect()
}

impl Producer for TextureHostProducer {
    fn name(&self) -> &'static str {
        "host"
    }

    fn slots(&self) -> &[vk::Buffer] {
        &[]
    }

    fn images(&self) -> &[ImageSlot] {
        &self.slots
    }

    /// No more than the ring has slots: then the frame that last used this staging buffer is done before `produce` begins.
    fn max_in_flight(&self) -> usize {
        self.slots.len()
    }

    fn produce(&mut self, frame: &Frame) -> Result<()> {
        let (size, turn) = (self.size, turn(frame.time) as f32);
        let slot = self.slot_of(frame.index);
        let bytes = self.staging[slot].bytes_mut().ok_or_else(|| {
            Error::Unsupported(format!("{} has no memory that the CPU can write", self.device.info().name))
        })?;
        // Mapped memory starts at a multiple of 64 bytes at least, so the cast holds.
        let mut rest: &mut [Texel] = bytemuck::cast_slice_mut(bytes);
        let (level, next) = rest.split_at_mut(size.vertices() as usize);
        level.par_chunks_mut(size.cols as usize).enumerate().for_each(|(row, texels)| {
            for (col, texel) in texels.iter_mut().enumerate() {
                *texel = texture::paint(size, col as u32, row as u32, turn).into();
            }
        });
        let mut above: &[Texel] = level;
        rest = next;
        for index in 1..texture::levels(size) {
            let (from, to) = (texture::level(size, index - 1), texture::level(size, index));
            let (level, next) = rest.split_at_mut(to.vertices() as usize);
            level.par_chunks_mut(to.cols as usize).enumerate().for_each(|(row, texels)| {
                for (col, texel) in texels.iter_mut().enumerate() {
                    *texel = texture::reduce(above, from, col as u32, row as u32);
                }
            });
            (above, rest) = (level, next);
        }
        Ok(())
    }

    fn record_before_draw(&self, commands: vk::CommandBuffer, frame: &Frame) {
        let slot = self.slot_of(frame.index);
        let image = self.images[slot].raw();
        let color = vk::ImageAspectFlags::COLOR;
        let written = (vk::PipelineStageFlags2::ALL_TRANSFER, vk::AccessFlags2::TRANSFER_WRITE);
        let target = (vk::ImageLayout::TRANSFER_DST_OPTIMAL, written);
        // All of it is written anew, so what was there may go; the draw that read it K frames ago must be done.
        let old = (vk::ImageLayout::UNDEFINED, (DRAW_SAMPLES.stage, vk::AccessFlags2::NONE));
        let reuse = image_barrier(image, color, old, target).subresource_range(whole_image());
        let sampled = (LAYOUT, (DRAW_SAMPLES.stage, DRAW_SAMPLES.access));
        let ready = image_barrier(image, color, target, sampled).subresource_range(whole_image());
        let regions = level_regions(self.size);
        // SAFETY: recording, outside a render pass; buffer and image are alive and of the same size.
        unsafe {
            pipeline_barrier(&self.device, commands, &[], &[reuse]);
            self.device.raw().cmd_copy_buffer_to_image(
                commands,
                self.staging[slot].raw(),
                image,
                target.0,
                &regions,
            );
            pipeline_barrier(&self.device, commands, &[], &[ready]);
        }
    }

    fn record_after_draw(&self, _commands: vk::CommandBuffer, _frame: &Frame) {}

    fn commands_repeat(&self) -> bool {
        true
    }

    fn sync(&mut self, _frame: &Frame) -> Result<FrameSync> {
        Ok(FrameSync::default())
    }

    fn stamp_frames(&mut self) -> Result<()> {
        Err(no_stamps())
    }

    fn owner(&self) -> Owner {
        Owner::Queue
    }
}

/// One copy a level, level after level in the buffer.
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
            offset += Grid { cols, rows }.vertices() * size_of::<Texel>() as u64;
            region
        })
        .collect()
}
