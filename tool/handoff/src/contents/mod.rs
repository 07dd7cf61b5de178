//! What a frame shows. Nothing is drawn here.
//!
//! - [`wave`]: the field that everything draws by default, in double precision too
//! - [`array`](mod@array): what a client may bring instead: a mesh, heights, points, an image
//! - [`texture`]: the animated texture
//! - [`scene`]: a field or a texture
//! - [`gallery`], [`built_in`]: the kernels that come with the tool
//! - [`frame_stamp`]: the frame's number in every vertex, for the check

pub mod array;
pub mod built_in;
pub mod frame_stamp;
pub mod gallery;
pub mod scene;
pub mod texture;
pub mod wave;
