//! Checks that every frame arrives whole. `wavefield verify` looks at every vertex of every frame, or at
//! every texel of every level, by their stamps ([`wavefield_handoff::producer::ProducerDesc::stamped`]).

mod broken;
mod check;
mod checker;
mod footprint;
pub mod slots;
pub mod tally;

pub use broken::Broken;
pub use broken::BrokenProducer;
pub use check::{Check, CheckDesc, Checked};
pub use checker::Checker;
pub use footprint::Footprint;
