//! The window's title, with the rate of the last second.

use std::time::{Duration, Instant};

use winit::window::Window;

use crate::app::{Config, Engine};

/// The title's text, and the frames since its last change.
pub(super) struct Title {
    text: String,
    since: Instant,
    frames: u32,
    rate: Option<String>,
    paused: bool,
}

impl Title {
    pub(super) fn new(engine: &Engine, config: &Config) -> Self {
        Self { text: text(engine, config), since: Instant::now(), frames: 0, rate: None, paused: false }
    }

    /// Describes other settings from now on.
    pub(super) fn renew(&mut self, engine: &Engine, config: &Config) {
        self.text = text(engine, config);
    }

    /// Counts a frame. Updates the title once a second, and at once on a pause or its end.
    pub(super) fn frame(&mut self, window: &Window, now: Instant, paused: bool) {
        self.frames += 1;
        let elapsed = now - self.since;
        let is_due = elapsed >= Duration::from_secs(1);
        if !is_due && paused == self.paused {
            return;
        }
        if is_due {
            self.rate = Some(rate(self.frames, elapsed));
            (self.since, self.frames) = (now, 0);
        }
        self.paused = paused;
        window.set_title(&words(&self.text, paused, self.rate.as_deref()));
    }
}

fn text(engine: &Engine, config: &Config) -> String {
    let (cols, rows) = (config.grid.cols, config.grid.rows);
    let (producer, device) = (engine.producer().profile().name, &engine.device().info().name);
    format!("wavefield: {producer} on {device}, {cols}x{rows}")
}

fn words(text: &str, paused: bool, rate: Option<&str>) -> String {
    let parts = [Some(text), paused.then_some("paused"), rate];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Frames per second, as text. A slow device gets more decimals, so that its rate is not shown as 0.
fn rate(frames: u32, elapsed: Duration) -> String {
    let rate = f64::from(frames) / elapsed.as_secs_f64();
    let decimals = match rate {
        10.0.. => 0,
        1.0.. => 1,
        _ => 2,
    };
    format!("{rate:.decimals$} frames/s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_device_still_has_a_rate() {
        let per = |frames, seconds| rate(frames, Duration::from_secs_f64(seconds));
        assert_eq!(per(60, 1.0), "60 frames/s");
        assert_eq!(per(3, 1.25), "2.4 frames/s");
        assert_eq!(per(1, 2.5), "0.40 frames/s");
        assert_eq!(per(1, 9.5), "0.11 frames/s");
    }

    #[test]
    fn a_pause_is_in_the_title_before_any_rate_is_known() {
        assert_eq!(words("wavefield", true, None), "wavefield, paused");
        assert_eq!(words("wavefield", true, Some("60 frames/s")), "wavefield, paused, 60 frames/s");
        assert_eq!(words("wavefield", false, Some("60 frames/s")), "wavefield, 60 frames/s");
    }
}
