//! Axes with ticks, which follow the camera.

use egui::{Color32, Painter, Pos2, Rect, Stroke, Vec2, pos2, vec2};
use glam::{Mat4, Vec3, Vec4};

use super::{Marked, Words, ticks};
use crate::{FieldView, Placement};
use wavefield_handoff::contents::array::ArrayKind;

const LINE: Stroke = Stroke { width: 1.0, color: Color32::from_gray(225) };
/// The length of a tick, in points.
const TICK: f32 = 5.0;
/// Below this height, words do not fit below an image.
const ROOM: f32 = 22.0;
/// Half the height of a surface whose limits are at its ends: see `parts/heights.wgsl`.
const HALF_RANGE: f32 = 0.3;
/// Half the side of the box around points of which the client says nothing, in the camera's units.
const USUAL: f32 = 0.6;
/// Nothing nearer is drawn: see `Camera`.
const NEAR: f32 = 0.05;

/// An axis of the box around the field: its ends in the camera's units, and the numbers there.
#[derive(Clone, Copy)]
struct Axis {
    ends: [f32; 2],
    numbers: [f64; 2],
}

impl Marked {
    /// Paints the axes of a picture that fills `picture`. Words stay inside `area`.
    pub(super) fn axes(&self, painter: &Painter, picture: Rect, area: Rect) {
        match self.array.is_flat() {
            true => self.flat_axes(painter, picture, area),
            false => self.space_axes(painter, picture, area),
        }
    }

    /// Paints ticks at the left and at the bottom of an image or a line plot, or of `area` if that reaches farther.
    fn flat_axes(&self, painter: &Painter, picture: Rect, area: Rect) {
        let grid = self.array.grid();
        let scale = painter.pixels_per_point();
        let Placement { corner, size } =
            Placement::of(&self.array, &self.view.camera, pixels_of(picture, scale));
        let image = Rect::from_min_size(picture.min + Vec2::from(corner) / scale, Vec2::from(size) / scale);
        // As in matplotlib: whole numbers are at the middles of pixels, and y grows upwards.
        let pixels = [grid.cols, grid.rows].map(|count| f64::from(count) - 0.5);
        let usual = match self.array.is_plot() {
            true => [[0.0, pixels[0] - 0.5], self.view.limits_in_units(), [0.0, 1.0]],
            false => [[-0.5, pixels[0]], [pixels[1], -0.5], [0.0, 1.0]],
        };
        let [across, up, _] = self.view.look.extent.unwrap_or(usual);
        let seen = image.intersect(area);
        if !seen.is_positive() {
            return;
        }
        let (left, bottom) = (seen.left().max(area.left() + 1.0), seen.bottom().min(area.bottom() - 1.0));
        painter.line_segment([pos2(left, seen.top()), pos2(left, bottom)], LINE);
        painter.line_segment([pos2(left, bottom), pos2(seen.right(), bottom)], LINE);
        // Only the part that is seen has ticks, so an enlarged image has as many.
        let part = |at: f32, from: f32, to: f32| f64::from((at - from) / (to - from));
        let mut words = Words::new(painter, area);
        let number = |[low, high]: [f64; 2], part: f64| low + (high - low) * part;
        let ends = [seen.left(), seen.right()].map(|x| number(across, part(x, image.left(), image.right())));
        for tick in ticks::between(ends[0], ends[1]) {
            let x = seen.left() + seen.width() * tick.part as f32;
            painter.line_segment([pos2(x, bottom), pos2(x, bottom - TICK)], LINE);
            let has_room = bottom + ROOM < area.bottom();
            let (at, away) = if has_room { (bottom, Vec2::DOWN) } else { (bottom - TICK, Vec2::UP) };
            words.put(pos2(x, at), away, &tick.words);
        }
        let ends = [seen.bottom(), seen.top()].map(|y| number(up, part(y, image.bottom(), image.top())));
        for tick in ticks::between(ends[0], ends[1]) {
            let y = seen.bottom() - seen.height() * tick.part as f32;
            painter.line_segment([pos2(left, y), pos2(left + TICK, y)], LINE);
            let has_room = left - 2.0 * ROOM > area.left();
            let (at, away) = if has_room { (left, Vec2::LEFT) } else { (left + TICK, Vec2::RIGHT) };
            words.put(pos2(at, y), away, &tick.words);
        }
    }

