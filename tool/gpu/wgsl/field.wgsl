// A mesh as a surface.
//!use globals
//!use one
//!use mesh
//!use surface
//!use triangles
