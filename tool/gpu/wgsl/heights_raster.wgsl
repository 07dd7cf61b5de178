// Heights as a surface, by compute.
//!use globals
//!use backdrop
//!use raster
//!use numbers
//!use heights
//!use light
//!use surface
//!use walk
//!use cells
