//! The parts of the program that its binary and its tests share.

#![warn(unreachable_pub)]

#[cfg(feature = "bench")]
pub mod bench;
