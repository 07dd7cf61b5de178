//! What the overlay measures: every frame, what is under the pointer, and sometimes draw and present alone. For that it draws
//! the last slot again and again for a moment, without a hand-off.

use std::time::{Duration, Instant};

use ash::vk;

use super::{Overlay, View, lanes};
use crate::Result;
use crate::app::Engine;
use crate::render::Camera;

/// How often to tie the clocks of the lanes again.
const TIE_EVERY: Duration = Duration::from_secs(1);
/// How long nothing may change before a measurement.
const QUIET: Duration = Duration::from_millis(500);
const FRAMES: usize = 50;
/// The longest measurement. The field stands still during it.
const LONGEST: Duration = Duration::from_millis(250);

/// The least number of frames that a measurement must expect within [`LONGEST`].
const ENOUGH: f64 = 6.0;

/// What a draw's time depends on besides the settings: the camera and the picture's size.
pub(in crate::app::windowed) type Seen = (Camera, vk::Extent2D);

pub(super) struct Holds {
    seen: Option<Seen>,
    since: Instant,
    tried: bool,
    allowed: bool,
    began: Instant,
}

impl Holds {
    pub(super) fn new(now: Instant) -> Self {
        Self { seen: None, since: now, tried: false, allowed: true, began: now }
    }

    /// Whether the camera or the size has changed since the last call.
    fn sees(&mut self, seen: Seen) -> bool {
        self.seen.replace(seen) != Some(seen)
    }

    /// Asks for a new measurement, because a frame's cost may have changed.
    fn renew(&mut self, now: Instant) {
        (self.since, self.tried) = (now, false);
    }

    /// Whether there is no measurement to wait for.
    pub(super) fn is_done(&self) -> bool {
        self.tried || !self.allowed
    }

    fn is_due(&self, now: Instant) -> bool {
        !self.tried && now - self.since >= QUIET
    }

    fn begin(&mut self, now: Instant) {
        (self.began, self.tried) = (now, true);
    }

    /// Whether the measurement is complete after this number of frames.
    fn is_over(&self, now: Instant, frames: usize) -> bool {
        frames >= FRAMES || now - self.began >= LONGEST
    }
}

impl Overlay {
    /// Starts [`Engine::watch`] if it is off, and keeps the clocks tied.
    pub(super) fn watch(&mut self, engine: &mut Engine, now: Instant) -> Result<()> {
        if engine.watched().is_none() {
            if engine.device().info().timestamp_period.is_some() {
                engine.watch(lanes::WATCHED)?;
                self.figures.renumbered();
            }
            self.tied = now;
        }
        self.collect(engine);
        if now - self.tied > TIE_EVERY {
            engine.tie_again()?;
            self.tied = now;
        }
        Ok(())
    }

    fn collect(&mut self, engine: &Engine) {
        if let Some(watched) = engine.watched() {
            let profile = engine.producer().profile();
            let in_queue = profile.in_queue;
            self.figures.filled(profile.uses_cuda, engine.batch());
            self.figures.add(watched.frames(), in_queue, watched.clock(), self.gpu_cost);
        }
    }

    /// Finds what is under the pointer, if the pointer is on the picture.
    pub(super) fn point(&mut self, view: &mut View<'_>) -> Result<()> {
        let size = (view.extent.width, view.extent.height);
        // A client's mesh may lie anywhere.
        let may_find = !view.serves || view.engine.image_in(view.extent).is_some();
        let on_picture = may_find && !self.egui.is_pointer_over_area();
        let pointer = self.egui.pointer_latest_pos().filter(|_| on_picture);
        let scale = self.egui.pixels_per_point();
        if view.engine.point(pointer.map(|at| (at.x * scale, at.y * scale)), size)? {
            self.figures.rest();
            self.measure_again();
        }
        Ok(())
    }

    /// To be called before each frame. Begins a measurement if one is due, and ends it. `allowed` says that the field may stand
    /// still for a moment. True if this brought both APIs to rest.
    pub(in crate::app::windowed) fn before_frame(
        &mut self,
        engine: &mut Engine,
        seen: Seen,
        allowed: bool,
    ) -> Result<bool> {
        let now = Instant::now();
        let changed = self.holds.sees(seen);
        if changed {
            self.measure_again();
        }
        let allowed = allowed && self.is_on() && engine.watched().is_some();
        self.holds.allowed = allowed;
        if engine.is_held() {
            if let (Some(timing), Some(watched)) = (engine.finished(), engine.watched()) {
                self.figures.add_held(&timing, watched.clock(), self.gpu_cost);
            }
            let over = self.holds.is_over(now, self.figures.held_frames());
            if !over && !changed && allowed && self.holds.tried {
                return Ok(false);
            }
            engine.go_on()?;
            self.figures.end_held();
            return Ok(true);
        }
        if !allowed || !self.figures.is_warm() || !self.holds.is_due(now) {
            return Ok(false);
        }
        self.holds.begin(now);
        self.figures.begin_held();
        let usual = self.figures.quantiles().map_or(f64::INFINITY, |(half, _)| half);
        if usual * ENOUGH > LONGEST.as_secs_f64() {
            // Too few frames would be drawn.
            return Ok(false);
        }
        let held = engine.hold()?;
        // The time of the measurement is not a frame time.
        self.collect(engine);
        self.figures.rest();
        Ok(held)
    }

    /// To be called when the draw's time may have changed.
    pub(in crate::app::windowed) fn measure_again(&mut self) {
        self.holds.renew(Instant::now());
        self.figures.begin_held();
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
