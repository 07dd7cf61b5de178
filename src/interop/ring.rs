//! Step 5: which slot, which value to wait for, which to signal. Pure arithmetic, so it can be tested without a GPU.
//!
//! With one buffer the two sides take turns, and every frame pays for two switches of the GPU between the CUDA context
//! and the graphics context. With a ring of K buffers CUDA may be up to K frames ahead, and about K frames share a pair
//! of switches.

use std::num::NonZeroU32;

/// The deepest ring that [`Ring::new`] makes.
pub const MAX_DEPTH: u32 = 32;

/// A ring of K slots, written by CUDA and read by Vulkan in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    depth: NonZeroU32,
}

/// Everything that frame `n` needs to know. Frames are numbered from 0 without gaps: a frame that is skipped takes no
/// number, so no value is ever left unsignalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The slot that CUDA writes and Vulkan reads.
    pub slot: usize,
    /// CUDA waits until Vulkan's timeline `free` has this value; `None` while the slot has never been used.
    pub wait_free: Option<u64>,
    /// CUDA then sets its timeline `ready` to this value.
    pub signal_ready: u64,
    /// Vulkan waits for this value of `ready`: the one that CUDA signals in the same frame.
    pub wait_ready: u64,
    /// Vulkan then sets `free` to this value.
    pub signal_free: u64,
}

impl Ring {
    /// A ring of `depth` slots; `None` outside 1..=[`MAX_DEPTH`].
    pub fn new(depth: u32) -> Option<Self> {
        (depth <= MAX_DEPTH).then(|| NonZeroU32::new(depth)).flatten().map(|depth| Self { depth })
    }

    /// How many slots it has.
    pub fn depth(self) -> usize {
        self.depth.get() as usize
    }

    /// The plan of frame `frame`.
    ///
    /// Frame n signals n + 1 on both timelines, because a timeline starts at 0 and must grow. Its slot was last used by
    /// frame n - K, whose end Vulkan marks with `free` = n - K + 1.
    pub fn turn(self, frame: u64) -> Turn {
        let depth = u64::from(self.depth.get());
        Turn {
            slot: (frame % depth) as usize,
            wait_free: frame.checked_sub(depth).map(|last_user| last_user + 1),
            signal_ready: frame + 1,
            wait_ready: frame + 1,
            signal_free: frame + 1,
        }
    }
}

impl Default for Ring {
    /// Three slots: one being written, one being read, one in between.
    fn default() -> Self {
        Self { depth: NonZeroU32::MIN.saturating_add(2) }
    }
}

#[cfg(test)]
mod tests {
    //! Every interleaving of the CPU, a CUDA stream and a Vulkan queue, for every small ring.

    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    const FRAMES: u64 = 9;

    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    enum Slot {
        Empty,
        Writing,
        Written(u64),
        Reading,
        Read,
    }

    /// The CPU has enqueued `enqueued` halves (CUDA's, then Vulkan's, frame by frame); `cuda` and `vulkan` count steps
    /// that each side has done: wait, begin, end, signal for every frame.
    #[derive(Clone, PartialEq, Eq, Hash, Debug)]
    struct State {
        enqueued: u64,
        cuda: u64,
        vulkan: u64,
        ready: u64,
        free: u64,
        slots: Vec<Slot>,
    }

    /// Explores every reachable state. `Err` says what went wrong first.
    fn explore(depth: u32, flights: u64, plan: &dyn Fn(u64) -> Turn) -> Result<usize, String> {
        let start = State {
            enqueued: 0,
            cuda: 0,
            vulkan: 0,
            ready: 0,
            free: 0,
            slots: vec![Slot::Empty; depth as usize],
        };
        let mut seen = HashSet::from([start.clone()]);
        let mut todo = vec![start];
        while let Some(state) = todo.pop() {
            let next =
                [step_cpu(&state, flights, plan), step_cuda(&state, plan)?, step_vulkan(&state, plan)?];
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
    fn step_cpu(state: &State, flights: u64, plan: &dyn Fn(u64) -> Turn) -> Option<State> {
        let frame = state.enqueued / 2;
        let paced = frame < flights || state.free >= plan(frame - flights).signal_free;
        (frame < FRAMES && paced).then(|| State { enqueued: state.enqueued + 1, ..state.clone() })
    }

    fn step_cuda(state: &State, plan: &dyn Fn(u64) -> Turn) -> Result<Option<State>, String> {
        let (frame, step) = (state.cuda / 4, state.cuda % 4);
        if frame >= FRAMES || state.enqueued < frame * 2 + 1 {
            return Ok(None);
        }
        let turn = plan(frame);
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

    fn step_vulkan(state: &State, plan: &dyn Fn(u64) -> Turn) -> Result<Option<State>, String> {
        let (frame, step) = (state.vulkan / 4, state.vulkan % 4);
        if frame >= FRAMES || state.enqueued < frame * 2 + 2 {
            return Ok(None);
        }
        let turn = plan(frame);
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

    #[test]
    fn no_interleaving_tears_or_deadlocks() {
        for depth in 1..=5 {
            for flights in 1..=6 {
                let ring = Ring::new(depth).unwrap();
                let states = explore(depth, flights, &|frame| ring.turn(frame));
                assert!(states.as_ref().is_ok_and(|&n| n > 50), "K = {depth}, F = {flights}: {states:?}");
            }
        }
    }

    /// The simulation is worth something only if it finds broken plans.
    #[test]
    fn the_simulation_finds_broken_plans() {
        let ring = Ring::new(2).unwrap();
        type Change = fn(Turn) -> Turn;
        let broken: [(&str, Change); 5] = [
            ("no wait for free", |t| Turn { wait_free: None, ..t }),
            ("wait for the frame before", |t| Turn { wait_free: t.wait_free.map(|v| v - 1), ..t }),
            ("wait for a later frame", |t| Turn { wait_free: t.wait_free.map(|v| v + 2), ..t }),
            ("wait for an earlier ready", |t| Turn { wait_ready: t.wait_ready - 1, ..t }),
            ("the other slot", |t| Turn { slot: 0, ..t }),
        ];
        for (what, change) in broken {
            let verdict = explore(2, 4, &|frame| change(ring.turn(frame)));
            assert!(verdict.is_err(), "{what} went unnoticed");
        }
    }

    #[test]
    fn a_ring_has_1_to_32_slots() {
        assert_eq!(Ring::new(0), None);
        assert_eq!(Ring::new(33), None);
        assert_eq!(Ring::new(32).map(Ring::depth), Some(32));
        assert_eq!(Ring::default().depth(), 3);
    }

    proptest! {
        #[test]
        fn turns_hold_in_any_depth(depth in 1..=MAX_DEPTH, frame in 0..u64::MAX / 2) {
            let ring = Ring::new(depth).unwrap();
            let (turn, next) = (ring.turn(frame), ring.turn(frame + 1));
            prop_assert!(turn.slot < ring.depth());
            prop_assert!(turn.signal_ready > 0, "0 is the counter's start");
            prop_assert_eq!(turn.wait_ready, turn.signal_ready);
            prop_assert!(next.signal_ready > turn.signal_ready);
            prop_assert!(next.signal_free > turn.signal_free);
            // CUDA waits for exactly the last user of its slot.
            let again = ring.turn(frame + u64::from(depth));
            prop_assert_eq!(again.slot, turn.slot);
            prop_assert_eq!(again.wait_free, Some(turn.signal_free));
            // And only for values that Vulkan signals in an earlier frame, so no wait can be circular.
            prop_assert!(turn.wait_free.is_none_or(|value| value < turn.signal_free));
        }
    }
}
