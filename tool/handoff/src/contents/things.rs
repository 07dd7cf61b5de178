//! Several arrays in one slot, one behind the other. They are drawn in one view, or side by side.

use crate::contents::array::{ArrayKind, DrawnArray};
use crate::contents::parts::PART_ALIGNMENT;

/// The most arrays in a slot.
pub const MAX_THINGS: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Things {
    /// With the bytes of the others: see [`DrawnArray::bytes`].
    pub first: DrawnArray,
    /// The others, and where each begins in the slot, in bytes.
    pub more: Vec<(DrawnArray, u64)>,
    /// How many views are side by side, each of one array. With 0, all arrays are in one view.
    pub columns: u32,
}

impl From<DrawnArray> for Things {
    fn from(first: DrawnArray) -> Self {
        Self { first, more: Vec::new(), columns: 0 }
    }
}

impl Things {
    /// Fails if these cannot be drawn together. The error says what is allowed.
    pub fn new(first: DrawnArray, more: &[DrawnArray], columns: u64) -> Result<Self, String> {
        let count = 1 + more.len();
        if count > MAX_THINGS {
            return Err(format!("{count} arrays in one slot: {MAX_THINGS} is the limit"));
        }
        if columns > count as u64 {
            return Err(format!("`columns` is {columns}, but there are only {count} arrays"));
        }
        let flat = more.iter().find(|array| array.is_flat() != first.is_flat());
        match (columns, flat) {
            (0, Some(other)) => {
                return Err(format!("{first} and {other} cannot share a view: set `columns`"));
            }
            (0, None) if count > 1 && first.kind() == ArrayKind::Image => {
                return Err("several images would hide each other in one view: set `columns`".into());
            }
            _ => {}
        }
        let mut end = first.bytes();
        let placed = more.iter().map(|&array| {
            let offset = end.next_multiple_of(PART_ALIGNMENT);
            end = offset + array.bytes();
            (array, offset)
        });
        let more: Vec<_> = placed.collect();
        let columns = if more.is_empty() { 0 } else { columns as u32 };
        Ok(Self { first: first.in_a_slot_of(end), more, columns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contents::array::Number;

    fn array(kind: ArrayKind, shape: &[u64]) -> DrawnArray {
        DrawnArray::new(kind, shape, Number::F32).unwrap()
    }

    #[test]
    fn things_lie_behind_each_other() {
        use ArrayKind::{Image, Points};
        let (dots, image) = (array(Points, &[100, 3]), array(Image, &[2, 2]));
        let things = Things::new(dots, &[image, dots], 2).unwrap();
        assert_eq!(things.more, [(image, 1280), (dots, 1536)]);
        assert_eq!((things.first.bytes(), things.first.words()), (2736, 684));
        assert_eq!((things.first.stamps(), things.first.shape()), (100, vec![100, 3]));
        assert_ne!(things.first, dots, "it is not the array alone");
        assert_eq!(Things::new(dots, &[], 1).unwrap(), Things::from(dots));
    }

    #[test]
    fn what_cannot_be_drawn_together_is_said() {
        use ArrayKind::{Image, Lines, Points};
        let (dots, image, plot) = (array(Points, &[5, 3]), array(Image, &[2, 2]), array(Lines, &[9]));
        assert!(Things::new(plot, &[plot], 0).is_ok());
        for (first, more, columns, words) in [
            (dots, &[dots; 16][..], 0, "17 arrays"),
            (dots, &[dots], 3, "only 2 arrays"),
            (dots, &[dots], u64::MAX, "only 2 arrays"),
            (dots, &[image], 0, "cannot share a view"),
            (plot, &[dots], 0, "cannot share a view"),
            (image, &[image], 0, "hide each other"),
            (image, &[plot], 0, "hide each other"),
        ] {
            let error = Things::new(first, more, columns).unwrap_err();
            assert!(error.contains(words), "{words}: {error}");
        }
    }
}
