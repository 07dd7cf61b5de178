use std::fmt::Write;

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};

/// A progress bar with the time left, on standard error if that is a terminal. Cleared when dropped.
pub struct ProgressLine(ProgressBar);

impl ProgressLine {
    pub fn new(what: &str) -> Self {
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template(&format!("{what} {{bar:40}} {{pos}}/{{len}}{{left}}"));
        let left = |state: &ProgressState, text: &mut dyn Write| {
            // There is no estimate before the first step.
            if state.pos() > 0 {
                let _ = write!(text, ", {:#} left", HumanDuration(state.eta()));
            }
        };
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).with_key("left", left));
        Self(bar)
    }

    pub fn at(&self, done: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(done);
    }
}
