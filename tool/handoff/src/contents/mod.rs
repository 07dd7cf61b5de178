//! Describes what a frame shows. This module draws nothing.
//!
//! - [`wave`]: the field that is drawn by default, and a double-precision reference
//! - [`array`](mod@array): the arrays that a client can bring instead: a mesh, heights, points, an image
//! - [`texture`]: the animated texture
//! - [`scene`]: the choice between a field and a texture
//! - [`gallery`], [`built_in`]: the kernels that come with the tool
//! - [`frame_stamp`]: the frame's number in every vertex, for the check

pub mod array;
pub mod built_in;
pub mod frame_stamp;
pub mod gallery;
pub mod scene;
pub mod texture;
pub mod wave;
