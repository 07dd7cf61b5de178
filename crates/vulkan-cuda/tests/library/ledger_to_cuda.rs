//! The bookkeeping of `RingToCuda`, as `ledger_to_vulkan.rs` does it for `SharedRing`: every order of calls, failures
//! included, and every order in which the two queues then run.

use std::collections::{HashSet, VecDeque};

use crate::frames::Frames;
use crate::ledger::Ledger;
use vulkan_cuda::Ring;

/// How many frames are submitted before the CPU writes no more.
const FRAMES: u64 = 5;

/// What is in a slot, and who uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Slot {
    Empty,
    Writing,
    Written(u64),
    Reading(u64),
    Read,
}

/// What CUDA's stream does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Cuda {
    Wait(u64),
    /// A kernel begins to read the frame.
    Read(u64),
    /// The frame was read: `free` becomes this value.
    Signal(u64, u64),
}

/// A submission. Vulkan begins it when `free` is at `wait`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Write {
    wait: u64,
    frame: u64,
    signal: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    ring: Ring,
    frames: Frames,
    ledger: Ledger,
    stream: VecDeque<Cuda>,
    queue: VecDeque<Write>,
    slots: Vec<Slot>,
    /// Vulkan's timeline, and CUDA's.
    ready: u64,
    free: u64,
    /// The greatest value that Vulkan, and that CUDA, was asked to signal.
    promised: [u64; 2],
    /// For each frame that was submitted, the first one of its batch. A batch that failed is none.
    batches: Vec<u64>,
    /// How many frames the program has read.
    read: u64,
    /// How many calls may still fail.
    failures: u32,
}

/// What a broken ring leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Break {
    Nothing,
    /// Vulkan does not wait.
    WaitToWrite,
    /// CUDA does not wait.
    WaitToRead,
    /// A slot is written although CUDA has not read it.
    NotYet,
    /// The wait that failed counts as one that was enqueued.
    FailedWait,
    /// The submission that failed counts as one that was made.
    FailedSubmission,
    /// The frame counts as read although CUDA's signal failed.
    FailedFinish,
}

impl State {
    fn new(slots: u32) -> Self {
        let ring = Ring::new(slots).unwrap();
        Self {
            ring,
            frames: Frames::new(ring),
            ledger: Ledger::new(ring),
            stream: VecDeque::new(),
            queue: VecDeque::new(),
            slots: vec![Slot::Empty; ring.depth()],
            ready: 0,
            free: 0,
            promised: [0; 2],
            batches: vec![],
            read: 0,
            failures: 1,
        }
    }

    /// Everything that the CPU may do next.
    fn calls(&self, broken: Break) -> Result<Vec<Self>, String> {
        let mut next = Vec::new();
        for count in 1..=self.slots.len() {
            next.extend(self.write_batch(count, broken)?);
        }
        next.extend(self.next_read(broken)?);
        Ok(next)
    }

    /// One frame, or a batch. It may end early: its write is dropped, or its submission fails.
    fn write_batch(&self, count: usize, broken: Break) -> Result<Vec<Self>, String> {
        let (mut next, mut batch) = (Vec::new(), self.clone());
        let (written, unread) = (self.batches.len() as u64, self.batches.len() - self.read as usize);
        if written + count as u64 > FRAMES {
            return Ok(next);
        }
        let wait = match self.frames.wait_to_write(count) {
            answer if answer.is_none() != (unread + count > self.slots.len()) => {
                return Err(format!("{answer:?} for {count} frames: {self:?}"));
            }
            None if broken == Break::NotYet => 0,
            None => return Ok(next),
            Some(_) if broken == Break::WaitToWrite => 0,
            Some(wait) => wait,
        };
        for frame in written..written + count as u64 {
            if batch.frames.written != frame {
                return Err(format!("frame {frame} has another number: {batch:?}"));
            }
            if frame > written {
                next.push(batch.clone());
            }
            batch.promised[0] += 1;
            let signal = batch.promised[0];
            if batch.failures > 0 {
                let mut failed = batch.clone();
                failed.failures -= 1;
                if broken == Break::FailedSubmission {
                    failed.frames.submitted(signal);
                    failed.batches.push(frame);
                }
                next.push(failed);
            }
            batch.queue.push_back(Write { wait, frame, signal });
            batch.frames.submitted(signal);
            batch.ledger.submitted = signal;
            batch.batches.push(frame);
        }
        batch.frames.join(count);
        batch.batches[written as usize..].fill(written);
        next.push(batch);
        Ok(next)
    }

