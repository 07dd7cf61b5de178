//! The program as a renderer for other processes.

#[path = "../common/mod.rs"]
mod common;
#[cfg(target_os = "linux")]
#[path = "../../examples/client.rs"]
#[allow(dead_code)]
mod example;
#[cfg(target_os = "linux")]
#[path = "../common/owner.rs"]
mod owner;
#[cfg(target_os = "linux")]
#[path = "../common/renderer.rs"]
mod renderer;
#[cfg(target_os = "linux")]
use wavefield_test_support::stand_in;

#[cfg(target_os = "linux")]
mod imports;
#[cfg(target_os = "linux")]
mod serve;
#[cfg(target_os = "linux")]
mod serve_arrays;
#[cfg(target_os = "linux")]
mod serve_renders;
#[cfg(target_os = "linux")]
mod serve_things;
