// Triangles between points, by compute.
//!use globals
//!use backdrop
//!use raster
//!use numbers
//!use places
//!use light
//!use faces
//!use walk
//!use loose_faces
