//! Does every frame arrive whole? `wavefield verify` looks at every vertex of every frame, or at every texel of every level.
//!
//! | file | what it does |
//! |---|---|
//! | [`Checker`] | a compute pass beside the draw that counts the vertices or texels with another frame's number |
//! | [`tally`] | what the counts say of a frame, and of all frames |
//! | [`slots`] | at the end: the ring's slots, read back and compared with the reference |
//! | [`Footprint`] | open descriptors and memory, which must not grow |
//! | [`Broken`] | a hand-off with a part left out, to show that the check finds it |
//!
//! The producer stamps, whoever it is ([`crate::producer::ProducerDesc::stamped`]); the frame loop owns a [`Check`].

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
