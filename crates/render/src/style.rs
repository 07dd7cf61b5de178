//! The ways to draw a field.

use clap::ValueEnum;

/// How a field is drawn. The texture's plane has only one style.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Style {
    /// A lit surface.
    #[default]
    Surface,
    /// The grid's lines on a dark surface. Where they would touch, only every second, fourth, … line.
    Wireframe,
    /// A dot for each vertex.
    Points,
}

impl Style {
    pub fn name(self) -> &'static str {
        match self {
            Self::Surface => "surface",
            Self::Wireframe => "wireframe",
            Self::Points => "points",
        }
    }
}
