//! The picture: a field of vertices as a lit surface, or a plane with a texture.

mod camera;
mod field;
mod mesh;
mod palette;
mod targets;

pub use camera::Camera;
pub use field::{FieldRenderer, FieldRendererDesc, Picture, Slices, Surface};
pub use mesh::{TILE, tile_count, tile_indices};
pub use palette::ColorMap;
pub use targets::{OffscreenTarget, Samples};
