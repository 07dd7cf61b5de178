//! What is written over a picture: the colour bar, and axes with ticks. [`Marks`] paints with egui, which a window draws with
//! its overlay; [`Ink`] draws the same on a saved picture.

mod axes;
mod ink;
mod ticks;

use egui::{Color32, FontId, Mesh, Painter, Pos2, Rect, Stroke, Vec2, pos2, vec2};

use super::{ColorMap, FieldView, Label, has_color_map};
use wavefield_handoff::contents::array::{ArrayKind, DrawnArray};

pub use ink::Ink;
pub use ticks::number;

/// What stands behind words, so that they can be read on a bright picture.
const PAPER: Color32 = Color32::from_rgb(22, 24, 29);
const PALE: Color32 = Color32::from_gray(225);
/// The smallest side of an area for a colour bar, in points.
const SMALLEST: f32 = 120.0;

/// A picture's description, from which its marks are made.
pub struct Marks<'a> {
    pub view: &'a FieldView,
    pub array: &'a DrawnArray,
    pub map: ColorMap,
    /// Whether the array's values have colours.
    pub has_colors: bool,
    pub has_axes: bool,
    /// The names of views side by side: see [`Drawing::names`](crate::Drawing::names).
    pub names: Vec<([f32; 2], Label)>,
}

/// Returns what an array's values are called, if they become colours.
pub fn values_of(array: &DrawnArray) -> Option<&'static str> {
    has_color_map(array).then_some(match array.kind() {
        ArrayKind::Mesh => "w",
        ArrayKind::Surface => "height",
        ArrayKind::Points | ArrayKind::Image | ArrayKind::Triangles | ArrayKind::Lines => "value",
    })
}

impl Marks<'_> {
    /// Returns whether a saved picture has marks.
    pub fn are_saved(&self) -> bool {
        self.has_axes || !self.names.is_empty() || self.view.look.colorbar && self.has_colors
    }

    /// Paints the name of each view at its upper left corner, unless it is outside `area`.
    pub fn view_names(&self, painter: &Painter, picture: Rect, area: Rect) {
        for ([x, y], name) in &self.names {
            let text = painter.layout_no_wrap(name.text().to_owned(), FontId::proportional(12.0), PALE);
            let at = picture.min + picture.size() * vec2(*x, *y) + vec2(8.0, 8.0);
            if area.contains(at) && !name.text().is_empty() {
                let paper = Rect::from_min_size(at, text.size()).expand2(vec2(3.0, 1.0));
                painter.rect_filled(paper, 3.0, PAPER);
                painter.galley(at, text, Color32::WHITE);
            }
        }
    }

    /// Paints the colour bar at the upper right of `area`.
    pub fn legend(&self, painter: &Painter, area: Rect) {
        const WIDTH: f32 = 14.0;
        if !self.has_colors || area.height() < SMALLEST || area.width() < SMALLEST {
            return;
        }
        let height = (area.height() * 0.4).clamp(60.0, 220.0);
        let FieldView { look, limits, units, .. } = self.view;
        let words = match look.label.text() {
            "" => values_of(self.array).unwrap_or_default(),
            label => label,
        };
        let text = |words| painter.layout_no_wrap(words, FontId::proportional(12.0), PALE);
        let numbers: Vec<_> = ticks::of_colors(look, *limits, *units)
            .into_iter()
            .map(|(part, words)| (part as f32, text(words)))
            .collect();
        let name = painter.layout(
            words.to_owned(),
            FontId::proportional(12.0),
            PALE,
            (0.5 * area.width()).min(240.0),
        );
        let widest = numbers.iter().fold(name.size().x - WIDTH, |widest, (_, one)| widest.max(one.size().x));
        let (right, top) = ((area.right() - widest.max(24.0) - 20.0).round(), (area.top() + 16.0).round());
        let bar = Rect::from_min_max(pos2(right - WIDTH, top), pos2(right, top + height));
        let whole =
            Rect::from_min_max(bar.min, pos2(right + 6.0 + widest, bar.bottom() + 6.0 + name.size().y));
        painter.rect_filled(whole.expand(8.0), 4.0, PAPER);
        painter.add(self.gradient(bar));
        for (part, number) in numbers {
            let y = bar.bottom() - height * part;
            painter.hline(right..=right + 3.0, y, Stroke::new(1.0, PALE));
            painter.galley(pos2(right + 6.0, y - 0.5 * number.size().y), number, Color32::WHITE);
        }
        painter.galley(pos2(right - WIDTH, bar.bottom() + 6.0), name, Color32::WHITE);
    }

    fn gradient(&self, bar: Rect) -> Mesh {
        let texels = self.map.texels();
        let mut mesh = Mesh::default();
        for (index, &[red, green, blue, _]) in texels.iter().enumerate() {
            let edge = |index: usize| bar.bottom() - bar.height() * index as f32 / texels.len() as f32;
            let step = Rect::from_min_max(pos2(bar.left(), edge(index + 1)), pos2(bar.right(), edge(index)));
            mesh.add_colored_rect(step, Color32::from_rgb(red, green, blue));
        }
        mesh
    }
}

/// Words on paper, all inside `area`, and none over others.
struct Words<'a> {
    painter: &'a Painter,
    area: Rect,
    taken: Vec<Rect>,
}

impl<'a> Words<'a> {
    fn new(painter: &'a Painter, area: Rect) -> Self {
        Self { painter, area, taken: Vec::new() }
    }

    /// Paints words beyond a place, in the direction `away` from it, unless others are there.
    fn put(&mut self, place: Pos2, away: Vec2, words: &str) {
        let text = self.painter.layout_no_wrap(words.to_owned(), FontId::proportional(12.0), PALE);
        let size = text.size() + vec2(6.0, 2.0);
        let distance = 2.0 + 0.5 * (size * away.abs()).dot(Vec2::splat(1.0));
        let rect = Rect::from_center_size(place + distance * away, size);
        let inside = self.area.shrink(2.0);
        let moved = (inside.min - rect.min).max(Vec2::ZERO) + (inside.max - rect.max).min(Vec2::ZERO);
        let rect = rect.translate(moved);
        if !self.taken.iter().any(|other| other.intersects(rect)) {
            self.painter.rect_filled(rect, 3.0, PAPER);
            self.painter.galley(rect.min + vec2(3.0, 1.0), text, Color32::WHITE);
            self.taken.push(rect);
        }
    }
}
