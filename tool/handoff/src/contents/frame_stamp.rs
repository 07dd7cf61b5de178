//! The frame's number in every vertex, stored in the vertex itself, so that the two cannot be separated.
//!
//! `w` is the colour. Its lowest 12 bits become the frame's number plus one, modulo 4096. The other 20 keep
//! their value, so a colour below 1 changes by less than 1/4096. A ring has at most 32 frames, far fewer than
//! 4096, so earlier and later frames can be told apart.
//!
//! `kernels/frame_stamp.cu`, `gallery.wgsl` and [`apply`] stamp; `check.wgsl` and [`judge`] check.

pub mod texel;

/// The bits of `w` that are the stamp.
pub const MASK: u32 = 0xfff;

/// The value of a slot's words before the first frame. [`apply`] never returns a `w` with this value.
pub const BLANK: u32 = u32::MAX;

pub fn of(frame: u64) -> u32 {
    frame.wrapping_add(1) as u32 & MASK
}

pub fn apply(w: f32, frame: u64) -> f32 {
    let colour = w.to_bits() & !MASK;
    // A NaN may have the bits of BLANK. Without the sign bit it is still NaN.
    let colour = if colour == BLANK & !MASK { colour & (u32::MAX >> 1) } else { colour };
    f32::from_bits(colour | of(frame))
}

/// The result of comparing a stamp with the frame that is being drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seen {
    Right,
    /// The stamp of an earlier frame: this frame's value was not written yet.
    Stale,
    /// The stamp of a later frame: the value was overwritten while it was being read.
    Overwritten,
    /// No stamp, because the value was never written.
    Missing,
}

pub fn judge(w: f32, frame: u64) -> Seen {
    if w.to_bits() == BLANK { Seen::Missing } else { seen(w.to_bits() & MASK, frame) }
}

/// Compares a stamp with `frame`. Of the 4096 numbers, half are earlier than `frame`, and half are later.
fn seen(stamp: u32, frame: u64) -> Seen {
    match stamp.wrapping_sub(of(frame)) & MASK {
        0 => Seen::Right,
        ahead if ahead <= MASK / 2 => Seen::Overwritten,
        _ => Seen::Stale,
    }
}

/// Returns the distance from `want` to the colours that a stamped `w` can have had; 0 if it is one of them.
pub fn distance(w: f32, want: f64) -> f64 {
    let [a, b] = [w.to_bits() & !MASK, w.to_bits() | MASK].map(|bits| f64::from(f32::from_bits(bits)));
    // Compare with `<=`, because `min` and `max` would ignore a NaN.
    let (low, high) = if a <= b { (a, b) } else { (b, a) };
    if low <= want && want <= high { 0.0 } else { (low - want).abs().min((want - high).abs()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn earlier_and_later_frames_are_told_apart_over_the_wrap() {
        for frame in [40, 4094, 4095, 4096, 1_000_000] {
            assert_eq!(judge(apply(0.5, frame), frame), Seen::Right);
            for away in 1..=32 {
                assert_eq!(judge(apply(0.5, frame - away), frame), Seen::Stale, "{frame} - {away}");
                assert_eq!(judge(apply(0.5, frame + away), frame), Seen::Overwritten, "{frame} + {away}");
            }
            assert_eq!(judge(f32::from_bits(BLANK), frame), Seen::Missing);
        }
    }

    #[test]
    fn the_distance_knows_what_the_stamp_took() {
        for w in [0.0, 1e-6, 0.25, 0.7, 1.0] {
            let stamped = apply(w, 1234);
            assert_eq!(distance(stamped, f64::from(w)), 0.0, "{w}");
            assert!(distance(stamped, f64::from(w) + 0.01) > 0.009);
            assert!(distance(stamped, f64::from(w) - 0.01) > 0.009);
        }
        assert!(distance(f32::from_bits(BLANK), 0.5).is_nan());
    }

    proptest! {
        /// Holds for whatever a kernel writes as a colour.
        #[test]
        fn nothing_stamped_is_blank(bits: u32, frame: u64) {
            let stamped = apply(f32::from_bits(bits), frame);
            prop_assert_ne!(stamped.to_bits(), BLANK);
            prop_assert_eq!(judge(stamped, frame), Seen::Right);
            prop_assert_eq!(f32::from_bits(bits & !MASK).is_nan(), f32::from_bits(stamped.to_bits() & !MASK).is_nan());
        }
    }
}
