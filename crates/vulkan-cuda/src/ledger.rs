//! Which values of `free` will be signalled, and which will not. Pure bookkeeping for [`crate::shared_ring`], which
//! needs it only if a frame is given up.

use std::collections::VecDeque;

/// What becomes of each frame's value of `free`. The ledger finds values that CUDA waits for and that no submission
/// will signal.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// One for each value from `before + 1` to that of the last frame that was handed to Vulkan.
    fates: VecDeque<Fate>,
    /// One less than the value of `fates[0]`.
    before: u64,
    /// The greatest value up to `before` that a submission or the CPU signals.
    signalled: u64,
    /// CUDA's waits that may still be unfulfilled: the value, and the last value handed out before the wait.
    waits: VecDeque<(u64, u64)>,
    /// The value that the counter reaches if nothing more happens: the greatest one that is waited for or submitted.
    pub(crate) expected: u64,
}

/// What becomes of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Its read may still be submitted.
    Open,
    /// A submission signals it.
    Submitted,
    /// Its read was dropped.
    GivenUp,
}

/// A value that CUDA waits for and that no submission will fulfil. The CPU may signal it once the counter has reached
/// `after`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stranded {
    pub(crate) after: u64,
    pub(crate) value: u64,
}

impl Ledger {
    /// Notes that the next frame is handed to Vulkan.
    pub(crate) fn issue(&mut self) {
        self.fates.push_back(Fate::Open);
    }

    /// Notes that the read that signals `value` was submitted or dropped.
    pub(crate) fn ends(&mut self, value: u64, fate: Fate) {
        if fate == Fate::Submitted {
            self.expected = self.expected.max(value);
        }
        match value.checked_sub(self.before + 1) {
            Some(index) => self.fates[index as usize] = fate,
            None if fate == Fate::Submitted => self.signalled = self.signalled.max(value),
            None => {}
        }
    }

    /// Notes that CUDA waits for `value`. `last` is the last value handed out before the wait. Later values cannot
    /// fulfil it, because their frames are written after it.
    pub(crate) fn waits(&mut self, value: u64, last: u64) {
        self.waits.push_back((value, last));
        self.expected = self.expected.max(value);
    }

    /// Returns the first wait that no submission will fulfil. The CPU must signal it. It is returned again until
    /// [`signalled_from_host`](Self::signalled_from_host) notes that signal.
    pub(crate) fn stranded(&mut self) -> Option<Stranded> {
        loop {
            let &(value, last) = self.waits.front()?;
            let (below, rest) = ((value - self.before - 1) as usize, (last - self.before) as usize);
            let mut candidates = self.fates.iter().take(rest).skip(below);
            if candidates.any(|&fate| fate == Fate::Submitted) {
                self.settled();
                continue;
            }
            // An open read may still be submitted. It may then fulfil this wait, or signal a smaller value. A smaller
            // value must not follow a greater one, so the CPU cannot signal yet. CUDA's later waits come after this
            // one.
            if self.fates.iter().take(rest).any(|&fate| fate == Fate::Open) {
                return None;
            }
            let below = (1..=below).rev().find(|&index| self.fates[index - 1] == Fate::Submitted);
            let after = below.map_or(self.signalled, |index| self.before + index as u64);
            return Some(Stranded { after, value });
        }
    }

    /// The first wait is fulfilled, or will be. Forgets everything before it.
    fn settled(&mut self) {
        let Some((value, _)) = self.waits.pop_front() else { return };
        while self.before + 1 < value {
            // Still open: its submission comes late, and `ends` notes it then.
            if self.fates.front() == Some(&Fate::Open) {
                return;
            }
            self.before += 1;
            if self.fates.pop_front() == Some(Fate::Submitted) {
                self.signalled = self.before;
            }
        }
    }

