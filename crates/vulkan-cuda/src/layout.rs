//! The placement of several buffers in one allocation. Pure arithmetic, so it can be tested without a GPU.
//!
//! Vulkan's rule is `VkMemoryRequirements`: the offset is a multiple of `alignment`, and `size` bytes from
//! there lie in the allocation ([Resource Memory Association]). CUDA's kernels load `float4` and `double2`
//! from typed pointers, so the offset must also be a multiple of 16. No two buffers may share a byte: CUDA
//! may give overlapping mappings different addresses, and a write through one is then not always visible
//! through the other (`cuExternalMemoryGetMappedBuffer`).
//!
//! [Resource Memory Association]: https://registry.khronos.org/vulkan/specs/latest/html/vkspec.html#resources-association

use std::fmt;

use ash::vk::MemoryRequirements;

use crate::{Error, Result};

/// The smallest alignment that [`pack`] uses, in bytes: the alignment of addresses from `cuMemAlloc`, for
/// which kernels may be tuned. It is enough for CUDA's vector loads.
const PACKED_ALIGNMENT: u64 = 256;

/// A range of bytes in an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Bytes from the beginning of the allocation.
    pub offset: u64,
    /// Number of bytes.
    pub size: u64,
}

impl Range {
    /// Returns the offset of the first byte after the range, or `None` if it does not fit in 64 bits.
    pub(crate) fn end(self) -> Option<u64> {
        self.offset.checked_add(self.size)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at offset {}", self.size, self.offset)
    }
}

/// Places buffers one after the other. Each begins at the next multiple of its own alignment and of
/// [`PACKED_ALIGNMENT`]. Returns the buffers' ranges and the size of the allocation. Fails if a buffer has
/// size 0, or if the size of the allocation does not fit in 64 bits.
pub(crate) fn pack(needs: &[MemoryRequirements]) -> Result<(Vec<Range>, u64)> {
    let too_large = || Error::Rule("the buffers together need more than 2^64 bytes".into());
    let mut end: u64 = 0;
    let mut ranges = Vec::with_capacity(needs.len());
    for (index, need) in needs.iter().enumerate() {
        if need.size == 0 {
            return Err(empty(index));
        }
        let alignment = need.alignment.max(PACKED_ALIGNMENT);
        let offset = end.checked_next_multiple_of(alignment).ok_or_else(too_large)?;
        let range = Range { offset, size: need.size };
        end = range.end().ok_or_else(too_large)?;
        ranges.push(range);
    }
    Ok((ranges, end))
}

