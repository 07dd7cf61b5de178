// A mesh as a surface.
//!use globals
//!use one
//!use mesh
//!use light
//!use surface
//!use triangles
