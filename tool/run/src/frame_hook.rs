//! Lets `serve` work on the engine between two frames. The window and headless runs use nothing else of it.

use ash::vk;
use serde::{Deserialize, Serialize};

use super::{Choice, ClientPanel, Config, Engine};
use wavefield_draw::ColorMap;
use wavefield_gpu::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// Seconds of animation per second of real time.
    pub speed: f64,
    pub colormap: ColorMap,
    /// The client's own colour map, if it has one. The user can come back to it.
    #[serde(skip)]
    pub own: Option<ColorMap>,
    pub paused: bool,
}

impl Parameters {
    pub fn new(config: &Config) -> Self {
        Self { speed: config.speed, colormap: config.color_map, own: None, paused: false }
    }
}

pub struct FrameHookDesc<'a> {
    pub make: Box<dyn FnOnce(Choice) -> Result<Box<dyn FrameHook>> + 'a>,
    /// The minimum number of frames in flight that must have resources.
    pub flights: usize,
}

/// Works on the engine between two frames. Never waits for another process.
pub trait FrameHook {
    /// Runs before each frame. Applies the colours itself; the caller applies the other `parameters`.
    fn before_frame(&mut self, engine: &mut Engine, parameters: &mut Parameters) -> Result<()>;

    /// Like [`FrameHook::before_frame`], but for a run without a display: returns when it is time to draw.
    fn wait(&mut self, engine: &mut Engine, parameters: &mut Parameters) -> Result<()>;

    /// Call this after each submitted frame. `seen`: the size of the picture, if it was drawn to be seen.
    fn drawn(&mut self, seen: Option<vk::Extent2D>);

    /// Handles a failed frame. After `Ok`, begin the next frame once [`FrameHook::is_ready`] is true.
    fn rescue(&mut self, engine: &mut Engine, error: Error) -> Result<()>;

    /// Returns whether a frame may begin. If not, call [`FrameHook::before_frame`] and ask again.
    fn is_ready(&self) -> bool;

    fn shown_client(&self) -> Option<&str>;

    /// Returns the panel of the client whose array is shown.
    fn panel(&mut self) -> Option<&mut ClientPanel>;

    /// Returns whether a client's frame is ready that was never drawn.
    fn has_new(&self) -> bool;

    /// Returns whether a client's frame is shown and drawing it again would look the same.
    fn is_still(&self) -> bool;

    /// Does not count the gap to the next draw as a delay: nothing is drawn while [`FrameHook::is_still`].
    fn ignore_gap(&mut self);

    fn wants_picture(&self) -> bool;

    /// Sends the picture asked for by [`FrameHook::wants_picture`]: sRGB RGBA, four bytes per pixel.
    /// The hook adds the marks that a saved picture has.
    fn send_picture(&mut self, engine: &mut Engine, extent: vk::Extent2D, pixels: Result<Vec<u8>>);

    /// Admits no more clients: the run is over, and the process may be killed at any time.
    fn shut(&mut self);

    fn close(&mut self, engine: &Engine, reason: &str) -> Result<()>;
}