    /// Notes that the CPU has signalled the first wait's value.
    pub(crate) fn signalled_from_host(&mut self, value: u64) {
        self.settled();
        self.signalled = self.signalled.max(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring of two that has handed out `fates`. CUDA then waits for the first slot again.
    fn ledger(fates: &[Fate]) -> Ledger {
        let mut ledger = Ledger::default();
        for (value, &fate) in (1..).zip(fates) {
            ledger.issue();
            ledger.ends(value, fate);
        }
        ledger.waits(fates.len() as u64 - 1, fates.len() as u64);
        ledger
    }

    #[test]
    fn only_what_nobody_signals_is_stranded() {
        use Fate::{GivenUp, Open, Submitted};
        for (fates, stranded) in [
            (&[Submitted, Submitted][..], None),
            (&[Submitted, Open], None),
            (&[Open, Open], None),
            // A greater value fulfils the wait too.
            (&[GivenUp, Submitted], None),
            (&[GivenUp, Open], None),
            (&[GivenUp, GivenUp], Some(Stranded { after: 0, value: 1 })),
            // The CPU signals only after the submitted value.
            (&[Submitted, GivenUp, GivenUp], Some(Stranded { after: 1, value: 2 })),
        ] {
            let mut ledger = ledger(fates);
            assert_eq!(ledger.stranded(), stranded, "{fates:?}");
            // A signal that failed is tried again.
            assert_eq!(ledger.stranded(), stranded, "{fates:?}");
            if let Some(Stranded { value, .. }) = stranded {
                ledger.signalled_from_host(value);
            }
            assert_eq!(ledger.stranded(), None, "{fates:?}");
        }
    }

    /// The frame that waits for a value cannot be the one to signal it.
    #[test]
    fn a_later_frame_does_not_fulfil_an_earlier_wait() {
        let mut ledger = ledger(&[Fate::Open, Fate::Open]);
        assert_eq!(ledger.stranded(), None);
        ledger.issue();
        ledger.ends(3, Fate::Submitted);
        ledger.ends(1, Fate::GivenUp);
        assert_eq!(ledger.stranded(), None, "2 is open");
        ledger.ends(2, Fate::GivenUp);
        assert_eq!(ledger.stranded(), Some(Stranded { after: 0, value: 1 }));
        assert_eq!(ledger.expected, 3);
    }

    /// In a batch CUDA waits for the last slot's value. An earlier open read may still signal its own, smaller value.
    #[test]
    fn no_greater_value_is_signalled_while_a_smaller_one_may_be() {
        let mut ledger = Ledger::default();
        ledger.issue();
        ledger.issue();
        ledger.waits(2, 2);
        ledger.ends(2, Fate::GivenUp);
        assert_eq!(ledger.stranded(), None, "1 is open");
        ledger.ends(1, Fate::Submitted);
        assert_eq!(ledger.stranded(), Some(Stranded { after: 1, value: 2 }));
    }

    /// The last open read is submitted, and fulfils only the first wait.
    #[test]
    fn a_submission_may_leave_a_later_wait_stranded() {
        let mut ledger = ledger(&[Fate::Open, Fate::GivenUp]);
        ledger.issue();
        ledger.ends(3, Fate::GivenUp);
        ledger.waits(2, 3);
        assert_eq!(ledger.stranded(), None);
        ledger.ends(1, Fate::Submitted);
        assert_eq!(ledger.stranded(), Some(Stranded { after: 1, value: 2 }));
    }

    /// The ledger does not grow from frame to frame.
    #[test]
    fn what_is_done_is_forgotten() {
        let mut ledger = Ledger::default();
        for frame in 0..1000_u64 {
            if let Some(value) = (frame + 1).checked_sub(3).filter(|&value| value > 0) {
                ledger.waits(value, frame);
            }
            assert_eq!(ledger.stranded(), None);
            ledger.issue();
            ledger.ends(frame + 1, Fate::Submitted);
        }
        assert!(ledger.fates.len() <= 4 && ledger.waits.is_empty(), "{ledger:?}");
    }
}
