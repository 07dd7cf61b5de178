//! The interface through which `serve` works on the engine between two frames, for clients in other processes. The window
//! and the headless run know no more of it.

use ash::vk;
use serde::{Deserialize, Serialize};

use super::{Choice, Config, Engine};
use wavefield_base::{Error, Result};
use wavefield_render::ColorMap;

/// What can be changed while the field is drawn, by the user or by a client.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// Seconds of the field per second of the clock.
    pub speed: f64,
    pub colormap: ColorMap,
    /// Whether the field stands still.
    pub paused: bool,
}

impl Parameters {
    pub fn new(config: &Config) -> Self {
        Self { speed: config.speed, colormap: config.color_map, paused: false }
    }
}

pub struct FrameHookDesc<'a> {
    pub make: Box<dyn FnOnce(Choice) -> Result<Box<dyn FrameHook>> + 'a>,
    /// The least number of frames in flight that the engine must have resources for.
    pub flights: usize,
}

/// Works on the engine between two frames. Never waits for another process.
pub trait FrameHook {
    /// Called before a frame. It may change `parameters`. It applies the colours itself; the caller applies the rest.
    fn before_frame(&mut self, engine: &mut Engine, parameters: &mut Parameters) -> Result<()>;

    /// [`FrameHook::before_frame`] for a run that no display paces: returns when it is time to draw.
    fn wait(&mut self, engine: &mut Engine, parameters: &mut Parameters) -> Result<()>;

    fn drawn(&mut self);

    /// Called when a frame has failed. After `Ok` the engine is repaired: begin again once [`FrameHook::is_ready`].
    fn rescue(&mut self, engine: &mut Engine, error: Error) -> Result<()>;

    /// Whether a frame may begin. If not, call [`FrameHook::before_frame`] and ask again.
    fn is_ready(&self) -> bool;

    fn shown_client(&self) -> Option<&str>;

    /// Whether a client's frames are drawn, and another draw would show the same.
    fn is_still(&self) -> bool;

    /// The time until the next draw is not a late frame: nothing is drawn until [`FrameHook::is_still`] returns false.
    fn ignore_gap(&mut self);

    fn wants_picture(&self) -> bool;

    /// Hands over that picture: sRGB RGBA, four bytes per pixel.
    fn send_picture(&mut self, extent: vk::Extent2D, pixels: Result<Vec<u8>>);

    /// Lets nobody in any more: the run is over, and the process may be killed at any time.
    fn shut(&mut self);

    fn close(&mut self, engine: &Engine, reason: &str) -> Result<()>;
}
