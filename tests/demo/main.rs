//! The demo, the frame by hand in Rust and in C++, and six ways to hand over.

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
mod hand_offs;
#[cfg(target_os = "linux")]
mod program;
#[cfg(target_os = "linux")]
mod stand_in_script;
#[cfg(target_os = "linux")]
mod window;
