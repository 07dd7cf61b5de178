//! The window's title, with the rate of the last second.

use std::time::{Duration, Instant};

use winit::window::Window;

use crate::app::{Config, Engine};

/// What the title says, and the frames since it last said so.
pub(super) struct Title {
    text: String,
    since: Instant,
    frames: u32,
}

impl Title {
    pub(super) fn new(engine: &Engine, config: &Config) -> Self {
        let (cols, rows) = (config.grid.cols, config.grid.rows);
        Self {
            text: format!(
                "wavefield: {} on {}, {cols}x{rows}",
                engine.producer().profile().name,
                engine.device().info().name
            ),
            since: Instant::now(),
            frames: 0,
        }
    }

    /// Counts a frame.
    pub(super) fn frame(&mut self, window: &Window, now: Instant) {
        self.frames += 1;
        let elapsed = now - self.since;
        if elapsed >= Duration::from_secs(1) {
            window.set_title(&format!(
                "{}, {:.0} frames/s",
                self.text,
                f64::from(self.frames) / elapsed.as_secs_f64()
            ));
            (self.since, self.frames) = (now, 0);
        }
    }
}
