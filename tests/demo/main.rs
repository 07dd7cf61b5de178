//! The demo, and the frame by hand in Rust and in C++.

#[cfg(target_os = "linux")]
mod common;

#[cfg(target_os = "linux")]
mod faults;
#[cfg(target_os = "linux")]
mod first_frame;
#[cfg(target_os = "linux")]
mod first_frame_cpp;
mod frame;
#[cfg(target_os = "linux")]
mod program;
#[cfg(target_os = "linux")]
mod window;
