//! Plans each frame: its slot, and the timeline values to wait for and to signal. A
//! [`SharedRing`](crate::SharedRing) uses the planned slots and values of `free`, and a
//! [`RingToCuda`](crate::RingToCuda) uses only the slots.
//!
//! With one slot the two sides take turns, and every frame costs two switches of the GPU between CUDA and
//! graphics, of about 160 µs each (H200, driver 580). With a ring of K slots CUDA may be up to K frames
//! ahead. If the work is short, up to K frames then share two switches, but may be K frames old when drawn.
//!
//! If a frame's work is long (a draw of 1 ms or more on an H200), the ring alone does not help. Slots become
//! free one at a time, CUDA writes one frame whenever that happens, and the GPU again switches for every
//! frame. A *batch* helps: CUDA waits once for B free slots and fills them without interruption, and Vulkan
//! takes them one by one. On the GPU, CUDA is still at most K frames ahead. But the CPU enqueues the last
//! frame of a batch B-1 frames early, so that frame's input is older by as much.

/// The largest number of slots that [`Ring::new`] accepts.
pub const MAX_DEPTH: u32 = 32;

/// A ring of K slots that CUDA writes and Vulkan reads, in the same order.
///
/// # Examples
/// ```
/// use vulkan_cuda::Ring;
///
/// let ring = Ring::new(3).unwrap();
/// let turn = ring.turn(7);
/// assert_eq!(turn.slot, 1);
/// // Frame 4 was the last to use slot 1. When Vulkan has read it, Vulkan signals 5.
/// assert_eq!(turn.wait_free, Some(5));
/// // Values count from 1, because a timeline starts at 0.
/// assert_eq!((turn.signal_ready, turn.signal_free), (8, 8));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ring {
    /// 1..=[`MAX_DEPTH`].
    depth: u32,
}

/// The plan for one frame: its slot, and the values to wait for and to signal.
///
/// Frames are numbered from 0 without gaps. If you skip a frame, give its number to the next one, or leave
/// its value unsignalled: the next frame's value, which is greater, then also frees the skipped frame's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The index of the slot that CUDA writes and Vulkan reads.
    pub slot: usize,
    /// CUDA waits until Vulkan's timeline `free` reaches this value. `None` if no frame used the slot before.
    pub wait_free: Option<u64>,
    /// CUDA then sets its timeline `ready` to this value.
    pub signal_ready: u64,
    /// Vulkan waits until `ready` has reached this value, which CUDA signals in the same frame.
    pub wait_ready: u64,
    /// Vulkan then sets `free` to this value.
    pub signal_free: u64,
}

impl Ring {
    /// A ring of one slot: the two sides take turns.
    pub const ONE: Self = Self { depth: 1 };

    /// Returns a ring of `depth` slots, or `None` if `depth` is not in 1..=[`MAX_DEPTH`].
    pub fn new(depth: u32) -> Option<Self> {
        (1..=MAX_DEPTH).contains(&depth).then_some(Self { depth })
    }

    /// Returns the number of slots.
    pub fn depth(self) -> usize {
        self.depth as usize
    }

    /// Returns the plan for a frame. Frame n signals n + 1 on both timelines, because a timeline starts at 0
    /// and must grow. Its slot was last used by frame n - K. When Vulkan has read that frame, it sets `free`
    /// to n - K + 1. Frame 2^64-1 repeats the previous frame's value, which a
    /// [`SharedTimeline`](crate::SharedTimeline) refuses.
    ///
    /// To fill a *batch* of up to K frames without interruption, CUDA waits once, before the first frame, for
    /// the value in the last frame's plan. That value is the greatest, so it covers all slots.
    // ANCHOR: turn
    pub fn turn(self, frame: u64) -> Turn {
        let (depth, value) = (u64::from(self.depth), frame.saturating_add(1));
        Turn {
            slot: (frame % depth) as usize,
            wait_free: frame.checked_sub(depth).map(|last_user| last_user + 1),
            signal_ready: value,
            wait_ready: value,
            signal_free: value,
        }
    }
    // ANCHOR_END: turn
}

impl Default for Ring {
    /// Returns a ring of three slots: one being written, one being read, one in between.
    fn default() -> Self {
        Self { depth: 3 }
    }
}

#[cfg(test)]
mod tests {
    // Every interleaving of the CPU, a CUDA stream and a Vulkan queue is explored in `tests/library/plan.rs`.

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_ring_has_1_to_32_slots() {
        assert_eq!(Ring::new(0), None);
        assert_eq!(Ring::new(33), None);
        assert_eq!(Ring::new(32).map(Ring::depth), Some(32));
        assert_eq!(Ring::default().depth(), 3);
    }

    /// Its value would repeat, which a timeline refuses.
    #[test]
    fn the_last_frame_of_all_is_no_panic() {
        let ring = Ring::default();
        for frame in [u64::MAX, u64::MAX - 1] {
            assert_eq!(ring.turn(frame).signal_free, u64::MAX);
        }
    }

    proptest! {
        #[test]
        fn turns_hold_in_any_ring(depth in 1..=MAX_DEPTH, batch in 1..=MAX_DEPTH as u64, first in 0..u64::MAX / 2) {
            let ring = Ring::new(depth).unwrap();
            let batch = batch.min(u64::from(depth));
            // The batch's only wait covers the last user of each of its slots.
            let wait = ring.turn(first + batch - 1).wait_free;
            for frame in first..first + batch {
                let turn = ring.turn(frame);
                prop_assert!(turn.slot < ring.depth());
                prop_assert!(turn.signal_ready > 0, "0 is the counter's start");
                prop_assert_eq!(turn.wait_ready, turn.signal_ready);
                prop_assert!(ring.turn(frame + 1).signal_ready > turn.signal_ready);
                prop_assert!(ring.turn(frame + 1).signal_free > turn.signal_free);
                if let Some(before) = frame.checked_sub(u64::from(depth)) {
                    prop_assert_eq!(ring.turn(before).slot, turn.slot);
                    prop_assert!(wait.is_some_and(|value| value >= ring.turn(before).signal_free));
                }
                // Vulkan signals the value in an earlier frame, so no wait can be circular.
                prop_assert!(wait.is_none_or(|value| value < ring.turn(first).signal_free));
            }
        }
    }
}
