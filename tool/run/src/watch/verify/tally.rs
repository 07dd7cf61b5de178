//! Judges a frame by the counts of its two looks, and sums up all frames. "Vertex" means a texel if slots are
//! images, and a stamp if a client chose the array.

use serde::{Deserialize, Serialize};

/// Each checked vertex is stale, overwritten, missing or right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub checked: u64,
    pub stale: u64,
    pub overwritten: u64,
    pub missing: u64,
}

impl Counts {
    pub fn wrong(&self) -> u64 {
        self.stale + self.overwritten + self.missing
    }
}

impl std::ops::Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            checked: self.checked + other.checked,
            stale: self.stale + other.stale,
            overwritten: self.overwritten + other.overwritten,
            missing: self.missing + other.missing,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    pub counts: Counts,
    /// Smallest and largest key of the wrong vertices. A key stands for one stamp, or for all missing stamps.
    pub keys: Option<(u32, u32)>,
}

impl Look {
    fn mixes(&self) -> bool {
        let wrong = self.counts.wrong();
        wrong > 0 && (wrong < self.counts.checked || self.keys.is_none_or(|(low, high)| low != high))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looks {
    /// The look between the hand-off from the producer and the draw.
    pub before: Look,
    /// The look between the draw and the hand-off back, which finds what was written while the draw read.
    pub after: Look,
}

impl Looks {
    /// Returns whether the frame mixes vertices of different frames, or its slot changed while it was read.
    pub fn torn(&self) -> bool {
        self.before.mixes() || self.after.mixes() || self.before.keys != self.after.keys
    }

    pub fn wrong(&self) -> bool {
        self.before.counts.wrong() + self.after.counts.wrong() > 0
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    pub frames: u64,
    pub before_draw: Counts,
    pub after_draw: Counts,
    pub wrong_frames: u64,
    pub torn_frames: u64,
    pub first_wrong_frame: Option<u64>,
    /// Frames in which a look did not reach every vertex, which is a fault of the check itself.
    pub unchecked_frames: u64,
}

impl Tally {
    pub fn add(&mut self, frame: u64, vertices: u64, looks: &Looks) {
        self.frames += 1;
        self.before_draw = self.before_draw + looks.before.counts;
        self.after_draw = self.after_draw + looks.after.counts;
        if looks.wrong() {
            self.wrong_frames += 1;
            self.first_wrong_frame = Some(self.first_wrong_frame.map_or(frame, |first| first.min(frame)));
        }
        self.torn_frames += u64::from(looks.torn());
        let whole = [looks.before, looks.after].iter().all(|look| look.counts.checked == vertices);
        self.unchecked_frames += u64::from(!whole);
    }

    /// Describes everything that was wrong. `what_of` names the elements, such as `vertices`.
    pub fn findings(&self, what_of: &str) -> Vec<String> {
        let total = self.total();
        let mut found = Vec::new();
        if self.unchecked_frames > 0 {
            found.push(format!("the check itself missed {what_of} in {} frames", self.unchecked_frames));
        }
        for (count, what) in [
            (total.stale, "stale (of an earlier frame)"),
            (total.overwritten, "overwritten (of a later frame)"),
            (total.missing, "missing (never written)"),
        ] {
            if count > 0 {
                found.push(format!("{count} {what_of} were {what}"));
            }
        }
        if let Some(first) = self.first_wrong_frame {
            let (wrong, torn, frames) = (self.wrong_frames, self.torn_frames, self.frames);
            let wrong =
                format!("{wrong} of {frames} frames were wrong, {torn} of them torn, first frame {first}");
            found.push(wrong);
        }
        found
    }

    pub fn total(&self) -> Counts {
        self.before_draw + self.after_draw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Counts = Counts { checked: 100, stale: 0, overwritten: 0, missing: 0 };
    const RIGHT: Look = Look { counts: ALL, keys: None };

    fn stale(count: u64, keys: (u32, u32)) -> Look {
        Look { counts: Counts { stale: count, ..ALL }, keys: Some(keys) }
    }

    #[test]
    fn a_frame_is_torn_where_it_mixes() {
        let torn = |before, after| Looks { before, after }.torn();
        assert!(!torn(RIGHT, RIGHT));
        // All of it is the previous frame: wrong, but not torn.
        let whole = stale(100, (4095, 4095));
        assert!(!torn(whole, whole));
        // Half of it is the previous frame; two earlier frames are mixed; a vertex is missing.
        assert!(torn(stale(50, (4095, 4095)), RIGHT));
        assert!(torn(stale(100, (4094, 4095)), stale(100, (4094, 4095))));
        assert!(torn(Look { counts: Counts { missing: 1, ..ALL }, keys: Some((4096, 4096)) }, RIGHT));
        // The slot was overwritten while it was read.
        assert!(torn(RIGHT, Look { counts: Counts { overwritten: 100, ..ALL }, keys: Some((3, 3)) }));
        assert!(torn(whole, RIGHT));
    }

    #[test]
    fn the_tally_sums_and_remembers_the_first() {
        let mut tally = Tally::default();
        tally.add(0, 100, &Looks { before: RIGHT, after: RIGHT });
        tally.add(7, 100, &Looks { before: stale(100, (4095, 4095)), after: stale(100, (4095, 4095)) });
        tally.add(9, 100, &Looks { before: RIGHT, after: stale(30, (4000, 4000)) });
        assert_eq!((tally.frames, tally.wrong_frames, tally.torn_frames), (3, 2, 1));
        assert_eq!((tally.first_wrong_frame, tally.unchecked_frames), (Some(7), 0));
        let total = tally.total();
        assert_eq!((total.checked, total.stale, total.overwritten, total.missing), (600, 230, 0, 0));
    }

    #[test]
    fn a_look_that_leaves_vertices_out_is_noticed() {
        let mut tally = Tally::default();
        tally.add(0, 101, &Looks { before: RIGHT, after: RIGHT });
        tally.add(1, 100, &Looks { before: RIGHT, after: Look::default() });
        assert_eq!(tally.unchecked_frames, 2);
    }
}
