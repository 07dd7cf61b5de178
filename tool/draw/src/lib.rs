//! Draws a frame: an array as a lit surface, points, triangles, lines or an image, or a textured plane.
//!
//! - `field` records the draw, from `inputs` (what shaders read), a `pipeline` and a `pass`
//! - `raster` does the same by compute shaders
//! - `camera`, `view`, `color_map`, `look`: the picture's appearance; `mesh`: the triangles of a grid
//! - `marks`: the colour bar and the axes
//! - `pick`: what lies under the pointer; `things`: several arrays in one picture
//! - `offscreen`: a picture without a window; `painter`: the overlay
//! - `views`: pictures of many views at once, for other programs

#![warn(unreachable_pub)]

mod camera;
mod color_map;
mod field;
mod inputs;
mod look;
mod marks;
mod mesh;
mod offscreen;
mod painter;
mod pass;
mod pick;
mod pipeline;
mod raster;
mod things;
mod view;
mod views;

pub use camera::Camera;
pub use color_map::ColorMap;
pub use field::{FieldRenderer, FieldRendererDesc, Output, Slices};
pub use look::{Label, Look, Norm};
pub use marks::{Ink, Marks, number, values_of};
pub use mesh::{TILE, tile_count, tile_indices};
pub use offscreen::OffscreenTarget;
pub use painter::{Painter, Painting};
pub use pass::{Picture, Raster, Samples, Style};
pub use pick::{PICK_SIDE, Pick};
pub use things::{ArrayLook, Drawing};
pub use view::{FieldView, Fit, Placement, has_color_map};
pub use views::{MAX_VIEWS, PictureKind, PicturePlace, Views, Wanted};

#[cfg(test)]
mod tests;
