//! The reference for `kernels/swarm.cu`, written from the formula, independently of the code.

use super::{cosine, numbers, sine};
use crate::wave::Grid;

/// Seconds after which the field repeats.
pub(super) const LOOP: f64 = 60.0;

fn hash(seed: u32) -> u32 {
    let state = seed.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
    let word = ((state >> ((state >> 28) + 4)) ^ state).wrapping_mul(277_803_737);
    (word >> 22) ^ word
}

/// The upper 24 bits of a hash as a number from 0 to 1, without 1.
fn unit(bits: u32) -> f64 {
    f64::from(bits >> 8) / f64::from(1 << 24)
}

pub(super) fn reference(grid: Grid, col: u32, row: u32, time: f64, values: &[f32]) -> [f64; 4] {
    let turn = (time / LOOP).rem_euclid(1.0);
    let a = hash(row * grid.cols + col);
    let (b, c) = (hash(a), hash(hash(a)));
    let radius = unit(c);
    let speeds = hash(c);
    let along = unit(a) + f64::from(1 + speeds % 4) * turn;
    let around = unit(b) + f64::from(3 + speeds / 4 % 8) * turn;
    let [ring, tube] = numbers(values);
    let from_middle = ring + tube * radius * cosine(around);
    [from_middle * cosine(along), tube * radius * sine(around), from_middle * sine(along), 1.0 - 0.8 * radius]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A million particles fill a hundred parts of a range evenly, and neighbours are independent.
    #[test]
    fn the_hash_is_even_and_independent() {
        let (mut parts, mut product) = ([0u32; 100], 0.0);
        const COUNT: u32 = 1_000_000;
        for index in 0..COUNT {
            let (here, next) = (unit(hash(index)), unit(hash(index + 1)));
            parts[(100.0 * here) as usize] += 1;
            product += (here - 0.5) * (next - 0.5);
        }
        assert!(parts.iter().all(|part| (9_600..10_400).contains(part)), "{parts:?}");
        assert!((product / f64::from(COUNT)).abs() < 5e-4, "{product}");
    }
}
