// Points as round dots, all of the same size.
//!use globals
//!use one
//!use numbers
//!use dots
//!use cloud
//!use sprites
