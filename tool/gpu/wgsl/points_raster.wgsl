// Vertices of a mesh as dots, by compute.
//!use globals
//!use backdrop
//!use raster
//!use mesh
//!use dots
//!use vertex_dots
//!use discs
