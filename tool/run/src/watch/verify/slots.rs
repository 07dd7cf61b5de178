//! Checks every vertex or texel of the ring on the CPU, at the end of a run.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use wavefield_handoff::contents::frame_stamp::{self, Seen, texel};
use wavefield_handoff::contents::scene::Scene;
use wavefield_handoff::contents::texture::{self, Texel};
use wavefield_handoff::contents::wave::{self, Grid, Vertex, WaveShape};

pub enum SlotContent {
    /// Row by row.
    Vertices(Vec<Vertex>),
    /// Level by level, and row by row within a level.
    Texels(Vec<Texel>),
}

/// Returns the largest allowed difference, in units of `WaveShape::unit` or of a texture's channels.
pub fn tolerance(scene: Scene) -> f64 {
    match scene {
        Scene::Field => 1e-5,
        Scene::Texture => texture::TOLERANCE,
    }
}

/// A time in seconds, and the shape, which only the wave uses.
pub type WaveMoment = (f64, WaveShape);

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SlotsFound {
    pub slots: u64,
    /// Elements without the stamp of their slot's last frame; in a slot without frames, those not blank.
    pub wrong_stamps: u64,
    /// The largest difference from the float64 reference, in the units of [`tolerance`]. `None` without a
    /// reference, or if no slot was filled. The comparison ignores the stamp's bits.
    pub worst_error: Option<f64>,
}

impl SlotsFound {
    /// Adds a slot that `frame` was the last to fill, at `moment`, which is `None` without a reference.
    pub fn add_filled(&mut self, grid: Grid, slot: &SlotContent, frame: u64, moment: Option<WaveMoment>) {
        let right = |seen: Seen| seen == Seen::Right;
        let wrong = match slot {
            SlotContent::Vertices(vertices) => {
                vertices.par_iter().filter(|vertex| !right(frame_stamp::judge(vertex.w, frame))).count()
            }
            SlotContent::Texels(texels) => {
                texels.par_iter().filter(|texel| !right(texel::judge(**texel, frame))).count()
            }
        };
        self.slots += 1;
        self.wrong_stamps += wrong as u64;
        if let Some(moment) = moment {
            let worst = match slot {
                SlotContent::Vertices(vertices) => {
                    wave::worst_distance(grid, vertices, moment, frame_stamp::distance)
                }
                SlotContent::Texels(texels) => texture::worst_distance(grid, texels, moment.0, texel::ranges),
            };
            self.worst_error = Some(self.worst_error.unwrap_or(0.0).max(worst));
        }
    }

