//! The arrays of a slot: what draws each, how it looks, and where it is in the picture.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ash::vk;

use super::pipeline::Pipeline;
use super::raster::{Passes, Work};
use super::{ColorMap, FieldView, Fit, Label, Look, Style, has_color_map};
use wavefield_handoff::contents::array::DrawnArray;
use wavefield_handoff::contents::things::Things;

/// The arrays of a slot, and the style and the pipelines with which they are drawn.
#[derive(Clone)]
pub struct Drawing {
    pub(super) array: DrawnArray,
    pub(super) others: Others,
    pub(super) style: Style,
    pub(super) pipelines: Rc<KindPipelines>,
    /// Of the others.
    pub(super) more_pipelines: Vec<Rc<KindPipelines>>,
    /// `None` if the array is too large for compute shaders, or there are others.
    pub(super) work: Option<Work>,
}

/// What draws one kind of array in one style.
pub(super) struct KindPipelines {
    pub(super) graphics: Pipeline,
    /// `None` where compute shaders never draw.
    pub(super) passes: Option<Passes>,
}

impl Drawing {
    /// Returns the first array of the slot.
    pub fn array(&self) -> &DrawnArray {
        &self.array
    }

    /// Returns array `number` of the slot, and where it begins in the slot, in bytes.
    pub fn placed(&self, number: usize) -> (&DrawnArray, u64) {
        match self.others.thing(number) {
            Some(thing) => (&thing.array, thing.offset),
            None => (&self.array, 0),
        }
    }

    /// Returns how many arrays are in the slot.
    pub fn count(&self) -> usize {
        1 + self.others.things.len()
    }

    /// Returns the number of the first element of array `number` among those of all arrays, as pictures count them.
    pub fn first_element(&self, number: usize) -> u32 {
        (0..number.min(self.count())).map(|before| self.placed(before).0.elements()).sum::<u64>() as u32
    }

    /// Returns the view of array `number`, of which `first` is that of the first, and its name, if it has one.
    pub fn named(&self, number: usize, first: &FieldView) -> (FieldView, Label) {
        let name = self.others.names.borrow().get(number).copied().unwrap_or_default();
        (self.others.seen(number, (&self.array, first)).1, name)
    }

    pub fn has_others(&self) -> bool {
        !self.others.is_empty()
    }

    /// Returns whether a colour map is used.
    pub fn has_color_map(&self) -> bool {
        self.arrays().any(|(array, _)| has_color_map(array))
    }

    /// Returns how the arrays behind the first look.
    pub fn looks(&self) -> Vec<ArrayLook> {
        self.others.looks()
    }

    /// Changes how they look, from the next view that is set on, also in clones.
    pub fn set_looks(&self, looks: &[ArrayLook]) {
        self.others.set_looks(looks);
    }

    /// Returns whether all arrays are seen from the front: see [`DrawnArray::is_flat`].
    pub fn is_flat(&self) -> bool {
        self.array.is_flat() && self.others.things.iter().all(|thing| thing.array.is_flat())
    }

    /// Returns what is written over each array's view. `first` and `map` are those of the first.
    pub(super) fn marked(&self, first: &FieldView, map: ColorMap) -> Vec<Marked> {
        let marked = |number: usize| {
            let (view, name) = self.named(number, first);
            Marked { view, array: *self.placed(number).0, map: self.others.map(number).unwrap_or(map), name }
        };
        (0..self.count()).map(marked).collect()
    }

    /// Returns the part of a picture in which array `number` is, if arrays are side by side.
    pub(super) fn cell(&self, picture: vk::Extent2D, number: usize) -> Option<vk::Rect2D> {
        (self.others.columns > 0).then(|| self.others.cell(picture.into(), number))
    }

    /// Changes the names of the arrays, also in clones.
    pub fn set_names(&self, names: Vec<Label>) {
        self.others.names.replace(names);
    }

    /// Returns the size of the first array's view in a picture.
    pub fn first_view(&self, picture: vk::Extent2D) -> vk::Extent2D {
        self.others.cell(picture.into(), 0).extent
    }

    pub(super) fn arrays(&self) -> impl Iterator<Item = (&DrawnArray, &KindPipelines)> {
        let others = self.others.things.iter().map(|thing| &thing.array).zip(&self.more_pipelines);
        std::iter::once((&self.array, &self.pipelines))
            .chain(others)
            .map(|(array, pipelines)| (array, &**pipelines))
    }
}

/// An array, and what its marks are made from.
pub(super) struct Marked {
    pub(super) view: FieldView,
    pub(super) array: DrawnArray,
    pub(super) map: ColorMap,
    pub(super) name: Label,
}

/// What a [`FieldView`] says of an array, without what all arrays of a slot share: the camera, and whether there are marks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ArrayLook {
    pub limits: [f32; 2],
    pub size: f32,
    pub fit: Fit,
    pub units: [f64; 2],
    pub look: Look,
    /// `None`: that of the first array.
    pub map: Option<ColorMap>,
}

impl ArrayLook {
    pub fn of(array: &DrawnArray) -> Self {
        let FieldView { limits, size, fit, units, look, .. } = FieldView::of(array);
        Self { limits, size, fit, units, look, map: None }
    }

