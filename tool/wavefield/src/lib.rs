//! The parts of the program that its tests use.

#![warn(unreachable_pub)]

#[cfg(feature = "bench")]
pub mod bench;
