//! Draws many views of a slot in one submission, for other programs: see [`PictureKind`].

use ash::vk;

use super::{FieldRenderer, FieldView, OffscreenTarget, Output, Picture, Raster};
use wavefield_gpu::Result;
use wavefield_gpu::vulkan::{Device, Queue, copy_of_level};
use wavefield_handoff::producer::Source;

/// The maximum number of views in one submission.
pub const MAX_VIEWS: usize = 1024;
/// A sheet is an image that holds several views side by side. It has about this many pixels, so that the
/// multisampled attachments stay small.
const SHEET_PIXELS: u64 = 1 << 22;
/// The maximum number of sheets that are kept. Each sheet is for one size of pictures, and for one output.
const MAX_SHEETS: usize = 6;
/// The maximum number of pixels of all sheets that are kept.
const KEPT_PIXELS: u64 = 4 * SHEET_PIXELS;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PictureKind {
    /// sRGB colour as RGBA, one byte per channel.
    Color,
    /// The distance from the eye along the view's axis, `f32`; infinite where nothing is drawn.
    Depth,
    /// The surface's normal, facing the eye, as three `f32`, then 1; zeros where nothing is drawn.
    Normal,
    /// The number of the vertex, point or pixel of the array, `i32`; -1 where nothing is drawn.
    Index,
}

impl PictureKind {
    pub fn bytes(self) -> u64 {
        let (output, index) = self.output();
        output.bytes()[index]
    }

    /// Returns the output that draws this kind, and the index of its picture in that output.
    pub(super) fn output(self) -> (Output, usize) {
        match self {
            Self::Color => (Output::Color(OffscreenTarget::FORMAT), 0),
            Self::Depth => (Output::Facts, 0),
            Self::Normal => (Output::Facts, 1),
            Self::Index => (Output::Facts, 2),
        }
    }
}

/// The layout of a sheet: pictures of one size, side by side.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SheetPlan {
    size: vk::Extent2D,
    across: u32,
    down: u32,
}

impl SheetPlan {
    /// Plans a sheet whose edges have at most `limit` pixels.
    fn new(size: vk::Extent2D, count: usize, limit: u32) -> Self {
        let pixels = u64::from(size.width) * u64::from(size.height);
        let most = (SHEET_PIXELS / pixels).clamp(1, count as u64) as u32;
        let across = most.min(limit / size.width).max(1);
        let down = most.div_ceil(across).min(limit / size.height).max(1);
        Self { size, across, down }
    }

    fn extent(&self) -> vk::Extent2D {
        let vk::Extent2D { width, height } = self.size;
        vk::Extent2D { width: width * self.across, height: height * self.down }
    }

    fn pixels(&self) -> u64 {
        let vk::Extent2D { width, height } = self.extent();
        u64::from(width) * u64::from(height)
    }

    fn count(&self) -> usize {
        (self.across * self.down) as usize
    }

    fn tile(&self, number: usize) -> vk::Rect2D {
        let place = (number % self.count()) as u32;
        let (col, row) = (place % self.across, place / self.across);
        let (x, y) = ((col * self.size.width) as i32, (row * self.size.height) as i32);
        vk::Rect2D { offset: vk::Offset2D { x, y }, extent: self.size }
    }
}

struct Sheet {
    output: Output,
    plan: SheetPlan,
    raster: Raster,
    renderer: FieldRenderer,
    targets: Vec<OffscreenTarget>,
}

/// A kind, and where its pictures begin in the buffer: an offset in bytes, a multiple of 16.
pub type PicturePlace = (PictureKind, u64);

/// The views to draw, and where in a buffer to put their pictures. The pictures of a kind follow each other
/// without gaps, with rows from top to bottom.
pub struct Wanted<'a> {
    pub views: &'a [FieldView],
    pub size: vk::Extent2D,
    pub places: &'a [PicturePlace],
}

impl Wanted<'_> {
    fn outputs(&self) -> Vec<Output> {
        let all = [PictureKind::Color, PictureKind::Depth].map(|kind| kind.output().0);
        let is_wanted = |output: &Output| self.places.iter().any(|(kind, _)| kind.output().0 == *output);
        all.into_iter().filter(is_wanted).collect()
    }
}

