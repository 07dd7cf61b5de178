// Heights as a surface.
//!use globals
//!use numbers
//!use heights
//!use surface
//!use triangles
