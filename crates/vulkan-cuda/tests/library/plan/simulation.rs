//! Simulates every interleaving of the CPU, a CUDA stream and a Vulkan queue for a small ring.

use std::collections::HashSet;

use vulkan_cuda::{Ring, Turn};

use crate::ledger::Ledger;

pub const FRAMES: u64 = 9;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Slot {
    Empty,
    Writing,
    Written(u64),
    Reading,
    Read,
}

/// The CPU has enqueued the first `enqueued` entries of [`Case::halves`]. `cuda` and `vulkan` count the steps
/// that each side has done. Each frame has four steps: wait, begin, end, signal.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    enqueued: usize,
    cuda: u64,
    vulkan: u64,
    ready: u64,
    free: u64,
    slots: Vec<Slot>,
}

/// Half a frame, as the CPU enqueues it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Half {
    Cuda(u64),
    Vulkan(u64),
}

/// A ring to explore.
pub struct Case {
    ring: Ring,
    /// The number of frames that the CPU may have in flight.
    flights: u64,
    /// What the CPU enqueues, in order. The number is the first frame of the batch, before which the CPU
    /// paces itself.
    halves: Vec<(u64, Half)>,
    /// The turn of each frame.
    pub turns: Vec<Turn>,
}

impl Case {
    /// Batches of these lengths until all [`FRAMES`] are filled, with the waits of a `SharedRing` whose frames
    /// are all submitted: those of the plan.
    pub fn new(ring: Ring, batches: &[usize], flights: u64) -> Self {
        let (mut halves, mut turns, mut ledger) = (Vec::new(), Vec::<Turn>::new(), Ledger::new(ring));
        for &batch in batches {
            let first = turns.len() as u64;
            let frames = first..first + batch as u64;
            let wait = ledger.wait_for(batch).filter(|&value| value > 0);
            assert_eq!(wait, ring.turn(frames.end - 1).wait_free, "{frames:?}");
            wait.inspect(|&value| ledger.waits(value, first));
            for frame in frames.clone() {
                turns.push(Turn { wait_free: wait.filter(|_| frame == first), ..ring.turn(frame) });
                assert_eq!(ledger.hand_over(), frame);
                halves.push((first, Half::Cuda(frame)));
            }
            for frame in frames {
                ledger.try_submit(frame).unwrap();
                ledger.submitted(frame);
                halves.push((frame, Half::Vulkan(frame)));
            }
        }
        Self { ring, flights, halves, turns }
    }

    fn turn(&self, frame: u64) -> Turn {
        self.turns[frame as usize]
    }

    fn enqueued(&self, state: &State, half: Half) -> bool {
        self.halves[..state.enqueued].iter().any(|&(_, enqueued)| enqueued == half)
    }
}

/// Explores every reachable state and returns their number. The error is the first thing that went wrong.
pub fn explore(case: &Case) -> Result<usize, String> {
    let start = State {
        enqueued: 0,
        cuda: 0,
        vulkan: 0,
        ready: 0,
        free: 0,
        slots: vec![Slot::Empty; case.ring.depth()],
    };
    let mut seen = HashSet::from([start.clone()]);
    let mut todo = vec![start];
    while let Some(state) = todo.pop() {
        let next = [step_cpu(&state, case), step_cuda(&state, case)?, step_vulkan(&state, case)?];
        if state.vulkan < FRAMES * 4 && next.iter().all(Option::is_none) {
            return Err(format!("deadlock in {state:?}"));
        }
        for state in next.into_iter().flatten() {
            if seen.insert(state.clone()) {
                todo.push(state);
            }
        }
    }
    Ok(seen.len())
}

/// The CPU may run `flights` frames ahead of Vulkan's signal.
fn step_cpu(state: &State, case: &Case) -> Option<State> {
    let &(frame, _) = case.halves.get(state.enqueued)?;
    let paced = frame < case.flights || state.free >= case.turn(frame - case.flights).signal_free;
    paced.then(|| State { enqueued: state.enqueued + 1, ..state.clone() })
}

fn step_cuda(state: &State, case: &Case) -> Result<Option<State>, String> {
    let (frame, step) = (state.cuda / 4, state.cuda % 4);
    if frame >= FRAMES || !case.enqueued(state, Half::Cuda(frame)) {
        return Ok(None);
    }
    let turn = case.turn(frame);
    let mut next = State { cuda: state.cuda + 1, ..state.clone() };
    let slot = &mut next.slots[turn.slot];
    match step {
        0 if turn.wait_free.is_some_and(|value| state.free < value) => return Ok(None),
        0 => {}
        1 => match *slot {
            Slot::Empty | Slot::Read => *slot = Slot::Writing,
            other => return Err(format!("frame {frame} writes a slot that is {other:?}")),
        },
        2 => *slot = Slot::Written(frame),
        _ if turn.signal_ready <= state.ready => {
            return Err(format!("ready does not grow in frame {frame}"));
        }
        _ => next.ready = turn.signal_ready,
    }
    Ok(Some(next))
}

fn step_vulkan(state: &State, case: &Case) -> Result<Option<State>, String> {
    let (frame, step) = (state.vulkan / 4, state.vulkan % 4);
    if frame >= FRAMES || !case.enqueued(state, Half::Vulkan(frame)) {
        return Ok(None);
    }
    let turn = case.turn(frame);
    let mut next = State { vulkan: state.vulkan + 1, ..state.clone() };
    let slot = &mut next.slots[turn.slot];
    match step {
        0 if state.ready < turn.wait_ready => return Ok(None),
        0 => {}
        1 if *slot == Slot::Written(frame) => *slot = Slot::Reading,
        1 => return Err(format!("frame {frame} reads a slot that is {slot:?}")),
        2 => *slot = Slot::Read,
        _ if turn.signal_free <= state.free => {
            return Err(format!("free does not grow in frame {frame}"));
        }
        _ => next.free = turn.signal_free,
    }
    Ok(Some(next))
}
