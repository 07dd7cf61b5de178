//! Watches frames while they are drawn.
//!
//! - [`observer`]: the interface between the frame loop and what watches it
//! - [`verify`]: `wavefield verify`, which finds stale, torn and missing vertices
//! - [`trace`]: `--trace`, which shows what ran when, for Perfetto or as a picture
//! - [`recording`]: `--record`, which writes a GIF or raw frames

pub mod observer;
pub mod recording;
pub mod trace;
pub mod verify;