    /// The oldest frame is read. A turn that is dropped ends as one that is finished.
    fn next_read(&self, broken: Break) -> Result<Vec<Self>, String> {
        let (mut next, mut begun, frame) = (Vec::new(), self.clone(), self.read);
        let wait = match self.frames.wait_to_read(self.ledger.waited()) {
            answer if answer.is_none() != (self.batches.len() as u64 == frame) => {
                return Err(format!("{answer:?} for frame {frame}: {self:?}"));
            }
            None => return Ok(next),
            Some(_) if broken == Break::WaitToRead => 0,
            Some(wait) => wait,
        };
        if self.frames.reading() != frame {
            return Err(format!("frame {} is read instead of {frame}", self.frames.reading()));
        }
        begun.ledger.begins();
        if wait > 0 {
            if self.batches[frame as usize] != frame {
                return Err(format!("CUDA waits twice in the batch of frame {frame}: {self:?}"));
            }
            if begun.failures > 0 {
                let mut failed = begun.clone();
                failed.failures -= 1;
                if broken == Break::FailedWait {
                    failed.ledger.waits(wait, failed.promised[1]);
                }
                next.push(failed);
            }
            begun.ledger.waits(wait, begun.promised[1]);
            begun.stream.push_back(Cuda::Wait(wait));
        }
        begun.stream.push_back(Cuda::Read(frame));
        if begun.failures > 0 {
            // The stream is being captured: nothing was promised.
            let mut failed = begun.clone();
            failed.failures -= 1;
            next.push(failed.clone());
            // The driver fails: the value is used up.
            failed.promised[1] += 1;
            if broken == Break::FailedFinish {
                failed.frames.read(failed.promised[1]);
                failed.read += 1;
            }
            next.push(failed);
        }
        begun.promised[1] += 1;
        begun.stream.push_back(Cuda::Signal(begun.promised[1], frame));
        begun.frames.read(begun.promised[1]);
        begun.ledger.unfinished = false;
        begun.read += 1;
        next.push(begun);
        Ok(next)
    }

    fn slot(&mut self, frame: u64) -> &mut Slot {
        &mut self.slots[self.ring.turn(frame).slot]
    }

    /// CUDA's next step, or `None` if it waits.
    fn cuda(&self) -> Result<Option<Self>, String> {
        let mut next = self.clone();
        let Some(step) = next.stream.pop_front() else { return Ok(None) };
        let frame = match step {
            Cuda::Wait(value) => return Ok((value <= self.ready).then_some(next)),
            Cuda::Read(frame) | Cuda::Signal(_, frame) => frame,
        };
        let slot = next.slot(frame);
        // A read whose `finish` failed comes again.
        if *slot != Slot::Written(frame) && *slot != Slot::Reading(frame) {
            return Err(format!("frame {frame} is read, but its slot is {slot:?}"));
        }
        *slot = if let Cuda::Read(_) = step { Slot::Reading(frame) } else { Slot::Read };
        if let Cuda::Signal(value, _) = step {
            if value <= self.free {
                return Err(format!("free does not grow in frame {frame}"));
            }
            next.free = value;
        }
        Ok(Some(next))
    }

    /// Vulkan's next step, or `None` if it waits. Other steps may come between the begin of a write and its
    /// end.
    fn vulkan(&self) -> Result<Option<Self>, String> {
        let mut next = self.clone();
        let Some(&Write { wait, frame, signal }) = self.queue.front() else { return Ok(None) };
        let slot = next.slot(frame);
        match *slot {
            Slot::Writing => *slot = Slot::Written(frame),
            _ if wait > self.free => return Ok(None),
            Slot::Empty | Slot::Read => {
                *slot = Slot::Writing;
                return Ok(Some(next));
            }
            other => return Err(format!("frame {frame} is written, but its slot is {other:?}")),
        }
        if signal <= self.ready {
            return Err(format!("ready does not grow in frame {frame}"));
        }
        next.ready = signal;
        next.queue.pop_front();
        Ok(Some(next))
    }
}

/// Returns the number of states, or the first thing that goes wrong.
fn explore(slots: u32, broken: Break) -> Result<usize, String> {
    let start = State::new(slots);
    let mut seen = HashSet::from([start.clone()]);
    let mut todo = vec![start];
    while let Some(state) = todo.pop() {
        let queues = [state.cuda()?, state.vulkan()?];
        let idle = state.stream.is_empty() && state.queue.is_empty();
        if !idle && queues.iter().all(Option::is_none) {
            return Err(format!("both sides wait: {state:?}"));
        }
        // After a failed `finish` the ring signals once more before it rests.
        let promised = if state.ledger.unfinished { state.free } else { state.promised[1] };
        if idle && (state.ready, state.free) != (state.ledger.submitted, promised) {
            return Err(format!("a timeline is not where its side's last signal is: {state:?}"));
        }
        for state in queues.into_iter().flatten().chain(state.calls(broken)?) {
            if seen.insert(state.clone()) {
                todo.push(state);
            }
        }
    }
    Ok(seen.len())
}

#[test]
fn no_order_of_calls_tears_a_frame_or_stops_a_side() {
    for slots in 1..=3 {
        let states = explore(slots, Break::Nothing);
        assert!(states.as_ref().is_ok_and(|&n| n > 1000), "{slots} slots: {states:?}");
    }
}

/// The search is useful only if it finds broken rings.
#[test]
fn the_search_finds_broken_rings() {
    use Break::*;
    for broken in [WaitToWrite, WaitToRead, NotYet, FailedWait, FailedSubmission, FailedFinish] {
        assert!(explore(2, broken).is_err(), "{broken:?}");
    }
}

/// Vulkan waits for the last frame in its slot, not for a newer one.
#[test]
fn vulkan_is_ahead_by_the_whole_ring() {
    let mut frames = Frames::new(Ring::default());
    (1..4).for_each(|value| frames.submitted(value));
    assert_eq!(frames.wait_to_write(1), None);
    (1..4).for_each(|value| frames.read(value));
    assert_eq!([1, 2, 3].map(|count| frames.wait_to_write(count)), [Some(1), Some(2), Some(3)]);
}
