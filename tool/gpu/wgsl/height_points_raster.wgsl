// Heights as dots, by compute.
//!use globals
//!use backdrop
//!use raster
//!use numbers
//!use heights
//!use dots
//!use vertex_dots
//!use discs
