//! Tracks which slots Vulkan holds, and which value of the timeline `free` CUDA waits for. A frame may be
//! *given up*, that is, dropped without a submission. A `RingToCuda` also has a ledger, with `ready` and
//! `free` swapped. It uses only `waits`, `submitted`, `patience` and the flags.
//!
//! CUDA waits only for values that accepted submissions signal, so it never waits for a frame that was given
//! up, and the CPU need not signal in Vulkan's place (only `RingToCuda::abort` does). The price: while a
//! frame is *held* (neither submitted nor given up), CUDA cannot begin the next frame in its slot.

use std::collections::VecDeque;
use std::time::Duration;

use crate::ring::Ring;

/// Maximum number of waits kept for [`Ledger::awaited`].
const REMEMBERED: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ledger {
    ring: Ring,
    slots: Vec<Use>,
    /// The number of the next frame that CUDA writes.
    pub(crate) frame: u64,
    /// The number of frames that CUDA may be ahead of Vulkan, at most the number of slots.
    ahead: usize,
    /// The greatest value of `free` that a submission tried to signal. Smaller values can no longer be used.
    tried: u64,
    /// The greatest value of `free` that an accepted submission signals.
    pub(crate) submitted: u64,
    /// The stream's latest waits, oldest first. Each has the value of `ready` that CUDA had promised to
    /// signal before the wait, and the value of `free` that it waits for.
    waits: VecDeque<(u64, u64)>,
    /// Whether either side may have unfinished work.
    pub(crate) busy: bool,
    /// Whether the stream may have work after its last signal.
    pub(crate) unfinished: bool,
    /// Whether the CPU has signalled in place of CUDA. Unless CUDA has faulted, its stream may still run.
    pub(crate) aborted: bool,
    /// Whether CUDA may use the slots. Only images must be released to CUDA first.
    pub(crate) released: bool,
    /// How long the drop of the ring waits for the GPU, 5 seconds by default.
    pub(crate) patience: Duration,
    /// Whether CUDA writes without waiting for Vulkan: see [`crate::SharedRing::leave_out_free`].
    pub(crate) leave_out_free: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Use {
    /// The frame that was handed to Vulkan, and was neither submitted nor given up.
    held: Option<u64>,
    /// The greatest value that a submission signals after it has read the slot, or 0 if there is none.
    read: u64,
}

impl Ledger {
    pub(crate) fn new(ring: Ring) -> Self {
        Self {
            ring,
            slots: vec![Use::default(); ring.depth()],
            frame: 0,
            ahead: ring.depth(),
            tried: 0,
            submitted: 0,
            waits: VecDeque::with_capacity(REMEMBERED),
            busy: false,
            unfinished: false,
            aborted: false,
            released: true,
            patience: Duration::from_secs(5),
            leave_out_free: false,
        }
    }

    fn slot(&mut self, frame: u64) -> &mut Use {
        &mut self.slots[self.ring.turn(frame).slot]
    }

    /// Sets how many frames CUDA may be ahead of Vulkan. A longer batch may be ahead by its own length.
    pub(crate) fn set_ahead(&mut self, frames: usize) {
        self.ahead = frames.clamp(1, self.slots.len());
    }

    /// Returns the value that CUDA must wait for before it writes the next `count` frames, or 0 if it need
    /// not wait. Returns `None` if one of their slots has a held frame.
    // ANCHOR: wait_for
    pub(crate) fn wait_for(&self, count: usize) -> Option<u64> {
        let last = self.frame + count as u64 - 1;
        if (self.frame..=last).any(|frame| self.slots[self.ring.turn(frame).slot].held.is_some()) {
            return None;
        }
        if self.leave_out_free {
            return Some(0);
        }
        // Plans as if the ring had only as many slots as CUDA may be ahead.
        let ring = Ring::new(self.ahead.max(count) as u32).unwrap_or(self.ring);
        // The last frame's value is the greatest, so one wait covers the whole batch.
        let planned = ring.turn(last).wait_free.unwrap_or(0);
        // A frame that was given up signals nothing. The greatest earlier value is then enough.
        let signalled = self.slots.iter().map(|slot| slot.read).filter(|&value| value <= planned).max();
        Some(signalled.filter(|&value| value > self.waited()).unwrap_or(0))
    }
    // ANCHOR_END: wait_for

    /// Notes that the stream gets work after its last signal.
    pub(crate) fn begins(&mut self) {
        (self.busy, self.unfinished) = (true, true);
    }

    /// Notes that CUDA's stream waits for `value`, after CUDA has promised to signal `ready`.
    pub(crate) fn waits(&mut self, value: u64, ready: u64) {
        if self.waits.len() == REMEMBERED {
            self.waits.pop_front();
        }
        self.waits.push_back((ready, value));
    }

    /// Returns the value of the stream's latest wait, or 0 if there was none.
    pub(crate) fn waited(&self) -> u64 {
        self.waits.back().map_or(0, |&(_, value)| value)
    }

    /// Returns the value of `free` that CUDA waits for after its own timeline has reached `ready`.
    pub(crate) fn awaited(&self, ready: u64) -> u64 {
        self.waits.iter().rev().find(|wait| wait.0 <= ready).map_or(0, |wait| wait.1)
    }

    /// Notes that CUDA has enqueued the signal that hands a frame to Vulkan. Returns the frame's number.
    pub(crate) fn hand_over(&mut self) -> u64 {
        let frame = self.frame;
        self.frame += 1;
        self.slot(frame).held = Some(frame);
        self.unfinished = false;
        frame
    }

    /// Notes that a frame is about to be submitted. Fails if this frame or a later one was tried before,
    /// because values must increase. The error is the number of the last frame that was tried.
    pub(crate) fn try_submit(&mut self, frame: u64) -> Result<(), u64> {
        let end = self.ring.turn(frame).signal_free;
        if end <= self.tried {
            return Err(self.tried - 1);
        }
        self.tried = end;
        Ok(())
    }

    pub(crate) fn submitted(&mut self, frame: u64) {
        let end = self.ring.turn(frame).signal_free;
        *self.slot(frame) = Use { held: None, read: end };
        (self.submitted, self.busy) = (end, true);
    }

    pub(crate) fn give_up(&mut self, frame: u64) {
        self.slot(frame).held = None;
    }

    pub(crate) fn held(&self) -> Vec<u64> {
        let mut held: Vec<_> = self.slots.iter().filter_map(|slot| slot.held).collect();
        held.sort_unstable();
        held
    }
}
