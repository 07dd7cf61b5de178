//! Describes what a frame shows, without drawing it.
//!
//! - [`wave`]: the field that is drawn by default, and a double-precision reference
//! - [`array`](mod@array): the arrays that a client can bring instead: a mesh, heights, points, an image;
//!   [`parts`]: colours, faces and more that lie behind one
//! - [`texture`]: the animated texture
//! - [`scene`]: the choice between a field and a texture
//! - [`gallery`], [`built_in`]: the kernels that come with the tool
//! - [`frame_stamp`]: the frame's number in every vertex or texel, by which a check finds torn frames

pub mod array;
pub mod built_in;
pub mod frame_stamp;
pub mod gallery;
pub mod parts;
pub mod scene;
pub mod texture;
pub mod things;
pub mod wave;
