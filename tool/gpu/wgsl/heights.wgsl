// Heights as a surface.
//!use globals
//!use one
//!use numbers
//!use heights
//!use light
//!use surface
//!use triangles
