//! The arrays that a client can bring instead of the field. They are packed in C order: component `c` of
//! element (`row`, `col`) has the index `(row * cols + col) * components + c`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::contents::parts::{Part, PartName, Parts};
use crate::contents::wave::Grid;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArrayKind {
    /// (rows, cols, 4): x, y, z and a value for each vertex. Neighbours in the grid are connected.
    Mesh,
    /// (rows, cols): a height for each vertex of a grid, which is also the value.
    Surface,
    /// (n, 3) or (n, 4): x, y, z and optionally a value, which defaults to y.
    Points,
    /// (rows, cols) or (rows, cols, 1): values for the colour map. (rows, cols, 3 or 4): RGB or RGBA.
    Image,
    /// (n, 3) or (n, 4): the corners of triangles, as points are. [`PartName::Faces`] says which belong together.
    Triangles,
    /// (n, 3) or (n, 4): points that lines connect. (n): values over their indices, a line plot.
    Lines,
}

/// A little-endian type of number. Messages name it by NumPy's `typestr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Number {
    #[serde(rename = "<f4")]
    F32,
    #[serde(rename = "<f2")]
    F16,
    /// The values 0 to 255 stand for 0 to 1.
    #[serde(rename = "|u1")]
    U8,
    /// Only of faces and edges.
    #[serde(rename = "<i4")]
    I32,
}

