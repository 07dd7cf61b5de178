//! The animated texture of `--scene texture`, on the CPU, and a float64 reference. The CUDA kernels
//! (`kernels/texture.cu`) and the compute shader (`paint.wgsl`) compute the same texture.
//!
//! A texel describes a surface in four half floats. They are not colours, which the renderer chooses, so
//! texels can be averaged.

use bytemuck::{Pod, Zeroable};
use half::f16;
use rayon::prelude::*;

use crate::contents::wave::{Grid, phase};

/// A texel of an image in the format `R16G16B16A16_SFLOAT`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Texel {
    /// 0 to 1.
    pub height: f16,
    /// The height's slope across, times [`SLOPE`].
    pub across: f16,
    /// The height's slope along, times [`SLOPE`].
    pub along: f16,
    /// 1 on a contour line, about two texels wide at any slope, and 0 between the lines.
    pub line: f16,
}

/// The factor that keeps slopes near -1 to 1.
pub const SLOPE: f32 = 0.06;
/// The number of contour lines from the middle height to the top.
pub const LINES: f32 = 7.0;
/// The smallest slope at which lines keep their width, in lines per texel. On flatter parts they are wider.
pub const FLAT: f32 = 0.004;

pub fn levels(size: Grid) -> u32 {
    size.cols.max(size.rows).ilog2() + 1
}

/// Returns the size of a level; level 0 is `size` itself.
pub fn level(size: Grid, level: u32) -> Grid {
    let half = |texels: u32| texels.checked_shr(level).unwrap_or(0).max(1);
    Grid { cols: half(size.cols), rows: half(size.rows) }
}

pub fn chain_texels(size: Grid) -> u64 {
    (0..levels(size)).map(|index| level(size, index).count()).sum()
}

pub fn chain_bytes(size: Grid) -> u64 {
    chain_texels(size) * size_of::<Texel>() as u64
}

/// Computes `[height, across, along, line]` of a texel of level 0 in single precision, as the GPU does.
pub fn paint(size: Grid, col: u32, row: u32, phase: f32) -> [f32; 4] {
    // The sine of an angle in turns. A smaller angle has a more exact sine.
    let sine = |turns: f32| (std::f32::consts::TAU * (turns - turns.round())).sin();
    let u = (col as f32 + 0.5) / size.cols as f32;
    let v = (row as f32 + 0.5) / size.rows as f32;
    let (mut sum, mut across, mut along) = (0.0, 0.0, 0.0);
    for (weight, fu, fv, speed) in TERMS {
        let angle = fu * u + fv * v - speed * phase;
        sum += weight * sine(angle);
        let slope = std::f32::consts::TAU * weight * sine(angle + 0.25);
        across += slope * fu;
        along += slope * fv;
    }
    // The number of lines per texel, and the distance to the nearest line in texels.
    let (steep_u, steep_v) = (LINES * across / size.cols as f32, LINES * along / size.rows as f32);
    let steep = (steep_u * steep_u + steep_v * steep_v).sqrt().max(FLAT);
    let lines = LINES * sum;
    let far = (lines - lines.round()).abs() / steep;
    [0.5 + 0.5 * sum, SLOPE * across, SLOPE * along, (1.5 - far).clamp(0.0, 1.0)]
}

/// Weight, waves across, waves along, turns per loop. All but the weights are whole numbers, so that the
/// texture tiles and the animation loops.
const TERMS: [(f32, f32, f32, f32); 4] =
    [(0.40, 2.0, 1.0, 3.0), (0.28, -1.0, 3.0, 4.0), (0.18, 5.0, 2.0, 7.0), (0.14, 3.0, -4.0, -5.0)];

