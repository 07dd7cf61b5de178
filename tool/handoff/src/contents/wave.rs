//! The wave, and a float64 reference. `kernels/wave.cu` and `wave` in `gallery.wgsl` compute the same wave.

use std::fmt;

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;

/// A vertex as stored in a slot: 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Vertex {
    /// Across, -1 to 1.
    pub x: f32,
    /// Up.
    pub y: f32,
    /// Along, -1 to 1.
    pub z: f32,
    /// The colour map's value, about 0 to 1.
    pub w: f32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// At least 2.
    pub cols: u32,
    /// At least 2.
    pub rows: u32,
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.cols, self.rows)
    }
}

impl Grid {
    /// Returns the number of vertices, or of texels in one level.
    pub fn count(self) -> u64 {
        u64::from(self.cols) * u64::from(self.rows)
    }

    /// Returns the size of a slot of vertices, in bytes.
    pub fn bytes(self) -> u64 {
        self.count().saturating_mul(size_of::<Vertex>() as u64)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WaveShape {
    pub amplitude: f32,
    /// Scales the position, and so the number of waves in the field.
    pub frequency: f32,
}

impl Default for WaveShape {
    fn default() -> Self {
        Self { amplitude: 1.0, frequency: 1.0 }
    }
}

impl WaveShape {
    /// Returns the shape for the values of the kernel's two parameters, in the order of their declaration, or
    /// the default shape for any other number of values.
    pub fn of(values: &[f32]) -> Self {
        match *values {
            [amplitude, frequency] => Self { amplitude, frequency },
            _ => Self::default(),
        }
    }

    /// Returns the unit of errors. The unit grows with the amplitude, because a higher wave has larger
    /// errors, and with the frequency, because more turns leave fewer bits for the fraction of a turn.
    fn unit(self) -> f64 {
        HEIGHT * f64::from(self.amplitude.max(1.0)) * f64::from(self.frequency.max(1.0))
    }
}

/// With the default amplitude, y is between -HEIGHT and +HEIGHT.
pub const HEIGHT: f64 = 0.30;

/// The length of the loop, in seconds.
pub const LOOP: f64 = 20.0;

/// Returns the position of `time` in the loop, 0 to 1, in double precision so that it stays exact for days.
pub fn phase(time: f64) -> f64 {
    (time / LOOP).rem_euclid(1.0)
}

/// Computes a vertex in single precision, as the GPU does. `phase` is a result of [`phase`](fn@phase).
pub fn vertex(grid: Grid, col: u32, row: u32, phase: f32, shape: WaveShape) -> Vertex {
    // The sine of an angle in turns. A smaller angle has a more exact sine.
    let sine = |turns: f32| (std::f32::consts::TAU * (turns - turns.round())).sin();
    let x = 2.0 * col as f32 / (grid.cols - 1) as f32 - 1.0;
    let z = 2.0 * row as f32 / (grid.rows - 1) as f32 - 1.0;
    let (u, v) = (shape.frequency * x, shape.frequency * z);
    let sum = 0.46 * sine(0.55 * u + 0.30 * v - 3.0 * phase)
        + 0.26 * sine(-0.40 * u + 0.75 * v - 4.0 * phase)
        + 0.14 * sine(1.10 * u + 0.90 * v - 7.0 * phase)
        + 0.14 * sine(2.25 * (u * u + v * v).sqrt() - 8.0 * phase);
    Vertex { x, y: HEIGHT as f32 * shape.amplitude * sum, z, w: 0.5 + 0.5 * sum }
}

/// Computes `[x, y, z, w]` in double precision, by an implementation that is independent of [`vertex`].
pub fn reference(grid: Grid, col: u32, row: u32, time: f64, shape: WaveShape) -> [f64; 4] {
    // (weight, turns per unit of x, of z, of distance from the middle, turns per loop)
    const TERMS: [(f64, f64, f64, f64, f64); 4] = [
        (0.46, 0.55, 0.30, 0.0, 3.0),
        (0.26, -0.40, 0.75, 0.0, 4.0),
        (0.14, 1.10, 0.90, 0.0, 7.0),
        (0.14, 0.0, 0.0, 2.25, 8.0),
    ];
    let x = 2.0 * f64::from(col) / f64::from(grid.cols - 1) - 1.0;
    let z = 2.0 * f64::from(row) / f64::from(grid.rows - 1) - 1.0;
    let sum: f64 = TERMS
        .iter()
        .map(|(weight, fx, fz, fr, speed)| {
            let space = f64::from(shape.frequency) * (fx * x + fz * z + fr * x.hypot(z));
            let angle = space - speed * phase(time);
            weight * (std::f64::consts::TAU * angle).sin()
        })
        .sum();
    [x, HEIGHT * f64::from(shape.amplitude) * sum, z, 0.5 + 0.5 * sum]
}

/// Returns the largest difference between `vertices` and the reference at `time`, in units of
/// `WaveShape::unit`; infinite for a NaN. `color` returns the distance of a vertex's `w` from the
/// reference's.
pub fn worst_distance(
    grid: Grid,
    vertices: &[Vertex],
    (time, shape): (f64, WaveShape),
    color: impl Fn(f32, f64) -> f64 + Sync,
) -> f64 {
    if vertices.len() as u64 != grid.count() {
        return f64::INFINITY;
    }
    let error = |(index, got): (usize, &Vertex)| {
        let (col, row) = (index as u32 % grid.cols, index as u32 / grid.cols);
        let [x, y, z, w] = reference(grid, col, row, time, shape);
        let away = |got: f32, want: f64| (f64::from(got) - want).abs();
        // `max` alone would ignore a NaN.
        let worse = |worst: f64, error: f64| if error.is_nan() { f64::INFINITY } else { worst.max(error) };
        [away(got.x, x), away(got.y, y), away(got.z, z), color(got.w, w)].into_iter().fold(0.0, worse)
    };
    vertices.par_iter().enumerate().map(error).reduce(|| 0.0, f64::max) / shape.unit()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(grid: Grid, time: f64, shape: WaveShape) -> Vec<Vertex> {
        let phase = phase(time) as f32;
        let row = |row| (0..grid.cols).map(move |col| vertex(grid, col, row, phase, shape));
        (0..grid.rows).flat_map(row).collect()
    }

    /// [`worst_distance`] of vertices without a stamp.
    fn worst_error(grid: Grid, vertices: &[Vertex], time: f64, shape: WaveShape) -> f64 {
        worst_distance(grid, vertices, (time, shape), |got, want| (f64::from(got) - want).abs())
    }

    const AS_IT_IS: WaveShape = WaveShape { amplitude: 1.0, frequency: 1.0 };

    #[test]
    fn single_precision_keeps_to_the_reference() {
        for time in [0.0, 1.0 / 60.0, 7.3, 19.999, 86_400.0 * 30.0 + 0.4] {
            let grid = Grid { cols: 257, rows: 100 };
            for (amplitude, frequency) in [(1.0, 1.0), (0.0, 0.25), (2.0, 4.0), (1.3, 3.7), (2.0, 1.0)] {
                let shape = WaveShape { amplitude, frequency };
                let worst = worst_error(grid, &field(grid, time, shape), time, shape);
                assert!(worst < 1e-5, "{worst:e} at {time} s, {shape:?}");
            }
        }
    }

    #[test]
    fn the_shape_scales_height_and_position() {
        let grid = Grid { cols: 65, rows: 65 };
        let at =
            |col, amplitude, frequency| reference(grid, col, 32, 1.7, WaveShape { amplitude, frequency });
        let [once, twice] = [1.0, 2.0].map(|amplitude| at(7, amplitude, 1.0));
        assert_eq!((2.0 * once[1], once[3]), (twice[1], twice[3]));
        // Half the distance from the middle with twice as many waves is the same place in the wave.
        let (near, far) = (at(40, 1.0, 2.0), at(48, 1.0, 1.0));
        assert!((near[1] - far[1]).abs() < 1e-12 && near[0] != far[0]);
    }

    #[test]
    fn the_comparison_finds_one_wrong_vertex() {
        let grid = Grid { cols: 16, rows: 9 };
        let mut vertices = field(grid, 2.0, AS_IT_IS);
        vertices[77].y += 1e-4;
        let worst = |vertices: &[Vertex]| worst_error(grid, vertices, 2.0, AS_IT_IS);
        assert!(worst(&vertices) > 1e-4);
        vertices[77].y = f32::NAN;
        assert_eq!(worst(&vertices), f64::INFINITY);
        assert_eq!(worst(&vertices[1..]), f64::INFINITY);
        // With another shape, all vertices are wrong.
        let higher = WaveShape { amplitude: 1.01, ..AS_IT_IS };
        assert!(worst_error(grid, &field(grid, 2.0, AS_IT_IS), 2.0, higher) > 1e-3);
    }

    #[test]
    fn the_wave_loops_and_stays_within_its_height() {
        let grid = Grid { cols: 64, rows: 64 };
        for time in [0.0, 3.3, 11.1] {
            let [now, later] = [time, time + LOOP].map(|time| reference(grid, 3, 50, time, AS_IT_IS));
            assert!((now[1] - later[1]).abs() < 1e-12);
            for vertex in field(grid, time, AS_IT_IS) {
                assert!(f64::from(vertex.y.abs()) <= HEIGHT && (0.0..=1.0).contains(&vertex.w));
            }
        }
    }
}
