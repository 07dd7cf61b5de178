//! Nobody: what the engine holds while its producer is being exchanged after a fault. It is never drawn from.

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
