// A mesh as a surface, by compute.
//!use globals
//!use backdrop
//!use raster
//!use mesh
//!use surface
//!use cells
