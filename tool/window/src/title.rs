use std::time::{Duration, Instant};

use wavefield_run::{Config, Engine};

pub(super) struct Title {
    since: Instant,
    frames: u32,
    rate: Option<String>,
    words: String,
}

impl Title {
    pub(super) fn new() -> Self {
        Self { since: Instant::now(), frames: 0, rate: None, words: String::new() }
    }

    /// Counts a frame. Updates the rate once a second.
    pub(super) fn count(&mut self, now: Instant) {
        self.frames += 1;
        let elapsed = now - self.since;
        if elapsed >= Duration::from_secs(1) {
            self.rate = Some(rate(self.frames, elapsed));
            (self.since, self.frames) = (now, 0);
        }
    }

    /// Clears the rate. Call this while no frame is drawn.
    pub(super) fn rest(&mut self) {
        (self.since, self.frames, self.rate) = (Instant::now(), 0, None);
    }

    /// Returns the title if it differs from the previous call's.
    pub(super) fn changed(&mut self, text: &str, states: &[&str]) -> Option<&str> {
        let before = std::mem::replace(&mut self.words, words(text, states, self.rate.as_deref()));
        (before != self.words).then_some(&self.words)
    }
}

pub(super) fn text(engine: &Engine, config: &Config, client: Option<&str>) -> String {
    if let Some(client) = client {
        return format!("wavefield: {client}, {}", engine.drawer.array());
    }
    let (producer, device) = (engine.work.producer.profile().name, &engine.device().info().name);
    format!("wavefield: {producer} on {device}, {}", config.grid)
}

fn words(text: &str, states: &[&str], rate: Option<&str>) -> String {
    let all: Vec<_> = [text].iter().chain(states).copied().chain(rate).collect();
    all.join(", ")
}

/// Formats a frame rate. A low rate gets more decimals, so that it is not shown as 0.
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
        assert_eq!(words("wavefield", &["paused"], None), "wavefield, paused");
        let both = words("wavefield", &["paused", "recording"], Some("60 frames/s"));
        assert_eq!(both, "wavefield, paused, recording, 60 frames/s");
        assert_eq!(words("wavefield", &[], Some("60 frames/s")), "wavefield, 60 frames/s");
    }
}
