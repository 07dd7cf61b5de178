//! Several buffers in one allocation: where each may lie. Pure arithmetic, so it can be tested without a GPU.
//!
//! Both APIs restrict the offset. Vulkan's rule is `VkMemoryRequirements`: the offset is a multiple of `alignment`,
//! and `size` bytes from there lie in the allocation (`VUID-vkBindBufferMemory-memoryOffset-01036`, `-size-01037`;
//! see [Resource Memory Association]). CUDA requires that a mapping has the offset and size of Vulkan's buffer. Its
//! kernels load `float4` and `double2` from typed pointers, so the address must also be a multiple of 16
//! ([`CUDA_ALIGNMENT`]).
//!
//! If two mappings overlap, CUDA may give them two different addresses. A write through one is then not always visible
//! through the other (`cuExternalMemoryGetMappedBuffer`). This is never what a program intends, so it is an error here.
//!
//! [Resource Memory Association]: https://registry.khronos.org/vulkan/specs/latest/html/vkspec.html#resources-association

use std::fmt;

use crate::Error;

/// The largest natural alignment of a type that CUDA loads and stores with one instruction: 16 bytes. [`check`]
/// requires it.
pub const CUDA_ALIGNMENT: u64 = 16;

/// The smallest alignment that [`pack`] uses, in bytes: that of every address from `cuMemAlloc`. Kernels may have
/// been tuned for it.
pub const PACKED_ALIGNMENT: u64 = 256;

/// A range of bytes in an allocation.
///
/// # Examples
/// ```
/// use vulkan_cuda::layout::Range;
///
/// let (a, b) = (Range { offset: 0, size: 100 }, Range { offset: 100, size: 28 });
/// assert!(!a.overlaps(b)); // they only touch
/// assert_eq!(b.end(), Some(128));
/// assert_eq!(b.to_string(), "28 bytes at offset 100");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Bytes from the beginning of the allocation.
    pub offset: u64,
    /// Number of bytes.
    pub size: u64,
}

impl Range {
    /// Returns the offset of the first byte after the range, or `None` if it does not fit in 64 bits.
    pub fn end(self) -> Option<u64> {
        self.offset.checked_add(self.size)
    }

    /// Returns whether the two ranges have a byte in common.
    pub fn overlaps(self, other: Self) -> bool {
        let (end, other_end) = (self.end().unwrap_or(u64::MAX), other.end().unwrap_or(u64::MAX));
        self.offset < other_end && other.offset < end
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at offset {}", self.size, self.offset)
    }
}

/// What a buffer requires of its place: two fields of `VkMemoryRequirements`. [`pack`] and [`check`] take one for each
/// buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Number of bytes. It may be more than the buffer's own size.
    pub size: u64,
    /// What the offset must be a multiple of, in bytes. A power of two.
    pub alignment: u64,
}

/// Why a buffer cannot lie in its place. Returned by [`pack`] and [`check`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The buffer with this index has no bytes.
    #[error("buffer {0} has no bytes: neither API has a buffer of size 0")]
    Empty(usize),
    /// The offset is not aligned as Vulkan requires.
    #[error(
        "buffer {index} ({range}) is not at a multiple of {alignment}, as VkMemoryRequirements::alignment requires"
    )]
    Vulkan {
        /// Which buffer.
        index: usize,
        /// Where it was put.
        range: Range,
        /// The alignment that Vulkan requires, in bytes.
        alignment: u64,
    },
    /// The offset is not a multiple of [`CUDA_ALIGNMENT`].
    #[error(
        "buffer {index} ({range}) is not at a multiple of {CUDA_ALIGNMENT}, as CUDA's vector loads require"
    )]
    Cuda {
        /// Which buffer.
        index: usize,
        /// Where it was put.
        range: Range,
    },
    /// The range ends after the allocation.
    #[error("buffer {index} ({range}) does not lie in the allocation, which has {allocation} bytes")]
    Outside {
        /// Which buffer.
        index: usize,
        /// Where it was put.
        range: Range,
        /// The allocation's size in bytes.
        allocation: u64,
    },
    /// Two buffers have bytes in common.
    #[error("buffer {first} ({first_range}) and buffer {second} ({second_range}) overlap")]
    Overlap {
        /// The buffer with the smaller index.
        first: usize,
        /// Its range, with the bytes that Vulkan requires beyond it.
        first_range: Range,
        /// The buffer with the greater index.
        second: usize,
        /// Its range, in the same way.
        second_range: Range,
    },
    /// All buffers together do not fit in 64 bits.
    #[error("the buffers together need more than 2^64 bytes")]
    TooLarge,
}

