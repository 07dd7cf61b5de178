//! **wavefield**: CUDA fills a field of vertices, Vulkan draws it, and nothing is copied.
//!
//! The separate library [`vulkan_cuda`] shows how the two share a GPU: read that first. This crate is the program, and the binary
//! a thin command line over [`app`]. Each module's first line says what it contains.
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