    pub fn add_blank(&mut self, slot: &SlotContent) {
        let written = match slot {
            SlotContent::Vertices(vertices) => {
                let words: &[u32] = bytemuck::cast_slice(vertices);
                words
                    .par_chunks(4)
                    .filter(|vertex| vertex.iter().any(|&word| word != frame_stamp::BLANK))
                    .count()
            }
            SlotContent::Texels(texels) => {
                let words: &[u64] = bytemuck::cast_slice(texels);
                words.par_iter().filter(|&&texel| texel != 0).count()
            }
        };
        self.slots += 1;
        self.wrong_stamps += written as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: Grid = Grid { cols: 20, rows: 13 };
    const TIME: f64 = 3.7;
    const SHAPE: WaveShape = WaveShape { amplitude: 1.5, frequency: 0.5 };
    const MOMENT: WaveMoment = (TIME, SHAPE);

    fn field(frame: u64) -> Vec<Vertex> {
        let phase = wave::phase(TIME) as f32;
        let vertex = |index: u32| wave::vertex(GRID, index % GRID.cols, index / GRID.cols, phase, SHAPE);
        let stamped = |vertex: Vertex| Vertex { w: frame_stamp::apply(vertex.w, frame), ..vertex };
        (0..GRID.cols * GRID.rows).map(vertex).map(stamped).collect()
    }

    fn found(vertices: &[Vertex], frame: u64) -> SlotsFound {
        let mut found = SlotsFound::default();
        found.add_filled(GRID, &SlotContent::Vertices(vertices.to_vec()), frame, Some(MOMENT));
        found
    }

    fn right(found: &SlotsFound) -> bool {
        within(found, Scene::Field)
    }

    fn within(found: &SlotsFound, scene: Scene) -> bool {
        found.wrong_stamps == 0 && found.worst_error.is_none_or(|worst| worst <= tolerance(scene))
    }

    #[test]
    fn a_stamped_wave_is_right() {
        let all = found(&field(77), 77);
        assert!(right(&all) && all.slots == 1, "{all:?}");
    }

    #[test]
    fn one_wrong_vertex_is_found() {
        let mut vertices = field(77);
        vertices[100].w = frame_stamp::apply(vertices[100].w, 76);
        let wrong = found(&vertices, 77);
        assert!(!right(&wrong) && wrong.wrong_stamps == 1, "{wrong:?}");

        // Change the lowest bit above the stamp.
        let mut vertices = field(77);
        vertices[100].w = f32::from_bits(vertices[100].w.to_bits() + 0x1000);
        assert!(!right(&found(&vertices, 77)));

        let mut vertices = field(77);
        vertices[100].y += 1e-4;
        assert!(!right(&found(&vertices, 77)));
        vertices[100].y = f32::NAN;
        assert_eq!(found(&vertices, 77).worst_error, Some(f64::INFINITY));
    }

    #[test]
    fn a_slot_that_was_not_reached_is_blank() {
        let mut vertices = vec![Vertex::default(); 4];
        bytemuck::cast_slice_mut::<_, u32>(&mut vertices).fill(frame_stamp::BLANK);
        let mut found = SlotsFound::default();
        found.add_blank(&SlotContent::Vertices(vertices.clone()));
        assert!(right(&found));
        vertices[2].x = 0.0;
        found.add_blank(&SlotContent::Vertices(vertices));
        assert_eq!((found.wrong_stamps, found.slots), (1, 2));
        found.add_blank(&SlotContent::Texels(vec![Texel::default(); 4]));
        found.add_blank(&SlotContent::Texels(vec![Texel::from([0.0, -0.0, 0.0, 0.0]); 4]));
        assert_eq!((found.wrong_stamps, found.slots), (1 + 4, 4));
    }

    /// Stamps every level after the reduction, as the kernels do.
    fn texture(frame: u64) -> Vec<Texel> {
        let mut chain = vec![Texel::default(); texture::chain_texels(GRID) as usize];
        texture::paint_chain(GRID, wave::phase(TIME) as f32, &mut chain);
        chain.into_iter().map(|texel| texel::apply(texel, frame)).collect()
    }

    #[test]
    fn a_stamped_texture_is_right_and_one_wrong_texel_is_found() {
        let found = |chain: Vec<Texel>| {
            let mut found = SlotsFound::default();
            found.add_filled(GRID, &SlotContent::Texels(chain), 77, Some(MOMENT));
            found
        };
        let all = found(texture(77));
        assert!(within(&all, Scene::Texture) && all.slots == 1, "{all:?}");
        for at in [0, 100, GRID.count() as usize + 3, texture(77).len() - 1] {
            let mut chain = texture(77);
            chain[at] = texel::apply(chain[at], 76);
            let wrong = found(chain);
            assert!(!within(&wrong, Scene::Texture) && wrong.wrong_stamps == 1, "{at}: {wrong:?}");

            let mut chain = texture(77);
            let mut channels = chain[at].channels();
            channels[0] += 0.02;
            chain[at] = texel::apply(channels.into(), 77);
            let wrong = found(chain);
            assert!(!within(&wrong, Scene::Texture) && wrong.wrong_stamps == 0, "{at}: {wrong:?}");
        }
    }
}