    /// Returns the view of an array, with the rest of the first array's.
    fn beside(self, first: &FieldView) -> FieldView {
        let Self { limits, size, fit, units, look, .. } = self;
        let Look { colorbar, axes, .. } = first.look;
        FieldView { camera: first.camera, limits, size, fit, units, look: Look { colorbar, axes, ..look } }
    }
}

pub(super) struct Thing {
    pub(super) array: DrawnArray,
    /// Where it begins in the slot, in bytes.
    pub(super) offset: u64,
    look: Cell<ArrayLook>,
}

/// The arrays behind the first. Clones share how these look, and the names.
#[derive(Clone)]
pub(super) struct Others {
    pub(super) things: Rc<[Thing]>,
    columns: u32,
    names: Rc<RefCell<Vec<Label>>>,
}

impl From<&Things> for Others {
    fn from(things: &Things) -> Self {
        let thing = |&(array, offset): &(DrawnArray, u64)| {
            let look = Cell::new(ArrayLook::of(&array));
            Thing { array, offset, look }
        };
        let (columns, names) = (things.columns, Rc::default());
        Self { things: things.more.iter().map(thing).collect(), columns, names }
    }
}

impl Others {
    pub(super) fn is_empty(&self) -> bool {
        self.things.is_empty()
    }

    pub(super) fn looks(&self) -> Vec<ArrayLook> {
        self.things.iter().map(|thing| thing.look.get()).collect()
    }

    pub(super) fn set_looks(&self, looks: &[ArrayLook]) {
        for (thing, &look) in self.things.iter().zip(looks) {
            thing.look.set(look);
        }
    }

    /// Returns array `number`, unless it is the first.
    fn thing(&self, number: usize) -> Option<&Thing> {
        self.things.get(number.checked_sub(1)?)
    }

    /// Returns the colour map of array `number`, if it is not that of the first.
    fn map(&self, number: usize) -> Option<ColorMap> {
        self.thing(number)?.look.get().map
    }

    /// Returns which of the renderer's colour maps uniform `number` is drawn with.
    pub(super) fn map_number(&self, number: usize) -> usize {
        self.map(number).map_or(0, |_| number)
    }

    /// Returns how many uniforms a view of the slot needs: one for each array and one for [`Others::cell`]'s rest.
    pub(super) fn uniforms(&self) -> usize {
        if self.is_empty() { 1 } else { self.things.len() + 2 }
    }

    /// Returns the array and the view of uniform `number`.
    pub(super) fn seen<'a>(
        &'a self,
        number: usize,
        first: (&'a DrawnArray, &FieldView),
    ) -> (&'a DrawnArray, FieldView) {
        match self.thing(number) {
            Some(thing) => (&thing.array, thing.look.get().beside(first.1)),
            None => (first.0, *first.1),
        }
    }

    /// Returns how many parts of a picture have a background of their own.
    pub(super) fn cells(&self) -> usize {
        let count = 1 + self.things.len();
        match self.columns as usize {
            0 => 1,
            columns => count + usize::from(!count.is_multiple_of(columns)),
        }
    }

    /// Returns the part of a picture that array `number` has, or, behind the last array, what is left of the last row.
    pub(super) fn cell(&self, tile: vk::Rect2D, number: usize) -> vk::Rect2D {
        let (count, number) = (1 + self.things.len() as u32, number as u32);
        let Some(rows) = count.checked_next_multiple_of(self.columns) else { return tile };
        let (rows, columns) = (rows / self.columns, self.columns);
        let (row, col, end) = match number < count {
            true => (number / columns, number % columns, number % columns + 1),
            false => (rows - 1, count % columns, columns),
        };
        let side = |length: u32, from: u32, to: u32, all: u32| {
            let at = |place: u32| (u64::from(length) * u64::from(place) / u64::from(all)) as u32;
            (at(from) as i32, (at(to) - at(from)).max(1))
        };
        let (x, width) = side(tile.extent.width, col, end, columns);
        let (y, height) = side(tile.extent.height, row, row + 1, rows);
        let offset = vk::Offset2D { x: tile.offset.x + x, y: tile.offset.y + y };
        vk::Rect2D { offset, extent: vk::Extent2D { width, height } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wavefield_handoff::contents::array::{ArrayKind, Number};

    #[test]
    fn views_fill_the_picture() {
        let image = DrawnArray::new(ArrayKind::Image, &[2, 2], Number::U8).unwrap();
        let extent = vk::Extent2D { width: 101, height: 67 };
        let tile = vk::Rect2D { offset: vk::Offset2D { x: -5, y: 7 }, extent };
        for count in 1..=16 {
            for columns in 1..=count {
                let things = Things::new(image, &vec![image; count - 1], columns as u64).unwrap();
                let others = Others::from(&things);
                let cells: Vec<_> = (0..others.cells()).map(|cell| others.cell(tile, cell)).collect();
                let area = cells.iter().map(|cell| cell.extent.width * cell.extent.height).sum::<u32>();
                assert_eq!(area, 101 * 67, "{count} in {columns} columns");
                assert!(others.cells() <= others.uniforms());
                assert_eq!(cells[0].offset, tile.offset);
            }
        }
        let four = Others::from(&Things::new(image, &[image; 2], 2).unwrap());
        let corners = [0, 1, 2, 3].map(|cell| four.cell(tile, cell).offset);
        assert_eq!(corners.map(|at| (at.x, at.y)), [(-5, 7), (45, 7), (-5, 40), (45, 40)]);
    }
}
