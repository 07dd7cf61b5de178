// Points as round dots.
//!use globals
//!use one
//!use numbers
//!use backdrop
//!use places
//!use dots
//!use cloud
//!use sprites