impl From<LayoutError> for Error {
    fn from(error: LayoutError) -> Self {
        Self::Rule(error.to_string())
    }
}

/// Places buffers one after the other. Each begins at the next multiple of its own alignment and of
/// [`PACKED_ALIGNMENT`], which is more than the two APIs require. Returns their ranges and the size of the
/// allocation, in bytes.
///
/// # Errors
/// Fails if a buffer has 0 bytes, or if the total does not fit in 64 bits.
///
/// # Examples
/// ```
/// use vulkan_cuda::layout::{Needs, pack};
///
/// let needs = [Needs { size: 1000, alignment: 16 }, Needs { size: 12, alignment: 1024 }];
/// let (ranges, size) = pack(&needs).unwrap();
/// assert_eq!((ranges[0].offset, ranges[1].offset, size), (0, 1024, 1036));
/// ```
pub fn pack(needs: &[Needs]) -> Result<(Vec<Range>, u64), LayoutError> {
    let mut end: u64 = 0;
    let mut ranges = Vec::with_capacity(needs.len());
    for need in needs {
        let alignment = need.alignment.max(PACKED_ALIGNMENT);
        let offset = end.checked_next_multiple_of(alignment).ok_or(LayoutError::TooLarge)?;
        let range = Range { offset, size: need.size };
        end = range.end().ok_or(LayoutError::TooLarge)?;
        ranges.push(range);
    }
    check(end, needs, &ranges)?;
    Ok((ranges, end))
}

