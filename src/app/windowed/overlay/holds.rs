//! When the overlay measures the draw and the presenting alone: for a moment the last slot is drawn again, without a hand-off.

use std::time::{Duration, Instant};

use ash::vk;

use super::Overlay;
use crate::Result;
use crate::app::Engine;
use crate::render::Camera;

/// Nothing must change for so long before.
const QUIET: Duration = Duration::from_millis(500);
/// The field stands still for so many frames, but no longer than [`LONGEST`].
const FRAMES: usize = 50;
const LONGEST: Duration = Duration::from_millis(250);

/// As many at least are needed.
const ENOUGH: f64 = 6.0;

/// What a draw's time depends on besides the settings: where it is seen from, and how large.
pub(in crate::app::windowed) type Seen = (Camera, vk::Extent2D);

/// When that is due.
pub(super) struct Holds {
    seen: Option<Seen>,
    /// Since when nothing has changed.
    since: Instant,
    /// Whether that was measured since, or cannot be.
    tried: bool,
    /// When the last hold began.
    began: Instant,
}

impl Holds {
    pub(super) fn new(now: Instant) -> Self {
        Self { seen: None, since: now, tried: false, began: now }
    }

    /// Whether it is seen otherwise than before.
    fn sees(&mut self, seen: Seen) -> bool {
        self.seen.replace(seen) != Some(seen)
    }

    /// What a frame costs may be another from now on.
    fn renew(&mut self, now: Instant) {
        (self.since, self.tried) = (now, false);
    }

    fn is_due(&self, now: Instant) -> bool {
        !self.tried && now - self.since >= QUIET
    }

    fn begin(&mut self, now: Instant) {
        (self.began, self.tried) = (now, true);
    }

    /// Whether it has gone on for long enough, after so many frames.
    fn is_over(&self, now: Instant, frames: usize) -> bool {
        frames >= FRAMES || now - self.began >= LONGEST
    }
}

impl Overlay {
    /// Comes before each frame. Holds the engine where that is due, and lets it go on. `allowed`: the field may stand still for a
    /// moment. True: both sides were brought to rest.
    pub(in crate::app::windowed) fn before_frame(
        &mut self,
        engine: &mut Engine,
        seen: Seen,
        allowed: bool,
    ) -> Result<bool> {
        let now = Instant::now();
        let changed = self.holds.sees(seen);
        if changed {
            self.stir();
        }
        let allowed = allowed && self.shown && engine.watched().is_some();
        if engine.is_held() {
            if let (Some(timing), Some(watched)) = (engine.finished(), engine.watched()) {
                self.figures.add_alone(&timing, watched.clock(), self.gpu_cost);
            }
            let over = self.holds.is_over(now, self.figures.alone_frames());
            if !over && !changed && allowed && self.holds.tried {
                return Ok(false);
            }
            engine.go_on()?;
            self.figures.end_alone();
            return Ok(true);
        }
        if !allowed || !self.figures.is_warm() || !self.holds.is_due(now) {
            return Ok(false);
        }
        self.holds.begin(now);
        self.figures.begin_alone();
        let usual = self.figures.quantiles().map_or(f64::INFINITY, |(half, _)| half);
        if usual * ENOUGH > LONGEST.as_secs_f64() {
            // Too few would be drawn.
            return Ok(false);
        }
        let held = engine.hold()?;
        // The time until the producer goes on is no frame time.
        self.collect(engine);
        self.figures.rest();
        Ok(held)
    }

    /// The draw alone may take another time from now on.
    pub(in crate::app::windowed) fn stir(&mut self) {
        self.holds.renew(Instant::now());
        self.figures.begin_alone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_due_once_after_a_quiet_moment() {
        let (start, mut time) = (Instant::now(), 0);
        let mut holds = Holds::new(start);
        let mut after = |milliseconds| {
            time += milliseconds;
            start + Duration::from_millis(time)
        };
        assert!(!holds.is_due(after(499)) && holds.is_due(after(1)));
        let began = after(0);
        holds.begin(began);
        assert!(!holds.is_over(began, 49) && holds.is_over(began, 50) && holds.is_over(after(250), 3));
        assert!(!holds.is_due(after(10_000)), "once is enough");
        holds.renew(after(0));
        assert!(!holds.is_due(after(499)) && holds.is_due(after(1)));
    }

    #[test]
    fn another_view_is_noticed() {
        let mut holds = Holds::new(Instant::now());
        let (camera, size) = (Camera::default(), vk::Extent2D { width: 1280, height: 720 });
        assert!(holds.sees((camera, size)) && !holds.sees((camera, size)));
        let mut turned = camera;
        turned.orbit(1.0, 0.0);
        assert!(holds.sees((turned, size)) && !holds.sees((turned, size)));
        assert!(holds.sees((turned, vk::Extent2D { width: 1281, ..size })));
    }
}
