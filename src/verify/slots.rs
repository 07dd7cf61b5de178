//! At the end of a run: what lies in the ring, vertex by vertex, on the CPU.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::stamp::{self, Seen};
use crate::wave::{self, Grid, Vertex};

/// The largest error that the built-in wave may have against the float64 reference, in units of [`wave::HEIGHT`].
pub const TOLERANCE: f64 = 1e-5;

/// What was found in the slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SlotsFound {
    /// Slots that were read back.
    pub slots: u64,
    /// Vertices that do not have the stamp of the frame that filled their slot last; in a slot that no frame has
    /// reached, vertices that are not blank.
    pub wrong_stamps: u64,
    /// The largest difference between a vertex and the float64 reference, in units of [`wave::HEIGHT`]; absent where the
    /// kernel is not the built-in wave, and where no slot was filled. The 12 bits of `w` that the stamp took are known to
    /// be lost: any colour that begins with the other 20 counts as exact.
    pub worst_error: Option<f64>,
}

impl SlotsFound {
    /// Adds a slot that `frame` was the last to fill; `time` is that frame's, where the reference applies.
    pub fn add_filled(&mut self, grid: Grid, vertices: &[Vertex], frame: u64, time: Option<f64>) {
        let wrong = vertices.par_iter().filter(|vertex| stamp::judge(vertex.w, frame) != Seen::Right).count();
        self.slots += 1;
        self.wrong_stamps += wrong as u64;
        if let Some(time) = time {
            let worst = worst_error(grid, vertices, time);
            self.worst_error = Some(self.worst_error.unwrap_or(0.0).max(worst));
        }
    }

    /// Adds a slot that no frame has reached.
    pub fn add_blank(&mut self, vertices: &[Vertex]) {
        let words: &[u32] = bytemuck::cast_slice(vertices);
        let written = words.par_chunks(4).filter(|vertex| vertex.iter().any(|&word| word != stamp::BLANK));
        self.slots += 1;
        self.wrong_stamps += written.count() as u64;
    }

    /// Whether everything was as it should be.
    pub fn right(&self) -> bool {
        self.wrong_stamps == 0 && self.worst_error.is_none_or(|worst| worst <= TOLERANCE)
    }
}

/// As [`wave::worst_error`], for stamped vertices.
fn worst_error(grid: Grid, vertices: &[Vertex], time: f64) -> f64 {
    let error = |(index, got): (usize, &Vertex)| {
        let (col, row) = (index as u32 % grid.cols, index as u32 / grid.cols);
        let [x, y, z, w] = wave::reference(grid, col, row, time);
        let away = |got: f32, want: f64| (f64::from(got) - want).abs();
        let errors = [away(got.x, x), away(got.y, y), away(got.z, z), stamp::distance(got.w, w)];
        // What is no number is infinitely far; `max` alone would pass it over.
        errors
            .into_iter()
            .fold(0.0, |worst, error| if error.is_nan() { f64::INFINITY } else { error.max(worst) })
    };
    vertices.par_iter().enumerate().map(error).reduce(|| 0.0, f64::max) / wave::HEIGHT
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: Grid = Grid { cols: 20, rows: 13 };
    const TIME: f64 = 3.7;

    fn field(frame: u64) -> Vec<Vertex> {
        let turn = wave::turn(TIME) as f32;
        let vertex = |index: u32| wave::vertex(GRID, index % GRID.cols, index / GRID.cols, turn);
        let stamped = |vertex: Vertex| Vertex { w: stamp::apply(vertex.w, frame), ..vertex };
        (0..GRID.cols * GRID.rows).map(vertex).map(stamped).collect()
    }

    fn found(vertices: &[Vertex], frame: u64) -> SlotsFound {
        let mut found = SlotsFound::default();
        found.add_filled(GRID, vertices, frame, Some(TIME));
        found
    }

    #[test]
    fn a_stamped_wave_is_right() {
        let right = found(&field(77), 77);
        assert!(right.right() && right.slots == 1, "{right:?}");
    }

    #[test]
    fn one_wrong_vertex_is_found() {
        let mut vertices = field(77);
        vertices[100].w = stamp::apply(vertices[100].w, 76);
        let wrong = found(&vertices, 77);
        assert!(!wrong.right() && wrong.wrong_stamps == 1, "{wrong:?}");

        // One step beyond what the stamp took.
        let mut vertices = field(77);
        vertices[100].w = f32::from_bits(vertices[100].w.to_bits() + 0x1000);
        assert!(!found(&vertices, 77).right());

        let mut vertices = field(77);
        vertices[100].y += 1e-4;
        assert!(!found(&vertices, 77).right());
        vertices[100].y = f32::NAN;
        assert_eq!(found(&vertices, 77).worst_error, Some(f64::INFINITY));
    }

    #[test]
    fn a_slot_that_was_not_reached_is_blank() {
        let mut vertices = vec![Vertex::default(); 4];
        bytemuck::cast_slice_mut::<_, u32>(&mut vertices).fill(stamp::BLANK);
        let mut found = SlotsFound::default();
        found.add_blank(&vertices);
        assert!(found.right());
        vertices[2].x = 0.0;
        found.add_blank(&vertices);
        assert_eq!((found.wrong_stamps, found.slots), (1, 2));
    }
}
