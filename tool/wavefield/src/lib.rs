//! What of the program its tests read, too.

#[cfg(feature = "bench")]
pub mod bench;
