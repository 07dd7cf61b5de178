//! The reference for `kernels/ocean.cu`, written from the formula, independently of the code.

use std::f64::consts::TAU;

use super::{cosine, numbers, place, sine};
use crate::wave::Grid;

/// Seconds after which the field repeats.
pub(super) const LOOP: f64 = 40.0;

struct Sea {
    amplitude: f64,
    chop: f64,
    wind: f64,
}

impl Sea {
    fn of(values: &[f32]) -> Self {
        let [amplitude, chop, wind] = numbers(values);
        Self { amplitude, chop, wind }
    }

    /// The waves with these parameters applied.
    fn waves(&self) -> impl Iterator<Item = Wave> {
        let (s, c) = self.wind.to_radians().sin_cos();
        WAVES.iter().map(move |&(x, z, length, height, turns)| Wave {
            across: c * x - s * z,
            along: s * x + c * z,
            length,
            height: self.amplitude * height,
            turns,
        })
    }
}

struct Wave {
    across: f64,
    along: f64,
    length: f64,
    height: f64,
    turns: f64,
}

/// Direction (x and z), length, height, and the number of times that the wave passes in a loop.
const WAVES: [(f64, f64, f64, f64, f64); 10] = [
    (0.960, 0.280, 1.300, 0.0420, 8.0),
    (0.600, 0.800, 0.900, 0.0250, 9.0),
    (0.936, -0.352, 0.620, 0.0150, 11.0),
    (0.352, 0.936, 0.450, 0.0090, 13.0),
    (0.800, -0.600, 0.340, 0.0060, 15.0),
    (0.996, 0.096, 0.250, 0.0040, 18.0),
    (0.280, 0.960, 0.190, 0.0028, 21.0),
    (0.744, 0.672, 0.140, 0.0019, 24.0),
    (0.936, 0.352, 0.105, 0.0013, 28.0),
    (0.480, -0.880, 0.080, 0.0009, 32.0),
];

/// The position of the water that rests at (x, z).
fn point(sea: &Sea, x: f64, z: f64, turn: f64) -> [f64; 3] {
    let mut point = [x, 0.0, z];
    for Wave { across, along, length, height, turns } in sea.waves() {
        let turns = (across * x + along * z) / length - turns * turn;
        let aside = sea.chop * height * cosine(turns);
        let moved = [across * aside, height * sine(turns), along * aside];
        point = [point[0] + moved[0], point[1] + moved[1], point[2] + moved[2]];
    }
    point
}

/// The normal at that point, from the derivatives of [`point`], as in the kernel. Its length is not 1.
fn normal(sea: &Sea, x: f64, z: f64, turn: f64) -> [f64; 3] {
    let (mut a, mut b) = ([1.0, 0.0, 0.0], [0.0, 0.0, 1.0]);
    for Wave { across, along, length, height, turns } in sea.waves() {
        let turns = (across * x + along * z) / length - turns * turn;
        let aside = -sea.chop * sine(turns);
        let slope = [across * aside, cosine(turns), along * aside].map(|part| TAU * height / length * part);
        a = [a[0] + across * slope[0], a[1] + across * slope[1], a[2] + across * slope[2]];
        b = [b[0] + along * slope[0], b[1] + along * slope[1], b[2] + along * slope[2]];
    }
    cross(b, a)
}

fn cross(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

fn length([x, y, z]: [f64; 3]) -> f64 {
    x.hypot(y).hypot(z)
}

pub(super) fn reference(grid: Grid, col: u32, row: u32, time: f64, values: &[f32]) -> [f64; 4] {
    let ((x, z), turn) = (place(grid, col, row), (time / LOOP).rem_euclid(1.0));
    let sea = Sea::of(values);
    let [px, y, pz] = point(&sea, x, z, turn);
    let normal = normal(&sea, x, z, turn);
    let level = normal[1] / length(normal).hypot(0.1);
    [px, y, pz, 0.4 + 2.5 * y + 1.5 * (1.0 - level)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The directions have length 1, and the waves have the speed of deep-water waves of their length.
    #[test]
    fn the_waves_are_those_of_deep_water() {
        for (across, along, length, _, turns) in WAVES {
            assert!((across.hypot(along) - 1.0).abs() < 0.005, "{across}, {along}");
            assert!((turns - 9.0 / length.sqrt()).abs() < 1.0, "{length}: {turns}");
        }
    }

    /// The formula gives the normal of the surface that the points form.
    #[test]
    fn the_normal_is_that_of_the_surface() {
        let sea = Sea { amplitude: 1.0, chop: 0.85, wind: 30.0 };
        const DELTA: f64 = 1e-6;
        for index in 0..400 {
            let (x, z, turn) = (f64::from(index % 20) / 10.0 - 1.0, f64::from(index / 20) / 10.0 - 1.0, 0.3);
            let slope = |dx: f64, dz: f64| {
                let (after, before) = (point(&sea, x + dx, z + dz, turn), point(&sea, x - dx, z - dz, turn));
                [0, 1, 2].map(|axis| (after[axis] - before[axis]) / (2.0 * DELTA))
            };
            let surface = cross(slope(0.0, DELTA), slope(DELTA, 0.0));
            let formula = normal(&sea, x, z, turn);
            assert!(
                surface.iter().zip(formula).all(|(a, b)| (a - b).abs() < 1e-6),
                "{surface:?}, {formula:?}"
            );
        }
    }
}