    /// Returns the axes x, y and z of an array in space.
    fn in_space(&self) -> [Axis; 3] {
        let FieldView { look, fit, .. } = &self.view;
        if self.array.kind() == ArrayKind::Surface {
            let grid = self.array.grid();
            let last = [grid.cols - 1, grid.rows - 1];
            let divisors = fit.divisors(grid);
            let half = |side: usize| last[side] as f32 / divisors[side];
            let [x, _, z] =
                look.extent.unwrap_or([[0.0, f64::from(last[0])], [0.0; 2], [0.0, f64::from(last[1])]]);
            return [(half(0), x), (HALF_RANGE, self.view.limits_in_units()), (half(1), z)]
                .map(|(half, numbers)| Axis { ends: [-half, half], numbers });
        }
        let around = |axis: usize| [-USUAL, USUAL].map(|side| fit.center[axis] + fit.radius * side);
        let corners = look.corners.unwrap_or_else(|| std::array::from_fn(around));
        std::array::from_fn(|axis| Axis {
            ends: corners[axis].map(|end| (end - fit.center[axis]) / fit.radius),
            numbers: look.extent.map_or_else(|| corners[axis].map(f64::from), |extent| extent[axis]),
        })
    }

    fn space_axes(&self, painter: &Painter, picture: Rect, area: Rect) {
        let axes = self.in_space();
        let (width, height) = pixels_of(picture, painter.pixels_per_point());
        let matrix = self.view.camera.view_projection(width, height);
        let eye = Projection { matrix, picture };
        let corner = |sides: [usize; 3]| Vec3::from(std::array::from_fn(|axis| axes[axis].ends[sides[axis]]));
        let depth = |place: Vec3| (matrix * place.extend(1.0)).w;
        let across = |place: Vec3| eye.pixel(matrix * place.extend(1.0)).map_or(f32::INFINITY, |at| at.x);
        // The lower edges of x and z that are nearest, and the upright edge at the left: nothing lies before them.
        let low = usize::from(self.view.camera.elevation < 0.0);
        let near = |axis: usize, other: usize| {
            let middle = |side: usize| {
                let mut sides = [low; 3];
                sides[other] = side;
                let mut place = corner(sides);
                place[axis] = 0.5 * (axes[axis].ends[0] + axes[axis].ends[1]);
                depth(place)
            };
            usize::from(middle(1) < middle(0))
        };
        let upright = [[0, 0], [0, 1], [1, 0], [1, 1]]
            .into_iter()
            .min_by(|a, b| across(corner([a[0], 0, a[1]])).total_cmp(&across(corner([b[0], 0, b[1]]))));
        let upright = upright.unwrap_or_default();
        let (z_of_x, x_of_z) = (near(0, 2), near(2, 0));
        let edges = [[0, low, z_of_x], [upright[0], 0, upright[1]], [x_of_z, low, 0]];
        let mut words = Words::new(painter, area);
        let middle = Vec3::from(axes.map(|axis| 0.5 * (axis.ends[0] + axis.ends[1])));
        for (axis, mut sides) in edges.into_iter().enumerate() {
            let ends = [0, 1].map(|end| {
                sides[axis] = end;
                corner(sides)
            });
            eye.axis(&mut words, ends, axes[axis].numbers, middle);
        }
    }
}

/// Returns the width and the height in pixels.
fn pixels_of(picture: Rect, scale: f32) -> (u32, u32) {
    let side = |points: f32| (points * scale).round().max(1.0) as u32;
    (side(picture.width()), side(picture.height()))
}

struct Projection {
    matrix: Mat4,
    picture: Rect,
}

impl Projection {
    /// Returns where a place in clip space is in the picture, unless it is too near or behind.
    fn pixel(&self, clip: Vec4) -> Option<Pos2> {
        let part = |of: f32| 0.5 + 0.5 * of / clip.w;
        (clip.w >= NEAR).then(|| self.picture.min + vec2(part(clip.x), part(clip.y)) * self.picture.size())
    }

    /// Paints an axis from one of `ends` to the other, with ticks that point away from `middle`.
    fn axis(&self, words: &mut Words<'_>, ends: [Vec3; 2], numbers: [f64; 2], middle: Vec3) {
        let clip = ends.map(|end| self.matrix * end.extend(1.0));
        let at = |part: f32| clip[0] + (clip[1] - clip[0]) * part;
        // The part of the line that is before the eye.
        let crossing = ((NEAR - clip[0].w) / (clip[1].w - clip[0].w)).clamp(0.0, 1.0);
        let parts = match clip.map(|end| end.w >= NEAR) {
            [true, true] => [0.0, 1.0],
            [true, false] => [0.0, crossing - 1e-4],
            [false, true] => [crossing + 1e-4, 1.0],
            [false, false] => return,
        };
        let [Some(from), Some(to)] = parts.map(|part| self.pixel(at(part))) else { return };
        words.painter.line_segment([from, to], LINE);
        let along = (to - from).normalized();
        let mut out = vec2(along.y, -along.x);
        if let Some(inner) = self.pixel(self.matrix * middle.extend(1.0))
            && out.dot(inner - (from + 0.5 * (to - from))) > 0.0
        {
            out = -out;
        }
        for tick in ticks::between(numbers[0], numbers[1]) {
            let Some(place) = self.pixel(at(tick.part as f32)) else { continue };
            if !words.area.contains(place) {
                continue;
            }
            words.painter.line_segment([place, place + TICK * out], LINE);
            words.put(place + TICK * out, out, &tick.words);
        }
    }
}