impl Number {
    pub fn bytes(self) -> u64 {
        match self {
            Self::F32 | Self::I32 => 4,
            Self::F16 => 2,
            Self::U8 => 1,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawnArray {
    kind: ArrayKind,
    /// One row for points and the like.
    grid: Grid,
    components: u32,
    number: Number,
    parts: Parts,
    /// The bytes of a slot that holds other arrays, too; otherwise 0.
    slot_bytes: u64,
}

/// `rows * cols * components` must be below this, so that shaders can use signed 32-bit integers.
const MOST: u64 = 1 << 31;

impl DrawnArray {
    /// Returns the mesh of `grid`, which this program's own producers fill.
    pub fn mesh(grid: Grid) -> Self {
        let parts = Parts::default();
        Self { kind: ArrayKind::Mesh, grid, components: 4, number: Number::F32, parts, slot_bytes: 0 }
    }

    /// Describes a client's array without further parts. Fails if the kind does not allow the shape or the type of number.
    /// The error names what is allowed.
    pub fn new(kind: ArrayKind, shape: &[u64], number: Number) -> Result<Self, String> {
        let (name, shapes, least, in_words) = kind.words();
        let (rows, cols, components) = match (kind, shape) {
            (ArrayKind::Mesh, &[rows, cols, 4]) => (rows, cols, 4),
            (ArrayKind::Surface, &[rows, cols]) => (rows, cols, 1),
            (ArrayKind::Points | ArrayKind::Triangles | ArrayKind::Lines, &[count, components @ (3 | 4)]) => {
                (1, count, components)
            }
            (ArrayKind::Lines, &[count]) => (1, count, 1),
            (ArrayKind::Image, &[rows, cols]) => (rows, cols, 1),
            (ArrayKind::Image, &[rows, cols, components @ (1 | 3 | 4)]) => (rows, cols, components),
            _ => return Err(format!("{name} has the shape {shapes}, not {shape:?}")),
        };
        if rows < least || cols < least {
            return Err(format!("{name} has at least {in_words}, but the shape is {shape:?}"));
        }
        let count = rows.checked_mul(cols).and_then(|count| count.checked_mul(components));
        if count.is_none_or(|count| count >= MOST) {
            return Err(format!("{shape:?} is too large: it has too many elements, {} at most", MOST - 1));
        }
        if number != Number::F32 && !matches!(kind, ArrayKind::Surface | ArrayKind::Image) {
            return Err(format!("{name} has 32-bit floats (dtype <f4)"));
        }
        if number == Number::I32 {
            return Err("only faces and edges have the dtype <i4: convert the array first".into());
        }
        let grid = Grid { cols: cols as u32, rows: rows as u32 };
        let (components, parts) = (components as u32, Parts::default());
        Ok(Self { kind, grid, components, number, parts, slot_bytes: 0 })
    }

    /// Adds the parts, of which each has a shape and a type of number. Fails as [`DrawnArray::new`] does, or if one is missing.
    pub fn with(mut self, parts: &[(PartName, Vec<u64>, Number)]) -> Result<Self, String> {
        for (name, shape, number) in parts {
            self.parts.add(*name, (self.kind, self.components, self.grid.cols), shape, *number)?;
        }
        if self.kind == ArrayKind::Triangles && self.part(PartName::Faces).is_none() {
            return Err("triangles have `faces`, with the shape [m, 3] and the dtype <i4".into());
        }
        if self.kind == ArrayKind::Lines && self.pieces() == 0 {
            return Err("a line has at least 2 points".into());
        }
        Ok(self)
    }

    /// Returns a part, and where it begins in the slot, in bytes.
    pub fn part(&self, name: PartName) -> Option<(Part, u64)> {
        self.parts().find(|(one, ..)| *one == name).map(|(_, part, offset)| (part, offset))
    }

    /// Returns all parts, in the order in which they lie in the slot.
    pub fn parts(&self) -> impl Iterator<Item = (PartName, Part, u64)> + '_ {
        self.parts.placed(self.own_bytes())
    }

    /// Returns the number of dots, triangles or lines that are drawn of points, triangles or lines.
    pub fn pieces(&self) -> u64 {
        let indices = self.part(PartName::Faces).or(self.part(PartName::Edges));
        match (indices, self.kind) {
            (Some((part, _)), _) => part.rows.into(),
            (None, ArrayKind::Lines) if self.part(PartName::Vectors).is_none() => self.grid.count() - 1,
            _ => self.grid.count(),
        }
    }

    /// Returns how many elements a picture tells apart: of triangles these, else those of the array.
    pub fn elements(&self) -> u64 {
        if self.kind == ArrayKind::Triangles { self.pieces() } else { self.grid.count() }
    }

    /// Returns whether it is seen from the front: an image or a line plot. Then the camera only zooms and moves.
    pub fn is_flat(&self) -> bool {
        self.kind == ArrayKind::Image || self.is_plot()
    }

    pub fn is_plot(&self) -> bool {
        self.kind == ArrayKind::Lines && self.components == 1
    }

    pub fn kind(&self) -> ArrayKind {
        self.kind
    }

    pub fn grid(&self) -> Grid {
        self.grid
    }

    pub fn components(&self) -> u32 {
        self.components
    }

    pub fn number(&self) -> Number {
        self.number
    }

    /// Returns the shape in the form that [`DrawnArray::new`] takes: (rows, cols) for an image with one
    /// component.
    pub fn shape(&self) -> Vec<u64> {
        let (rows, cols) = (self.grid.rows.into(), self.grid.cols.into());
        match (self.kind, u64::from(self.components)) {
            (ArrayKind::Lines, 1) => vec![cols],
            (ArrayKind::Points | ArrayKind::Triangles | ArrayKind::Lines, components) => {
                vec![cols, components]
            }
            (_, 1) => vec![rows, cols],
            (_, components) => vec![rows, cols, components],
        }
    }

    /// Returns the size with all parts, and with the other arrays that lie behind it in its slot.
    pub fn bytes(&self) -> u64 {
        let own = self.parts().last().map_or(self.own_bytes(), |(_, part, offset)| offset + part.bytes());
        own.max(self.slot_bytes)
    }

    /// Returns the first array of a slot of so many bytes, which holds others, too: see [`Things`](super::things::Things).
    pub(super) fn in_a_slot_of(self, bytes: u64) -> Self {
        Self { slot_bytes: if bytes > self.bytes() { bytes } else { 0 }, ..self }
    }

    /// Returns the size without the parts.
    fn own_bytes(&self) -> u64 {
        self.grid.count() * u64::from(self.components) * self.number.bytes()
    }

    /// Returns the size in 32-bit words, rounded up because shaders read whole words.
    pub fn words(&self) -> u64 {
        self.bytes().div_ceil(4)
    }

    /// Returns the distance between two stamps of a checked frame, in 32-bit words. The last word of each
    /// group of this length has a stamp: see [`crate::contents::frame_stamp`]. A last word that the array
    /// fills only partly has none, and neither have the parts.
    pub fn stamp_words(&self) -> u64 {
        match self.number {
            Number::F32 => self.components.into(),
            Number::F16 | Number::U8 | Number::I32 => 1,
        }
    }

    pub fn stamps(&self) -> u64 {
        self.own_bytes() / 4 / self.stamp_words()
    }
}

impl ArrayKind {
    /// Returns the kind's name with an article, the allowed shapes, and the least number of rows and columns,
    /// also in words.
    pub(super) fn words(self) -> (&'static str, &'static str, u64, &'static str) {
        match self {
            Self::Mesh => ("a mesh", "[rows, cols, 4]", 2, "2 rows and columns"),
            Self::Surface => ("a surface", "[rows, cols]", 2, "2 rows and columns"),
            Self::Points => ("a set of points", "[n, 3] or [n, 4]", 1, "1 point"),
            Self::Image => ("an image", "[rows, cols], or [rows, cols, 1, 3 or 4]", 1, "1 row and column"),
            Self::Triangles => ("a set of triangles", "[n, 3] or [n, 4]", 1, "1 point"),
            Self::Lines => ("a set of lines", "[n], [n, 3] or [n, 4]", 1, "1 point"),
        }
    }
}

/// Formats as in "an image of [480, 640, 3]".
impl fmt::Display for DrawnArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {:?}", self.kind.words().0, self.shape())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(kind: ArrayKind, shape: &[u64], number: Number) -> Result<DrawnArray, String> {
        let array = DrawnArray::new(kind, shape, number)?;
        assert!(array.bytes() > 0 && array.stamps() <= array.words());
        Ok(array)
    }

