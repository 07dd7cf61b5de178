//! The bookkeeping of `SharedRing`. Tries every order of calls, failures included, and every order in which
//! the two queues then run.

use std::collections::{HashSet, VecDeque};

use crate::ledger::Ledger;
use vulkan_cuda::Ring;

/// How many frames the CPU begins before it stops.
const FRAMES: u64 = 5;

/// What CUDA's stream does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Cuda {
    WaitFree(u64),
    /// The frame is written to its slot. `None` if its write was dropped.
    Write(usize, Option<u64>),
    SignalReady(u64),
}

/// A submission: waits until the frame is written, reads it, and signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Read(u64);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    ring: Ring,
    ledger: Ledger,
    stream: VecDeque<Cuda>,
    queue: VecDeque<Read>,
    /// What is in each slot.
    slots: Vec<Option<u64>>,
    /// The turns that the program has.
    turns: Vec<u64>,
    /// The next value of `ready`.
    promised: u64,
    /// For each value of `ready`, the frame.
    frames: Vec<u64>,
    ready: u64,
    free: u64,
    /// How many calls may still fail.
    failures: u32,
}

/// What a broken ring leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Break {
    Nothing,
    /// CUDA does not wait.
    Wait,
    /// A slot is written while its frame is held.
    Held,
    /// Reads are submitted in any order.
    Order,
    /// A frame that was given up counts as one that will be read.
    GivenUp,
    /// The wait that failed counts as one that was enqueued.
    FailedWait,
}

impl State {
    fn new(slots: u32, ahead: usize) -> Self {
        let ring = Ring::new(slots).unwrap();
        let mut ledger = Ledger::new(ring);
        ledger.set_ahead(ahead);
        let slots = vec![None; ring.depth()];
        let (stream, queue) = Default::default();
        Self {
            ring,
            ledger,
            stream,
            queue,
            slots,
            turns: vec![],
            promised: 0,
            frames: vec![],
            ready: 0,
            free: 0,
            failures: 1,
        }
    }

    /// Everything that the CPU may do next.
    fn calls(&self, broken: Break) -> Vec<Self> {
        let mut next = Vec::new();
        for batch in 1..=self.slots.len() {
            if self.ledger.frame + batch as u64 > FRAMES {
                break;
            }
            let wait = match self.ledger.wait_for(batch) {
                None if broken == Break::Held => 0,
                None => continue,
                Some(_) if broken == Break::Wait => 0,
                Some(wait) => wait,
            };
            let mut begun = self.clone();
            if wait > 0 {
                if self.failures > 0 {
                    let mut failed = self.clone();
                    failed.failures -= 1;
                    if broken == Break::FailedWait {
                        failed.ledger.waits(wait, self.promised);
                    }
                    next.push(failed);
                }
                begun.ledger.waits(wait, self.promised);
                begun.stream.push_back(Cuda::WaitFree(wait));
            }
            let mut written = begun.clone();
            for _ in 0..batch {
                // The write is dropped, or its signal fails: nothing is handed over.
                if written.failures > 0 {
                    let mut dropped = written.clone();
                    dropped.failures -= 1;
                    dropped.write(None);
                    next.push(dropped);
                }
                written.write(Some(written.ledger.frame));
                let frame = written.ledger.hand_over();
                written.promised += 1;
                written.stream.push_back(Cuda::SignalReady(written.promised));
                written.frames.push(frame);
                written.turns.push(frame);
            }
            next.push(written);
        }
        for index in 0..self.turns.len() {
            let mut ended = self.clone();
            let frame = ended.turns.remove(index);
            let refused = ended.ledger.try_submit(frame).is_err() && broken != Break::Order;
            let mut given_up = ended.clone();
            match broken {
                Break::GivenUp => given_up.ledger.submitted(frame),
                _ => given_up.ledger.give_up(frame),
            }
            if refused {
                // `try_submit` changed nothing, so this is the same as a drop.
                next.push(given_up);
                continue;
            }
            // The submission failed, and the turn was dropped.
            next.push(given_up);
            // The turn was dropped without a submission.
            let mut dropped = self.clone();
            dropped.turns.remove(index);
            dropped.ledger.give_up(frame);
            next.push(dropped);
            ended.ledger.submitted(frame);
            ended.queue.push_back(Read(frame));
            next.push(ended);
        }
        next
    }

    fn write(&mut self, frame: Option<u64>) {
        let slot = self.ring.turn(self.ledger.frame).slot;
        self.stream.push_back(Cuda::Write(slot, frame));
    }

