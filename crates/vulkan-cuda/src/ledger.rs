//! The plan of [`crate::ring`], for frames that may be given up: who has which slot, and which value of `free`
//! CUDA waits for. For [`crate::shared_ring`].
//!
//! CUDA only ever waits for a value that an accepted submission signals. So a frame that was given up leaves
//! nobody waiting, and the CPU never signals in place of Vulkan. The price: while a frame is *held* (neither
//! submitted nor given up), CUDA cannot begin the next frame in its slot.

use std::collections::VecDeque;

use crate::ring::Ring;

/// Maximum number of waits kept for [`Ledger::awaited`].
const REMEMBERED: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ledger {
    ring: Ring,
    slots: Vec<Use>,
    /// The next frame that CUDA writes.
    pub(crate) frame: u64,
    /// How many frames CUDA may be ahead of Vulkan, at most the number of slots.
    ahead: usize,
    /// The greatest value whose submission was tried. Smaller ones can no longer be signalled.
    tried: u64,
    /// The greatest value that an accepted submission signals.
    pub(crate) submitted: u64,
    /// The stream's last waits: the value of `ready` promised before, and that of `free` waited for.
    waits: VecDeque<(u64, u64)>,
    /// Either side may have unfinished work.
    pub(crate) busy: bool,
    /// The stream may have work after its last signal.
    pub(crate) unfinished: bool,
    /// The CPU has signalled for a stream that still runs: nobody can tell when it ends.
    pub(crate) aborted: bool,
    /// CUDA waits for nothing: [`crate::SharedRing::leave_out_free`].
    pub(crate) leave_out_free: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Use {
    /// The frame that was handed to Vulkan, and was neither submitted nor given up.
    held: Option<u64>,
    /// The greatest value that a submission signals after it has read the slot. 0 if there was none.
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
            leave_out_free: false,
        }
    }

    fn slot(&mut self, frame: u64) -> &mut Use {
        &mut self.slots[self.ring.turn(frame).slot]
    }

    /// Returns the value of `free` that marks a frame's end.
    fn end(&self, frame: u64) -> u64 {
        self.ring.turn(frame).signal_free
    }

    /// Sets how many frames CUDA may be ahead of Vulkan. A longer batch counts with its own length.
    pub(crate) fn set_ahead(&mut self, frames: usize) {
        self.ahead = frames.clamp(1, self.slots.len());
    }

    /// Returns the value that CUDA must wait for before it writes the next `count` frames, or 0 if it need
    /// not wait. Returns `None` if one of their slots is held.
    // ANCHOR: wait_for
    pub(crate) fn wait_for(&self, count: usize) -> Option<u64> {
        let last = self.frame + count as u64 - 1;
        if (self.frame..=last).any(|frame| self.slots[self.ring.turn(frame).slot].held.is_some()) {
            return None;
        }
        if self.leave_out_free {
            return Some(0);
        }
        // CUDA uses the ring no deeper than it may be ahead.
        let ring = Ring::new(self.ahead.max(count) as u32).unwrap_or(self.ring);
        // One wait for the whole batch: the last frame's is the greatest.
        let planned = ring.turn(last).wait_free.unwrap_or(0);
        // Nobody signals for a frame that was given up. An earlier value is enough then.
        let signalled = self.slots.iter().map(|slot| slot.read).filter(|&value| value <= planned).max();
        Some(signalled.filter(|&value| value > self.waited()).unwrap_or(0))
    }
    // ANCHOR_END: wait_for

    /// Notes that the stream gets work after its last signal.
    pub(crate) fn begins(&mut self) {
        (self.busy, self.unfinished) = (true, true);
    }

    /// Notes that CUDA's stream waits for `value`, after it has promised to signal `ready`.
    pub(crate) fn waits(&mut self, value: u64, ready: u64) {
        if self.waits.len() == REMEMBERED {
            self.waits.pop_front();
        }
        self.waits.push_back((ready, value));
    }

    /// Returns the value that the stream waited for last, 0 at first.
    pub(crate) fn waited(&self) -> u64 {
        self.waits.back().map_or(0, |&(_, value)| value)
    }

    /// Returns the value of `free` that CUDA needs for what it does once its own counter is `ready`.
    pub(crate) fn awaited(&self, ready: u64) -> u64 {
        self.waits.iter().rev().find(|wait| wait.0 <= ready).map_or(0, |wait| wait.1)
    }

    /// Notes that CUDA has enqueued the next frame's signal, so the frame goes to Vulkan. Returns its number.
    pub(crate) fn hand_over(&mut self) -> u64 {
        let frame = self.frame;
        self.frame += 1;
        self.slot(frame).held = Some(frame);
        self.unfinished = false;
        frame
    }

    /// Notes that a frame is about to be submitted. Returns as an error the last frame that was, if this one
    /// is not later: its value would be smaller than a pending one.
    pub(crate) fn try_submit(&mut self, frame: u64) -> Result<(), u64> {
        let end = self.end(frame);
        if end <= self.tried {
            return Err(self.tried - 1);
        }
        self.tried = end;
        Ok(())
    }

    pub(crate) fn submitted(&mut self, frame: u64) {
        let end = self.end(frame);
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
