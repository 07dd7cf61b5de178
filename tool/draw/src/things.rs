//! The arrays of a slot: what draws each, how it looks, and where it is in the picture.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ash::vk;

use super::pipeline::Pipeline;
use super::raster::{Passes, Work};
use super::{FieldView, Fit, Label, Style};
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

    pub fn has_others(&self) -> bool {
        !self.others.is_empty()
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

    /// Returns the names of the views, and where each begins, as parts of the picture's width and height.
    pub fn names(&self) -> Vec<([f32; 2], Label)> {
        self.others.names()
    }

    /// Changes the names of views side by side, also in clones.
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

/// What a [`FieldView`] says of an array, without the camera, which all arrays of a slot share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ArrayLook {
    pub limits: [f32; 2],
    pub size: f32,
    pub fit: Fit,
}

impl ArrayLook {
    fn of(array: &DrawnArray) -> Self {
        let FieldView { limits, size, fit, .. } = FieldView::of(array);
        Self { limits, size, fit }
    }

    /// Returns the view of an array, with the rest of the first array's.
    fn beside(self, first: &FieldView) -> FieldView {
        let Self { limits, size, fit } = self;
        FieldView { limits, size, fit, units: [0.0, 1.0], ..*first }
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

    fn names(&self) -> Vec<([f32; 2], Label)> {
        // So large that the corners are exact enough.
        let whole = vk::Extent2D { width: 1 << 16, height: 1 << 16 };
        let corner = |(number, &name): (usize, &Label)| {
            let vk::Offset2D { x, y } = self.cell(whole.into(), number).offset;
            ([x, y].map(|at| at as f32 / whole.width as f32), name)
        };
        let count = if self.columns == 0 { 0 } else { 1 + self.things.len() };
        self.names.borrow().iter().take(count).enumerate().map(corner).collect()
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
        match number.checked_sub(1).and_then(|number| self.things.get(number)) {
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
