use std::time::{Duration, Instant};

use wavefield_run::{Moment, Parameters, STEP};

#[derive(Default)]
pub(super) struct FieldClock {
    /// The field's time and step. The step assumes that the next frame takes as long as usual.
    pub(super) moment: Moment,
    last_frame: Option<Instant>,
    /// The most recent frame times. Each new time replaces the oldest.
    elapsed: [Duration; RECENT],
    frames: usize,
}

const RECENT: usize = 8;

impl FieldClock {
    /// Call this when a frame is drawn. Returns the time since the previous frame, or `None` after a gap.
    pub(super) fn frame(&mut self, now: Instant, parameters: &Parameters) -> Option<Duration> {
        let elapsed = now - self.last_frame.replace(now)?;
        self.elapsed[self.frames % RECENT] = elapsed;
        self.frames += 1;
        let speed = if parameters.paused { 0.0 } else { parameters.speed };
        self.moment.step = self.usual().as_secs_f64() * speed;
        self.moment.time += elapsed.as_secs_f64() * speed;
        Some(elapsed)
    }

    /// Returns the median of the recent frame times, so that a single late frame does not change it.
    fn usual(&self) -> Duration {
        let mut sorted = self.elapsed;
        let known = &mut sorted[..self.frames.min(RECENT)];
        known.sort_unstable();
        known[known.len() / 2]
    }

    pub(super) fn step(&mut self, parameters: &Parameters) {
        if parameters.paused {
            self.moment.time += STEP * parameters.speed;
        }
    }

    /// Excludes the time until the next frame from the frame times and from the field's time.
    pub(super) fn ignore_gap(&mut self) {
        self.last_frame = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_stands_still_in_a_pause_and_does_not_jump_after_a_rest() {
        let mut parameters =
            Parameters { speed: 2.0, colormap: Default::default(), own: None, paused: false };
        let (mut clock, start) = (FieldClock::default(), Instant::now());
        let mut frame = |seconds, parameters: &_, rest| {
            if rest {
                clock.ignore_gap();
            }
            let elapsed = clock.frame(start + Duration::from_secs(seconds), parameters);
            (elapsed.map(|elapsed| elapsed.as_secs()), clock.moment.time)
        };
        assert_eq!(frame(1, &parameters, false), (None, 0.0));
        assert_eq!(frame(4, &parameters, false), (Some(3), 6.0));
        parameters.paused = true;
        assert_eq!(frame(5, &parameters, false), (Some(1), 6.0));
        parameters.paused = false;
        assert_eq!(frame(9, &parameters, true), (None, 6.0));
        assert_eq!(frame(10, &parameters, false), (Some(1), 8.0));
    }

    /// A wrong step would fill frames ahead for times at which no frame is drawn.
    #[test]
    fn one_late_frame_does_not_change_the_step() {
        let parameters = Parameters { speed: 1.0, colormap: Default::default(), own: None, paused: false };
        let (mut clock, start) = (FieldClock::default(), Instant::now());
        let mut at = 0;
        for frame in 0..40 {
            at += if frame == 20 { 200 } else { 10 };
            clock.frame(start + Duration::from_millis(at), &parameters);
            assert!(frame == 0 || (clock.moment.step - 0.01).abs() < 1e-9, "{frame}: {:?}", clock.moment);
        }
        assert!((clock.moment.time - (at as f64 - 10.0) * 1e-3).abs() < 1e-9, "the time is the clock's");
    }

    #[test]
    fn a_single_step_is_for_a_pause() {
        let mut parameters =
            Parameters { speed: 2.0, colormap: Default::default(), own: None, paused: false };
        let mut clock = FieldClock::default();
        clock.step(&parameters);
        assert_eq!(clock.moment.time, 0.0);
        parameters.paused = true;
        clock.step(&parameters);
        assert_eq!((clock.moment.time, clock.moment.step), (2.0 * STEP, 0.0));
    }
}
