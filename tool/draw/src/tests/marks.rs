//! Paints on pictures.

use super::*;
use wavefield_gpu::vulkan::{image_barrier, pipeline_barrier};

#[test]
fn paint_has_its_colours_on_an_srgb_image_and_on_another() {
    let mut bench = Bench::new();
    let extent = vk::Extent2D { width: 256, height: 1 };
    let rect = |left: f32, right: f32| egui::Rect::from_x_y_ranges(left..=right, 0.0..=1.0);
    for format in [OffscreenTarget::FORMAT, vk::Format::R8G8B8A8_UNORM] {
        let mut painter = Painter::new(&bench.queue, format, 1).unwrap();
        let target = OffscreenTarget::new(bench.queue.device(), extent, format).unwrap();
        let egui = egui::Context::default();
        let raw = egui::RawInput { screen_rect: Some(rect(0.0, 256.0)), ..Default::default() };
        let output = egui.run_ui(raw, |ui| {
            let mut mesh = egui::Mesh::default();
            for level in 0..=255 {
                let left = f32::from(level);
                mesh.add_colored_rect(rect(left, left + 1.0), egui::Color32::from_rgb(level, 255 - level, 9));
            }
            ui.ctx().layer_painter(egui::LayerId::background()).add(mesh);
        });
        painter.upload(&mut bench.queue, output.textures_delta).unwrap();
        let painting = painter.prepare(&egui, output.shapes, 1.0);
        let (device, picture) = (bench.queue.device().clone(), target.picture());
        // SAFETY: recording; all live until `one_shot` has waited for the queue.
        let record = |commands| unsafe {
            let old = (vk::ImageLayout::UNDEFINED, picture.next().1);
            pipeline_barrier(&device, commands, &[], &[image_barrier(picture.image, old, picture.next())]);
            painter.record(commands, &picture, &painting).unwrap();
        };
        one_shot(&mut bench.queue, record).unwrap();
        let pixels = read_image(&mut bench.queue, target.image()).unwrap();
        for (level, got) in (0..=255).zip(pixels.as_chunks::<4>().0) {
            assert!(
                got[..3].iter().zip([level, 255 - level, 9]).all(|(a, b)| a.abs_diff(b) <= 1),
                "{level}: {got:?}"
            );
        }
    }
}
