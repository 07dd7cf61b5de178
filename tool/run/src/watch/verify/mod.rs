//! Checks that every frame arrives whole: `wavefield verify` looks at every vertex or texel of every frame.

mod broken;
mod check;
mod checker;
mod footprint;
pub mod slots;
pub mod tally;

pub use broken::{Broken, BrokenProducer};
pub(crate) use check::last_user;
pub use check::{Check, Checked};
pub use checker::Checker;
pub use footprint::Footprint;
