//! Watches frames while they are drawn.
//!
//! - [`observer`]: the interface between the frame loop and what watches it
//! - [`verify`]: `wavefield verify`: is any vertex stale, torn or missing?
//! - [`trace`]: `--trace`: what ran when, for Perfetto or as a picture
//! - [`recording`]: `--record`: a GIF or raw frames

pub mod observer;
pub mod recording;
pub mod trace;
pub mod verify;
