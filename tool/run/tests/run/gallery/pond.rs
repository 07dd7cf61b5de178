//! The pond of `kernels/pond.cu` in double precision, written from the formulas instead of the code.

use wavefield_handoff::contents::wave::Grid;

/// The most nodes in each direction.
const NODES: usize = 512;
/// How strongly the water is pulled back to its level.
const LEVEL: f64 = 0.5;
/// The radius of a drop.
const RADIUS: f64 = 0.07;

pub struct Pond {
    grid: Grid,
    across: usize,
    along: usize,
    height: Vec<f64>,
    speed: Vec<f64>,
    time: f64,
}

impl Pond {
    /// Creates still water.
    pub fn new(grid: Grid) -> Self {
        let (across, along) = (NODES.min(grid.cols as usize), NODES.min(grid.rows as usize));
        let still = vec![0.0; across * along];
        Self { grid, across, along, height: still.clone(), speed: still, time: 0.0 }
    }

    /// Steps to `time`, as one launch does. `values` are the speed of waves, the loss of speed, the drops per
    /// second and their depth.
    pub fn step(&mut self, time: f64, values: &[f32]) {
        let [run, loss, drops, depth] = [0, 1, 2, 3].map(|index| f64::from(values[index]));
        let between = [self.across, self.along].map(|nodes| 2.0 / (nodes - 1) as f64);
        let pulls = between.map(|distance| (run / distance).powi(2));
        let step = (time - self.time).clamp(0.0, 0.9 / (pulls[0] + pulls[1] + LEVEL / 4.0).sqrt());
        let drop = (time * drops).floor();
        let falls = step > 0.0 && drop != (self.time * drops).floor();
        let place = [0.754_877_666_246_692_7, 0.569_840_290_998_053_2]
            .map(|spread| 0.2 + 1.6 * (drop * spread).rem_euclid(1.0));

        // The curvature at a node in one direction. At the edge, the missing neighbour is as high as the
        // node.
        let curve = |before: Option<f64>, here: f64, after: Option<f64>| {
            before.unwrap_or(here) - 2.0 * here + after.unwrap_or(here)
        };
        let old = &self.height;
        let mut new = old.clone();
        for row in 0..self.along {
            for col in 0..self.across {
                let node = row * self.across + col;
                let at = |col: usize, row: usize| {
                    (col < self.across && row < self.along).then(|| old[row * self.across + col])
                };
                let (x, z) = (col.wrapping_sub(1), row.wrapping_sub(1));
                let pull = pulls[0] * curve(at(x, row), old[node], at(col + 1, row))
                    + pulls[1] * curve(at(col, z), old[node], at(col, row + 1));
                self.speed[node] =
                    (self.speed[node] + step * (pull - LEVEL * old[node])) / (1.0 + step * loss);
                new[node] += step * self.speed[node];
                let (x, z) = (col as f64 * between[0] - place[0], row as f64 * between[1] - place[1]);
                let q = (x * x + z * z) / RADIUS.powi(2);
                if falls && q < 1.0 {
                    new[node] -= depth * (1.0 - q).powi(2) * (1.0 - 4.0 * q);
                }
            }
        }
        (self.height, self.time) = (new, time);
    }

    /// The vertex that the next launch writes: a launch shows the water before its own step.
    pub fn vertex(&self, col: u32, row: u32) -> [f64; 4] {
        // The node before the vertex, and how far the vertex is beyond it, in nodes.
        let place = |index: u32, count: u32, nodes: usize| {
            let at = f64::from(index) * (nodes - 1) as f64 / f64::from(count - 1);
            let node = (at as usize).min(nodes - 2);
            (node, at - node as f64)
        };
        let (p, u) = place(col, self.grid.cols, self.across);
        let (q, v) = place(row, self.grid.rows, self.along);
        let at = |col: usize, row: usize| self.height[row * self.across + col];
        let mix = |a: f64, b: f64, part: f64| (1.0 - part) * a + part * b;
        let y = mix(mix(at(p, q), at(p + 1, q), u), mix(at(p, q + 1), at(p + 1, q + 1), u), v);
        let place = |index: u32, count: u32| 2.0 * f64::from(index) / f64::from(count - 1) - 1.0;
        [place(col, self.grid.cols), y, place(row, self.grid.rows), 0.5 + 8.0 * y]
    }

    /// The largest distance of the water from its level.
    pub fn highest(&self) -> f64 {
        self.height.iter().fold(0.0, |highest, height| height.abs().max(highest))
    }
}
