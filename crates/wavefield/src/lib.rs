//! **wavefield**: CUDA fills a field of vertices, Vulkan draws it, and nothing is copied.
//!
//! The separate library [`vulkan_cuda`] shows how the two share a GPU: read that first. This crate is the program:
//!
//! | module | what it contains |
//! |---|---|
//! | [`cuda`] | CUDA streams, kernels and memory that CUDA allocates |
//! | [`vulkan`] | instance → adapter → device and queue → surface and swapchain, as wgpu names them |
//! | [`wave`], [`texture`] | the default field and the animated texture, with the float64 references that every producer is checked against |
//! | [`mod@array`] | what a client's slot holds: a mesh, heights, points or an image |
//! | [`gallery`] | the kernels that come with this program, and their counterparts: compute shaders and float64 references |
//! | [`stamp`] | a frame's number in each of its vertices or texels |
//! | [`producer`] | what fills a slot: a CUDA kernel, a Vulkan compute shader, CPU threads |
//! | [`handoff`] | the ways to hand CUDA's vertices over: the good one, and those to compare it with |
//! | [`render`] | the picture: a lit surface, points or an image, drawn straight from a slot |
//! | [`observer`] | what watches while frames are drawn |
//! | [`trace`] | what happened when: CPU, CUDA and Vulkan on one clock, for Perfetto |
//! | [`verify`] | whether every frame arrives whole: stamps, a pass that reads every vertex, footprints |
//! | [`film`] | drawn pictures as a GIF or as raw frames |
//! | `trial` | the first launch of a new kernel, or memory from an untrusted client, in a separate process (Linux only) |
//! | [`app`] | choosing a device, the frame loop, the window, the headless run |
//! | [`mod@bench`] | what each hand-off costs, measured |
//! | [`formats`] | which images, buffers and semaphores a device can share, listed and tried |
//! | `serve` | a client in another process writes the vertices (Linux only) |
//!
//! The binary is a thin command line over [`app`].
//!
//! # Layers
//!
//! A module imports only from modules before it in this list. `tests/layers.rs` checks every import.
//!
//! `error`, `report`, `plain_file`, `whole_file`, `threads`, `descriptors`, `progress`, `svg`, `left_running`, `cuda`, `vulkan`, `machine`,
//! `wave`, `array`, `gallery`, `texture`, `stamp`, `scene`, `producer`, `handoff`, `render`, `observer`, `trace`, `verify`, `film`, `trial`, `app`, `bench`, `formats`, `serve`

#![deny(unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks)]

pub mod app;
pub mod array;

pub mod bench;
pub mod cuda;
#[cfg(target_os = "linux")]
mod descriptors;
mod error;
pub mod film;
pub mod formats;
pub mod gallery;
pub mod handoff;
mod left_running;
pub mod machine;
pub mod observer;
mod plain_file;
pub mod producer;
pub mod progress;
pub mod render;
pub mod report;
pub mod scene;
#[cfg(target_os = "linux")]
pub mod serve;
pub mod stamp;
mod svg;
pub mod texture;
mod threads;
pub mod trace;
#[cfg(target_os = "linux")]
pub mod trial;
pub mod verify;
pub mod vulkan;
pub mod wave;
mod whole_file;

pub use error::{Error, Result};
pub use left_running::left_running;
pub use whole_file::{check_outputs, check_writable, write_json};
