//! Attacks: attempts to break the program, kept as tests. The program must answer with a message and an exit
//! code. It must not crash, hang, lose what it has measured or leave anything behind.

#![cfg(unix)]

#[path = "../common/mod.rs"]
mod common;
#[cfg(target_os = "linux")]
use wavefield_test_support::display;
use wavefield_test_support::stand_in;

#[cfg(target_os = "linux")]
mod arrays;
mod clients;
mod devices;
mod files;
mod kernels;
mod signals;
#[cfg(target_os = "linux")]
mod web;
mod words;
