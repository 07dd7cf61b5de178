//! Finds what lies under a pixel of a picture, by drawing the index picture of a small square around it.

use ash::vk;

use super::{FieldRenderer, FieldView, OffscreenTarget, Output, Picture, PictureKind, Raster};
use wavefield_gpu::Result;
use wavefield_gpu::vulkan::{Device, Queue, copy_of_level};
use wavefield_handoff::producer::Source;

/// The side of the square, in pixels: larger than one, so that small dots are easy to hit. Must match `probe.wgsl`.
pub const PICK_SIDE: u32 = 7;
const SIZE: vk::Extent2D = vk::Extent2D { width: PICK_SIDE, height: PICK_SIDE };

pub struct Pick {
    renderer: FieldRenderer,
    targets: Vec<OffscreenTarget>,
    /// For each flight, where the whole picture lies around the square.
    tiles: Vec<vk::Rect2D>,
    device: Device,
}

impl Pick {
    /// Prepares to pick from what `like` draws. Waits for the queue.
    pub fn new(queue: &mut Queue, like: &FieldRenderer, flights: usize) -> Result<Self> {
        let mut renderer = like.with_output(queue, Output::Facts, (flights, 1), Raster::Graphics)?;
        renderer.resize(queue, SIZE)?;
        let target = |&format| OffscreenTarget::new(queue.device(), SIZE, format);
        let targets = Output::Facts.formats().iter().map(target).collect::<Result<_>>()?;
        Ok(Self { renderer, targets, tiles: vec![SIZE.into(); flights], device: queue.device().clone() })
    }

    /// Puts the middle of a flight's square at pixel `at` of a picture. The flight's previous frame must be
    /// done.
    pub fn set(
        &mut self,
        flight: usize,
        view: &FieldView,
        at: (f32, f32),
        picture: vk::Extent2D,
    ) -> Result<()> {
        let [x, y] = [at.0, at.1].map(|at| (PICK_SIDE / 2) as i32 - at as i32);
        self.tiles[flight] = vk::Rect2D { offset: vk::Offset2D { x, y }, extent: picture };
        self.renderer.set_tile((flight, 0), view, self.tiles[flight])
    }

    /// Records the draw of the square, and the copy of its indices to `into`, from byte `offset` on.
    ///
    /// # Safety
    /// Same as [`FieldRenderer::record`] for `commands`, `flight` and `source`. `into` must outlive the commands,
    /// be unused, have room for the indices, and have the usage `TRANSFER_DST`.
    pub unsafe fn record(
        &self,
        commands: vk::CommandBuffer,
        (flight, source): (usize, Source),
        (into, offset): (vk::Buffer, u64),
    ) -> Result<()> {
        let pictures: Vec<Picture> = self.targets.iter().map(OffscreenTarget::picture).collect();
        let tile = [self.tiles[flight]];
        // SAFETY: the caller's promise; the targets' last use was the copy of another flight's square.
        unsafe {
            self.renderer.point_at(flight, source)?;
            self.renderer.record_tiles(commands, flight, (&pictures, 0, &tile), None)?;
        }
        let Picture { image, final_layout, .. } = pictures[PictureKind::Index.output().1];
        let (vk, copy) = (self.device.raw(), [copy_of_level(0, SIZE, offset)]);
        // SAFETY: the caller's promise; the image is readable in its final layout.
        unsafe { vk.cmd_copy_image_to_buffer(commands, image, final_layout, into, &copy) };
        Ok(())
    }
}
