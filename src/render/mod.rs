//! The picture: a field of vertices as a lit surface, or a plane with a texture.

mod camera;
mod color_map;
mod field;
mod inputs;
mod mesh;
mod palette;
mod pass;
mod pipeline;
mod surface;
mod targets;

pub use camera::Camera;
pub use color_map::ColorMap;
pub use field::{FieldRenderer, FieldRendererDesc, Slices};
pub use mesh::{TILE, tile_count, tile_indices};
pub use pass::Picture;
pub use surface::{Source, Surface};
pub use targets::{OffscreenTarget, Samples};
