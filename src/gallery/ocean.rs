//! The reference for `kernels/ocean.cu`, written from the formula and not from the code.

use std::f64::consts::TAU;

use super::{cosine, place, sine};
use crate::wave::Grid;

/// Seconds after which the field repeats.
pub(super) const LOOP: f64 = 40.0;

const CHOP: f64 = 0.85;

/// Direction, length, height, and how often the wave passes in a loop.
const WAVES: [(f64, f64, f64, f64, f64); 10] = [
    (0.960, 0.280, 1.300, 0.0420, 8.0),
    (0.600, 0.800, 0.900, 0.0270, 9.0),
    (0.936, -0.352, 0.620, 0.0180, 11.0),
    (0.352, 0.936, 0.450, 0.0120, 13.0),
    (0.800, -0.600, 0.340, 0.0090, 15.0),
    (0.996, 0.096, 0.250, 0.0070, 18.0),
    (0.280, 0.960, 0.190, 0.0050, 21.0),
    (0.744, 0.672, 0.140, 0.0035, 24.0),
    (0.936, 0.352, 0.105, 0.0025, 28.0),
    (0.480, -0.880, 0.080, 0.0020, 32.0),
];

/// The point of the water that rests at (x, z).
fn point(x: f64, z: f64, turn: f64) -> [f64; 3] {
    let mut point = [x, 0.0, z];
    for (across, along, length, height, turns) in WAVES {
        let turns = (across * x + along * z) / length - turns * turn;
        let aside = CHOP * height * cosine(turns);
        let moved = [across * aside, height * sine(turns), along * aside];
        point = [point[0] + moved[0], point[1] + moved[1], point[2] + moved[2]];
    }
    point
}

/// The normal there, as the kernel has it: the waves' slopes are added, as if no wave moved another's. Not of length 1.
fn normal(x: f64, z: f64, turn: f64) -> [f64; 3] {
    let mut normal = [0.0, 1.0, 0.0];
    for (across, along, length, height, turns) in WAVES {
        let turns = (across * x + along * z) / length - turns * turn;
        let steep = TAU * height / length;
        let (s, c) = (CHOP * steep * sine(turns), steep * cosine(turns));
        normal = [normal[0] - across * c, normal[1] - s, normal[2] - along * c];
    }
    normal
}

fn length([x, y, z]: [f64; 3]) -> f64 {
    x.hypot(y).hypot(z)
}

pub(super) fn reference(grid: Grid, col: u32, row: u32, time: f64) -> [f64; 4] {
    let ((x, z), turn) = (place(grid, col, row), (time / LOOP).rem_euclid(1.0));
    let [px, y, pz] = point(x, z, turn);
    let normal = normal(x, z, turn);
    let level = normal[1] / length(normal);
    [px, y, pz, 0.4 + 2.5 * y + 1.2 * (1.0 - level)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The directions have length 1, and the waves are as fast as waves of their length in deep water.
    #[test]
    fn the_waves_are_those_of_deep_water() {
        for (across, along, length, _, turns) in WAVES {
            assert!((across.hypot(along) - 1.0).abs() < 0.005, "{across}, {along}");
            assert!((turns - 9.0 / length.sqrt()).abs() < 1.0, "{length}: {turns}");
        }
    }

    /// The formula of the normal is that of the surface which the points make, to first order in the waves' steepness.
    #[test]
    fn the_normal_is_that_of_the_surface() {
        let (delta, mut worst) = (1e-6, 0.0f64);
        for index in 0..400 {
            let (x, z, turn) = (f64::from(index % 20) / 10.0 - 1.0, f64::from(index / 20) / 10.0 - 1.0, 0.3);
            let slope = |dx: f64, dz: f64| {
                let (after, before) = (point(x + dx, z + dz, turn), point(x - dx, z - dz, turn));
                [0, 1, 2].map(|axis| (after[axis] - before[axis]) / (2.0 * delta))
            };
            let (a, b) = (slope(0.0, delta), slope(delta, 0.0));
            let surface = [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
            let formula = normal(x, z, turn);
            let product: f64 = surface.iter().zip(formula).map(|(a, b)| a * b).sum();
            worst = worst.max((product / length(surface) / length(formula)).clamp(-1.0, 1.0).acos());
        }
        println!("largest angle between the two: {worst:.3} rad");
        assert!(worst < 0.3, "{worst}");
    }
}