/// Checks places that you chose against the rules of both APIs.
///
/// `allocation` is the size of the allocation in bytes. `ranges` are what will be bound and mapped, one for each of
/// `needs`. If Vulkan requires more bytes than a range has, the extra bytes must be free too.
///
/// # Errors
/// Returns the first broken rule, with the buffers' indices and ranges.
///
/// # Examples
/// ```
/// use vulkan_cuda::layout::{LayoutError, Needs, Range, check};
///
/// let needs = [Needs { size: 64, alignment: 16 }; 2];
/// let place = |offset| Range { offset, size: 64 };
/// assert_eq!(check(128, &needs, &[place(0), place(64)]), Ok(()));
/// let wrong = check(128, &needs, &[place(0), place(72)]);
/// assert!(matches!(wrong, Err(LayoutError::Vulkan { index: 1, alignment: 16, .. })));
/// ```
pub fn check(allocation: u64, needs: &[Needs], ranges: &[Range]) -> Result<(), LayoutError> {
    // The bytes that Vulkan uses.
    let taken: Vec<_> = needs
        .iter()
        .zip(ranges)
        .map(|(need, range)| Range { offset: range.offset, size: range.size.max(need.size) })
        .collect();
    for (index, (need, &range)) in needs.iter().zip(ranges).enumerate() {
        let alignment = need.alignment;
        if range.size == 0 {
            return Err(LayoutError::Empty(index));
        }
        if !range.offset.is_multiple_of(alignment) {
            return Err(LayoutError::Vulkan { index, range, alignment });
        }
        if !range.offset.is_multiple_of(CUDA_ALIGNMENT) {
            return Err(LayoutError::Cuda { index, range });
        }
        if taken[index].end().is_none_or(|end| end > allocation) {
            return Err(LayoutError::Outside { index, range: taken[index], allocation });
        }
        if let Some(first) = (0..index).find(|&first| taken[first].overlaps(taken[index])) {
            let (first_range, second_range) = (taken[first], taken[index]);
            return Err(LayoutError::Overlap { first, first_range, second: index, second_range });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ANY: Needs = Needs { size: 1, alignment: 1 };

    fn at(offset: u64, size: u64) -> Range {
        Range { offset, size }
    }

    #[test]
    fn every_broken_rule_is_named_with_its_numbers() {
        let verdict = |needs: &[Needs], ranges: &[Range]| check(4096, needs, ranges).unwrap_err().to_string();
        for (text, parts) in [
            (verdict(&[ANY], &[at(0, 0)]), &["buffer 0", "no bytes"][..]),
            (verdict(&[Needs { size: 8, alignment: 64 }], &[at(32, 8)]), &["buffer 0", "offset 32", "64"]),
            (verdict(&[ANY], &[at(8, 8)]), &["buffer 0", "offset 8", "16", "CUDA"]),
            (verdict(&[ANY], &[at(4080, 17)]), &["17 bytes at offset 4080", "4096 bytes"]),
            // The size that counts is Vulkan's, which is rounded up.
            (verdict(&[Needs { size: 64, alignment: 16 }], &[at(4080, 16)]), &["64 bytes at offset 4080"]),
            (
                verdict(&[ANY, ANY, ANY], &[at(0, 100), at(512, 100), at(96, 16)]),
                &["buffer 0 (100 bytes at offset 0)", "buffer 2 (16 bytes at offset 96)", "overlap"],
            ),
            (verdict(&[ANY], &[at(16, u64::MAX)]), &["does not lie in the allocation"]),
        ] {
            for part in parts {
                assert!(text.contains(part), "{part} is missing in: {text}");
            }
        }
        assert_eq!(check(4096, &[ANY, ANY], &[at(0, 16), at(16, 4080)]), Ok(()));
    }

    #[test]
    fn what_touches_does_not_overlap() {
        assert!(!at(0, 16).overlaps(at(16, 16)) && !at(16, 16).overlaps(at(0, 16)));
        assert!(at(0, 17).overlaps(at(16, 16)) && at(16, 16).overlaps(at(0, 17)));
        assert!(at(0, 100).overlaps(at(10, 1)) && at(u64::MAX - 1, 5).overlaps(at(u64::MAX - 1, 1)));
    }

    #[test]
    fn what_no_address_reaches_is_an_error() {
        let huge = Needs { size: u64::MAX - 100, alignment: 1 };
        assert_eq!(pack(&[huge, huge]), Err(LayoutError::TooLarge));
        assert_eq!(pack(&[Needs { size: 0, alignment: 1 }]), Err(LayoutError::Empty(0)));
        assert_eq!(pack(&[]), Ok((Vec::new(), 0)));
    }

    fn needs() -> impl Strategy<Value = Vec<Needs>> {
        let need = (1u64..100_000, 0u32..17).prop_map(|(size, power)| Needs { size, alignment: 1 << power });
        prop::collection::vec(need, 1..12)
    }

    proptest! {
        #[test]
        fn what_is_packed_keeps_every_rule(needs in needs()) {
            let (ranges, size) = pack(&needs).unwrap();
            prop_assert_eq!(check(size, &needs, &ranges), Ok(()));
            for (need, range) in needs.iter().zip(&ranges) {
                prop_assert_eq!(range.size, need.size);
                prop_assert_eq!(range.offset % need.alignment.max(PACKED_ALIGNMENT), 0);
            }
            // Only alignment wastes bytes, and one byte less is too little.
            prop_assert_eq!(ranges.last().and_then(|last| last.end()), Some(size));
            let outside = matches!(check(size - 1, &needs, &ranges), Err(LayoutError::Outside { .. }));
            prop_assert!(outside);
        }

        /// Compares with the definition: a byte that both ranges have.
        #[test]
        fn overlap_is_a_common_byte(a in 0u64..40, b in 0u64..40, n in 1u64..20, m in 1u64..20) {
            let common = (a..a + n).any(|byte| (b..b + m).contains(&byte));
            prop_assert_eq!(at(a, n).overlaps(at(b, m)), common);
        }

        /// A buffer that was moved onto its neighbour is refused.
        #[test]
        fn a_moved_buffer_is_found(needs in needs(), which in 0usize..12) {
            prop_assume!(needs.len() > 1);
            let (mut ranges, size) = pack(&needs).unwrap();
            let which = 1 + which % (needs.len() - 1);
            ranges[which].offset = ranges[which - 1].offset;
            prop_assert!(check(size, &needs, &ranges).is_err());
        }
    }
}