/// Computes the same channels in double precision, by an implementation that is independent of [`paint`].
pub fn reference(size: Grid, col: u32, row: u32, time: f64) -> [f64; 4] {
    use std::f64::consts::TAU;
    let (u, v) =
        ((f64::from(col) + 0.5) / f64::from(size.cols), (f64::from(row) + 0.5) / f64::from(size.rows));
    let t = phase(time);
    let angles = [
        (0.40, TAU * (2.0 * u + v - 3.0 * t), [2.0, 1.0]),
        (0.28, TAU * (3.0 * v - u - 4.0 * t), [-1.0, 3.0]),
        (0.18, TAU * (5.0 * u + 2.0 * v - 7.0 * t), [5.0, 2.0]),
        (0.14, TAU * (3.0 * u - 4.0 * v + 5.0 * t), [3.0, -4.0]),
    ];
    let sum: f64 = angles.iter().map(|(weight, angle, _)| weight * angle.sin()).sum();
    let slope = |axis: usize| -> f64 {
        angles.iter().map(|(weight, angle, waves)| TAU * weight * waves[axis] * angle.cos()).sum()
    };
    let (across, along) = (slope(0), slope(1));
    let lines = f64::from(LINES);
    let steep = (lines * across / f64::from(size.cols)).hypot(lines * along / f64::from(size.rows));
    let far = (lines * sum - (lines * sum).round()).abs() / steep.max(f64::from(FLAT));
    let scale = f64::from(SLOPE);
    [0.5 + 0.5 * sum, scale * across, scale * along, (1.5 - far).clamp(0.0, 1.0)]
}

/// Returns the mean of four texels of the level `above` of this `size`. An odd last row or column is dropped,
/// because Vulkan rounds a level's size down. If there is only one row or column, its texels count twice.
pub fn reduce(above: &[Texel], size: Grid, col: u32, row: u32) -> Texel {
    let [a, b, c, d] = four_above(above, size, col, row).map(Texel::channels);
    Texel::from(std::array::from_fn(|index| 0.25 * (a[index] + b[index] + c[index] + d[index])))
}

fn four_above(above: &[Texel], size: Grid, col: u32, row: u32) -> [Texel; 4] {
    let at = |dx: u32, dy: u32| {
        let (x, y) = ((2 * col + dx).min(size.cols - 1), (2 * row + dy).min(size.rows - 1));
        above[(y * size.cols + x) as usize]
    };
    [at(0, 0), at(1, 0), at(0, 1), at(1, 1)]
}

/// Paints level 0 and computes the others into [`chain_texels`] texels. Each row is one parallel task.
pub fn paint_chain(size: Grid, phase: f32, chain: &mut [Texel]) {
    let fill = |texels: &mut [Texel], cols: u32, texel: &(dyn Fn(u32, u32) -> Texel + Sync)| {
        texels.par_chunks_mut(cols as usize).enumerate().for_each(|(row, texels)| {
            for (col, place) in texels.iter_mut().enumerate() {
                *place = texel(col as u32, row as u32);
            }
        });
    };
    let (level_0, mut rest) = chain.split_at_mut(size.count() as usize);
    fill(level_0, size.cols, &|col, row| paint(size, col, row, phase).into());
    let mut above: &[Texel] = level_0;
    for index in 1..levels(size) {
        let (from, to) = (level(size, index - 1), level(size, index));
        let (this, next) = rest.split_at_mut(to.count() as usize);
        fill(this, to.cols, &|col, row| reduce(above, from, col, row));
        (above, rest) = (this, next);
    }
}

impl Texel {
    pub(crate) fn halves(self) -> [f16; 4] {
        bytemuck::cast(self)
    }

    pub fn channels(self) -> [f32; 4] {
        self.halves().map(f16::to_f32)
    }
}

impl From<[f32; 4]> for Texel {
    fn from(channels: [f32; 4]) -> Self {
        bytemuck::cast(channels.map(f16::from_f32))
    }
}

