// Heights as dots.
//!use globals
//!use numbers
//!use heights
//!use dots
//!use vertex_dots
//!use sprites