/// The sheets on which [`Wanted`] views are drawn. The most recently used sheets are last.
pub struct Views {
    sheets: Vec<Sheet>,
    flights: usize,
}

impl Views {
    pub fn new(flights: usize) -> Self {
        Self { sheets: Vec::new(), flights }
    }

    /// Returns whether no views were drawn yet.
    pub fn is_empty(&self) -> bool {
        self.sheets.is_empty()
    }

    /// Returns whether [`Views::prepare`] would make or drop sheets.
    pub fn needs(&self, device: &Device, like: &FieldRenderer, wanted: &Wanted<'_>) -> bool {
        let raster = like.raster_of(wanted.views.len());
        wanted.outputs().into_iter().any(|output| self.find(device, (output, raster), wanted).is_none())
    }

    /// Makes the sheets that are missing, to draw the array of `like`. If [`Views::needs`] returned true,
    /// this waits for the queue, and no frame may be in flight.
    pub fn prepare(&mut self, queue: &mut Queue, like: &FieldRenderer, wanted: &Wanted<'_>) -> Result<()> {
        if wanted.outputs().is_empty() {
            // Sheets stay as they are: they may be in use.
            return Ok(());
        }
        let (plan, raster) = (plan(queue.device(), wanted), like.raster_of(wanted.views.len()));
        let mut outputs = wanted.outputs();
        let (mut used, unused): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.sheets).into_iter().partition(|sheet| {
                (sheet.plan, sheet.raster) == (plan, raster) && outputs.contains(&sheet.output)
            });
        self.sheets = unused;
        outputs.retain(|output| used.iter().all(|sheet| sheet.output != *output));
        if !outputs.is_empty() {
            let pixels: Vec<_> = self.sheets.iter().map(|sheet| sheet.plan.pixels()).collect();
            let more = used.len() + outputs.len();
            self.sheets.drain(..too_many(&pixels, (more, more as u64 * plan.pixels())));
        }
        for output in outputs {
            let mut renderer = like.with_output(queue, output, (self.flights, MAX_VIEWS), raster)?;
            renderer.resize(queue, plan.extent())?;
            renderer.leave_to_compute();
            let target = |&format| OffscreenTarget::new(queue.device(), plan.extent(), format);
            // Compute shaders need none.
            let formats = if renderer.pixels().is_some() { &[] } else { output.formats() };
            let targets = formats.iter().map(target).collect::<Result<_>>()?;
            used.push(Sheet { output, plan, raster, renderer, targets });
        }
        self.sheets.append(&mut used);
        Ok(())
    }

    fn find(&self, device: &Device, by: (Output, Raster), wanted: &Wanted<'_>) -> Option<usize> {
        let plan = plan(device, wanted);
        self.sheets.iter().position(|sheet| ((sheet.output, sheet.raster), sheet.plan) == (by, plan))
    }

    /// Records the draws of `source` and the copies to `into`, after [`Views::prepare`].
    ///
    /// # Safety
    /// Same as [`FieldRenderer::record`] for `commands`, `flight` and `source`. There must be at most
    /// [`MAX_VIEWS`] views. `into` must outlive the commands, be unused, have room for all pictures, and have
    /// the usage `TRANSFER_DST`.
    pub unsafe fn record(
        &mut self,
        (device, like): (&Device, &FieldRenderer),
        commands: vk::CommandBuffer,
        (flight, source): (usize, Source),
        wanted: &Wanted<'_>,
        into: vk::Buffer,
    ) -> Result<()> {
        let &Wanted { views, size, places } = wanted;
        let raster = like.raster_of(views.len());
        for output in wanted.outputs() {
            let drawn: Vec<_> = places.iter().filter(|(kind, _)| kind.output().0 == output).collect();
            let Some(number) = self.find(device, (output, raster), wanted) else { continue };
            let Sheet { plan, renderer, targets, .. } = &mut self.sheets[number];
            let tiles: Vec<_> = (0..views.len()).map(|number| plan.tile(number)).collect();
            for (number, (view, tile)) in views.iter().zip(&tiles).enumerate() {
                renderer.set_tile((flight, number), view, *tile)?;
            }
            let pictures: Vec<Picture> = targets.iter().map(OffscreenTarget::picture).collect();
            // SAFETY: the flight is free, so nothing uses its sets; the source lives (the caller's promise).
            unsafe { renderer.point_at(flight, source) }?;
            for (first, tiles) in (0..).step_by(plan.count()).zip(tiles.chunks(plan.count())) {
                // SAFETY: the caller's promise; the sheet's last use was the copy of the tiles before these.
                unsafe { renderer.record_tiles(commands, flight, (&pictures, first, tiles), None) }?;
                for &&(kind, offset) in &drawn {
                    let bytes = kind.bytes() * u64::from(size.width) * u64::from(size.height);
                    let offset = offset + bytes * first as u64;
                    let (output, index) = kind.output();
                    if let Some((pixels, _)) = renderer.pixels() {
                        let before: u64 = output.bytes()[..index].iter().sum();
                        let copy = [vk::BufferCopy::default()
                            .src_offset(before * plan.pixels())
                            .dst_offset(offset)
                            .size(bytes * tiles.len() as u64)];
                        // SAFETY: the caller's promise; the pictures follow each other, readable for copies.
                        unsafe { device.raw().cmd_copy_buffer(commands, pixels, into, &copy) };
                        continue;
                    }
                    let copy =
                        |(number, tile): (usize, &vk::Rect2D)| {
                            let vk::Offset2D { x, y } = tile.offset;
                            copy_of_level(0, size, offset + bytes * number as u64)
                                .image_offset(vk::Offset3D { x, y, z: 0 })
                        };
                    let copies: Vec<_> = tiles.iter().enumerate().map(copy).collect();
                    let Picture { image, final_layout, .. } = pictures[index];
                    // SAFETY: the caller's promise; the image is readable in its final layout.
                    unsafe {
                        device.raw().cmd_copy_image_to_buffer(commands, image, final_layout, into, &copies)
                    };
                }
            }
        }
        Ok(())
    }
}

