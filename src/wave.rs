//! The wave, on the CPU: what the CUDA kernel (`kernels/wave.cu`) and the compute shader (`wave` in `shaders/gallery.wgsl`) also
//! compute, and the float64 reference that all three are held to.

use bytemuck::{Pod, Zeroable};

/// One vertex as it lies in a slot: 16 bytes, four `f32`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Vertex {
    /// Across, -1 to 1.
    pub x: f32,
    /// Up.
    pub y: f32,
    /// Along, -1 to 1.
    pub z: f32,
    /// What the colour map shows, about 0 to 1.
    pub w: f32,
}

/// How many vertices the field has each way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Vertices across; at least 2.
    pub cols: u32,
    /// Vertices along; at least 2.
    pub rows: u32,
}

impl Grid {
    /// How many vertices, or texels of one level, it has in all.
    pub fn count(self) -> u64 {
        u64::from(self.cols) * u64::from(self.rows)
    }

    /// Bytes of one slot.
    pub fn bytes(self) -> u64 {
        self.count().saturating_mul(size_of::<Vertex>() as u64)
    }
}

/// y is between -HEIGHT and +HEIGHT.
pub const HEIGHT: f64 = 0.30;

/// Seconds after which the wave repeats.
pub const LOOP: f64 = 20.0;

/// How far `time` is into the loop, 0 to 1. Taken in double precision, so that the wave stays exact for days.
pub fn phase(time: f64) -> f64 {
    (time / LOOP).rem_euclid(1.0)
}

/// Vertex `(col, row)` of the wave in single precision, as the two GPU versions compute it. `phase` as [`phase`] gives it.
pub fn vertex(grid: Grid, col: u32, row: u32, phase: f32) -> Vertex {
    // The sine of an angle in whole turns.
    let sine = |turns: f32| (std::f32::consts::TAU * (turns - turns.round())).sin();
    let x = 2.0 * col as f32 / (grid.cols - 1) as f32 - 1.0;
    let z = 2.0 * row as f32 / (grid.rows - 1) as f32 - 1.0;
    let sum = 0.46 * sine(0.55 * x + 0.30 * z - 3.0 * phase)
        + 0.26 * sine(-0.40 * x + 0.75 * z - 4.0 * phase)
        + 0.14 * sine(1.10 * x + 0.90 * z - 7.0 * phase)
        + 0.14 * sine(2.25 * (x * x + z * z).sqrt() - 8.0 * phase);
    Vertex { x, y: HEIGHT as f32 * sum, z, w: 0.5 + 0.5 * sum }
}

/// The same in double precision, written from the formula and not from the code above: `[x, y, z, w]`.
pub fn reference(grid: Grid, col: u32, row: u32, time: f64) -> [f64; 4] {
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
            let angle = fx * x + fz * z + fr * x.hypot(z) - speed * phase(time);
            weight * (std::f64::consts::TAU * angle).sin()
        })
        .sum();
    [x, HEIGHT * sum, z, 0.5 + 0.5 * sum]
}

/// The largest difference between `vertices` (row after row) and the reference at `time`, in units of [`HEIGHT`].
/// Not a number in any vertex makes it infinite.
pub fn worst_error(grid: Grid, vertices: &[Vertex], time: f64) -> f64 {
    if vertices.len() as u64 != grid.count() {
        return f64::INFINITY;
    }
    let mut worst: f64 = 0.0;
    for (index, got) in vertices.iter().enumerate() {
        let (col, row) = (index as u32 % grid.cols, index as u32 / grid.cols);
        let want = reference(grid, col, row, time);
        for (got, want) in [got.x, got.y, got.z, got.w].into_iter().zip(want) {
            let error = (f64::from(got) - want).abs() / HEIGHT;
            worst = if error.is_nan() { f64::INFINITY } else { worst.max(error) };
        }
    }
    worst
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(grid: Grid, time: f64) -> Vec<Vertex> {
        let phase = phase(time) as f32;
        (0..grid.rows).flat_map(|row| (0..grid.cols).map(move |col| vertex(grid, col, row, phase))).collect()
    }

    #[test]
    fn single_precision_keeps_to_the_reference() {
        for time in [0.0, 1.0 / 60.0, 7.3, 19.999, 86_400.0 * 30.0 + 0.4] {
            let grid = Grid { cols: 257, rows: 100 };
            let worst = worst_error(grid, &field(grid, time), time);
            assert!(worst < 1e-5, "{worst:e} at {time} s");
        }
    }

    #[test]
    fn the_comparison_finds_one_wrong_vertex() {
        let grid = Grid { cols: 16, rows: 9 };
        let mut vertices = field(grid, 2.0);
        vertices[77].y += 1e-4;
        assert!(worst_error(grid, &vertices, 2.0) > 1e-4);
        vertices[77].y = f32::NAN;
        assert_eq!(worst_error(grid, &vertices, 2.0), f64::INFINITY);
        assert_eq!(worst_error(grid, &vertices[1..], 2.0), f64::INFINITY);
    }

    #[test]
    fn the_wave_loops_and_stays_within_its_height() {
        let grid = Grid { cols: 64, rows: 64 };
        for time in [0.0, 3.3, 11.1] {
            let (now, later) = (reference(grid, 3, 50, time), reference(grid, 3, 50, time + LOOP));
            assert!((now[1] - later[1]).abs() < 1e-12);
            for vertex in field(grid, time) {
                assert!(f64::from(vertex.y.abs()) <= HEIGHT && (0.0..=1.0).contains(&vertex.w));
            }
        }
    }
}
