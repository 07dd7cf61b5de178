//! Step 4: which slot, which value to wait for, which to signal. Pure arithmetic, so it can be tested without a GPU.
//!
//! With one buffer the two sides take turns, and every frame pays for two switches of the GPU between the CUDA context
//! and the graphics context. With a ring of K buffers CUDA may be up to K frames ahead. Where a frame's work is short, up to K
//! frames then share a pair of switches.
//!
//! Where a frame's own work takes longer than a switch, the ring alone does not help: slots become free one at a time, each
//! lets CUDA in for one frame, and the GPU switches for every frame again. Then a *batch* helps: CUDA waits once for B free slots
//! and fills them in one go, and Vulkan takes them one by one. The last of them is then about B frames old when it is drawn. That
//! does not come on top of the ring's latency: a batch lies in the ring, so no frame is more than K frames old.

use std::num::NonZeroU32;

/// The deepest ring that [`Ring::new`] makes.
pub const MAX_DEPTH: u32 = 32;

/// A ring of K slots, written by CUDA and read by Vulkan in the same order.
///
/// ```
/// use vulkan_cuda::Ring;
///
/// let ring = Ring::new(3).unwrap();
/// let turn = ring.turn(7);
/// assert_eq!(turn.slot, 1);
/// // Frame 4 was the last to use slot 1; Vulkan marks its end with 5.
/// assert_eq!(turn.wait_free, Some(5));
/// // Values count from 1, because a timeline starts at 0.
/// assert_eq!((turn.signal_ready, turn.signal_free), (8, 8));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    depth: NonZeroU32,
}

/// Everything that frame `n` needs to know. Frames are numbered from 0 without gaps. If a frame is skipped, either the next one
/// takes its number, or its value is never signalled and the next frame's, which is greater, frees its slot too: see
/// [`crate::shared_ring`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The slot that CUDA writes and Vulkan reads.
    pub slot: usize,
    /// CUDA waits until Vulkan's timeline `free` has this value. The first frame of a batch waits for the slots of all its frames;
    /// the others have `None`. So has a first frame none of whose slots has been used yet.
    pub wait_free: Option<u64>,
    /// CUDA then sets its timeline `ready` to this value.
    pub signal_ready: u64,
    /// Vulkan waits for this value of `ready`: the one that CUDA signals in the same frame.
    pub wait_ready: u64,
    /// Vulkan then sets `free` to this value.
    pub signal_free: u64,
}

impl Ring {
    /// One slot: the two sides take turns.
    pub const ONE: Self = Self { depth: NonZeroU32::MIN };

    /// A ring of `depth` slots; `None` outside 1..=[`MAX_DEPTH`].
    pub fn new(depth: u32) -> Option<Self> {
        let depth = NonZeroU32::new(depth).filter(|depth| depth.get() <= MAX_DEPTH)?;
        Some(Self { depth })
    }

    /// How many slots it has.
    pub fn depth(self) -> usize {
        self.depth.get() as usize
    }

    /// The plan of a frame that CUDA fills by itself.
    ///
    /// Frame n signals n + 1 on both timelines, because a timeline starts at 0 and must grow. Its slot was last used by
    /// frame n - K, whose end Vulkan marks with `free` = n - K + 1.
    // ANCHOR: turn
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
    // ANCHOR_END: turn

    /// The plans of a batch: of `frames` frames from `first` on, which CUDA fills in one go. The next batch may be longer or
    /// shorter. It has one frame at least, and no more than the ring has slots, since it would wait for itself.
    ///
    /// The first of them waits for the slots of all. The last has the greatest value to wait for, so that one is enough.
    ///
    /// This is for a ring that you run yourself: with a [`SharedRing`](crate::SharedRing), call its
    /// [`reserve`](crate::SharedRing::reserve).
    // ANCHOR: batch
    pub fn batch(self, first: u64, frames: usize) -> impl Iterator<Item = Turn> {
        let end = first + frames.clamp(1, self.depth()) as u64;
        let wait = self.turn(end - 1).wait_free;
        (first..end).map(move |frame| Turn { wait_free: wait.filter(|_| frame == first), ..self.turn(frame) })
    }
    // ANCHOR_END: batch
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

    /// The CPU has enqueued the first `enqueued` of [`halves`]; `cuda` and `vulkan` count steps that each side has done:
    /// wait, begin, end, signal for every frame.
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
    struct Case {
        ring: Ring,
        /// How many frames the CPU may have in flight.
        flights: u64,
        /// What the CPU enqueues, in order, each with the frame whose begin it follows.
        halves: Vec<(u64, Half)>,
        /// The plan of each frame.
        turns: Vec<Turn>,
    }

