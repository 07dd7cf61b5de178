// Points as round dots, by compute.
//!use globals
//!use backdrop
//!use raster
//!use numbers
//!use places
//!use dots
//!use cloud
//!use discs
