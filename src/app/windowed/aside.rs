//! Pictures for a companion, and for files. What was presented cannot be read back, so the same is drawn once more, aside.

use ash::vk;

use crate::app::engine::Behind;
use crate::app::{Companion, Engine, Moment};
use crate::render::OffscreenTarget;
use crate::vulkan::read_image;
use crate::{Error, Result};

/// What such a picture is drawn on; made when the first is asked for.
#[derive(Default)]
pub(super) struct Aside(Option<OffscreenTarget>);

impl Aside {
    /// Draws a picture as large as the window's, of the same `format`, and sends it to the companion.
    ///
    /// # Errors
    /// The engine failed, and the companion cannot mend it.
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
            // Nothing was drawn aside; the next frame tries again.
            Err(error) if engine.has_failed() => companion.rescue(engine, error)?,
            // No memory for it, perhaps: the client's affair, not the window's.
            Err(error) => companion.send_picture(like.0, Err(error)),
        }
        Ok(())
    }

    /// Draws a picture. Waits until it is drawn.
    ///
    /// # Errors
    /// The window has no size, or there is no memory for the picture; or else the engine has failed.
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

    /// The picture that was drawn last: four bytes a pixel, sRGB, RGBA.
    pub(super) fn pixels(&self, engine: &mut Engine) -> Result<Vec<u8>> {
        let Some(target) = &self.0 else { return Err(Error::Rule("nothing was drawn aside".into())) };
        let image = target.image();
        let mut pixels = read_image(engine.queue(), image)?;
        if matches!(image.format(), vk::Format::B8G8R8A8_SRGB | vk::Format::B8G8R8A8_UNORM) {
            pixels.chunks_exact_mut(4).for_each(|pixel| pixel.swap(0, 2));
        }
        Ok(pixels)
    }
}
