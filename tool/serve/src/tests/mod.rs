//! What the tests of several files of this folder share.

pub(super) mod fuzz;