    /// CUDA's next step, or `None` if it waits.
    fn cuda(&self) -> Result<Option<Self>, String> {
        let mut next = self.clone();
        match next.stream.pop_front() {
            None => return Ok(None),
            Some(Cuda::WaitFree(value)) if value > self.free => return Ok(None),
            Some(Cuda::WaitFree(_)) => {}
            Some(Cuda::Write(slot, frame)) => {
                let reads = self.queue.iter().chain(&[]).map(|read| read.0);
                let held = self.turns.iter().copied();
                if let Some(read) = reads.chain(held).find(|&read| self.slots[slot] == Some(read)) {
                    return Err(format!("slot {slot} is overwritten while Vulkan may read frame {read}"));
                }
                next.slots[slot] = frame;
            }
            Some(Cuda::SignalReady(value)) => next.ready = value,
        }
        Ok(Some(next))
    }

    /// Vulkan's next step: a whole submission, or `None` if it waits.
    fn vulkan(&self) -> Result<Option<Self>, String> {
        let mut next = self.clone();
        let Some(Read(frame)) = next.queue.pop_front() else { return Ok(None) };
        let ready = 1 + self.frames.iter().position(|&other| other == frame).unwrap() as u64;
        if self.ready < ready {
            return Ok(None);
        }
        if self.slots[self.ring.turn(frame).slot] != Some(frame) {
            return Err(format!("frame {frame} is read, but its slot has {:?}", self.slots));
        }
        let end = self.ring.turn(frame).signal_free;
        if end <= self.free {
            return Err(format!("free does not grow in frame {frame}"));
        }
        next.free = end;
        Ok(Some(next))
    }
}

/// Returns the number of states, or the first thing that goes wrong.
fn explore(slots: u32, ahead: usize, broken: Break) -> Result<usize, String> {
    let start = State::new(slots, ahead);
    let mut seen = HashSet::from([start.clone()]);
    let mut todo = vec![start];
    while let Some(state) = todo.pop() {
        let queues = [state.cuda()?, state.vulkan()?];
        let idle = state.stream.is_empty() && state.queue.is_empty();
        if !idle && queues.iter().all(Option::is_none) {
            return Err(format!("both sides wait: {state:?}"));
        }
        if idle && state.free != state.ledger.submitted {
            return Err(format!("at rest `free` is not at {}: {state:?}", state.ledger.submitted));
        }
        for state in queues.into_iter().flatten().chain(state.calls(broken)) {
            if seen.insert(state.clone()) {
                todo.push(state);
            }
        }
    }
    Ok(seen.len())
}

#[test]
fn no_order_of_calls_tears_a_frame_or_stops_a_side() {
    for (slots, ahead) in [(1, 1), (2, 2), (3, 3), (3, 1)] {
        let states = explore(slots, ahead, Break::Nothing);
        assert!(states.as_ref().is_ok_and(|&n| n > 500), "{slots} slots, {ahead} ahead: {states:?}");
    }
}

/// The search is useful only if it finds broken rings.
#[test]
fn the_search_finds_broken_rings() {
    for broken in [Break::Wait, Break::Held, Break::Order, Break::GivenUp, Break::FailedWait] {
        assert!(explore(2, 2, broken).is_err(), "{broken:?}");
    }
}

fn draw_next(ledger: &mut Ledger) {
    let frame = ledger.hand_over();
    ledger.try_submit(frame).unwrap();
    ledger.submitted(frame);
}

/// The value for the last frame's slot is the greatest, so it covers all slots.
#[test]
fn a_batch_waits_once_for_its_last_frame() {
    let mut ledger = Ledger::new(Ring::new(4).unwrap());
    (0..2).for_each(|_| draw_next(&mut ledger));
    assert_eq!(ledger.wait_for(2), Some(0), "nobody has used those slots yet");
    (2..8).for_each(|_| draw_next(&mut ledger));
    assert_eq!([1, 2, 4].map(|count| ledger.wait_for(count)), [Some(5), Some(6), Some(8)]);
}

/// With a shallow limit CUDA waits for a newer frame than the last one in its slot. A batch needs its own
/// length.
#[test]
fn a_deep_ring_is_used_no_deeper_than_it_must_be() {
    let mut ledger = Ledger::new(Ring::new(8).unwrap());
    (0..8).for_each(|_| draw_next(&mut ledger));
    assert_eq!(ledger.wait_for(1), Some(1));
    ledger.set_ahead(3);
    assert_eq!((ledger.wait_for(1), ledger.wait_for(3), ledger.wait_for(8)), (Some(6), Some(8), Some(8)));
    ledger.set_ahead(99);
    assert_eq!(ledger.wait_for(1), Some(1), "never deeper than the ring is");
}

/// The error of a run that is stuck needs the wait that CUDA has reached, not the last one.
#[test]
fn the_wait_that_cuda_has_reached_is_known() {
    let mut ledger = Ledger::new(Ring::default());
    for ready in 3..200 {
        ledger.waits(ready - 2, ready);
    }
    assert_eq!((ledger.awaited(0), ledger.awaited(150), ledger.awaited(500)), (0, 148, 197));
}
