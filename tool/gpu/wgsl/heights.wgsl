// Heights as a surface.
//!use globals
//!use one
//!use numbers
//!use heights
//!use surface
//!use triangles
