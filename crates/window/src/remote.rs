//! The loop of a window that somebody elsewhere sees.

use std::time::Instant;

use crate::screen::Input;
use crate::state::State;
use crate::{App, offscreen::Offscreen};
use wavefield_base::Result;
use wavefield_engine::{Config, Ended, FrameHookDesc, Stop};
use wavefield_watch::recording::Pixels;

/// Those who look from elsewhere, and steer.
pub trait Remote {
    /// What they did since the last call.
    fn inputs(&mut self) -> Vec<Input>;

    /// Whether anybody looks. Otherwise nothing is drawn.
    fn is_watched(&self) -> bool;

    /// Takes a picture: sRGB RGBA. Does not wait.
    fn send(&mut self, picture: Pixels);

    fn tell(&mut self, news: News);

    /// Returns at this time, or earlier if there is input.
    fn wait(&mut self, until: Instant);
}

/// What changes for everybody who looks.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    Title(String),
    /// Text for the clipboard.
    Copy(String),
}

/// [`crate::run_windowed`] without a display: `remote` shows the pictures.
///
/// # Errors
/// The run failed before its first frame.
pub fn run_remote(
    remote: Box<dyn Remote>,
    config: &Config,
    stop: &Stop,
    hook: Option<FrameHookDesc<'_>>,
) -> Result<Ended> {
    let mut app = App::begin(config, stop, hook)?;
    app.open(|hook| State::remote(remote, config, hook))?;
    while !app.left && !app.is_done() {
        app.turn();
    }
    app.end()
}

impl App<'_, Offscreen> {
    /// Handles the input, and draws a frame if one is due.
    fn turn(&mut self) {
        let Some(state) = &mut self.state else { return };
        state.screen.inputs().into_iter().for_each(|input| self.hear(input));
        self.attempt_shown(|state| {
            state.rest(Instant::now())?;
            match state.sleeps_until(Instant::now()) {
                Some(at) => state.screen.wait(at),
                None => state.redraw()?,
            }
            state.collect()
        });
    }
}
