//! Further arrays that lie behind a client's array in its slot: colours, sizes, faces and the like.

use serde::{Deserialize, Serialize};

use crate::contents::array::{ArrayKind, Number};

/// Each part begins at a multiple of it, in bytes.
pub const PART_ALIGNMENT: u64 = 256;

/// In the order in which parts lie in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartName {
    /// (n, 3 or 4): RGB or RGBA of each point. Floats go from 0 to 1, bytes from 0 to 255.
    Colors,
    /// (n): the diameter of each point, in pixels.
    Sizes,
    /// (n, 3): where the line from each point ends, as a difference.
    Vectors,
    /// (m, 3): the numbers of each triangle's points.
    Faces,
    /// (m, 2): the numbers of each line's points.
    Edges,
}

impl PartName {
    pub const ALL: [Self; 5] = [Self::Colors, Self::Sizes, Self::Vectors, Self::Faces, Self::Edges];

    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Colors => "colors",
            Self::Sizes => "sizes",
            Self::Vectors => "vectors",
            Self::Faces => "faces",
            Self::Edges => "edges",
        }
    }

    /// Returns the shape and the types in words, the numbers of components that are allowed, and the types.
    fn rules(self) -> (&'static str, &'static [u64], &'static [Number]) {
        match self {
            Self::Colors => {
                ("[n, 3] or [n, 4], <f4, <f2 or |u1", &[3, 4], &[Number::F32, Number::F16, Number::U8])
            }
            Self::Sizes => ("[n], <f4", &[1], &[Number::F32]),
            Self::Vectors => ("[n, 3], <f4", &[3], &[Number::F32]),
            Self::Faces => ("[m, 3], <i4", &[3], &[Number::I32]),
            Self::Edges => ("[m, 2], <i4", &[2], &[Number::I32]),
        }
    }

    /// Returns whether each point has one, rather than each triangle or line.
    fn is_of_points(self) -> bool {
        matches!(self, Self::Colors | Self::Sizes | Self::Vectors)
    }

    /// Returns whether an array of this kind, with elements of so many numbers, can have such a part.
    fn suits(self, kind: ArrayKind, components: u32) -> bool {
        match self {
            Self::Colors => matches!(kind, ArrayKind::Points | ArrayKind::Triangles | ArrayKind::Lines),
            Self::Sizes => kind == ArrayKind::Points,
            Self::Faces => kind == ArrayKind::Triangles,
            Self::Vectors | Self::Edges => kind == ArrayKind::Lines && components > 1,
        }
    }
}

/// The layout of one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub rows: u32,
    pub components: u32,
    pub number: Number,
}

impl Part {
    pub fn bytes(&self) -> u64 {
        u64::from(self.rows) * u64::from(self.components) * self.number.bytes()
    }

