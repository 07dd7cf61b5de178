//! What of the program its tests read, too.

#![warn(unreachable_pub)]

#[cfg(feature = "bench")]
pub mod bench;
