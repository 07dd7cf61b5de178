//! **wavefield**: CUDA fills a field of vertices, Vulkan draws it, and nothing is copied.
//!
//! A map of the crate, in the order to read it:
//!
//! | module | what it teaches |
//! |---|---|
//! | [`interop`] | the lesson: matching a device, sharing memory and semaphores, handing frames over |
//! | [`cuda`] | the CUDA driver API, opened at run time and wrapped in types that own what they make |
//! | [`vulkan`] | instance → adapter → device and queue → surface and swapchain, as wgpu names them |
//! | [`producer`] | who fills a slot: a CUDA kernel, a Vulkan compute shader, CPU threads |
//! | [`handoff`] | ways to hand CUDA's vertices over: the good one, and those to compare it with |
//! | [`render`] | the picture: a lit surface drawn straight from a slot |
//! | [`mod@bench`] | what each hand-off costs, measured |
//! | [`trace`] | what happened when: CPU, CUDA and Vulkan on one clock, for Perfetto |
//! | [`verify`] | does every frame arrive whole: stamps, a pass that reads every vertex, footprints |
//! | [`formats`] | which images, buffers and semaphores a device shares, listed and tried |
//! | `serve` | a client in another process writes the vertices (Linux only) |
//! | [`app`] | choosing a device, the frame loop, the window, the headless run |
//! | [`texture`] | the animated texture, and its float64 reference |
//! | [`wave`] | the default field, and the float64 reference that all producers are held to |
//! | [`stamp`] | a frame's number in each of its vertices or texels |
//! | [`scene`], [`machine`], [`identity`] | what a run shows, where it ran, and by what a device is known |
//!
//! The binary is a thin command line over [`app`].

#![deny(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks)]

pub mod app;
mod axis;
pub mod bench;
pub mod cuda;
mod error;
pub mod formats;
pub mod handoff;
pub mod identity;
pub mod interop;
pub mod machine;
mod plain_file;
pub mod producer;
pub mod progress;
pub mod render;
pub mod report;
pub mod scene;
#[cfg(target_os = "linux")]
pub mod serve;
pub mod stamp;
pub mod texture;
mod threads;
pub mod trace;
pub mod verify;
pub mod vulkan;
pub mod wave;
mod whole_file;

pub use error::{Error, Result};
pub use whole_file::{check_outputs, check_writable};
