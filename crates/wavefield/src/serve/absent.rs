//! A placeholder: the engine holds it while its producer is exchanged after a fault. It never produces a frame.

use crate::producer::{Frame, Produced, Producer, Profile};
use crate::{Error, Result};

pub(super) struct Absent(Profile);

impl Absent {
    pub(super) fn new() -> Self {
        Self(Profile::of_queue("nobody", Vec::new()))
    }
}

impl Producer for Absent {
    fn profile(&self) -> &Profile {
        &self.0
    }

    fn produce(&mut self, _frame: &Frame) -> Result<Produced> {
        Err(Error::Unsupported("there is no producer".into()))
    }
}
