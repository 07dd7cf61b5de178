//! Paints marks on a saved picture.

use ash::vk;
use egui::{Context, Pos2, RawInput, Rect, ViewportId};

use super::Marks;
use crate::{OffscreenTarget, Painter};
use wavefield_gpu::Result;
use wavefield_gpu::vulkan::{Buffer, Queue, copy_of_level, one_shot, read_image, record_upload};

/// Keeps the glyphs from one picture to the next. The queue must be idle before it is dropped.
pub struct Ink {
    egui: Context,
    painter: Painter,
}

impl Ink {
    pub fn new(queue: &Queue) -> Result<Self> {
        Ok(Self { egui: Context::default(), painter: Painter::new(queue, OffscreenTarget::FORMAT, 1)? })
    }

    /// Returns a picture with its marks: four bytes per pixel, sRGB, red first. Waits for the queue. The marks are painted on a
    /// copy, because the picture on screen may be copied to a client later, without marks.
    pub fn paint(
        &mut self,
        queue: &mut Queue,
        marks: &Marks<'_>,
        extent: vk::Extent2D,
        pixels: &[u8],
    ) -> Result<Vec<u8>> {
        let device = queue.device().clone();
        let from = Buffer::filled(&device, "picture", pixels, vk::BufferUsageFlags::TRANSFER_SRC)?;
        let target = OffscreenTarget::new(&device, extent, OffscreenTarget::FORMAT)?;
        let (width, height) = (extent.width as f32, extent.height as f32);
        // Words of a large picture are as large in it as those of a usual one.
        let scale = (width / 1280.0).min(height / 720.0).clamp(1.0, 8.0);
        let area = Rect::from_min_size(Pos2::ZERO, egui::vec2(width, height) / scale);
        let mut raw = RawInput { screen_rect: Some(area), ..RawInput::default() };
        raw.viewports.entry(ViewportId::ROOT).or_default().native_pixels_per_point = Some(scale);
        let output = self.egui.run_ui(raw, |ui| {
            let painter = ui.ctx().layer_painter(egui::LayerId::background());
            marks.paint(&painter, area, area, marks.look.colorbar);
        });
        self.painter.upload(queue, output.textures_delta)?;
        let painting = self.painter.prepare(&self.egui, output.shapes, scale);
        let (picture, all) = (target.picture(), [copy_of_level(0, extent, 0)]);
        let mut painted = Ok(());
        // SAFETY: recording; all live until `one_shot` has waited for the queue.
        one_shot(queue, |commands| unsafe {
            record_upload(&device, commands, from.raw(), picture.image, &all, picture.next());
            painted = self.painter.record(commands, &picture, &painting);
        })?;
        painted?;
        drop(from); // a large picture has little room beside it
        read_image(queue, target.image())
    }
}
