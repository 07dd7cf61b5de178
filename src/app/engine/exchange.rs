//! Another producer while the engine runs: for [`crate::serve`], whose clients come and go.

use vulkan_cuda::ownership::Owner;

use super::Engine;
use crate::cuda::KernelValues;
use crate::producer::{Producer, Source};
use crate::verify::Check;
use crate::verify::tally::Tally;
use crate::{Error, Result};

/// A producer, and the number of its next frame: each counts its own frames without gaps, whoever drew in between.
pub(crate) struct Installed {
    pub(crate) producer: Box<dyn Producer>,
    pub(crate) next: u64,
    /// The values of its parameters.
    parameters: KernelValues,
}

impl Installed {
    /// A producer that has not produced yet, with these values of its parameters.
    pub(crate) fn new(producer: Box<dyn Producer>, parameters: &[f32]) -> Self {
        let parameters = producer.profile().parameters.values(parameters);
        Self { producer, next: 0, parameters }
    }
}

impl Engine {
    /// Another producer from the next frame on; gives the old one back, with nothing of it in use. Waits for both sides.
    ///
    /// # Errors
    /// The old producer failed, or nothing came to rest: then both are where they were. (Where a kernel never ends,
    /// nothing of CUDA may be dropped: that would wait for it.)
    pub(crate) fn swap(&mut self, incoming: &mut Option<Installed>) -> Result<Installed> {
        self.finish()?;
        // Of the producer that goes, everything is counted.
        self.look_at_all()?;
        match incoming.take() {
            Some(incoming) => Ok(self.put(incoming)),
            None => Err(Error::Unsupported("there is no producer to exchange".into())),
        }
    }

    /// The same after the producer has failed: it lets go first. `None` where nothing comes to rest.
    pub(crate) fn swap_failed(&mut self, incoming: Installed) -> Option<Installed> {
        self.quiesce().then(|| {
            // Nothing may hold a faulted context.
            *self.context = None;
            if let Some(check) = &mut self.observers.check {
                check.exchanged(true);
            }
            self.put(incoming)
        })
    }

    /// Nothing is in flight: the old producer can be exchanged.
    fn put(&mut self, incoming: Installed) -> Installed {
        let submitted = self.pacer.submitted();
        let next = submitted - self.first;
        if let Some(check) = &mut self.observers.check {
            check.exchanged(false);
        }
        self.times.forget();
        // Their clocks and slots are the old producer's.
        (self.observers.live, self.observers.probe) = (None, None);
        self.forget_recorded();
        self.first = submitted - incoming.next;
        let producer = std::mem::replace(&mut *self.producer, incoming.producer);
        let parameters = std::mem::replace(&mut self.parameters, incoming.parameters);
        self.begin_producer();
        Installed { producer, next, parameters }
    }

    /// In a checked run: blanks slots that nobody uses yet. Waits for the GPU.
    pub(crate) fn blank(&mut self, slots: &[Source], owner: Owner) -> Result<()> {
        if self.observers.check.is_some() {
            self.drain()?;
        }
        match &self.observers.check {
            Some(check) => check.blank(&mut self.queue, slots, owner),
            None => Ok(()),
        }
    }

    /// What the check has found so far, in a checked run: everything, once [`Engine::summary`] was asked for.
    pub(crate) fn found(&self) -> Option<Tally> {
        self.observers.check.as_ref().map(Check::tally)
    }

    /// Frames that the GPU has finished drawing.
    pub(crate) fn frames_finished(&self) -> Result<u64> {
        self.pacer.finished()
    }
}
