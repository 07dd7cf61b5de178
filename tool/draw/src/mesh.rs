//! The indices of one tile. Every grid is drawn as instances of this tile.

use wavefield_handoff::contents::wave::Grid;

/// A tile's side in cells. Its 33 x 33 corners fit 16-bit indices. Very small instances would be slow.
pub const TILE: u32 = 32;

/// The number of indices in one tile: two triangles for each cell.
pub(super) const INDICES: u32 = TILE * TILE * 6;

pub fn tile_count(grid: Grid) -> (u32, u32) {
    ((grid.cols - 1).div_ceil(TILE), (grid.rows - 1).div_ceil(TILE))
}

/// Returns two triangles per cell, counter-clockwise seen from above. Cells are in strips of 4 columns, so
/// that vertices are reused soon. Strips of 2 and of 8 columns are slower.
pub fn tile_indices() -> Vec<u16> {
    const STRIP: u32 = 4;
    let mut indices = Vec::with_capacity(INDICES as usize);
    for strip in (0..TILE).step_by(STRIP as usize) {
        for row in 0..TILE {
            for col in strip..strip + STRIP {
                let corner = |col: u32, row: u32| (row * (TILE + 1) + col) as u16;
                let (a, b) = (corner(col, row), corner(col + 1, row));
                let (c, d) = (corner(col, row + 1), corner(col + 1, row + 1));
                indices.extend([a, c, b, b, c, d]);
            }
        }
    }
    indices
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_tiles_cover_every_cell() {
        for (cols, rows, want) in [(2, 2, (1, 1)), (33, 33, (1, 1)), (34, 33, (2, 1)), (1024, 1024, (32, 32))]
        {
            assert_eq!(tile_count(Grid { cols, rows }), want);
        }
    }

    #[test]
    fn a_tile_has_each_cell_once() {
        let indices = tile_indices();
        let cells: HashSet<_> = indices.chunks_exact(6).map(|cell| cell[0]).collect();
        assert_eq!(indices.len(), (TILE * TILE * 6) as usize);
        assert_eq!(cells.len(), (TILE * TILE) as usize);
        assert!(indices.iter().all(|&index| u32::from(index) < (TILE + 1) * (TILE + 1)));
    }

    #[test]
    fn triangles_face_up() {
        // x grows with the column, z (towards the eye) with the row, so counter-clockwise from above faces
        // +y.
        for triangle in tile_indices().chunks_exact(3) {
            let at = |index: u16| {
                let (col, row) = (u32::from(index) % (TILE + 1), u32::from(index) / (TILE + 1));
                glam::vec3(col as f32, 0.0, row as f32)
            };
            let (a, b, c) = (at(triangle[0]), at(triangle[1]), at(triangle[2]));
            assert!((b - a).cross(c - a).y > 0.0, "{triangle:?}");
        }
    }
}
