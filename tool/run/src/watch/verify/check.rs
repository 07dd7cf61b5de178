use ash::vk;

use super::slots::{SlotContent, SlotsFound, WaveMoment};
use super::{Checker, Footprint, tally::Tally};
use crate::watch::observer::{At, Finished, Observer};
use crate::{Choice, Config};
use wavefield_gpu::Result;
use wavefield_gpu::machine::Machine;
use wavefield_gpu::vulkan::Queue;
use wavefield_handoff::contents::array::DrawnArray;
use wavefield_handoff::contents::wave::WaveShape;
use wavefield_handoff::producer::{Frame, Produced, Profile, Source, read_slot};

/// How many frames to remember: enough for the deepest ring, and a batch of the same length filled ahead.
const REMEMBERED: usize = 64;

/// The check of a run, which the frame loop owns. It allocates nothing per frame.
pub struct Check {
    pub(crate) checker: Checker,
    /// For each flight, the number that its submitted frame must carry.
    numbers: Vec<u64>,
    /// The numbers and moments of the last filled frames, indexed by number modulo [`REMEMBERED`].
    moments: [(u64, WaveMoment); REMEMBERED],
    /// The number of filled frames, including those of a batch that are not drawn yet.
    filled: u64,
    pub(crate) tally: Tally,
    /// Whether the producer changed. Then the slots do not hold the run's last frames, and are not checked.
    exchanged: bool,
    settled: Option<Footprint>,
    picture: [u32; 2],
    has_reference: bool,
    machine: Machine,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    pub machine: Machine,
    pub tally: Tally,
    /// Read at the end of the run; no slots if the producer was exchanged or the run failed.
    pub slots: SlotsFound,
    /// After [`Footprint::SETTLED`] frames; `None` in a shorter run.
    pub settled: Option<Footprint>,
    pub end: Footprint,
}

impl Check {
    /// Blanks the slots of `producer`, which stamps frames and has not produced any. Waits for the queue.
    pub fn new(
        queue: &mut Queue,
        producer: &Profile,
        choice: &Choice,
        config: &Config,
        flights: usize,
    ) -> Result<Self> {
        wavefield_gpu::threads::start()?;
        let made = Self {
            checker: Checker::new(queue.device(), config.scene, DrawnArray::mesh(config.grid), flights)?,
            numbers: vec![0; flights],
            moments: [(u64::MAX, (0.0, WaveShape::default())); REMEMBERED],
            filled: 0,
            tally: Tally::default(),
            exchanged: false,
            settled: None,
            picture: [0, 0],
            has_reference: config.shows_built_in(),
            machine: choice.machine(),
        };
        made.checker.blank(queue, &producer.slots, producer.owner)?;
        Ok(made)
    }

    /// Continues with another producer, whose slots hold `array`.
    #[cfg(target_os = "linux")] // Only `serve` exchanges producers.
    pub fn exchanged(&mut self, array: DrawnArray) {
        self.exchanged = true;
        self.checker.array = array;
    }

    /// Reads the slots back. Both APIs must be at rest, with all `drawn` frames finished.
    pub fn finish(&mut self, queue: &mut Queue, producer: &Profile, drawn: u64) -> Result<Checked> {
        // Measure before memory is allocated to read the slots.
        let end = Footprint::take(drawn, &self.checker.device, self.picture);
        let mut slots = SlotsFound::default();
        let depth = producer.slots.len() as u64;
        let array = self.checker.array;
        let left = if self.exchanged { 0 } else { depth };
        for slot in 0..left {
            let source = producer.slots[slot as usize];
            // SAFETY: a live slot of the run's producer, of this size.
            let bytes = unsafe { read_slot(queue, source, producer.owner, &array) }?;
            let found = match source {
                Source::Vertices(_) => {
                    SlotContent::Vertices(bytemuck::allocation::pod_collect_to_vec(&bytes))
                }
                Source::Texture(_) => SlotContent::Texels(bytemuck::allocation::pod_collect_to_vec(&bytes)),
            };
            match last_user(self.filled, depth, slot) {
                Some(frame) => {
                    let (number, moment) = self.moments[(frame % REMEMBERED as u64) as usize];
                    // If the number differs, the frame is too old.
                    let known = number == frame && self.has_reference;
                    slots.add_filled(array.grid(), &found, frame, known.then_some(moment));
                }
                None => slots.add_blank(&found),
            }
        }
        Ok(Checked { slots, end, ..self.so_far(drawn) })
    }

    pub fn so_far(&self, drawn: u64) -> Checked {
        Checked {
            machine: self.machine.clone(),
            tally: self.tally,
            slots: SlotsFound::default(),
            settled: self.settled,
            end: Footprint::take(drawn, &self.checker.device, self.picture),
        }
    }
}

impl Observer for Check {
    fn produced(&mut self, flight: usize, produced: &Produced) -> Result<()> {
        self.checker.expect(flight, produced.number)
    }

    unsafe fn record(&self, commands: vk::CommandBuffer, flight: usize, source: Source, at: At) {
        // SAFETY: recording, the flight is free, and the source may be read (the caller's promise).
        unsafe { self.checker.record(commands, flight, source, at) };
    }

    fn submitted(&mut self, flight: usize, frame: &Frame, produced: &Produced, picture: vk::Extent2D) {
        self.numbers[flight] = produced.number;
        if produced.batch.first == frame.index {
            for ahead in 0..produced.batch.frames {
                let number = frame.index + ahead;
                let time = frame.time + ahead as f64 * frame.step;
                let moment = (time, WaveShape::of(&frame.parameters));
                self.moments[(number % REMEMBERED as u64) as usize] = (number, moment);
            }
            self.filled = produced.batch.end();
        }
        self.picture = [picture.width, picture.height];
        if frame.index + 1 == Footprint::SETTLED {
            self.settled = Some(Footprint::take(frame.index + 1, &self.checker.device, self.picture));
        }
    }

    fn finished(&mut self, frame: &Finished<'_>) -> Result<()> {
        let looks = self.checker.read(frame.flight)?;
        self.tally.add(self.numbers[frame.flight], self.checker.stamps(), &looks);
        Ok(())
    }
}

/// Returns the last of frames 0 to `filled` - 1 that used slot `slot` of `depth`.
pub(crate) fn last_user(filled: u64, depth: u64, slot: u64) -> Option<u64> {
    let rounds = filled.checked_sub(slot + 1)? / depth;
    Some(rounds * depth + slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_user_of_a_slot() {
        for depth in 1..6 {
            for filled in 0..20u64 {
                for slot in 0..depth {
                    let want = (0..filled).rfind(|frame| frame % depth == slot);
                    assert_eq!(
                        last_user(filled, depth, slot),
                        want,
                        "{filled} frames, slot {slot} of {depth}"
                    );
                }
            }
        }
    }
}
