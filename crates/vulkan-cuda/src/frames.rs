//! Tracks which frames CUDA has not read, and which values each API waits for, in [`crate::ring_to_cuda`].

use std::collections::VecDeque;

use crate::ring::Ring;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Frames {
    ring: Ring,
    /// For each frame that was submitted but not read: the value of Vulkan's timeline that CUDA waits for.
    pub(crate) unread: VecDeque<u64>,
    /// The number of submitted frames, which is also the number of the next frame that Vulkan writes.
    pub(crate) written: u64,
    /// For each slot: the value of CUDA's timeline that Vulkan waits for before it writes the slot.
    free: Vec<u64>,
}

impl Frames {
    pub(crate) fn new(ring: Ring) -> Self {
        Self { ring, unread: VecDeque::with_capacity(ring.depth()), written: 0, free: vec![0; ring.depth()] }
    }

    /// Returns the number of the next frame that CUDA reads.
    pub(crate) fn reading(&self) -> u64 {
        self.written - self.unread.len() as u64
    }

    /// Returns the value of CUDA's timeline that Vulkan must wait for before it writes the next `count`
    /// frames. Returns `None` if one of their slots still has a frame that CUDA has not read.
    pub(crate) fn wait_to_write(&self, count: usize) -> Option<u64> {
        if self.unread.len() + count > self.free.len() {
            return None;
        }
        (self.written..self.written + count as u64).map(|frame| self.free[self.ring.turn(frame).slot]).max()
    }

    /// Records that the next frame was submitted, and that Vulkan signals `value` after writing it.
    pub(crate) fn submitted(&mut self, value: u64) {
        self.unread.push_back(value);
        self.written += 1;
    }

    /// Joins the `count` frames that were submitted last into a batch: CUDA waits once, for the last of them.
    pub(crate) fn join(&mut self, count: usize) {
        let last = self.unread.back().copied().unwrap_or_default();
        self.unread.iter_mut().rev().take(count).for_each(|value| *value = last);
    }

    /// Returns the value of Vulkan's timeline that CUDA must wait for before it reads the next frame, or 0 if
    /// CUDA has already waited for this value: `waited` is the value of its last wait. Returns `None` if
    /// every submitted frame was read.
    pub(crate) fn wait_to_read(&self, waited: u64) -> Option<u64> {
        self.unread.front().map(|&value| if value > waited { value } else { 0 })
    }

    /// Records that CUDA signals `value` after it has read the next frame.
    pub(crate) fn read(&mut self, value: u64) {
        let slot = self.ring.turn(self.reading()).slot;
        self.free[slot] = value;
        self.unread.pop_front();
    }
}
