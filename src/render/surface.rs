//! What is drawn, and from what.

use crate::producer::{ImageSlot, Vertices};

/// What is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// A field of vertices: `shaders/field.wgsl`.
    Field,
    /// A plane with a texture: `shaders/plane.wgsl`.
    Plane,
}

/// What a frame is drawn from: of the kind that the renderer's [`Surface`] needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// For [`Surface::Field`].
    Vertices(Vertices),
    /// For [`Surface::Plane`].
    Texture(ImageSlot),
}
