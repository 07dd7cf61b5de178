//! Finds the vertex of a field under a pixel.
//!
//! The CPU does not have the vertices, so this takes two steps. A [`Trail`] lists the few vertices that the
//! pixel's [`Ray`] passes over. After these vertices are read from the slot, the trail finds where the ray
//! meets the surface. The result is correct only for a regular grid that is 2 wide in both directions.

use glam::{Vec2, Vec3};

use super::Ray;
use wavefield_handoff::contents::wave::{Grid, Vertex};

/// The part of a [`Ray`] that lies above or below the field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trail {
    grid: Grid,
    // At each end, the ray's column and row, and its height in the field's units.
    begin: (Vec2, f32),
    end: (Vec2, f32),
}

/// The maximum distance along a ray. No camera is farther away.
const FARTHEST: f32 = 100.0;
impl Trail {
    /// The maximum number of vertices in a trail. In a field with more rows or columns, a trail skips some.
    pub const MOST: usize = 1024;

    /// Returns the part of `ray` above or below the field, or `None` if the ray misses the field.
    pub fn new(ray: Ray, grid: Grid) -> Option<Self> {
        let (mut near, mut far) = (0.0f32, FARTHEST);
        for (from, by) in [(ray.origin.x, ray.direction.x), (ray.origin.z, ray.direction.z)] {
            let (a, b) = ((-1.0 - from) / by, (1.0 - from) / by);
            match by == 0.0 {
                true if from.abs() > 1.0 => return None,
                true => {}
                false => (near, far) = (near.max(a.min(b)), far.min(a.max(b))),
            }
        }
        let last = Vec2::new(grid.cols as f32 - 1.0, grid.rows as f32 - 1.0);
        let at = |distance| {
            let Vec3 { x, y, z } = ray.origin + distance * ray.direction;
            ((0.5 * (Vec2::new(x, z) + 1.0) * last).clamp(Vec2::ZERO, last), y)
        };
        (near < far).then(|| Self { grid, begin: at(near), end: at(far) })
    }

    fn count(&self) -> usize {
        let cells = (self.end.0 - self.begin.0).abs().max_element();
        (cells.ceil() as usize + 1).clamp(2, Self::MOST)
    }

    /// Returns the position of vertex `index` along the trail, 0 to 1.
    fn part(&self, index: usize) -> f32 {
        index as f32 / (self.count() - 1) as f32
    }

    /// Returns the vertices that the ray passes over, as `(column, row)`, from the eye outwards.
    pub fn vertices(&self) -> impl Iterator<Item = (u32, u32)> {
        (0..self.count()).map(|index| {
            let at = self.begin.0.lerp(self.end.0, self.part(index)).round();
            ((at.x as u32).min(self.grid.cols - 1), (at.y as u32).min(self.grid.rows - 1))
        })
    }

