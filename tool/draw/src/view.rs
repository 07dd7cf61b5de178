use serde::{Deserialize, Serialize};

use super::{Camera, Look};
use wavefield_handoff::contents::array::{ArrayKind, DrawnArray, Number};
use wavefield_handoff::contents::parts::PartName;
use wavefield_handoff::contents::scene::Scene;
use wavefield_handoff::contents::wave::Grid;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FieldView {
    /// For an image, the camera's distance zooms, and its target's x and y pan: see [`Placement`].
    pub camera: Camera,
    /// The array's values at the two ends of the colour map, or for RGB those that mean 0 and 1. Both are
    /// finite, and not equal.
    pub limits: [f32; 2],
    /// The diameter of points and the width of lines, in pixels.
    pub size: f32,
    pub fit: Fit,
    /// Labels show the first of these plus the second times the number that is drawn.
    pub units: [f64; 2],
    pub look: Look,
}

/// The sphere that the view is for, in the array's units. Points and meshes are drawn as if it were the unit
/// sphere around the origin, so lengths of a [`Camera`] are in its radii. A surface
/// has its aspect and, for depths, its radius.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    pub center: [f32; 3],
    pub radius: f32,
    /// The width of a surface, along x, over its depth, along z. 0 stands for square cells.
    #[serde(default, skip_serializing_if = "is_square")]
    pub aspect: f32,
}

fn is_square(aspect: &f32) -> bool {
    *aspect == 0.0
}

impl Fit {
    /// Returns the divisors of columns and rows that make a surface 2 long along its longer side.
    pub(super) fn divisors(&self, grid: Grid) -> [f32; 2] {
        let cells = [grid.cols - 1, grid.rows - 1].map(|cells| cells as f32);
        match is_square(&self.aspect) {
            true => [cells[0].max(cells[1]); 2],
            false => [cells[0] / self.aspect.min(1.0), cells[1] * self.aspect.max(1.0)],
        }
    }
}

impl Default for Fit {
    fn default() -> Self {
        Self { center: [0.0; 3], radius: 1.0, aspect: 0.0 }
    }
}

impl FieldView {
    pub fn of(array: &DrawnArray) -> Self {
        Self {
            camera: if array.is_flat() { Camera::UPRIGHT } else { Camera::default() },
            limits: match array.number() {
                Number::U8 => [0.0, 255.0],
                Number::F32 | Number::F16 | Number::I32 => [0.0, 1.0],
            },
            size: 3.0,
            fit: Fit::default(),
            units: [0.0, 1.0],
            look: Look::default(),
        }
    }

    /// Returns the limits as labels show them: see [`FieldView::units`].
    pub(super) fn limits_in_units(&self) -> [f64; 2] {
        let [offset, factor] = self.units;
        self.limits.map(|limit| offset + factor * f64::from(limit))
    }

    /// Returns the lower limit, and the factor that maps differences from it to 0..1.
    pub(super) fn scale(&self) -> [f32; 2] {
        let [low, high] = self.limits.map(f64::from);
        let scale = (high - low).recip() as f32;
        // Limits that are almost equal give a step instead of infinity.
        [self.limits[0], scale.clamp(f32::MIN, f32::MAX)]
    }
}

pub fn has_color_map(array: &DrawnArray) -> bool {
    let has_colors = array.part(PartName::Colors).is_some() || array.is_plot();
    !has_colors && (array.kind() != ArrayKind::Image || array.components() == 1)
}

/// The part of a picture's width and height that is left free on each side of a line plot.
const MARGIN: f32 = 0.05;

/// The place of an image or a line plot in a picture, in pixels from the top left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placement {
    pub corner: [f32; 2],
    pub size: [f32; 2],
}

impl Placement {
    pub fn of(array: &DrawnArray, camera: &Camera, picture: (u32, u32)) -> Self {
        if !array.is_plot() {
            return Self::new(array.grid(), camera, picture);
        }
        let scale = (1.0 - 2.0 * MARGIN) * Camera::UPRIGHT.distance / camera.distance;
        Self::centred([picture.0, picture.1].map(|side| scale * side as f32), camera, picture)
    }

