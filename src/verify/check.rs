//! What the frame loop holds in a checked run: the checker, which flight holds which frame, and what was found so far.

use ash::vk;
use vulkan_cuda::ownership::Owner;

use super::slots::{Slot, SlotsFound};
use super::{Checker, Footprint, Pass, tally::Tally};
use crate::machine::Machine;
use crate::producer::Broken;
use crate::producer::{Frame, Producer, level_regions};
use crate::render::Source;
use crate::scene::Scene;
use crate::vulkan::{Device, Queue, read_buffer, read_image_levels};
use crate::wave::Grid;
use crate::{Result, texture};

/// Frames whose times are remembered: the deepest ring, and a batch as long that is filled ahead.
const REMEMBERED: usize = 64;

/// A check in progress. Allocates nothing for a frame.
pub struct Check {
    checker: Checker,
    /// The frame of each flight that was submitted and not read yet, by the number that it should carry.
    pending: Vec<Option<u64>>,
    /// The last frames as they were asked of the producer, by their number modulo [`REMEMBERED`].
    asked: [Option<Frame>; REMEMBERED],
    tally: Tally,
    /// The producer was exchanged: what lies in its slots at the end is not what the last frames of all have left.
    exchanged: bool,
    settled: Option<Footprint>,
    picture: [u32; 2],
    scene: Scene,
    grid: Grid,
    /// Whether the wave, or the texture, of the reference is what runs.
    has_reference: bool,
    broken: Option<Broken>,
    machine: Machine,
    device: Device,
}

/// What a [`Check`] needs to know of the run.
pub struct CheckDesc {
    /// What is drawn.
    pub scene: Scene,
    /// Vertices, or texels, across and along.
    pub grid: Grid,
    /// Frames that may be in flight.
    pub flights: usize,
    /// Whether the wave, or the texture, of the reference is what runs.
    pub has_reference: bool,
    /// What is left out of the hand-off on purpose.
    pub broken: Option<Broken>,
    /// Where it runs.
    pub machine: Machine,
}

/// What a checked run has found.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// Where it ran.
    pub machine: Machine,
    /// What was left out on purpose.
    pub broken: Option<Broken>,
    /// The counts of all frames.
    pub tally: Tally,
    /// What lay in the ring at the end; nothing where the producer was exchanged, or the run failed.
    pub slots: SlotsFound,
    /// The footprint after [`Footprint::SETTLED`] frames; `None` in a shorter run.
    pub settled: Option<Footprint>,
    /// The footprint at the end.
    pub end: Footprint,
}

impl Check {
    /// Makes `producer` stamp its frames, and fills its slots with what is no stamp. Before the first frame.
    ///
    /// # Errors
    /// Out of memory; a producer that cannot stamp.
    pub fn new(queue: &mut Queue, producer: &mut dyn Producer, desc: CheckDesc) -> Result<Self> {
        // For the slots at the end.
        crate::threads::start()?;
        let device = queue.device().clone();
        let mut made = Self {
            checker: Checker::new(&device, desc.scene, desc.grid, desc.flights)?,
            pending: vec![None; desc.flights],
            asked: [None; REMEMBERED],
            tally: Tally::default(),
            exchanged: false,
            settled: None,
            picture: [0, 0],
            scene: desc.scene,
            grid: desc.grid,
            has_reference: desc.has_reference,
            broken: desc.broken,
            machine: desc.machine,
            device,
        };
        made.follow(queue, producer)?;
        Ok(made)
    }

    /// Makes a producer stamp its frames, and blanks its slots. Before its first frame; waits for the queue.
    ///
    /// # Errors
    /// As [`Check::new`].
    pub fn follow(&mut self, queue: &mut Queue, producer: &mut dyn Producer) -> Result<()> {
        producer.stamp_frames()?;
        match self.scene {
            Scene::Field => self.checker.blank(queue, producer.slots(), producer.owner()),
            Scene::Texture => self.checker.blank_images(queue, producer.images(), producer.owner()),
        }
    }

    /// Fills slots with what is no stamp. Nobody uses them yet; waits for the queue.
    pub fn blank(&self, queue: &mut Queue, slots: &[vk::Buffer], owner: Owner) -> Result<()> {
        self.checker.blank(queue, slots, owner)
    }

    /// Another producer draws from now on. Where the one before has failed, its frames in flight were never whole, and nobody
    /// promised that they would be: they do not count.
    pub fn exchanged(&mut self, failed: bool) {
        self.exchanged = true;
        if failed {
            self.pending.fill(None);
        }
    }

