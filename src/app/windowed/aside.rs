//! Pictures for a companion. What was presented cannot be read back, so the same is drawn once more, aside.

use ash::vk;

use crate::app::engine::Behind;
use crate::app::{Companion, Engine, Moment};
use crate::render::{Camera, OffscreenTarget};
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
        (extent, format): (vk::Extent2D, vk::Format),
        moment: Moment,
        camera: &Camera,
    ) -> Result<()> {
        if extent.width == 0 || extent.height == 0 {
            let reason = "the window has no size, so there is no picture".into();
            companion.send_picture(extent, Err(Error::Unsupported(reason)));
            return Ok(());
        }
        let target = match self.0.take().filter(|target| target.image().extent() == extent) {
            Some(target) => target,
            None => {
                engine.forget_recorded();
                match OffscreenTarget::with_format(engine.device(), extent, format) {
                    Ok(target) => target,
                    // No memory for it, perhaps: the client's affair, not the window's.
                    Err(error) => {
                        companion.send_picture(extent, Err(error));
                        return Ok(());
                    }
                }
            }
        };
        let target = self.0.insert(target);
        let drawn = engine.begin().and_then(|flight| {
            engine.draw(&flight, moment, camera, &target.picture(), Behind::default())?;
            engine.drain()
        });
        if let Err(error) = drawn {
            // Nothing was drawn aside; the next frame tries again.
            return companion.rescue(engine, error);
        }
        companion.drawn(engine)?;
        let mut pixels = read_image(engine.queue(), target.image());
        if matches!(format, vk::Format::B8G8R8A8_SRGB | vk::Format::B8G8R8A8_UNORM) {
            pixels.iter_mut().flat_map(|bytes| bytes.chunks_exact_mut(4)).for_each(|pixel| pixel.swap(0, 2));
        }
        companion.send_picture(extent, pixels);
        Ok(())
    }
}
