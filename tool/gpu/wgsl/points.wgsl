// Vertices of a mesh as dots.
//!use globals
//!use one
//!use mesh
//!use dots
//!use vertex_dots
//!use sprites
