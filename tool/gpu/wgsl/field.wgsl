// A mesh as a surface.
//!use globals
//!use mesh
//!use surface
//!use triangles
