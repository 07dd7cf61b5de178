//! Which values of `free` somebody signals, and which nobody does. Pure bookkeeping for [`crate::shared_ring`], needed only when
//! a frame is given up.

use std::collections::VecDeque;

/// What becomes of the values of `free`, one for each frame: so that none for which CUDA waits is left to nobody.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// One for each value from `before + 1` to that of the last frame that was handed to Vulkan.
    fates: VecDeque<Fate>,
    /// One less than the value of `fates[0]`.
    before: u64,
    /// The greatest value up to `before` that a submission or the CPU signals.
    signalled: u64,
    /// CUDA's waits that may not be fulfilled yet: the value, and the last that was handed out before the wait.
    waits: VecDeque<(u64, u64)>,
    /// What the counter reaches if nothing more happens: the greatest value that is waited for or submitted.
    pub(crate) expected: u64,
}

/// What becomes of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Its read may yet be submitted.
    Open,
    /// A submission signals it.
    Submitted,
    /// Its read was dropped.
    GivenUp,
}

/// A value that CUDA waits for, and that no submission is going to fulfil. The CPU may signal it once the counter
/// has reached `after`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stranded {
    pub(crate) after: u64,
    pub(crate) value: u64,
}

impl Ledger {
    /// The next frame is handed to Vulkan.
    pub(crate) fn issue(&mut self) {
        self.fates.push_back(Fate::Open);
    }

    /// The read that signals `value` was submitted or dropped.
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

    /// CUDA waits for `value`; `last` is the last value that was handed out before. Later values cannot fulfil the wait:
    /// their frames are written after it.
    pub(crate) fn waits(&mut self, value: u64, last: u64) {
        self.waits.push_back((value, last));
        self.expected = self.expected.max(value);
    }

    /// The first wait that nobody is going to fulfil: it takes a signal from the CPU, and is there until
    /// [`signalled_from_host`](Self::signalled_from_host) says that it was made.
    pub(crate) fn stranded(&mut self) -> Option<Stranded> {
        loop {
            let &(value, last) = self.waits.front()?;
            let (below, rest) = ((value - self.before - 1) as usize, (last - self.before) as usize);
            let mut candidates = self.fates.iter().take(rest).skip(below);
            if candidates.any(|&fate| fate == Fate::Submitted) {
                self.settled();
                continue;
            }
            // One may yet be submitted: to fulfil this wait, or with a smaller value, which must not come after a greater one.
            // CUDA's later waits are behind this one.
            if self.fates.iter().take(rest).any(|&fate| fate == Fate::Open) {
                return None;
            }
            let below = (1..=below).rev().find(|&index| self.fates[index - 1] == Fate::Submitted);
            let after = below.map_or(self.signalled, |index| self.before + index as u64);
            return Some(Stranded { after, value });
        }
    }

    /// The first wait is fulfilled, or will be: what lies before it is forgotten.
    fn settled(&mut self) {
        let Some((value, _)) = self.waits.pop_front() else { return };
        while self.before + 1 < value {
            // Still open: whoever holds it is late, and what it signals is seen in `ends`.
            if self.fates.front() == Some(&Fate::Open) {
                return;
            }
            self.before += 1;
            if self.fates.pop_front() == Some(Fate::Submitted) {
                self.signalled = self.before;
            }
        }
    }

    /// The CPU has signalled the first wait's value.
    pub(crate) fn signalled_from_host(&mut self, value: u64) {
        self.settled();
        self.signalled = self.signalled.max(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring of two that has handed out `fates`, in which CUDA then waits for the first slot again.
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
            // A greater value will do.
            (&[GivenUp, Submitted], None),
            (&[GivenUp, Open], None),
            (&[GivenUp, GivenUp], Some(Stranded { after: 0, value: 1 })),
            // Not before what is submitted.
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

    /// In a batch CUDA waits for the last slot's value. An earlier read that is open may yet signal its own, smaller one.
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

    /// The last read that could have helped is submitted, and helps only the first wait.
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

    /// It does not grow while frames come and go.
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
