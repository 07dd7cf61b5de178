//! Somebody elsewhere, who looks and steers.

use std::time::Instant;

use crate::screen::Input;
use wavefield_watch::recording::Pixels;

/// Those who look from elsewhere, and steer.
pub trait Remote {
    /// What they did since the last call.
    fn inputs(&mut self) -> Vec<Input>;

    /// Whether anybody looks.
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
