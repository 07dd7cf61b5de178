//! Checks that every frame arrives whole. `wavefield verify` looks at every vertex of every frame, or at every texel of every level.
//!
//! | file | what it does |
//! |---|---|
//! | [`Checker`] | counts vertices or texels with a wrong frame number, in a compute pass before and after the draw |
//! | [`tally`] | judges a frame by these counts, and sums up all frames |
//! | [`slots`] | at the end, reads back the ring's slots and compares them with the reference |
//! | [`Footprint`] | measures open descriptors and memory, which must not grow |
//! | [`Broken`] | leaves out a part of the hand-off, to show that the check finds it |
//!
//! Every producer can stamp its frames ([`crate::producer::ProducerDesc::stamped`]). The frame loop owns a [`Check`].

mod broken;
mod check;
mod checker;
mod footprint;
pub mod slots;
pub mod tally;

pub use broken::Broken;
pub(crate) use broken::{BrokenProducer, plan};
pub use check::{Check, CheckDesc, Checked};
pub use checker::{Checker, Pass};
pub use footprint::Footprint;
