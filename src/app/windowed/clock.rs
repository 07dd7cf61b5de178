//! When a window's frames are, by the clock and in the field's time.

use std::time::{Duration, Instant};

use crate::app::{Moment, Parameters};

/// A single step, by the clock.
const STEP: f64 = 1.0 / 60.0;

/// The field's time, which goes on from frame to frame.
pub(super) struct Clock {
    moment: Moment,
    last_frame: Option<Instant>,
    /// The last times from frame to frame, the oldest of which is replaced next.
    elapsed: [Duration; RECENT],
    frames: usize,
}

/// Frames by which the next one's time is guessed.
const RECENT: usize = 8;

impl Clock {
    pub(super) fn new() -> Self {
        Self {
            moment: Moment { time: 0.0, step: 0.0 },
            last_frame: None,
            elapsed: [Duration::ZERO; RECENT],
            frames: 0,
        }
    }

    /// A frame is drawn now. Gives the time since the last one, unless there was a rest between.
    pub(super) fn frame(&mut self, now: Instant, parameters: &Parameters) -> Option<Duration> {
        let elapsed = now - self.last_frame.replace(now)?;
        self.elapsed[self.frames % RECENT] = elapsed;
        self.frames += 1;
        let speed = if parameters.paused { 0.0 } else { parameters.speed };
        self.moment.step = self.usual().as_secs_f64() * speed;
        self.moment.time += elapsed.as_secs_f64() * speed;
        Some(elapsed)
    }

    /// The middle one of the last times: a frame that was late does not make the next ones late.
    fn usual(&self) -> Duration {
        let mut sorted = self.elapsed;
        let known = &mut sorted[..self.frames.min(RECENT)];
        known.sort_unstable();
        known[known.len() / 2]
    }

    /// The field goes on by one step in a pause. The frames after it show the same again.
    pub(super) fn step(&mut self, parameters: &Parameters) {
        if parameters.paused {
            self.moment.time += STEP * parameters.speed;
        }
    }

    /// No frame for a while: the pause is no frame time, and the field does not jump after it.
    pub(super) fn rest(&mut self) {
        self.last_frame = None;
    }

    /// The field's time. The next frame is taken to come as late as most came after the one before.
    pub(super) fn moment(&self) -> Moment {
        self.moment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_stands_still_in_a_pause_and_does_not_jump_after_a_rest() {
        let mut parameters = Parameters { speed: 2.0, colormap: Default::default(), paused: false };
        let (mut clock, start) = (Clock::new(), Instant::now());
        let mut frame = |seconds, parameters: &_, rest| {
            if rest {
                clock.rest();
            }
            let elapsed = clock.frame(start + Duration::from_secs(seconds), parameters);
            (elapsed.map(|elapsed| elapsed.as_secs()), clock.moment().time)
        };
        assert_eq!(frame(1, &parameters, false), (None, 0.0));
        assert_eq!(frame(4, &parameters, false), (Some(3), 6.0));
        parameters.paused = true;
        assert_eq!(frame(5, &parameters, false), (Some(1), 6.0));
        parameters.paused = false;
        assert_eq!(frame(9, &parameters, true), (None, 6.0));
        assert_eq!(frame(10, &parameters, false), (Some(1), 8.0));
    }

    /// What is filled ahead of its time must not be filled for a time that never comes.
    #[test]
    fn one_late_frame_does_not_change_the_step() {
        let parameters = Parameters { speed: 1.0, colormap: Default::default(), paused: false };
        let (mut clock, start) = (Clock::new(), Instant::now());
        let mut at = 0;
        for frame in 0..40 {
            at += if frame == 20 { 200 } else { 10 };
            clock.frame(start + Duration::from_millis(at), &parameters);
            assert!(frame == 0 || (clock.moment().step - 0.01).abs() < 1e-9, "{frame}: {:?}", clock.moment());
        }
        assert!((clock.moment().time - (at as f64 - 10.0) * 1e-3).abs() < 1e-9, "the time is the clock's");
    }

    #[test]
    fn a_single_step_is_for_a_pause() {
        let mut parameters = Parameters { speed: 2.0, colormap: Default::default(), paused: false };
        let mut clock = Clock::new();
        clock.step(&parameters);
        assert_eq!(clock.moment().time, 0.0);
        parameters.paused = true;
        clock.step(&parameters);
        assert_eq!((clock.moment().time, clock.moment().step), (2.0 * STEP, 0.0));
    }
}