/// Returns how many of the oldest sheets to drop before adding `more` sheets of `pixels` pixels in all.
/// `kept` has the pixels of each old sheet, the oldest first.
fn too_many(kept: &[u64], (more, pixels): (usize, u64)) -> usize {
    let fits =
        |kept: &[u64]| kept.len() + more <= MAX_SHEETS && kept.iter().sum::<u64>() + pixels <= KEPT_PIXELS;
    (0..kept.len()).find(|&dropped| fits(&kept[dropped..])).unwrap_or(kept.len())
}

fn plan(device: &Device, wanted: &Wanted<'_>) -> SheetPlan {
    SheetPlan::new(wanted.size, wanted.views.len(), device.info().largest_picture)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_lie_side_by_side_on_sheets_that_are_not_too_large() {
        for (width, height, count, across, down) in [
            (84, 84, 1, 1, 1),
            (84, 84, 256, 195, 2),
            (84, 84, 1024, 195, 4),
            (1280, 720, 256, 4, 1),
            (1, 1, 1024, 1024, 1),
            (16384, 1, 1024, 1, 256),
            (16384, 16384, 3, 1, 1),
        ] {
            let plan = SheetPlan::new(vk::Extent2D { width, height }, count, 16384);
            assert_eq!((plan.across, plan.down), (across, down), "{width}x{height}, {count}");
            let vk::Extent2D { width: all, height: high } = plan.extent();
            assert!(all <= 16384 && high <= 16384);
            let corners: std::collections::HashSet<_> =
                (0..plan.count()).map(|number| plan.tile(number).offset).collect();
            assert_eq!(corners.len(), plan.count(), "no two in one place");
            assert!(corners.iter().all(|at| at.x as u32 + width <= all && at.y as u32 + height <= high));
        }
    }

    #[test]
    fn the_oldest_sheets_make_room() {
        let one = SHEET_PIXELS;
        assert_eq!(too_many(&[], (2, 99 * one)), 0, "what is wanted is drawn, whatever its size");
        assert_eq!(too_many(&[1, 1, 1, 1, 1], (1, 1)), 0);
        assert_eq!(too_many(&[1, 1, 1, 1, 1, 1], (1, 1)), 1);
        assert_eq!(too_many(&[1, 1, 1, 1, 1, 1], (2, 2)), 2);
        assert_eq!(too_many(&[one, one, one], (1, one)), 0);
        assert_eq!(too_many(&[3 * one, one], (1, one)), 1);
        assert_eq!(too_many(&[one, 3 * one], (1, one + 1)), 2);
    }
}
