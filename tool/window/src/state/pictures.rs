//! Films, and pictures for clients and files. A presented picture cannot be read back, so it is drawn again.

use std::path::PathBuf;
use std::time::Instant;

use ash::vk;

use super::{Running, WindowState};
use crate::overlay::shown;
use crate::screen::Screen;
use wavefield_draw::OffscreenTarget;
use wavefield_gpu::vulkan::{Image, read_image};
use wavefield_gpu::{Error, Result, report::Failures};
use wavefield_run::watch::recording::{Film, Recorded};
use wavefield_run::{AfterDraw, Config, Engine, Moment, STEP, picture_texts, write_png};

pub(super) struct Pictures {
    /// The target of the last picture that was drawn again.
    pub(super) snapshot: Option<OffscreenTarget>,
    pub(super) film: Option<Film>,
    /// The origin of a film's time.
    pub(super) began: Instant,
}

/// Draws the picture again, and waits until the GPU has finished it.
fn draw_again<'a>(
    snapshot: &'a mut Option<OffscreenTarget>,
    engine: &mut Engine,
    (extent, format): (vk::Extent2D, vk::Format),
    moment: Moment,
) -> Result<&'a Image> {
    if extent.width == 0 || extent.height == 0 {
        return Err(Error::Unsupported("the window has no size, so there is no picture".into()));
    }
    let target = match snapshot.take().filter(|target| target.image().extent() == extent) {
        Some(target) => target,
        None => {
            engine.drawer.recordings.forget();
            OffscreenTarget::new(engine.device(), extent, format)?
        }
    };
    let target = snapshot.insert(target);
    let flight = engine.begin()?;
    engine.draw(&flight, moment, &target.picture(), AfterDraw::default())?;
    engine.work.drain()?;
    Ok(target.image())
}

/// Returns a snapshot's pixels: sRGB RGBA, four bytes per pixel.
fn pixels(engine: &mut Engine, image: &Image) -> Result<Vec<u8>> {
    let mut pixels = read_image(engine.queue(), image)?;
    if matches!(image.format(), vk::Format::B8G8R8A8_SRGB | vk::Format::B8G8R8A8_UNORM) {
        pixels.chunks_exact_mut(4).for_each(|pixel| pixel.swap(0, 2));
    }
    Ok(pixels)
}

fn unused(ending: &str) -> PathBuf {
    let mut paths = (1u64..).map(|number| PathBuf::from(format!("wavefield-{number}.{ending}")));
    paths.find(|path| !path.exists()).unwrap_or_default()
}

impl<S: Screen> WindowState<S> {
    /// Waits for the frames in flight and adds them to the film. Call this before drawing a frame that is not
    /// part of the film.
    fn settle_film(&mut self) -> Result<()> {
        if let Some(film) = &mut self.pictures.film {
            self.run.drain()?;
            film.all_done();
        }
        Ok(())
    }

    pub(super) fn record(&mut self) -> Result<()> {
        self.settle_film()?;
        if let Some(mut film) = self.pictures.film.take() {
            self.overlay.boxes.records = false;
            let ended = film.end(true);
            let ended = ended.map(|recorded| format!("saved {recorded}, with the panel if it was shown"));
            return self.announce(ended);
        }
        let path = unused("gif");
        let config = Config { record: Some(path.clone()), ..self.run.config.clone() };
        let begun = self.screen.make_readable().and_then(|()| {
            let (device, format) = (self.run.engine.device(), self.screen.format());
            self.pictures.film = Film::start(device, &config, format, false)?;
            self.overlay.boxes.records = true;
            Ok(format!("recording {}, with the panel if it is shown", path.display()))
        });
        self.announce(begun)
    }

    pub(super) fn announce(&mut self, outcome: Result<String>) -> Result<()> {
        let words = match outcome {
            Err(error) if self.run.engine.work.has_failed() => return Err(error),
            Ok(words) => words,
            Err(error) => error.to_string(),
        };
        wavefield_gpu::note!("note: {words}");
        self.overlay.boxes.notify(words);
        Ok(())
    }

    pub(super) fn end_film(&mut self, failures: &mut Failures) -> Option<Recorded> {
        let film = self.pictures.film.as_mut()?;
        let at_rest = failures.first().is_none() && failures.catch(self.run.engine.work.finish()).is_some();
        failures.catch(film.end(at_rest))
    }

    pub(super) fn save_picture(&mut self) -> Result<()> {
        let path = unused("png");
        // The file contains a command that reproduces the picture, with a rounded camera.
        let view = &mut self.run.engine.drawer.view;
        view.camera = view.camera.rounded();
        self.settle_film()?;
        let like = (self.screen.extent(), self.screen.format());
        let moment = self.pace.clock.moment;
        let engine = &mut self.run.engine;
        let saved = draw_again(&mut self.pictures.snapshot, engine, like, moment).and_then(|image| {
            let pixels = pixels(engine, image)?;
            let pixels = engine.marked(self.run.parameters.colormap, like.0, pixels)?;
            let shown = shown(&self.run.config, self.run.parameters.speed, engine.drawer.view.camera);
            let shown = Config { output: Some(path.clone()), size: like.0, speed: 1.0, ..shown };
            // Frame n of a headless run shows the field after n steps.
            let frames = (moment.time / STEP).round().max(0.0) as u64 + 1;
            let serves = self.run.hook.is_some();
            write_png(&path, like.0, &pixels, &picture_texts(&shown, engine, frames, serves))
        });
        self.announce(saved.map(|()| format!("saved {}, without the panel", path.display())))
    }

    /// Draws what a client waits for: the picture that it has requested, or, if the window is hidden, a new
    /// frame, so that a slot becomes free.
    pub(super) fn draw_unseen(&mut self, is_hidden: bool) -> Result<()> {
        let Running { engine, hook: Some(hook), .. } = &mut self.run else { return Ok(()) };
        let (wants, mut extent) = (hook.wants_picture(), self.screen.extent());
        if !wants {
            if !is_hidden || !hook.has_new() {
                return Ok(());
            }
            extent = vk::Extent2D { width: 1, height: 1 };
        }
        let like = (extent, self.screen.format());
        let drawn = draw_again(&mut self.pictures.snapshot, engine, like, self.pace.clock.moment);
        if drawn.is_ok() {
            hook.drawn(None);
        }
        match drawn {
            // The next frame tries again.
            Err(error) if engine.work.has_failed() => self.run.mend(error)?,
            // There may be no memory for the image, for example. Only the client needs to know.
            drawn if wants => {
                let pixels = drawn.and_then(|image| pixels(engine, image));
                hook.send_picture(engine, extent, pixels);
            }
            _ => {}
        }
        Ok(())
    }
}
