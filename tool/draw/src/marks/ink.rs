//! Draws marks on a picture in the CPU's memory, with egui's shapes and glyphs.

use std::collections::HashMap;

use ash::vk;
use egui::epaint::{ImageData, Primitive, Vertex};
use egui::{Color32, ColorImage, Context, Pos2, RawInput, Rect, TextureId, ViewportId, pos2};

use super::Marks;

/// Keeps the glyphs from one picture to the next.
#[derive(Default)]
pub struct Ink {
    egui: Context,
    textures: HashMap<TextureId, ColorImage>,
}

impl Ink {
    /// Draws a picture's marks on its pixels, four bytes each: sRGB, red first.
    pub fn draw(&mut self, marks: &Marks<'_>, extent: vk::Extent2D, pixels: &mut [u8]) {
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
        let mut textures = output.textures_delta;
        let (set, free) = (std::mem::take(&mut textures.set), std::mem::take(&mut textures.free));
        for (id, delta) in
            set.into_iter().flat_map(|(id, deltas)| deltas.into_iter().map(move |delta| (id, delta)))
        {
            let ImageData::Color(image) = delta.image;
            match (delta.pos, self.textures.get_mut(&id)) {
                (Some(at), Some(texture)) => put(texture, at, &image),
                _ => drop(self.textures.insert(id, ColorImage::clone(&image))),
            }
        }
        for clipped in self.egui.tessellate(output.shapes, scale) {
            let Primitive::Mesh(mesh) = clipped.primitive else { continue };
            let Some(texture) = self.textures.get(&mesh.texture_id) else { continue };
            let clip = (clipped.clip_rect * scale)
                .intersect(Rect::from_min_size(Pos2::ZERO, egui::vec2(width, height)));
            for corners in mesh.indices.as_chunks::<3>().0 {
                let corners = corners.map(|index| {
                    let vertex = mesh.vertices[index as usize];
                    Vertex { pos: vertex.pos * scale, ..vertex }
                });
                triangle(corners, texture, clip, (extent.width as usize, &mut *pixels));
            }
        }
        free.iter().for_each(|id| drop(self.textures.remove(id)));
    }
}

/// Puts a part into an image.
fn put(image: &mut ColorImage, [left, top]: [usize; 2], part: &ColorImage) {
    let width = image.width();
    for (row, colors) in part.pixels.chunks(part.width().max(1)).enumerate() {
        let at = (top + row) * width + left;
        if let Some(place) = image.pixels.get_mut(at..at + colors.len()) {
            place.copy_from_slice(colors);
        }
    }
}

/// Blends a triangle over the pixels whose centres lie in it. On an edge between two triangles only one has the centre.
fn triangle(corners: [Vertex; 3], texture: &ColorImage, clip: Rect, (width, pixels): (usize, &mut [u8])) {
    let [a, mut b, mut c] = corners;
    // Twice the area, above 0 if clockwise on the screen.
    let twice = |a: Pos2, b: Pos2, c: Pos2| (b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x);
    if twice(a.pos, b.pos, c.pos) < 0.0 {
        std::mem::swap(&mut b, &mut c);
    }
    let (all, corners) = (twice(a.pos, b.pos, c.pos), [a, b, c]);
    let bounds = Rect::from_points(&corners.map(|corner| corner.pos)).intersect(clip);
    if !(all > 0.0 && bounds.is_positive()) {
        return;
    }
    // An edge to the right along the top, or upwards on the left, has its centres.
    let edges = [(b.pos, c.pos), (c.pos, a.pos), (a.pos, b.pos)];
    let owns = edges.map(|(from, to)| to.y < from.y || to.y == from.y && to.x > from.x);
    let from = |edge: f32| (edge - 0.5).ceil().max(0.0) as usize;
    for y in from(bounds.top())..from(bounds.bottom()) {
        for x in from(bounds.left())..from(bounds.right()) {
            let at = pos2(x as f32 + 0.5, y as f32 + 0.5);
            let weights = edges.map(|(from, to)| twice(from, to, at) / all);
            if weights.iter().zip(owns).any(|(&weight, owns)| weight < 0.0 || weight == 0.0 && !owns) {
                continue;
            }
            let mix = |value: fn(&Vertex) -> f32| {
                corners.iter().zip(weights).map(|(one, weight)| value(one) * weight).sum()
            };
            let texel = texel(texture, [mix(|one| one.uv.x), mix(|one| one.uv.y)]);
            let values: [fn(&Vertex) -> f32; 4] = [
                |one| f32::from(one.color.r()),
                |one| f32::from(one.color.g()),
                |one| f32::from(one.color.b()),
                |one| f32::from(one.color.a()),
            ];
            // Both are multiplied by their alpha.
            let ink: [f32; 4] =
                std::array::from_fn(|part| mix(values[part]) * f32::from(texel[part]) / 255.0);
            let pixel = 4 * (y * width + x);
            for (part, old) in pixels[pixel..pixel + 3].iter_mut().enumerate() {
                *old = (ink[part] + f32::from(*old) * (1.0 - ink[3] / 255.0)).round() as u8;
            }
        }
    }
}

fn texel(texture: &ColorImage, uv: [f32; 2]) -> [u8; 4] {
    let [width, height] = texture.size;
    let place = |part: f32, side: usize| ((part * side as f32).max(0.0) as usize).min(side.saturating_sub(1));
    let at = place(uv[1], height) * width + place(uv[0], width);
    texture.pixels.get(at).copied().unwrap_or(Color32::TRANSPARENT).to_array()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_triangles_that_share_an_edge_cover_each_pixel_once() {
        let texture = ColorImage::filled([1, 1], Color32::WHITE);
        let half = Color32::from_rgba_premultiplied(100, 0, 0, 128);
        for corners in [
            [(1.0, 1.0), (7.0, 1.0), (7.0, 7.0), (1.0, 7.0)],
            [(0.5, 3.5), (4.5, 0.5), (7.5, 4.5), (3.5, 7.5)],
        ] {
            let mut pixels = vec![0u8; 8 * 8 * 4];
            let corners = corners.map(|(x, y)| Vertex { pos: pos2(x, y), uv: Pos2::ZERO, color: half });
            let clip = Rect::from_min_max(Pos2::ZERO, pos2(8.0, 8.0));
            for [a, b, c] in [[0, 1, 2], [2, 0, 3]] {
                triangle([corners[a], corners[b], corners[c]], &texture, clip, (8, &mut pixels));
            }
            let reds: Vec<_> = pixels.as_chunks::<4>().0.iter().map(|pixel| pixel[0]).collect();
            assert!(reds.iter().all(|red| [0, 100].contains(red)), "{reds:?}");
            assert!(reds.iter().filter(|red| **red == 100).count() >= 24, "{reds:?}");
        }
    }

    #[test]
    fn what_lies_outside_is_clipped() {
        let texture = ColorImage::filled([1, 1], Color32::WHITE);
        let corner = |x, y| Vertex { pos: pos2(x, y), uv: Pos2::ZERO, color: Color32::WHITE };
        let corners = [corner(-1e9, -5.0), corner(1e9, -5.0), corner(3.0, 1e9)];
        let mut pixels = vec![0u8; 4 * 4 * 4];
        let clip = Rect::from_min_max(pos2(0.0, 1.0), pos2(4.0, 4.0));
        triangle(corners, &texture, clip, (4, &mut pixels));
        assert!(pixels[..16].iter().all(|byte| *byte == 0) && pixels[17..19].iter().all(|byte| *byte == 255));
    }
}
