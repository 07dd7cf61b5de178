//! What the tests of several files of this folder share.

pub mod conversation;
#[cfg(test)]
pub(super) mod fuzz;
