//! Splits a buffer's bytes into pieces, one for each chunk that holds some of them. A chunk is memory from
//! one `cuMemCreate`, and an allocation has one or more of them. Pure arithmetic.

use crate::layout::Range;
use crate::{Error, Result};

/// The bytes of a buffer that lie in one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) chunk: usize,
    /// The bytes in the chunk, relative to its beginning.
    pub(crate) range: Range,
    /// Offset in the buffer, in bytes.
    pub(crate) at: u64,
}

/// Splits `range` of an allocation into pieces. `chunks` are the sizes in bytes of the allocation's chunks,
/// in order. Fails if `range` is empty, or ends after the last chunk.
pub(crate) fn pieces(chunks: &[u64], range: Range) -> Result<Vec<Piece>> {
    let all: u64 = chunks.iter().fold(0, |sum, &size| sum.saturating_add(size));
    let Some(end) = range.end().filter(|&end| end <= all && range.size > 0) else {
        return Err(Error::Rule(format!("{range} do not lie in memory of {all} bytes")));
    };
    let (mut pieces, mut begin) = (Vec::new(), 0_u64);
    for (chunk, &size) in chunks.iter().enumerate() {
        let next = begin.saturating_add(size);
        let (from, to) = (range.offset.max(begin), end.min(next));
        if from < to {
            let within = Range { offset: from - begin, size: to - from };
            pieces.push(Piece { chunk, range: within, at: from - range.offset });
        }
        begin = next;
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(offset: u64, size: u64) -> Range {
        Range { offset, size }
    }

    #[test]
    fn what_lies_in_two_chunks_is_two_pieces() {
        let first = Piece { chunk: 0, range: range(90, 10), at: 0 };
        let second = Piece { chunk: 1, range: range(0, 20), at: 10 };
        assert_eq!(pieces(&[100, 100], range(90, 30)).unwrap(), [first, second]);
    }

    #[test]
    fn what_lies_in_one_chunk_is_one_piece() {
        let chunks = [64, 32, 64];
        assert_eq!(pieces(&chunks, range(64, 32)).unwrap(), [Piece { chunk: 1, range: range(0, 32), at: 0 }]);
        assert_eq!(pieces(&chunks, range(159, 1)).unwrap(), [Piece { chunk: 2, range: range(63, 1), at: 0 }]);
        assert_eq!(pieces(&chunks, range(0, 160)).unwrap().len(), 3);
        // The chunks together have more bytes than 64 bits can count.
        assert_eq!(pieces(&[u64::MAX, 2, 100], range(0, 50)).unwrap().len(), 1);
    }

    #[test]
    fn what_is_not_there_is_refused_with_its_numbers() {
        for bad in [range(0, 0), range(160, 1), range(100, 61), range(u64::MAX, 2)] {
            let text = pieces(&[64, 96], bad).unwrap_err().to_string();
            assert!(text.contains(&bad.to_string()) && text.contains("160 bytes"), "{text}");
        }
    }

    proptest! {
        /// Every byte of the buffer is exactly one byte of one chunk, in order.
        #[test]
        fn pieces_are_the_range(chunks in prop::collection::vec(1u64..50, 1..8), a in 0u64..200, size in 1u64..200) {
            let all: u64 = chunks.iter().sum();
            let found = pieces(&chunks, range(a, size));
            prop_assert_eq!(found.is_ok(), a + size <= all);
            let Ok(found) = found else { return Ok(()) };
            let begin = |chunk: usize| chunks[..chunk].iter().sum::<u64>();
            let bytes: Vec<_> = found
                .iter()
                .flat_map(|piece| (0..piece.range.size).map(move |byte| (piece.at + byte, piece.chunk, piece.range.offset + byte)))
                .collect();
            for (index, (at, chunk, offset)) in bytes.iter().enumerate() {
                prop_assert_eq!(*at, index as u64);
                prop_assert!(*offset < chunks[*chunk]);
                prop_assert_eq!(begin(*chunk) + offset, a + at);
            }
            prop_assert_eq!(bytes.len() as u64, size);
        }
    }
}