    pub fn shape(&self) -> Vec<u64> {
        match self.components {
            1 => vec![self.rows.into()],
            _ => vec![self.rows.into(), self.components.into()],
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts([Option<Part>; PartName::ALL.len()]);

impl Parts {
    /// Adds a part to an array of this kind, of `count` elements of so many numbers. The error says what is allowed.
    pub(super) fn add(
        &mut self,
        name: PartName,
        (kind, components, count): (ArrayKind, u32, u32),
        shape: &[u64],
        number: Number,
    ) -> Result<(), String> {
        let ((words, allowed, numbers), word) = (name.rules(), name.name());
        if !name.suits(kind, components) {
            return Err(format!("{} has no `{word}`", kind.words().0));
        }
        let (rows, each) = match *shape {
            [rows] => (rows, 1),
            [rows, each] if each > 1 => (rows, each),
            _ => (0, 0),
        };
        if !allowed.contains(&each) || !numbers.contains(&number) || rows == 0 {
            return Err(format!("`{word}` has the shape and type {words}, not {shape:?}, {number:?}"));
        }
        if name.is_of_points() && rows != u64::from(count) {
            return Err(format!("there are {count} points, but `{word}` has {rows} rows"));
        }
        // As for the array itself, so that shaders can use 32-bit integers.
        if rows.checked_mul(each).is_none_or(|count| count >= 1 << 31) {
            return Err(format!("`{word}` is too large: {shape:?}"));
        }
        if matches!((name, self.0[PartName::Vectors as usize]), (PartName::Edges, Some(_))) {
            return Err("lines have `vectors` or `edges`, not both".into());
        }
        self.0[name as usize] = Some(Part { rows: rows as u32, components: each as u32, number });
        Ok(())
    }

    /// Returns the parts and where they begin, in bytes, behind an array of `before` bytes.
    pub(super) fn placed(&self, before: u64) -> impl Iterator<Item = (PartName, Part, u64)> + '_ {
        let mut end = before;
        PartName::ALL.into_iter().zip(&self.0).filter_map(move |(name, part)| {
            let (part, offset) = ((*part)?, end.next_multiple_of(PART_ALIGNMENT));
            end = offset + part.bytes();
            Some((name, part, offset))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contents::array::DrawnArray;

    fn made(
        kind: ArrayKind,
        shape: &[u64],
        parts: &[(PartName, &[u64], Number)],
    ) -> Result<DrawnArray, String> {
        let parts: Vec<_> =
            parts.iter().map(|(name, shape, number)| (*name, shape.to_vec(), *number)).collect();
        DrawnArray::new(kind, shape, Number::F32)?.with(&parts)
    }

    #[test]
    fn parts_lie_behind_the_array() {
        use {Number::*, PartName::*};
        let array = made(
            ArrayKind::Points,
            &[100, 3],
            // In any order.
            &[(Sizes, &[100], F32), (Colors, &[100, 3], U8)],
        )
        .unwrap();
        let parts: Vec<_> = array.parts().map(|(name, _, offset)| (name, offset)).collect();
        assert_eq!(parts, [(Colors, 1280), (Sizes, 1792)]);
        assert_eq!((array.bytes(), array.words(), array.stamps()), (2192, 548, 100));
        assert_eq!(array.pieces(), 100);
        let edges = made(ArrayKind::Lines, &[3, 4], &[(Edges, &[7, 2], I32)]).unwrap();
        assert_eq!((edges.bytes(), edges.pieces()), (256 + 56, 7));
        let vectors = made(ArrayKind::Lines, &[3, 4], &[(Vectors, &[3, 3], F32)]).unwrap();
        assert_eq!(vectors.pieces(), 3);
        let plot = made(ArrayKind::Lines, &[9], &[]).unwrap();
        assert_eq!((plot.pieces(), plot.shape(), plot.is_flat()), (8, vec![9], true));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        use {ArrayKind::*, Number::*, PartName::*};
        let cloud = &[5, 3][..];
        for (kind, shape, parts, words) in [
            (Points, cloud, &[(Colors, &[4, 3][..], U8)][..], "5 points, but `colors` has 4 rows"),
            (Points, cloud, &[(Colors, &[5, 2], U8)], "`colors` has the shape"),
            (Points, cloud, &[(Colors, &[5, 3], I32)], "<f4, <f2 or |u1"),
            (Points, cloud, &[(Sizes, &[5, 1], F32)], "`sizes` has the shape and type [n]"),
            (Points, cloud, &[(Faces, &[5, 3], I32)], "a set of points has no `faces`"),
            (Image, &[5, 5], &[(Colors, &[5, 3], U8)], "an image has no `colors`"),
            (Triangles, cloud, &[], "triangles have `faces`"),
            (Triangles, cloud, &[(Faces, &[0, 3], I32)], "`faces` has the shape"),
            (Triangles, cloud, &[(Faces, &[u64::MAX, 3], I32)], "`faces` is too large"),
            (Triangles, cloud, &[(Faces, &[2, 3], F32)], "[m, 3], <i4"),
            (Lines, &[1, 3], &[], "at least 2 points"),
            (Lines, &[1], &[], "at least 2 points"),
            (Lines, &[5], &[(Edges, &[2, 2], I32)], "has no `edges`"),
            (Lines, cloud, &[(Vectors, &[5, 3], F32), (Edges, &[2, 2], I32)], "not both"),
        ] {
            let error = made(kind, shape, parts).unwrap_err();
            assert!(error.contains(words), "{kind:?} {shape:?}: {error}");
        }
        assert!(DrawnArray::new(Image, &[5, 5], I32).unwrap_err().contains("<i4"));
    }
}
