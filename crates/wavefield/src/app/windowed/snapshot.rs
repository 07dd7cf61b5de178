//! Pictures for a companion, and for files. A presented picture cannot be read back, so it is drawn again into an image.

use ash::vk;

use crate::app::engine::Behind;
use crate::app::{Companion, Engine, Moment};
use crate::render::OffscreenTarget;
use crate::vulkan::read_image;
use crate::{Error, Result};

/// The image for such pictures, made for the first one.
#[derive(Default)]
pub(super) struct Snapshot(Option<OffscreenTarget>);

impl Snapshot {
    /// Draws a picture with the window's size and format (`like`), and sends it to the companion.
    ///
    /// # Errors
    /// The engine failed, and the companion cannot repair it.
    pub(super) fn send_picture(
        &mut self,
        engine: &mut Engine,
        companion: &mut dyn Companion,
        like: (vk::Extent2D, vk::Format),
        moment: Moment,
    ) -> Result<()> {
        match self.draw(engine, like, moment) {
            Ok(()) => {
                companion.drawn(engine)?;
                companion.send_picture(like.0, self.pixels(engine));
            }
            // There is no picture; the next frame tries again.
            Err(error) if engine.has_failed() => companion.rescue(engine, error)?,
            // For example, there is no memory for the image. Only the client needs to know.
            Err(error) => companion.send_picture(like.0, Err(error)),
        }
        Ok(())
    }

    /// Draws a picture, and waits until it is done.
    ///
    /// # Errors
    /// The window has no size, there is no memory for the picture, or the engine has failed.
    pub(super) fn draw(
        &mut self,
        engine: &mut Engine,
        (extent, format): (vk::Extent2D, vk::Format),
        moment: Moment,
    ) -> Result<()> {
        if extent.width == 0 || extent.height == 0 {
            return Err(Error::Unsupported("the window has no size, so there is no picture".into()));
        }
        let target = match self.0.take().filter(|target| target.image().extent() == extent) {
            Some(target) => target,
            None => {
                engine.forget_recorded();
                OffscreenTarget::with_format(engine.device(), extent, format)?
            }
        };
        let target = self.0.insert(target);
        let flight = engine.begin()?;
        engine.draw(&flight, moment, &target.picture(), Behind::default())?;
        engine.drain()
    }

    /// The last picture: sRGB RGBA, four bytes per pixel.
    pub(super) fn pixels(&self, engine: &mut Engine) -> Result<Vec<u8>> {
        let Some(target) = &self.0 else { return Err(Error::Rule("no snapshot was drawn".into())) };
        let image = target.image();
        let mut pixels = read_image(engine.queue(), image)?;
        if matches!(image.format(), vk::Format::B8G8R8A8_SRGB | vk::Format::B8G8R8A8_UNORM) {
            pixels.chunks_exact_mut(4).for_each(|pixel| pixel.swap(0, 2));
        }
        Ok(pixels)
    }
}