/// Returns the largest difference between a whole chain and the reference at `time`. Levels below the first
/// are compared with the mean of the chain's own level above, so that an error does not count twice. `ranges`
/// gives the values that each channel may have; the value nearest to the reference counts.
pub fn worst_distance(
    size: Grid,
    chain: &[Texel],
    time: f64,
    ranges: impl Fn(Texel) -> [[f64; 2]; 4] + Sync,
) -> f64 {
    if chain.len() as u64 != chain_texels(size) {
        return f64::INFINITY;
    }
    // Treat NaN as infinitely far; `max` alone would ignore it.
    let distance = |got: [[f64; 2]; 4], want: [[f64; 2]; 4]| {
        let apart = |([low, high], [from, to]): ([f64; 2], [f64; 2])| match low <= to && from <= high {
            true => 0.0,
            false => (low - to).max(from - high),
        };
        let errors = got.into_iter().zip(want).map(apart);
        errors.fold(0.0, |worst: f64, error| if error.is_nan() { f64::INFINITY } else { worst.max(error) })
    };
    let (mut above, mut rest) = chain.split_at(size.count() as usize);
    let error = |(at, &got): (usize, &Texel)| {
        let (col, row) = (at as u32 % size.cols, at as u32 / size.cols);
        distance(ranges(got), reference(size, col, row, time).map(|want| [want; 2]))
    };
    let mut worst = above.par_iter().enumerate().map(error).reduce(|| 0.0, f64::max);
    for index in 1..levels(size) {
        let (from, to) = (level(size, index - 1), level(size, index));
        let (this, next) = rest.split_at(to.count() as usize);
        let error = |(at, &got): (usize, &Texel)| {
            let [a, b, c, d] = four_above(above, from, at as u32 % to.cols, at as u32 / to.cols).map(&ranges);
            let mean = |channel: usize, end: usize| {
                0.25 * (a[channel][end] + b[channel][end] + c[channel][end] + d[channel][end])
            };
            distance(ranges(got), std::array::from_fn(|channel| [mean(channel, 0), mean(channel, 1)]))
        };
        worst = worst.max(this.par_iter().enumerate().map(error).reduce(|| 0.0, f64::max));
        (above, rest) = (this, next);
    }
    worst
}

/// Allows for a half float's step of 0.0005 near 1, and for the sine's error next to a contour line.
pub const TOLERANCE: f64 = 0.005;

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Grid = Grid { cols: 53, rows: 30 };

    fn chain(size: Grid, time: f64) -> Vec<Texel> {
        let mut chain = vec![Texel::default(); chain_texels(size) as usize];
        paint_chain(size, phase(time) as f32, &mut chain);
        chain
    }

    /// [`worst_distance`] of texels without a stamp.
    fn worst_error(size: Grid, chain: &[Texel], time: f64) -> f64 {
        worst_distance(size, chain, time, |texel| texel.channels().map(|value| [f64::from(value); 2]))
    }

    #[test]
    fn single_precision_keeps_to_the_reference() {
        for size in
            [SIZE, Grid { cols: 256, rows: 256 }, Grid { cols: 2, rows: 2 }, Grid { cols: 1000, rows: 3 }]
        {
            for time in [0.0, 1.0 / 60.0, 7.3, 86_400.0 * 30.0 + 0.4] {
                let worst = worst_error(size, &chain(size, time), time);
                assert!(worst < TOLERANCE, "{worst} at {time} s, {}x{}", size.cols, size.rows);
            }
        }
    }

    #[test]
    fn the_comparison_finds_one_wrong_texel_on_any_level() {
        let good = chain(SIZE, 2.0);
        for at in [0, 77, SIZE.count() as usize + 5, good.len() - 1] {
            let mut chain = good.clone();
            chain[at].height = f16::from_f32(chain[at].height.to_f32() + 0.05);
            assert!(worst_error(SIZE, &chain, 2.0) > TOLERANCE, "texel {at}");
            chain[at].line = f16::NAN;
            assert_eq!(worst_error(SIZE, &chain, 2.0), f64::INFINITY);
        }
        assert_eq!(worst_error(SIZE, &good[1..], 2.0), f64::INFINITY);
        assert!(worst_error(SIZE, &good, 3.0) > 10.0 * TOLERANCE, "another moment");
    }

    #[test]
    fn it_tiles_and_loops() {
        let near = |a: [f64; 4], b: [f64; 4]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(near(reference(SIZE, 3, 4, 1.5), reference(SIZE, 3 + SIZE.cols, 4, 1.5)));
        assert!(near(reference(SIZE, 3, 4, 1.5), reference(SIZE, 3, 4 + SIZE.rows, 1.5)));
        assert!(near(reference(SIZE, 3, 4, 1.5), reference(SIZE, 3, 4, 1.5 + crate::contents::wave::LOOP)));
    }

    #[test]
    fn a_chain_ends_in_one_texel() {
        assert_eq!((levels(SIZE), level(SIZE, 5)), (6, Grid { cols: 1, rows: 1 }));
        assert_eq!(level(SIZE, 1), Grid { cols: 26, rows: 15 });
        assert_eq!(chain_texels(Grid { cols: 4, rows: 2 }), 8 + 2 + 1);
        assert_eq!(chain_bytes(Grid { cols: 4, rows: 2 }), 88);
    }
}