    #[test]
    fn each_kind_has_its_shapes() {
        use {ArrayKind::*, Number::*};
        for (kind, shape, number, bytes, stamps) in [
            (Mesh, &[3, 5, 4][..], F32, 240, 15),
            (Surface, &[3, 5], F32, 60, 15),
            (Surface, &[3, 5], F16, 30, 7),
            (Points, &[7, 3], F32, 84, 7),
            (Points, &[7, 4], F32, 112, 7),
            (Image, &[1, 1], U8, 1, 0),
            (Image, &[3, 5, 3], U8, 45, 11),
            (Image, &[3, 5, 4], F32, 240, 15),
        ] {
            let array = made(kind, shape, number).unwrap();
            assert_eq!((array.shape().as_slice(), array.bytes(), array.stamps()), (shape, bytes, stamps));
        }
        assert_eq!(made(Image, &[3, 5, 1], U8).unwrap().shape(), [3, 5]);
        assert_eq!(made(Image, &[3, 5, 4], U8).unwrap().to_string(), "an image of [3, 5, 4]");
        assert_eq!(made(Mesh, &[3, 5, 4], F32).unwrap(), DrawnArray::mesh(Grid { cols: 5, rows: 3 }));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        use {ArrayKind::*, Number::*};
        for (kind, shape, number, word) in [
            (Mesh, &[3, 5][..], F32, "[rows, cols, 4]"),
            (Mesh, &[1, 5, 4], F32, "at least 2 rows and columns"),
            (Mesh, &[3, 5, 4], F16, "<f4"),
            (Points, &[0, 3], F32, "at least 1 point"),
            (Points, &[7, 2], F32, "[n, 3]"),
            (Points, &[u64::MAX, 3], F32, "too many"),
            (Surface, &[1 << 16, 1 << 16], F32, "too many"),
            (Image, &[0, 7], U8, "at least 1 row and column"),
            (Image, &[1, 1 << 31], U8, "too many"),
            (Mesh, &[2, u64::MAX, 4], F32, "too many"),
            (Image, &[5], U8, "rows, cols"),
            (Image, &[5, 5, 2], U8, "1, 3 or 4"),
            (Image, &[], U8, "rows, cols"),
        ] {
            let error = made(kind, shape, number).unwrap_err();
            assert!(error.contains(word), "{kind:?} {shape:?}: {error}");
        }
    }
}
