//! What is written over a picture: the colour bar, and axes with ticks. [`Marks`] paints with egui, which a window draws with
//! its overlay; [`Ink`] puts the same on a saved picture.

mod axes;
mod ink;
mod ticks;

use ash::vk;
use egui::{Color32, FontId, Mesh, Painter, Pos2, Rect, Stroke, Vec2, pos2, vec2};

use super::things::Marked;
use super::{ColorMap, Drawing, FieldView, Look, has_color_map};
use wavefield_handoff::contents::array::{ArrayKind, DrawnArray};
use wavefield_handoff::contents::scene::Scene;

pub use ink::Ink;
pub use ticks::number;

/// What stands behind words, so that they can be read on a bright picture.
const PAPER: Color32 = Color32::from_rgb(22, 24, 29);
const PALE: Color32 = Color32::from_gray(225);
/// The smallest side of an area for a colour bar, in points.
const SMALLEST: f32 = 120.0;
/// The sides of a picture of which views side by side are parts.
const WHOLE: u32 = 1 << 16;

/// A picture's description, from which its marks are made.
pub struct Marks<'a> {
    drawing: &'a Drawing,
    look: Look,
    marked: Vec<Marked>,
    /// A texture contains colours, so it needs no colour bar.
    has_bars: bool,
}

/// Returns what an array's values are called, if they become colours.
pub fn values_of(array: &DrawnArray) -> Option<&'static str> {
    has_color_map(array).then_some(match array.kind() {
        ArrayKind::Mesh => "w",
        ArrayKind::Surface => "height",
        ArrayKind::Points | ArrayKind::Image | ArrayKind::Triangles | ArrayKind::Lines => "value",
    })
}

impl<'a> Marks<'a> {
    /// `first` and `map` are those of the first array of `drawing`.
    pub fn new(drawing: &'a Drawing, first: &FieldView, map: ColorMap, scene: Scene) -> Self {
        let marked = drawing.marked(first, map);
        Self { drawing, look: first.look, marked, has_bars: scene == Scene::Field }
    }

    /// Returns whether a saved picture has marks.
    pub fn are_saved(&self) -> bool {
        let has_bar = self.look.colorbar && self.marked.iter().any(|one| self.has_bar(one));
        self.look.axes || has_bar || self.cells().any(|(_, cell)| cell.is_some())
    }

    fn has_bar(&self, one: &Marked) -> bool {
        self.has_bars && has_color_map(&one.array)
    }

    fn cells(&self) -> impl DoubleEndedIterator<Item = (&Marked, Option<vk::Rect2D>)> + ExactSizeIterator {
        // So large that the places are exact enough.
        let whole = vk::Extent2D { width: WHOLE, height: WHOLE };
        self.marked.iter().enumerate().map(move |(number, one)| (one, self.drawing.cell(whole, number)))
    }

    /// Paints the marks of a picture that fills `picture`, inside `area`. `bars`: whether there are colour bars.
    pub fn paint(&self, painter: &Painter, picture: Rect, area: Rect, bars: bool) {
        // In one view a surface has its place whatever the others have.
        let surface = self.marked.iter().position(|one| one.array.kind() == ArrayKind::Surface);
        let with_axes = surface.unwrap_or_default();
        let mut rest = area;
        // From the right, so that colour bars are in the order of the arrays.
        for (number, (one, cell)) in self.cells().enumerate().rev() {
            let (picture, free) = match cell {
                Some(cell) => {
                    let picture = part(picture, cell);
                    (picture, picture.intersect(area))
                }
                None => (picture, rest),
            };
            if self.look.axes && (cell.is_some() || number == with_axes) {
                one.axes(painter, picture, if cell.is_some() { free } else { area });
            }
            if cell.is_some() && free.is_positive() {
                one.title(painter, free);
            }
            if bars && self.has_bar(one) {
                rest.max.x = one.legend(painter, free, cell.is_none()).unwrap_or(rest.max.x);
            }
        }
    }
}

/// Returns the part of a picture that `cell` is of [`WHOLE`].
fn part(picture: Rect, cell: vk::Rect2D) -> Rect {
    let share = |x: f32, y: f32| picture.min + picture.size() * vec2(x, y) / WHOLE as f32;
    let (left, top) = (cell.offset.x as f32, cell.offset.y as f32);
    let (width, height) = (cell.extent.width as f32, cell.extent.height as f32);
    Rect::from_min_max(share(left, top), share(left + width, top + height))
}

impl Marked {
    /// Paints the array's name at the upper left corner of its view.
    fn title(&self, painter: &Painter, area: Rect) {
        if self.name.text().is_empty() {
            return;
        }
        let text = painter.layout_no_wrap(self.name.text().to_owned(), FontId::proportional(12.0), PALE);
        let at = area.min + vec2(8.0, 8.0);
        let paper = Rect::from_min_size(at, text.size()).expand2(vec2(3.0, 1.0));
        painter.rect_filled(paper, 3.0, PAPER);
        painter.galley(at, text, Color32::WHITE);
    }

    /// Paints the colour bar at the upper right of `area`, if there is room, and returns its left end. `named`: without a label
    /// it has the array's name.
    fn legend(&self, painter: &Painter, area: Rect, named: bool) -> Option<f32> {
        const WIDTH: f32 = 14.0;
        if area.height() < SMALLEST || area.width() < SMALLEST {
            return None;
        }
        let height = (area.height() * 0.4).clamp(60.0, 220.0);
        let FieldView { look, limits, units, .. } = &self.view;
        let usual = values_of(&self.array).unwrap_or_default();
        let words = [look.label.text(), if named { self.name.text() } else { "" }, usual];
        let words = words.into_iter().find(|words| !words.is_empty()).unwrap_or_default();
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
        Some(whole.left() - 8.0)
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
