//! Tracks which of a client's frames is shown and which slots are free, and rejects what no correct client
//! signals or sends. Pure arithmetic on the counters of `docs/protocol.md`: frame n is written once `ready`
//! is n + 1, and its slot is free once `free` is n + 1. `free` reaches n + 1 when frame n + 1 is first drawn.
//! With memory `host`, whose frames are copied, it does when frame n is first drawn.

use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Slot(usize),
    Allocation {
        id: u64,
        /// The offset of the frame's first byte.
        offset: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownFrame {
    pub frame: u64,
    pub origin: Origin,
}

#[derive(Clone, Debug)]
pub struct FrameLedger {
    depth: u64,
    /// Whether draws read a frame in its slot. If not, the frame is copied before its first draw, and its
    /// slot is free from then on.
    in_place: bool,
    /// The last value of `ready` that was read.
    pub(super) ready: u64,
    pub(super) shown: Option<ShownFrame>,
    /// Frames in allocations that `show` has announced and that are not shown yet, in order.
    elsewhere: VecDeque<ShownFrame>,
}

impl FrameLedger {
    /// Creates the ledger of a ring of `depth` slots, at least 2. `in_place`: whether draws read the slots
    /// themselves, not copies.
    pub fn new(depth: usize, in_place: bool) -> Self {
        Self { depth: depth as u64, in_place, ready: 0, shown: None, elsewhere: VecDeque::new() }
    }

    /// Returns the number of frames whose slots are free. Includes the frame on show only if it was copied.
    pub fn free(&self) -> u64 {
        self.shown.map_or(0, |shown| shown.frame + u64::from(!self.in_place))
    }

    pub fn next(&self) -> u64 {
        self.shown.map_or(0, |shown| shown.frame + 1)
    }

    pub fn has_next(&self) -> bool {
        self.ready > self.next()
    }

    /// Records a new value of `ready`. Fails for a value that no correct client signals.
    pub fn see_ready(&mut self, ready: u64) -> Result<(), String> {
        let (known, most) = (self.ready, self.free() + self.depth);
        if ready < known {
            return Err(format!("`ready` went down from {known} to {ready}"));
        }
        if ready > most {
            return Err(format!(
                "`ready` is {ready}, and with `free` at {} in a ring of {} it can be {most} at most",
                self.free(),
                self.depth
            ));
        }
        self.ready = ready;
        Ok(())
    }

    /// Checks `free`, which only the renderer may signal. If a client signals it, the renderer's next value
    /// might be no greater than the counter, which Vulkan forbids.
    pub fn see_free(&self, free: u64) -> Result<(), String> {
        match self.free() {
            own if free > own => Err(format!("`free` is {free}, and the renderer signalled {own} at most")),
            _ => Ok(()),
        }
    }

    /// Records that a frame is in an allocation. Fails if the frame was already shown, is too far ahead, or
    /// is out of order.
    pub fn announce(&mut self, frame: u64, id: u64, offset: u64) -> Result<(), String> {
        if frame < self.next() {
            return Err(format!("`show` for frame {frame} comes too late"));
        }
        // A client that enqueues frame n once frame n - K is *written*, with K slots, is never farther ahead.
        if frame >= self.free() + 2 * self.depth {
            return Err(format!(
                "`show` for frame {frame} comes too early: `free` is {} in a ring of {}, and it can be twice the ring ahead",
                self.free(),
                self.depth
            ));
        }
        if self.elsewhere.back().is_some_and(|last| last.frame >= frame) {
            return Err(format!("`show` for frame {frame} twice, or out of order"));
        }
        self.elsewhere.push_back(ShownFrame { frame, origin: Origin::Allocation { id, offset } });
        Ok(())
    }

    pub fn advance(&mut self) -> ShownFrame {
        let frame = self.next();
        let announced = self.elsewhere.pop_front_if(|next| next.frame == frame);
        let in_slot = ShownFrame { frame, origin: Origin::Slot((frame % self.depth) as usize) };
        *self.shown.insert(announced.unwrap_or(in_slot))
    }

    pub fn needs(&self, allocation: u64) -> bool {
        let mut frames = self.shown.iter().chain(&self.elsewhere);
        frames.any(|frame| matches!(frame.origin, Origin::Allocation { id, .. } if id == allocation))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_are_shown_in_order_and_none_is_skipped() {
        let mut ledger = FrameLedger::new(3, true);
        assert!(!ledger.has_next());
        ledger.see_ready(3).unwrap();
        for frame in 0..3 {
            assert!(ledger.has_next());
            assert_eq!(ledger.advance(), ShownFrame { frame, origin: Origin::Slot(frame as usize) });
            assert_eq!(ledger.free(), frame, "the frame on show is not free");
        }
        assert!(!ledger.has_next());
        ledger.see_ready(4).unwrap();
        assert_eq!(ledger.advance().origin, Origin::Slot(0));
    }

    #[test]
    fn lies_are_found() {
        let mut ledger = FrameLedger::new(2, true);
        assert!(ledger.see_ready(3).unwrap_err().contains("2 at most"));
        assert!(ledger.see_ready(u64::MAX).is_err());
        ledger.see_ready(2).unwrap();
        assert!(ledger.see_ready(1).unwrap_err().contains("went down"));
        assert!(ledger.see_ready(3).is_err(), "nothing is shown yet, so nothing is free");
        ledger.advance();
        assert!(ledger.see_ready(3).is_err(), "frame 0 is on show, so its slot is not free");
        ledger.advance();
        ledger.see_ready(3).unwrap();
        ledger.see_free(0).unwrap(); // The GPU is behind.
        ledger.see_free(1).unwrap();
        assert!(ledger.see_free(2).unwrap_err().contains("1 at most"));
    }

    #[test]
    fn frames_may_lie_elsewhere() {
        let mut ledger = FrameLedger::new(2, true);
        ledger.announce(1, 7, 64).unwrap();
        ledger.clone().announce(3, 7, 0).unwrap();
        assert!(ledger.announce(1, 7, 0).unwrap_err().contains("twice"));
        assert!(ledger.announce(0, 7, 0).unwrap_err().contains("order"));
        assert!(ledger.announce(4, 7, 0).unwrap_err().contains("early"));
        ledger.see_ready(2).unwrap();
        assert!(ledger.needs(7));
        assert_eq!(ledger.advance().origin, Origin::Slot(0));
        assert!(ledger.announce(0, 7, 0).unwrap_err().contains("late"));
        assert_eq!(ledger.advance().origin, Origin::Allocation { id: 7, offset: 64 });
        assert!(ledger.needs(7), "it is on show");
        ledger.see_ready(3).unwrap();
        ledger.advance();
        assert!(!ledger.needs(7));
    }

    /// The client says `show` for frame n as soon as frame n - K is written, and writes as far ahead as the
    /// renderer lets it.
    #[test]
    fn a_client_that_keeps_the_pace_never_announces_too_early() {
        for (depth, in_place) in (2..=32).flat_map(|depth| [(depth, true), (depth, false)]) {
            let mut ledger = FrameLedger::new(depth, in_place);
            let mut announced = 0;
            for _ in 0..3 * depth {
                let written = ledger.free() + depth as u64;
                while announced < written + depth as u64 {
                    ledger.announce(announced, 1, 0).unwrap();
                    announced += 1;
                }
                ledger.see_ready(written).unwrap();
                ledger.advance();
            }
        }
    }

    proptest! {
        /// Whatever a client claims: no slot that it may write is drawn from, and the ledger stays bounded.
        #[test]
        fn no_claim_breaks_the_ring(
            depth in 2usize..=32,
            in_place: bool,
            steps in prop::collection::vec((0u8..3, 0u64..80, any::<u64>()), 0..200),
        ) {
            let mut ledger = FrameLedger::new(depth, in_place);
            for (step, near, far) in steps {
                match step {
                    0 => drop(ledger.see_ready(if far % 8 == 0 { far } else { near })),
                    1 => drop(ledger.announce(near, far % 4, 0)),
                    _ if ledger.has_next() => drop(ledger.advance()),
                    _ => {}
                }
                let depth = depth as u64;
                prop_assert!(ledger.ready <= ledger.free() + depth);
                prop_assert!(ledger.next() <= ledger.ready, "only what is written is shown");
                prop_assert!(ledger.elsewhere.len() as u64 <= 2 * depth);
                prop_assert!(ledger.free() <= ledger.next());
                // An honest client may write frames up to free + K - 1: none has the slot of the frame on
                // show.
                if let Some(shown) = ledger.shown.filter(|_| in_place) {
                    for frame in shown.frame + 1..ledger.free() + depth {
                        prop_assert_ne!(frame % depth, shown.frame % depth);
                    }
                }
            }
        }
    }
}
