//! Paints on pictures.

use super::*;
use wavefield_gpu::vulkan::{image_barrier, pipeline_barrier};

#[test]
fn a_colour_bar_has_the_colours_of_its_map_and_changes_nothing_else() {
    let mut bench = Bench::new();
    let array = DrawnArray::new(ArrayKind::Image, &[1, 2], Number::F32).unwrap();
    let desc = FieldRendererDesc {
        output: Output::Color(OffscreenTarget::FORMAT),
        flights: 1,
        views: 1,
        scene: Scene::Field,
        array,
        style: Style::Surface,
        color_maps: vec![ColorMap::Magma],
        samples: Samples::One,
        raster: Raster::Graphics,
    };
    let renderer = FieldRenderer::new(&mut bench.queue, &desc).unwrap();
    let mut view = FieldView::of(&array);
    view.look.colorbar = true;
    let marks = Marks::new(renderer.drawing(), &view, ColorMap::Magma, Scene::Field);
    let mut ink = Ink::new(&bench.queue).unwrap();
    // The second picture uses the glyphs of the first.
    for (width, height) in [(640, 480), (641, 479)] {
        let plain: Vec<Pixel> =
            (0..width * height).map(|at| [(at % 101) as u8, (at % 7) as u8, 9, 255]).collect();
        let (extent, bytes) = (vk::Extent2D { width, height }, bytemuck::cast_slice(&plain));
        let marked = ink.paint(&mut bench.queue, &marks, extent, bytes).unwrap();
        keep(&marked, (width, height));
        let marked: Vec<Pixel> = bytemuck::pod_collect_to_vec(&marked);
        let same = marked.iter().zip(&plain).filter(|(marked, plain)| marked == plain).count();
        assert!(same * 10 > plain.len() * 9, "only {same} pixels are as they were");
        let texels = ColorMap::Magma.texels();
        // From the upper end to the lower one.
        let column = (0..width as usize).find_map(|x| {
            let column: Vec<_> = marked[x..].iter().step_by(width as usize).copied().collect();
            let bar: Vec<_> = column.into_iter().skip(17).take(185).collect();
            close(bar[0], texels[254], 12).then_some(bar)
        });
        let bar = column.expect("a column of the picture begins with the map's last colours");
        for (y, color) in bar.iter().enumerate() {
            // The bar is 0.4 of the height.
            let part = (y as f32 + 1.5) / (0.4 * height as f32);
            let texel = (256.0 * (1.0 - part)) as usize;
            let near = &texels[texel.saturating_sub(2)..=(texel + 2).min(255)];
            assert!(near.iter().any(|texel| close(*color, *texel, 2)), "{y}: {color:?} is not of {near:?}");
        }
    }
}

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