    /// What was found so far, in the frames whose counts were read.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Says which frame a flight's next submission should find: the number that it carries. The GPU must be done with the
    /// flight.
    pub fn expect(&mut self, flight: usize, number: u64) -> Result<()> {
        self.checker.expect(flight, number)
    }

    /// Records one of a frame's two looks.
    ///
    /// # Safety
    /// As for [`Checker::record`].
    pub unsafe fn record(&self, commands: vk::CommandBuffer, flight: usize, source: Source, pass: Pass) {
        // SAFETY: the caller's promise.
        unsafe { self.checker.record(commands, flight, source, pass) };
    }

    /// A frame was submitted that should carry `number`.
    pub fn submitted(&mut self, flight: usize, frame: &Frame, number: u64, picture: vk::Extent2D) {
        self.pending[flight] = Some(number);
        self.asked[(frame.index % REMEMBERED as u64) as usize] = Some(*frame);
        self.picture = [picture.width, picture.height];
        if frame.index + 1 == Footprint::SETTLED {
            self.settled = Some(Footprint::take(frame.index + 1, &self.device, self.picture));
        }
    }

    /// Reads the counts of the frame that used a flight, if that was not done yet. The GPU must be done with it.
    pub fn collect(&mut self, flight: usize) -> Result<()> {
        if let Some(frame) = self.pending[flight].take() {
            let looks = self.checker.read(flight)?;
            self.tally.add(frame, self.scene.element_count(self.grid), &looks);
        }
        Ok(())
    }

    /// Reads whatever is left, and the slots. Both sides must be at rest, and `drawn` frames were submitted.
    pub fn finish(&mut self, queue: &mut Queue, producer: &dyn Producer, drawn: u64) -> Result<Checked> {
        for flight in 0..self.pending.len() {
            self.collect(flight)?;
        }
        // Before anything is allocated for the slots.
        let end = Footprint::take(drawn, &self.device, self.picture);
        let mut slots = SlotsFound::default();
        // A batch was filled whole, though its last frames may not have been drawn.
        let filled = drawn.next_multiple_of(producer.batch());
        let depth = producer.slot_count() as u64;
        let left = if self.exchanged { 0 } else { depth };
        for slot in 0..left {
            let found = read_slot(queue, producer, self.scene, self.grid, slot as usize)?;
            match last_user(filled, depth, slot) {
                Some(frame) => {
                    let time = self.time_of(frame, producer.batch()).filter(|_| self.has_reference);
                    slots.add_filled(self.grid, &found, frame, time);
                }
                None => slots.add_blank(&found),
            }
        }
        Ok(Checked { slots, end, ..self.so_far(drawn) })
    }

    /// What was found without a look at the slots, for a run that failed before its end.
    pub fn so_far(&self, drawn: u64) -> Checked {
        Checked {
            machine: self.machine.clone(),
            broken: self.broken,
            tally: self.tally,
            slots: SlotsFound::default(),
            settled: self.settled,
            end: Footprint::take(drawn, &self.device, self.picture),
        }
    }

    /// The time for which a frame was filled: that of the first of its batch, and a step for each frame since.
    fn time_of(&self, frame: u64, batch: u64) -> Option<f64> {
        let first = frame - frame % batch;
        let asked = self.asked[(first % REMEMBERED as u64) as usize].filter(|asked| asked.index == first)?;
        Some(asked.time + (frame - first) as f64 * asked.step)
    }
}

/// What lies in a slot. Both sides are at rest.
fn read_slot(
    queue: &mut Queue,
    producer: &dyn Producer,
    scene: Scene,
    grid: Grid,
    slot: usize,
) -> Result<Slot> {
    let owner = producer.owner();
    Ok(match scene {
        Scene::Field => {
            let bytes = read_buffer(queue, producer.slots()[slot], grid.bytes(), owner)?;
            Slot::Vertices(bytemuck::allocation::pod_collect_to_vec(&bytes))
        }
        Scene::Texture => {
            let (slot, bytes) = (producer.images()[slot], texture::chain_bytes(grid));
            let bytes =
                read_image_levels(queue, (slot.image, slot.layout), &level_regions(grid), bytes, owner)?;
            Slot::Texels(bytemuck::allocation::pod_collect_to_vec(&bytes))
        }
    })
}

/// The last of frames 0 to `filled` - 1 that used a slot of `depth`.
fn last_user(filled: u64, depth: u64, slot: u64) -> Option<u64> {
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