pub(crate) fn empty(index: usize) -> Error {
    Error::Rule(format!("buffer {index} has no bytes: neither API has a buffer of size 0"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The largest natural alignment of a type that CUDA loads and stores with one instruction, in bytes.
    const CUDA_ALIGNMENT: u64 = 16;

    impl Range {
        /// Returns whether the two ranges have a byte in common.
        fn overlaps(self, other: Self) -> bool {
            let (end, other_end) = (self.end().unwrap_or(u64::MAX), other.end().unwrap_or(u64::MAX));
            self.offset < other_end && other.offset < end
        }
    }

    /// Checks places in an allocation of `allocation` bytes, one for each of `needs`, against the rules of
    /// both APIs. If Vulkan requires more bytes than a range has, the extra bytes must be free too.
    fn check(allocation: u64, needs: &[MemoryRequirements], ranges: &[Range]) -> Result<()> {
        let wrong = |text: String| Err(Error::Rule(text));
        // The bytes that Vulkan uses.
        let taken: Vec<_> = needs
            .iter()
            .zip(ranges)
            .map(|(need, range)| Range { offset: range.offset, size: range.size.max(need.size) })
            .collect();
        for (index, (need, range)) in needs.iter().zip(ranges).enumerate() {
            let alignment = need.alignment;
            if range.size == 0 {
                return Err(empty(index));
            }
            if !range.offset.is_multiple_of(alignment) {
                return wrong(format!(
                    "buffer {index} ({range}) is not at a multiple of {alignment}, as VkMemoryRequirements::alignment requires"
                ));
            }
            if !range.offset.is_multiple_of(CUDA_ALIGNMENT) {
                return wrong(format!(
                    "buffer {index} ({range}) is not at a multiple of {CUDA_ALIGNMENT}, as CUDA's vector loads require"
                ));
            }
            let own = taken[index];
            if own.end().is_none_or(|end| end > allocation) {
                return wrong(format!(
                    "buffer {index} ({own}) does not lie in the allocation, which has {allocation} bytes"
                ));
            }
            if let Some(first) = (0..index).find(|&first| taken[first].overlaps(own)) {
                return wrong(format!(
                    "buffer {first} ({}) and buffer {index} ({own}) overlap",
                    taken[first]
                ));
            }
        }
        Ok(())
    }

    const ANY: MemoryRequirements = needs(1, 1);

    const fn needs(size: u64, alignment: u64) -> MemoryRequirements {
        MemoryRequirements { size, alignment, memory_type_bits: 1 }
    }

    fn at(offset: u64, size: u64) -> Range {
        Range { offset, size }
    }

    #[test]
    fn every_broken_rule_is_named_with_its_numbers() {
        let verdict = |needs: &[MemoryRequirements], ranges: &[Range]| {
            check(4096, needs, ranges).unwrap_err().to_string()
        };
        for (text, parts) in [
            (verdict(&[ANY], &[at(0, 0)]), &["buffer 0", "no bytes"][..]),
            (verdict(&[needs(8, 64)], &[at(32, 8)]), &["buffer 0", "offset 32", "64"]),
            (verdict(&[ANY], &[at(8, 8)]), &["buffer 0", "offset 8", "16", "CUDA"]),
            (verdict(&[ANY], &[at(4080, 17)]), &["17 bytes at offset 4080", "4096 bytes"]),
            // The size that counts is Vulkan's, which is rounded up.
            (verdict(&[needs(64, 16)], &[at(4080, 16)]), &["64 bytes at offset 4080"]),
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
        check(4096, &[ANY, ANY], &[at(0, 16), at(16, 4080)]).unwrap();
    }

    #[test]
    fn what_touches_does_not_overlap() {
        assert!(!at(0, 16).overlaps(at(16, 16)) && !at(16, 16).overlaps(at(0, 16)));
        assert!(at(0, 17).overlaps(at(16, 16)) && at(16, 16).overlaps(at(0, 17)));
        assert!(at(0, 100).overlaps(at(10, 1)) && at(u64::MAX - 1, 5).overlaps(at(u64::MAX - 1, 1)));
    }

    #[test]
    fn what_no_address_reaches_is_an_error() {
        let huge = needs(u64::MAX - 100, 1);
        assert!(pack(&[huge, huge]).unwrap_err().to_string().contains("more than 2^64 bytes"));
        assert!(pack(&[needs(0, 1)]).unwrap_err().to_string().contains("buffer 0 has no bytes"));
        assert_eq!(pack(&[]).unwrap(), (Vec::new(), 0));
    }

    fn some() -> impl Strategy<Value = Vec<MemoryRequirements>> {
        let need = (1u64..100_000, 0u32..17).prop_map(|(size, power)| needs(size, 1 << power));
        prop::collection::vec(need, 1..12)
    }

    proptest! {
        #[test]
        fn what_is_packed_keeps_every_rule(needs in some()) {
            let (ranges, size) = pack(&needs).unwrap();
            prop_assert!(check(size, &needs, &ranges).is_ok());
            for (need, range) in needs.iter().zip(&ranges) {
                prop_assert_eq!(range.size, need.size);
                prop_assert_eq!(range.offset % need.alignment.max(PACKED_ALIGNMENT), 0);
            }
            // Only alignment wastes bytes, and one byte less is too little.
            prop_assert_eq!(ranges.last().and_then(|last| last.end()), Some(size));
            let outside = check(size - 1, &needs, &ranges).unwrap_err().to_string();
            prop_assert!(outside.contains("does not lie in the allocation"), "{}", outside);
        }

        /// Compares with the definition: a byte that both ranges have.
        #[test]
        fn overlap_is_a_common_byte(a in 0u64..40, b in 0u64..40, n in 1u64..20, m in 1u64..20) {
            let common = (a..a + n).any(|byte| (b..b + m).contains(&byte));
            prop_assert_eq!(at(a, n).overlaps(at(b, m)), common);
        }

        /// A buffer that was moved onto its neighbour is refused.
        #[test]
        fn a_moved_buffer_is_found(needs in some(), which in 0usize..12) {
            prop_assume!(needs.len() > 1);
            let (mut ranges, size) = pack(&needs).unwrap();
            let which = 1 + which % (needs.len() - 1);
            ranges[which].offset = ranges[which - 1].offset;
            prop_assert!(check(size, &needs, &ranges).is_err());
        }
    }
}
