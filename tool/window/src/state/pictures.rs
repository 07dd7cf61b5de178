//! Pictures for clients and files, and films. A presented picture cannot be read back, so it is drawn again.

use std::path::PathBuf;

use ash::vk;

use super::{WindowState, shown};
use crate::screen::Screen;
use wavefield_draw::OffscreenTarget;
use wavefield_gpu::vulkan::read_image;
use wavefield_gpu::{Error, Result, report::Failures};
use wavefield_run::watch::recording::Recorded;
use wavefield_run::{AfterDraw, Config, Engine, Moment, STEP, picture_texts, record, write_png};

#[derive(Default)]
pub(super) struct Snapshot(Option<OffscreenTarget>);

impl Snapshot {
    /// Waits until the picture is drawn.
    fn draw(
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
                engine.drawer.recordings.forget();
                OffscreenTarget::new(engine.device(), extent, format)?
            }
        };
        let target = self.0.insert(target);
        let flight = engine.begin()?;
        engine.draw(&flight, moment, &target.picture(), AfterDraw::default())?;
        engine.work.drain()
    }

    /// Returns the last picture: sRGB RGBA, four bytes per pixel.
    fn pixels(&self, engine: &mut Engine) -> Result<Vec<u8>> {
        let Some(target) = &self.0 else { return Err(Error::Rule("no snapshot was drawn".into())) };
        let image = target.image();
        let mut pixels = read_image(engine.queue(), image)?;
        if matches!(image.format(), vk::Format::B8G8R8A8_SRGB | vk::Format::B8G8R8A8_UNORM) {
            pixels.chunks_exact_mut(4).for_each(|pixel| pixel.swap(0, 2));
        }
        Ok(pixels)
    }
}

fn unused(ending: &str) -> PathBuf {
    let mut paths = (1u64..).map(|number| PathBuf::from(format!("wavefield-{number}.{ending}")));
    paths.find(|path| !path.exists()).unwrap_or_default()
}

impl<S: Screen> WindowState<S> {
    /// Waits for the frames in flight and completes their part of the film, before a frame that bypasses it.
    pub(super) fn settle_film(&mut self) -> Result<()> {
        if self.film.is_some() {
            self.drain()?;
        }
        if let Some(film) = &mut self.film {
            film.all_done();
        }
        Ok(())
    }

    pub(super) fn record(&mut self) -> Result<()> {
        if self.film.is_some() {
            self.settle_film()?;
            let ended = self.film.take().map(|mut film| film.end(true));
            self.overlay.show_recording(false);
            return self.announce(ended.map_or(Ok(String::new()), |ended| {
                ended.map(|recorded| format!("saved {recorded}, with the panel if it was shown"))
            }));
        }
        let path = unused("gif");
        let config = Config { record: Some(path.clone()), ..self.config.clone() };
        let begun = self
            .screen
            .make_readable()
            .and_then(|()| record::film(self.engine.device(), &config, self.screen.format(), false));
        let begun = begun.map(|film| {
            self.film = film;
            self.overlay.show_recording(true);
            format!("recording {}, with the panel if it is shown", path.display())
        });
        self.announce(begun)
    }

    fn announce(&mut self, outcome: Result<String>) -> Result<()> {
        let words = match outcome {
            Err(error) if self.engine.work.has_failed() => return Err(error),
            Ok(words) => words,
            Err(error) => error.to_string(),
        };
        wavefield_gpu::note!("note: {words}");
        self.overlay.notify(words);
        Ok(())
    }

    pub(crate) fn end_film(&mut self, failures: &mut Failures) -> Option<Recorded> {
        self.film.as_ref()?;
        let at_rest = failures.first().is_none() && failures.catch(self.engine.work.finish()).is_some();
        record::end(&mut self.film, at_rest, failures)
    }

    pub(super) fn save_picture(&mut self) -> Result<()> {
        let path = unused("png");
        // The file has a command that draws it again, with a rounded camera.
        let view = &mut self.engine.drawer.view;
        view.camera = view.camera.rounded();
        self.settle_film()?;
        let like = (self.screen.extent(), self.screen.format());
        let moment = self.clock.moment;
        let saved = self.snapshot.draw(&mut self.engine, like, moment).and_then(|()| {
            let pixels = self.snapshot.pixels(&mut self.engine)?;
            let shown = shown(&self.config, &self.controls, self.engine.drawer.view.camera);
            let shown = Config { output: Some(path.clone()), size: like.0, speed: 1.0, ..shown };
            // A headless run shows frame n at n steps.
            let frames = (moment.time / STEP).round().max(0.0) as u64 + 1;
            let serves = self.hook.is_some();
            write_png(&path, like.0, &pixels, &picture_texts(&shown, &self.engine, frames, serves))
        });
        self.announce(saved.map(|()| format!("saved {}, without the panel", path.display())))
    }

    pub(super) fn hand_out_picture(&mut self) -> Result<()> {
        let Self { hook, snapshot, engine, screen, clock, .. } = self;
        let Some(hook) = hook.as_mut().filter(|hook| hook.wants_picture()) else {
            return Ok(());
        };
        let like = (screen.extent(), screen.format());
        match snapshot.draw(engine, like, clock.moment) {
            Ok(()) => {
                hook.drawn();
                hook.send_picture(like.0, snapshot.pixels(engine));
            }
            // The next frame tries again.
            Err(error) if engine.work.has_failed() => hook.rescue(engine, error)?,
            // No memory for the image, for example. Only the client needs to know.
            Err(error) => hook.send_picture(like.0, Err(error)),
        }
        Ok(())
    }
}
