// Heights as dots.
//!use globals
//!use one
//!use numbers
//!use heights
//!use dots
//!use vertex_dots
//!use sprites
