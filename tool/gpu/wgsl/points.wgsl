// Vertices of a mesh as dots.
//!use globals
//!use mesh
//!use dots
//!use vertex_dots
//!use sprites
