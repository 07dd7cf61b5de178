//! Another producer while the engine runs: for [`crate::serve`], whose clients come and go.

use vulkan_cuda::ownership::Owner;

use super::Engine;
use crate::array::{Array, Kind};
use crate::cuda::KernelValues;
use crate::producer::{Producer, Source};
use crate::render::{Drawing, View};
use crate::verify::Check;
use crate::verify::tally::Tally;
use crate::{Error, Result};

/// A producer with what goes where it goes. It counts its own frames without gaps, whoever drew in between.
pub(crate) struct Installed {
    pub(crate) producer: Box<dyn Producer>,
    /// The number of its next frame.
    pub(crate) next: u64,
    /// The values of its parameters.
    parameters: KernelValues,
    /// What draws its arrays, and how they are looked at.
    drawing: Drawing,
    pub(crate) view: View,
}

impl Installed {
    /// A producer that has not produced yet, with these values of its parameters, and what draws its arrays:
    /// [`Engine::drawing_of`].
    pub(crate) fn new(producer: Box<dyn Producer>, parameters: &[f32], drawing: Drawing) -> Self {
        let parameters = producer.profile().parameters.values(parameters);
        let view = View::of(drawing.array());
        Self { producer, next: 0, parameters, drawing, view }
    }
}

impl Engine {
    /// What draws the array of now, for [`Installed::new`].
    pub(crate) fn drawing(&self) -> Drawing {
        self.renderer.drawing().clone()
    }

    /// What draws another array, for [`Installed::new`].
    ///
    /// # Errors
    /// The device cannot; nothing has changed.
    pub(crate) fn drawing_of(&self, array: Array) -> Result<Drawing> {
        self.renderer.drawing_of(array)
    }

    /// Another producer from the next frame on; gives the old one back, with nothing of it in use. Waits for both sides.
    ///
    /// # Errors
    /// The old producer failed, or nothing came to rest: then both are where they were. (Where a kernel never ends,
    /// nothing of CUDA may be dropped: that would wait for it.)
    pub(crate) fn swap(&mut self, incoming: &mut Option<Installed>) -> Result<Installed> {
        self.finish()?;
        // Of the producer that goes, everything is counted.
        self.look_at_all()?;
        if let Some(incoming) = incoming {
            self.renderer.renew(&mut incoming.drawing)?;
        }
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
                check.exchanged(*incoming.drawing.array(), true);
            }
            self.put(incoming)
        })
    }

    /// Nothing is in flight: the old producer can be exchanged.
    fn put(&mut self, incoming: Installed) -> Installed {
        let submitted = self.pacer.submitted();
        let next = submitted - self.first;
        if let Some(check) = &mut self.observers.check {
            check.exchanged(*incoming.drawing.array(), false);
        }
        self.times.forget();
        // Their clocks and slots are the old producer's.
        (self.observers.live, self.observers.probe) = (None, None);
        self.forget_recorded();
        self.first = submitted - incoming.next;
        let producer = std::mem::replace(&mut *self.producer, incoming.producer);
        let parameters = std::mem::replace(&mut self.parameters, incoming.parameters);
        let is_image = |array: &Array| array.kind() == Kind::Image;
        let turns = is_image(self.array()) != is_image(incoming.drawing.array());
        let drawing = self.renderer.exchange(incoming.drawing);
        let view = std::mem::replace(&mut self.view, incoming.view);
        if !turns {
            // The user has it where it is.
            self.view.camera = view.camera;
        }
        self.begin_producer();
        Installed { producer, next, parameters, drawing, view }
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
