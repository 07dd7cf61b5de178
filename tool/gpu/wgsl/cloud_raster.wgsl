// Points as round dots, all of the same size, by compute.
//!use globals
//!use backdrop
//!use raster
//!use numbers
//!use dots
//!use cloud
//!use discs
