// A mesh as a surface, by compute.
//!use globals
//!use backdrop
//!use raster
//!use mesh
//!use light
//!use surface
//!use walk
//!use cells