    /// Returns the index of the first of [`Trail::vertices`] that the ray meets. `values` are these vertices.
    pub fn hit(&self, values: &[Vertex]) -> Option<usize> {
        let heights = (0..self.count()).map(|index| {
            let (begin, end) = (self.begin.1, self.end.1);
            begin + (end - begin) * self.part(index)
        });
        // Skip vertices that are not finite: they are neither above nor below the ray.
        let gaps = heights.zip(values).map(|(height, vertex)| height - vertex.y).enumerate();
        let mut gaps = gaps.filter(|(_, gap)| gap.is_finite());
        let mut before = gaps.next()?;
        for here in gaps {
            if here.1.is_sign_negative() != before.1.is_sign_negative() {
                return Some(if here.1.abs() < before.1.abs() { here.0 } else { before.0 });
            }
            before = here;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Camera;
    use wavefield_handoff::contents::wave;

    const GRID: Grid = Grid { cols: 200, rows: 150 };
    const SIZE: (u32, u32) = (1280, 720);

    fn pick(grid: Grid, ray: Ray) -> Option<(u32, u32)> {
        let trail = Trail::new(ray, grid)?;
        let values: Vec<_> = trail
            .vertices()
            .map(|(col, row)| wave::vertex(grid, col, row, 0.25, wave::WaveShape::default()))
            .collect();
        trail.hit(&values).and_then(|index| trail.vertices().nth(index))
    }

    /// A point's place in the picture, in pixels, and its depth, which is larger if it is nearer.
    fn seen(camera: &Camera, point: Vec3) -> (f32, f32, f32) {
        let clip = camera.view_projection(SIZE.0, SIZE.1) * point.extend(1.0);
        let at = clip / clip.w;
        ((at.x + 1.0) * 0.5 * SIZE.0 as f32, (at.y + 1.0) * 0.5 * SIZE.1 as f32, at.z)
    }

    #[test]
    fn the_vertex_under_a_pixel_is_found_even_behind_a_crest() {
        let all = |grid: Grid| (0..grid.rows).flat_map(move |row| (0..grid.cols).map(move |col| (col, row)));
        // On the border, too many rays miss the field.
        let is_inside =
            |(col, row): &(u32, u32)| (1..GRID.cols - 1).contains(col) && (1..GRID.rows - 1).contains(row);
        for (azimuth, elevation) in [(0.58, 0.52), (3.0, 0.2), (5.0, 1.5), (1.0, -0.4)] {
            let camera = Camera { azimuth, elevation, ..Camera::default() };
            let (mut found, mut hidden, mut missed) = (0, 0, 0);
            for (col, row) in all(GRID).step_by(37).filter(is_inside) {
                let vertex = wave::vertex(GRID, col, row, 0.25, wave::WaveShape::default());
                let point = Vec3::new(vertex.x, vertex.y, vertex.z);
                let (x, y, depth) = seen(&camera, point);
                let ray = camera.ray((x, y), SIZE);
                let Some((got_col, got_row)) = pick(GRID, ray) else {
                    missed += 1;
                    continue;
                };
                let got = wave::vertex(GRID, got_col, got_row, 0.25, wave::WaveShape::default());
                let got = seen(&camera, Vec3::new(got.x, got.y, got.z));
                assert!((got.0 - x).hypot(got.1 - y) < 15.0, "{col}, {row}: {got:?} is not near {x} {y}");
                // Where the surface is seen from the side, one pixel covers many vertices.
                match got_col.abs_diff(col).max(got_row.abs_diff(row)) {
                    ..5 => found += 1,
                    _ if got.2 > depth => hidden += 1,
                    _ => missed += 1,
                }
            }
            assert!(found > 300, "{found} found, {hidden} hidden");
            // Rays may miss only at an outline, because of rounding.
            assert!(20 * missed < found, "{missed} missed, {found} found");
        }
    }

    #[test]
    fn a_ray_that_passes_by_meets_nothing() {
        let camera = Camera::default();
        assert_eq!(pick(GRID, camera.ray((3.0, 3.0), SIZE)), None);
        let up = Ray { origin: Vec3::new(0.2, 1.0, 0.1), direction: Vec3::Y };
        assert_eq!(pick(GRID, up), None);
        let beside = Ray { origin: Vec3::new(1.2, 1.0, 0.1), direction: -Vec3::Y };
        assert_eq!(Trail::new(beside, GRID), None);
    }

    #[test]
    fn straight_down_and_the_smallest_and_largest_grids() {
        let down = Ray { origin: Vec3::new(0.9, 5.0, -0.9), direction: -Vec3::Y };
        assert_eq!(pick(GRID, down), Some((189, 7)));
        assert_eq!(pick(Grid { cols: 2, rows: 2 }, down), Some((1, 0)));
        let large = Grid { cols: 16384, rows: 16384 };
        let trail = Trail::new(Camera::default().ray((640.0, 400.0), SIZE), large).unwrap();
        assert_eq!(trail.vertices().count(), Trail::MOST);
        assert!(pick(large, Camera::default().ray((640.0, 400.0), SIZE)).is_some());
    }

    #[test]
    fn what_is_no_number_is_looked_through() {
        let ray = Camera::default().ray((640.0, 400.0), SIZE);
        let trail = Trail::new(ray, GRID).unwrap();
        let mut values: Vec<_> = trail
            .vertices()
            .map(|(col, row)| wave::vertex(GRID, col, row, 0.25, wave::WaveShape::default()))
            .collect();
        let hit = trail.hit(&values).unwrap();
        values[hit].y = f32::NAN;
        assert!(trail.hit(&values).unwrap().abs_diff(hit) <= 1);
        values.fill(Vertex { y: f32::NAN, ..Vertex::default() });
        assert_eq!(trail.hit(&values), None);
        assert_eq!(trail.hit(&[]), None);
    }
}
