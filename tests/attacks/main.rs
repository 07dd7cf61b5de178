//! Attacks: what was done to break the program, each kept as a test. The program answers with words and an exit code; it
//! never crashes, hangs, loses what was measured or leaves something behind.

#![cfg(unix)]

#[path = "../common/mod.rs"]
mod common;
#[cfg(target_os = "linux")]
#[path = "../common/display.rs"]
mod display;
#[path = "../common/stand_in.rs"]
mod stand_in;

#[cfg(target_os = "linux")]
mod arrays;
mod clients;
mod devices;
mod files;
mod kernels;
mod signals;
mod words;