    /// Fits the image into the picture, then scales it by the default distance over the camera's. The
    /// camera's target, in units of half the longer side with y up, is in the middle of the picture.
    pub fn new(image: Grid, camera: &Camera, picture: (u32, u32)) -> Self {
        let (cols, rows) = (image.cols as f32, image.rows as f32);
        let (width, height) = (picture.0 as f32, picture.1 as f32);
        let pixels = (width / cols).min(height / rows) * Camera::UPRIGHT.distance / camera.distance;
        // Keep at least one pixel of a very long image.
        Self::centred([cols, rows].map(|texels| (texels * pixels).max(1.0)), camera, picture)
    }

    fn centred(size: [f32; 2], camera: &Camera, picture: (u32, u32)) -> Self {
        let (width, height) = (picture.0 as f32, picture.1 as f32);
        let unit = Self { corner: [0.0; 2], size }.unit();
        let (right, down) = (-camera.target.x * unit, camera.target.y * unit);
        Self { corner: [0.5 * (width - size[0]) + right, 0.5 * (height - size[1]) + down], size }
    }

    /// Returns half of the image's longer side, in pixels.
    pub fn unit(&self) -> f32 {
        0.5 * self.size[0].max(self.size[1])
    }
}

impl Camera {
    pub fn of(scene: Scene) -> Self {
        match scene {
            Scene::Field => Self::default(),
            Scene::Texture => Self::ABOVE_A_PLANE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_become_a_scale() {
        let array = DrawnArray::mesh(Grid { cols: 2, rows: 2 });
        let scale = |limits| FieldView { limits, ..FieldView::of(&array) }.scale();
        assert_eq!(
            FieldView::of(&array).scale(),
            [0.0, 1.0],
            "exactly, so that a mesh is what it always was"
        );
        assert_eq!(scale([-2.0, 2.0]), [-2.0, 0.25]);
        assert_eq!(scale([4.0, 0.0]), [4.0, -0.25]);
        assert_eq!(scale([0.0, f32::from_bits(1)]), [0.0, f32::MAX]);
        assert!(scale([f32::MIN, f32::MAX]).iter().all(|number| number.is_finite()));
    }

    #[test]
    fn an_image_fills_the_picture_and_is_moved_and_enlarged() {
        let place = |cols, rows, distance: f32, x, y| {
            let camera =
                Camera { distance: 3.3 * distance, target: glam::vec3(x, y, 0.0), ..Camera::UPRIGHT };
            let Placement { corner: [left, top], size: [width, height] } =
                Placement::new(Grid { cols, rows }, &camera, (400, 200));
            (left, top, width, height)
        };
        assert_eq!(place(7, 7, 1.0, 0.0, 0.0), (100.0, 0.0, 200.0, 200.0));
        assert_eq!(place(800, 100, 1.0, 0.0, 0.0), (0.0, 75.0, 400.0, 50.0));
        assert_eq!(place(7, 7, 0.5, 0.0, 0.0), (0.0, -100.0, 400.0, 400.0));
        assert_eq!(place(7, 7, 1.0, 1.0, 0.0), (0.0, 0.0, 200.0, 200.0), "its right edge is in the middle");
        assert_eq!(
            place(7, 7, 1.0, 0.0, 1.0),
            (100.0, 100.0, 200.0, 200.0),
            "its upper edge is in the middle"
        );
        assert_eq!(place(4_000_000, 1, 1.0, 0.0, 0.0), (0.0, 99.5, 400.0, 1.0));
        let plot = DrawnArray::new(ArrayKind::Lines, &[9], Number::F32).unwrap();
        let camera = Camera { target: glam::vec3(1.0, 0.0, 0.0), ..Camera::UPRIGHT };
        let Placement { corner, size } = Placement::of(&plot, &camera, (400, 200));
        assert_eq!((corner, size), ([20.0 - 180.0, 10.0], [360.0, 180.0]), "its right end is in the middle");
    }
}
