//! Between two frames somebody else may have a say: a client in another process, by way of [`crate::serve`]. The window and the
//! headless run only know this much of it.

use ash::vk;
use serde::{Deserialize, Serialize};

use super::{Choice, Config, Engine};
use crate::render::ColorMap;
use crate::{Error, Result};

/// What can be changed while the field is drawn, by the user or by a client.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// Seconds of the field for each second of the clock.
    pub speed: f64,
    /// The colours.
    pub colormap: ColorMap,
    /// Whether the field stands still.
    pub paused: bool,
}

impl Parameters {
    /// What they are at first.
    pub(crate) fn new(config: &Config) -> Self {
        Self { speed: config.speed, colormap: config.color_map, paused: false }
    }
}

/// How to make a [`Companion`] for a window.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))] // Clients can connect on Linux only.
pub(crate) struct CompanionDesc<'a> {
    /// Makes it, once the device is chosen.
    pub(crate) make: Box<dyn FnOnce(Choice) -> Result<Box<dyn Companion>> + 'a>,
    /// Frames in flight that it may need resources for.
    pub(crate) flights: usize,
}

/// Works on the engine between two frames. Waits for nobody outside this process.
pub(crate) trait Companion {
    /// Before a frame. What it changes of the parameters but the colours (which it sets itself) is for the caller to act on.
    fn before_frame(&mut self, engine: &mut Engine, parameters: &mut Parameters) -> Result<()>;

    /// The same, without a display that sets the pace: comes back when it is time to draw.
    fn wait(&mut self, engine: &mut Engine, parameters: &mut Parameters) -> Result<()>;

    /// After a frame was submitted.
    fn drawn(&mut self, engine: &Engine) -> Result<()>;

    /// A frame could not be made. `Ok`: that was mended, and the frame can be tried again from its begin, once
    /// [`Companion::is_ready`].
    fn rescue(&mut self, engine: &mut Engine, error: Error) -> Result<()>;

    /// Whether a frame may be begun. If not, another turn may change that.
    fn is_ready(&self) -> bool;

    /// Whether somebody waits for the last picture.
    fn wants_picture(&self) -> bool;

    /// Here it is: four bytes a pixel, sRGB, RGBA.
    fn send_picture(&mut self, extent: vk::Extent2D, pixels: Result<Vec<u8>>);

    /// The run is over, for this reason.
    fn close(&mut self, engine: &Engine, reason: &str) -> Result<()>;
}