    impl Case {
        /// Batches of these lengths until all [`FRAMES`] are filled.
        fn new(ring: Ring, batches: &[usize], flights: u64) -> Self {
            let (mut halves, mut turns) = (Vec::new(), Vec::new());
            for &batch in batches {
                let first = turns.len() as u64;
                turns.extend(ring.batch(first, batch));
                let frames = first..turns.len() as u64;
                halves.extend(frames.clone().map(|filled| (first, Half::Cuda(filled))));
                halves.extend(frames.map(|frame| (frame, Half::Vulkan(frame))));
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

    /// Explores every reachable state. `Err` says what went wrong first.
    fn explore(case: &Case) -> Result<usize, String> {
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

    /// Every way to cut `frames` frames into batches of at most `most`.
    fn cuts(frames: usize, most: usize) -> Vec<Vec<usize>> {
        if frames == 0 {
            return vec![Vec::new()];
        }
        let first =
            |batch| cuts(frames - batch, most).into_iter().map(move |rest| [vec![batch], rest].concat());
        (1..=most.min(frames)).flat_map(first).collect()
    }

    #[test]
    fn no_interleaving_tears_or_deadlocks() {
        for depth in 1..=5 {
            let ring = Ring::new(depth).unwrap();
            for batches in cuts(FRAMES as usize, depth as usize) {
                for flights in 1..=6 {
                    let states = explore(&Case::new(ring, &batches, flights));
                    let name = format!("K = {depth}, F = {flights}, batches of {batches:?}");
                    assert!(states.as_ref().is_ok_and(|&n| n > 50), "{name}: {states:?}");
                }
            }
        }
    }

    /// The simulation is worth something only if it finds broken plans.
    #[test]
    fn the_simulation_finds_broken_plans() {
        type Change = fn(Turn) -> Turn;
        let broken: [(&str, Change); 5] = [
            ("no wait for free", |t| Turn { wait_free: None, ..t }),
            ("wait for the frame before", |t| Turn { wait_free: t.wait_free.map(|v| v - 1), ..t }),
            ("wait for a later frame", |t| Turn { wait_free: t.wait_free.map(|v| v + 2), ..t }),
            ("wait for an earlier ready", |t| Turn { wait_ready: t.wait_ready - 1, ..t }),
            ("the other slot", |t| Turn { slot: 0, ..t }),
        ];
        for batches in [&[1; FRAMES as usize][..], &[2, 2, 2, 2, 1], &[1, 2, 2, 1, 1, 2]] {
            for (what, change) in broken {
                let mut case = Case::new(Ring::new(2).unwrap(), batches, 4);
                case.turns.iter_mut().for_each(|turn| *turn = change(*turn));
                assert!(explore(&case).is_err(), "{what} went unnoticed with batches of {batches:?}");
            }
        }
    }

    #[test]
    fn a_ring_has_1_to_32_slots() {
        assert_eq!(Ring::new(0), None);
        assert_eq!(Ring::new(33), None);
        assert_eq!(Ring::new(32).map(Ring::depth), Some(32));
        assert_eq!(Ring::default().depth(), 3);
    }

    #[test]
    fn a_batch_fits_into_its_ring() {
        let frames = |first, batch| -> Vec<_> {
            Ring::new(4)
                .unwrap()
                .batch(first, batch)
                .map(|turn| (turn.signal_ready - 1, turn.wait_free))
                .collect()
        };
        assert_eq!(frames(8, 0), [(8, Some(5))]);
        assert_eq!(frames(8, 2), [(8, Some(6)), (9, None)]);
        assert_eq!(frames(8, 9), frames(8, 4));
        assert_eq!(frames(2, 2), [(2, None), (3, None)], "nobody has used those slots yet");
    }

    proptest! {
        #[test]
        fn turns_hold_in_any_ring(depth in 1..=MAX_DEPTH, batch in 1..=MAX_DEPTH as usize, first in 0..u64::MAX / 2) {
            let ring = Ring::new(depth).unwrap();
            let turns: Vec<_> = ring.batch(first, batch).collect();
            prop_assert_eq!(turns.len(), batch.min(ring.depth()));
            let wait = turns[0].wait_free;
            for (frame, turn) in (first..).zip(&turns) {
                prop_assert!(turn.slot < ring.depth());
                prop_assert!(turn.signal_ready > 0, "0 is the counter's start");
                prop_assert_eq!(turn.wait_ready, turn.signal_ready);
                prop_assert!(ring.turn(frame + 1).signal_ready > turn.signal_ready);
                prop_assert!(ring.turn(frame + 1).signal_free > turn.signal_free);
                // The batch's one wait covers the last user of each of its slots,
                if let Some(before) = frame.checked_sub(u64::from(depth)) {
                    prop_assert_eq!(ring.turn(before).slot, turn.slot);
                    prop_assert!(wait.is_some_and(|value| value >= ring.turn(before).signal_free));
                }
                // and is only for values that Vulkan signals in an earlier frame, so no wait can be circular.
                prop_assert!(wait.is_none_or(|value| value < ring.turn(first).signal_free));
                prop_assert!(frame == first || turn.wait_free.is_none());
            }
        }
    }
}
