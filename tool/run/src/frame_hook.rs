//! Lets `serve` work on the engine between two frames. The window and the headless run know no more of it.

use ash::vk;
use serde::{Deserialize, Serialize};

use super::{Choice, Config, Engine};
use wavefield_draw::ColorMap;
use wavefield_gpu::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// Seconds of the field per second of the clock.
    pub speed: f64,
    pub colormap: ColorMap,
    pub paused: bool,
}

impl Parameters {
    pub fn new(config: &Config) -> Self {
        Self { speed: config.speed, colormap: config.color_map, paused: false }
    }
}

pub struct FrameHookDesc<'a> {
    pub make: Box<dyn FnOnce(Choice) -> Result<Box<dyn FrameHook>> + 'a>,
    /// At least this many frames in flight must have resources.
    pub flights: usize,
}

/// Works on the engine between two frames. Never waits for another process.
pub trait FrameHook {
    /// Called before a frame. It applies the colours itself; the caller applies the other `parameters`.
    fn before_frame(&mut self, engine: &mut Engine, parameters: &mut Parameters) -> Result<()>;

    /// Like [`FrameHook::before_frame`], for a run that no display paces: returns when it is time to draw.
    fn wait(&mut self, engine: &mut Engine, parameters: &mut Parameters) -> Result<()>;

    fn drawn(&mut self);

    /// Handles a failed frame. After `Ok` the engine works again: begin once [`FrameHook::is_ready`].
    fn rescue(&mut self, engine: &mut Engine, error: Error) -> Result<()>;

    /// Returns whether a frame may begin. If not, call [`FrameHook::before_frame`] and ask again.
    fn is_ready(&self) -> bool;

    fn shown_client(&self) -> Option<&str>;

    /// Returns whether a client's frame is on show, and another draw would look the same.
    fn is_still(&self) -> bool;

    /// Keeps the gap to the next draw from counting as late: nothing is drawn while [`FrameHook::is_still`].
    fn ignore_gap(&mut self);

    fn wants_picture(&self) -> bool;

    /// Sends that picture: sRGB RGBA, four bytes per pixel.
    fn send_picture(&mut self, extent: vk::Extent2D, pixels: Result<Vec<u8>>);

    /// Admits no more clients: the run is over, and the process may be killed at any time.
    fn shut(&mut self);

    fn close(&mut self, engine: &Engine, reason: &str) -> Result<()>;
}
