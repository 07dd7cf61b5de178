use std::mem::ManuallyDrop;

use super::Work;
use super::batching::{AutoBatch, Batching};
use crate::watch::verify::last_user;
use wavefield_gpu::{Result, cuda::KernelValues, vulkan::Pacer};
use wavefield_handoff::producer::{Frame, Produced, Producer, Profile};

pub struct ProducerState {
    // `Engine`'s `Drop` drops this, and only once it is no longer in use.
    pub(super) producer: ManuallyDrop<Box<dyn Producer>>,
    pub parameters: KernelValues,
    pub(super) batching: Batching,
    pub(super) auto: Option<AutoBatch>,
    /// A frame's number minus the producer's own number for it.
    pub(super) first: u64,
    /// The number of frames filled, or being filled, counted from `first`.
    pub(super) filled: u64,
    /// How often the producer made the CPU wait.
    pub(super) waits: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotNow {
    /// No frame has reached it yet.
    New,
    /// This frame's draw has finished; the producer may use the slot.
    Drawn(u64),
    /// This frame is being drawn, or CUDA still fills it.
    AtWork(u64),
    /// This frame is submitted, and waits for an earlier one.
    Submitted(u64),
    /// This frame was filled ahead, in a batch with an earlier one.
    Ahead(u64),
}

impl ProducerState {
    pub(super) fn new(producer: Box<dyn Producer>, parameters: &[f32], batching: Batching) -> Self {
        let parameters = producer.profile().parameters.values(parameters);
        let producer = ManuallyDrop::new(producer);
        Self { producer, parameters, batching, auto: None, first: 0, filled: 0, waits: 0 }
    }

    pub(super) fn get(&self) -> &dyn Producer {
        &**self.producer
    }

    pub fn profile(&self) -> &Profile {
        self.producer.profile()
    }

    /// Sets the producer's parameters, in the order of [`Profile::parameters`]. Clamps them; missing ones take
    /// their defaults. Frames that were filled ahead do not change.
    pub fn set_parameters(&mut self, values: &[f32]) {
        self.parameters = self.profile().parameters.values(values);
    }

    /// Prepares for a new producer. Call this before its first frame.
    pub(super) fn begin(&mut self, pacer: &mut Pacer) {
        self.filled = 0;
        pacer.set_limit(self.profile().max_in_flight);
        let longest = self.profile().longest_batch;
        self.auto = match self.batching {
            Batching::Fixed(_) => None,
            Batching::Auto { latency } => AutoBatch::new(longest, latency),
        };
        let frames = self.batch();
        self.producer.set_batch(frames);
    }

    pub fn batch(&self) -> usize {
        match (self.batching, &self.auto) {
            (_, Some(auto)) => auto.batch,
            (Batching::Fixed(frames), None) => (frames as usize).clamp(1, self.profile().longest_batch),
            (Batching::Auto { .. }, None) => 1,
        }
    }

    /// Sets how many frames CUDA fills at once, from the next batch on, up to the hand-off's limit. With
    /// [`Batching::Auto`] this holds until the next automatic choice.
    pub fn set_batch(&mut self, frames: usize) {
        self.producer.set_batch(frames);
    }

    pub(super) fn produce(&mut self, frame: &Frame) -> Result<Produced> {
        let produced = self.producer.produce(frame)?;
        self.waits += u64::from(produced.blocked.is_some());
        self.filled = produced.batch.end();
        Ok(produced)
    }
}

impl Work {
    pub fn slots_now(&self) -> Result<Vec<SlotNow>> {
        let drawn = self.pacer.finished()?.saturating_sub(self.producer.first);
        let slots = self.producer.profile().slots.len() as u64;
        Ok((0..slots).map(|slot| slot_now(slot, slots, drawn, self.next(), self.producer.filled)).collect())
    }
}

/// Returns the state of one of `slots` slots. `drawn`, `submitted` and `filled` count frames.
fn slot_now(slot: u64, slots: u64, drawn: u64, submitted: u64, filled: u64) -> SlotNow {
    match last_user(filled.max(submitted), slots, slot) {
        None => SlotNow::New,
        Some(frame) if frame < drawn => SlotNow::Drawn(frame),
        Some(frame) if frame == drawn && frame < submitted => SlotNow::AtWork(frame),
        Some(frame) if frame < submitted => SlotNow::Submitted(frame),
        Some(frame) => SlotNow::Ahead(frame),
    }
}

#[cfg(test)]
mod tests {
    use super::SlotNow::*;
    use super::*;

    #[test]
    fn a_slot_changes_hands() {
        let ring =
            |drawn, submitted, filled| [0, 1, 2, 3].map(|slot| slot_now(slot, 4, drawn, submitted, filled));
        assert_eq!(ring(0, 0, 0), [New; 4]);
        assert_eq!(ring(0, 1, 2), [AtWork(0), Ahead(1), New, New]);
        assert_eq!(ring(1, 3, 4), [Drawn(0), AtWork(1), Submitted(2), Ahead(3)]);
        assert_eq!(ring(4, 6, 6), [AtWork(4), Submitted(5), Drawn(2), Drawn(3)]);
    }
}
