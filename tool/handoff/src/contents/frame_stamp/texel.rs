//! The frame's number in every texel: 12 bits as in [`crate::contents::frame_stamp`], three in each half
//! float.
//!
//! The stamp replaces the lowest three of a half float's ten stored mantissa bits. The other seven keep their
//! value, so a height below 1 changes by at most 0.0035, less than a step of the colour map.
//!
//! Vulkan may read a denormal half float as zero and may change the bits of a NaN, so a stamped half float is
//! always normal. Zero and the denormals get the smallest normal exponent (2⁻¹⁴, which is not visible);
//! infinities and NaN get the largest. A slot is cleared to zeros before the first frame, so a texel with a
//! half float that is not normal was *never* written.
//!
//! `kernels/texture.cu`, `paint.wgsl` and [`apply`] write stamps; `check.wgsl` and [`judge`] check them.

use half::f16;

use super::{Seen, seen};
use crate::contents::texture::Texel;

/// The value that tells a shader not to stamp.
pub const NONE: u32 = u32::MAX;

const PART: u16 = 7;
const EXPONENT: u16 = 0x7c00;
/// The smallest exponent of normal numbers.
const SMALLEST: u16 = 0x0400;
const LARGEST: u16 = 0x7800;

pub fn apply(texel: Texel, frame: u64) -> Texel {
    let stamp = super::of(frame);
    let part = |place: usize| {
        let bits = texel.halves()[place].to_bits();
        let exponent = match bits & EXPONENT {
            0 => SMALLEST,
            EXPONENT => LARGEST,
            normal => normal,
        };
        let kept = bits & !(EXPONENT | PART);
        f16::from_bits(kept | exponent | (stamp >> (3 * place)) as u16 & PART)
    };
    bytemuck::cast(std::array::from_fn::<_, 4, _>(part))
}

pub fn judge(texel: Texel, frame: u64) -> Seen {
    let halves = texel.halves();
    if !halves.iter().all(|half| half.is_normal()) {
        return Seen::Missing;
    }
    let part = |place: usize| u32::from(halves[place].to_bits() & PART) << (3 * place);
    seen(part(0) | part(1) | part(2) | part(3), frame)
}

/// Returns the lowest and the highest value that each half float can have had before the stamp.
pub fn ranges(texel: Texel) -> [[f64; 2]; 4] {
    texel.halves().map(|half| {
        let bits = half.to_bits();
        let (low, high) = (f16::from_bits(bits & !PART).to_f64(), f16::from_bits(bits | PART).to_f64());
        match bits & EXPONENT {
            // The original value may have been zero or denormal.
            SMALLEST => [low.min(high).min(0.0), low.max(high).max(0.0)],
            _ => [low.min(high), low.max(high)],
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texel(bits: [u16; 4]) -> Texel {
        let [height, across, along, line] = bits.map(f16::from_bits);
        Texel { height, across, along, line }
    }

    #[test]
    fn earlier_and_later_frames_are_told_apart_over_the_wrap() {
        let plain = Texel::from([0.5, -0.25, 0.0, 1.0]);
        for frame in [40, 4094, 4095, 4096, 1_000_000] {
            assert_eq!(judge(apply(plain, frame), frame), Seen::Right);
            for away in 1..=32 {
                assert_eq!(judge(apply(plain, frame - away), frame), Seen::Stale, "{frame} - {away}");
                assert_eq!(judge(apply(plain, frame + away), frame), Seen::Overwritten, "{frame} + {away}");
            }
        }
    }

    #[test]
    fn what_no_stamp_leaves_is_missing() {
        let stamped = apply(Texel::default(), 7);
        assert_eq!(judge(stamped, 7), Seen::Right);
        assert_eq!(judge(Texel::default(), 7), Seen::Missing);
        for half in [f16::from_bits(3), f16::NAN, f16::INFINITY, f16::NEG_ZERO] {
            assert_eq!(judge(Texel { line: half, ..stamped }, 7), Seen::Missing, "{half}");
        }
    }

    proptest! {
        /// For whatever a kernel writes, the stamp is found and is not visible.
        #[test]
        fn everything_can_be_stamped(bits: [u16; 4], frame: u64) {
            let (plain, stamped) = (texel(bits), apply(texel(bits), frame));
            prop_assert_eq!(judge(stamped, frame), Seen::Right);
            // Stamping twice has the same result as stamping once.
            prop_assert_eq!(apply(stamped, frame).halves().map(f16::to_bits), stamped.halves().map(f16::to_bits));
            for (was, [low, high]) in plain.halves().into_iter().zip(ranges(stamped)) {
                prop_assert!(!was.is_finite() || (low <= was.to_f64() && was.to_f64() <= high), "{}", was);
                let is_small = was.is_finite() && was.to_f64().abs() < 1.0;
                prop_assert!(!is_small || high - low < 0.0035, "{} to {}", low, high);
            }
        }
    }
}
