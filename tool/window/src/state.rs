//! The window's state. Each frame is a call of [`WindowState::between_frames`], then of
//! [`WindowState::redraw`].
//!
//! - `running`: the engine and its hook; `settings`: changes of the settings, and saved kernels
//! - `input`: the user's input; `pictures`: saved pictures and films; `open`: the start and the end of a run

mod input;
mod open;
mod pictures;
mod running;
mod settings;

use std::time::{Duration, Instant};

use tracing::trace_span;

use self::pictures::Pictures;
use self::running::Running;
use super::clock::FieldClock;
use super::controls::Controls;
use super::overlay::Overlay;
use super::screen::{Screen, ScreenPicture};
use super::title::{self, Title};
use wavefield_draw::FieldView;
use wavefield_gpu::Result;
use wavefield_gpu::vulkan::Flight;
use wavefield_run::{AfterDraw, FrameTimes, Parameters, Stop};

/// How often to try again while the window is hidden or there is no image to draw on. Nothing else limits the
/// rate of the loop in that state.
const IDLE: Duration = Duration::from_millis(50);

/// How long a client's picture must be unchanged before drawing stops: long enough for tooltips to appear.
const STILL: Duration = Duration::from_secs(1);
/// How often a window that draws nothing checks for a client's messages and frames.
pub(super) const CALM: Duration = Duration::from_millis(10);

pub(super) struct WindowState<S: Screen> {
    // Fields are dropped in this order: the engine waits for the GPU before the screen is dropped.
    pub(super) run: Running,
    pictures: Pictures,
    pub(super) screen: S,
    overlay: Overlay,
    controls: Controls,
    pace: Pace,
    title: Title,
}

/// The timing of past and future frames.
struct Pace {
    clock: FieldClock,
    times: FrameTimes,
    skipped: u64,
    /// When to try again, if the previous redraw found no image to draw on.
    retry: Option<Instant>,
    /// When the picture last changed, and the number of the next frame at that time. See
    /// [`WindowState::is_still`].
    changed: (Instant, u64),
    /// The last number is the revision of the client's panel.
    seen: Option<(FieldView, Parameters, u64)>,
}

impl<S: Screen> WindowState<S> {
    pub(super) fn is_done(&self, stop: &Stop) -> bool {
        let drawn = self.run.engine.next_frame();
        stop.requested() || self.run.config.frames.is_some_and(|frames| drawn >= frames)
    }

    /// Does the work that is due between two frames, even while nothing is drawn. Returns when to call this
    /// again, or `None` to draw now.
    pub(super) fn between_frames(&mut self) -> Result<Option<Instant>> {
        self.reload()?;
        // The hook runs even while nothing is drawn. Even a hidden window wakes up, to check whether it must
        // stop.
        if self.screen.is_hidden() {
            self.ignore_gap();
            self.run.consult(true)?;
            self.draw_unseen(true)?;
            return Ok(Some(Instant::now() + if self.run.hook.is_some() { CALM } else { IDLE }));
        }
        if self.is_still() {
            self.ignore_gap();
            self.title.rest();
            self.retitle();
            if let Some(hook) = &mut self.run.hook {
                hook.ignore_gap();
            }
            self.run.consult(true)?;
            if self.is_still() {
                return Ok(Some(Instant::now() + CALM));
            }
        }
        let now = Instant::now();
        Ok(self.pace.retry.or(self.screen.due()).filter(|&at| at > now))
    }

    /// Draws or skips a frame. Acquires the image first, so that a skipped frame enqueues nothing.
    pub(super) fn redraw(&mut self) -> Result<()> {
        self.run.consult(self.screen.is_hidden())?;
        self.fit()?;
        self.lay_out().or_else(|error| self.run.recover(error))?;
        let flight = self.run.begin()?;
        let canvas = flight.as_ref().map_or(Ok(None), |flight| self.acquire(flight))?;
        let (Some(flight), Some(canvas)) = (flight, canvas) else {
            self.pace.retry = Some(Instant::now() + IDLE);
            self.pace.skipped += 1;
            self.ignore_gap();
            return Ok(());
        };
        self.pace.retry = None;
        let now = Instant::now();
        if let Some(elapsed) = self.pace.clock.frame(now, &self.run.parameters) {
            self.pace.times.add(elapsed);
            if self.controls.rotating {
                self.run.engine.drawer.view.camera.rotate(elapsed.as_secs_f32());
            }
        }
        if let Err(error) = self.draw(&flight, &canvas) {
            // The acquired image must be drawn on, so begin the frame again. This returns the same flight.
            self.run.recover(error)?;
            let flight = self.run.engine.begin()?;
            self.draw(&flight, &canvas)?;
        }
        if let Some(hook) = &mut self.run.hook {
            hook.drawn(Some(canvas.picture.extent));
        }
        trace_span!("present").in_scope(|| self.screen.present(self.run.engine.queue(), &canvas))?;
        self.title.count(now);
        self.retitle();
        self.draw_unseen(false)
    }

    /// Recreates the pictures if their size has changed. The overlay is then laid out for that size.
    fn fit(&mut self) -> Result<()> {
        if self.screen.is_stale() && self.run.is_ready() {
            // Recreating the images waits for the queue without a timeout, so wait with a timeout first.
            self.run.drain()?;
            self.run.engine.drawer.recordings.forget();
            self.screen.fit(&mut self.run.engine)?;
            self.overlay.lay_out_soon();
        }
        Ok(())
    }

    /// Acquires the next picture. Tries twice, because the window may change between recreating the images
    /// and acquiring one.
    fn acquire(&mut self, flight: &Flight) -> Result<Option<ScreenPicture>> {
        let _span = trace_span!("acquire").entered();
        for _ in 0..2 {
            self.fit()?;
            // SAFETY: the engine has begun this flight, so the flight's previous submission, which waited for
            // the semaphore, is done. If the pictures were stale, `drain` has waited for every frame.
            match unsafe { self.screen.acquire(self.run.engine.queue(), flight) }? {
                Some(canvas) => return Ok(Some(canvas)),
                None if self.screen.is_stale() => {}
                None => break,
            }
        }
        Ok(None)
    }

    fn draw(&mut self, flight: &Flight, canvas: &ScreenPicture) -> Result<()> {
        let Self { run, overlay, pictures, screen, pace, .. } = self;
        let (picture, frame) = (&canvas.picture, run.engine.next_frame());
        let now = pictures.began.elapsed();
        let wants = pictures.film.as_mut().is_some_and(|film| film.wants(flight.index, now));
        let mut film = pictures.film.as_mut().filter(|_| wants);
        let (has_overlay, is_sent) = (overlay.is_shown(), screen.wants());
        let has_more = film.is_some() || has_overlay || is_sent;
        let mut record = |commands| {
            if has_overlay {
                // SAFETY: the engine records these commands after the draw of this picture, which lives as
                // long as the screen's images; no more frames are in flight than the deepest ring has slots.
                unsafe { overlay.record(commands, flight.index, picture) }?;
            }
            if let Some(film) = &mut film {
                // SAFETY: as above; `make_readable` allows copies; `Film::wants` ran for the flight.
                unsafe { film.record(commands, flight.index, picture) };
            }
            if is_sent {
                // SAFETY: as above; it is the screen's own picture.
                unsafe { screen.record(commands, flight.index, picture, frame) };
            }
            if has_overlay {
                overlay.cost.end(commands, flight.index);
            }
            Ok(())
        };
        let commands = has_more.then_some(&mut record as &mut dyn FnMut(_) -> _);
        let present = canvas.present.map(|image| image.rendered);
        run.engine.draw(flight, pace.clock.moment, picture, AfterDraw { commands, present })
    }

    fn retitle(&mut self) {
        let text = title::text(&self.run.engine, &self.run.config, self.run.shown_client());
        let states = [(self.run.parameters.paused, "paused"), (self.pictures.film.is_some(), "recording")];
        let states: Vec<_> = states.into_iter().filter_map(|(is, word)| is.then_some(word)).collect();
        if let Some(title) = self.title.changed(&text, &states) {
            self.screen.set_title(title);
        }
    }

    fn ignore_gap(&mut self) {
        self.pace.clock.ignore_gap();
        self.overlay.ignore_gap();
    }

    /// Returns whether a client's frames are shown and nothing has changed for [`STILL`].
    fn is_still(&mut self) -> bool {
        let (now, next) = (Instant::now(), self.run.engine.next_frame());
        let panel = self.run.panel().map_or(0, |panel| panel.revision);
        let seen = Some((self.run.engine.drawer.view, self.run.parameters, panel));
        let is_moving = self.run.hook.as_ref().is_none_or(|hook| !hook.is_still());
        let is_busy = is_moving || self.pictures.film.is_some() || self.overlay.has_notice();
        if is_busy || self.pace.seen != seen {
            (self.pace.changed, self.pace.seen) = ((now, next), seen);
        }
        let (since, frame) = self.pace.changed;
        // The values under the pointer are current only once every frame in flight has been replaced.
        let enough = self.run.engine.work.producer.profile().slots.len() as u64 + 3;
        now - since >= STILL && next >= frame + enough
    }

    pub(super) fn wake(&mut self) {
        self.pace.changed = (Instant::now(), self.run.engine.next_frame());
    }
}

#[cfg(test)]
mod tests {
    use ash::vk;

    use super::*;
    use crate::screen::Input;
    use wavefield_draw::OffscreenTarget;
    use wavefield_gpu::vulkan::{PresentMode, Queue, Validation};
    use wavefield_handoff::contents::wave::Grid;
    use wavefield_run::{Config, DeviceTable, Engine, OverlayMode, ProducerKind};

    /// A screen that shows its pictures to nobody.
    struct Unseen {
        target: Option<OffscreenTarget>,
        wanted: vk::Extent2D,
    }

    impl Screen for Unseen {
        fn extent(&self) -> vk::Extent2D {
            self.target.as_ref().map_or(vk::Extent2D::default(), |target| target.image().extent())
        }

        fn format(&self) -> vk::Format {
            OffscreenTarget::FORMAT
        }

        fn modes(&self) -> &[PresentMode] {
            &[PresentMode::Immediate]
        }

        fn set_mode(&mut self, _mode: PresentMode) {}

        fn resize(&mut self, extent: vk::Extent2D) {
            self.wanted = extent;
        }

        fn is_stale(&self) -> bool {
            self.extent() != self.wanted
        }

        fn fit(&mut self, engine: &mut Engine) -> Result<()> {
            let target = OffscreenTarget::new(engine.device(), self.wanted, OffscreenTarget::FORMAT)?;
            self.target = Some(target);
            Ok(())
        }

        unsafe fn acquire(&mut self, _queue: &mut Queue, _flight: &Flight) -> Result<Option<ScreenPicture>> {
            let picture = self.target.as_ref().map(OffscreenTarget::picture);
            Ok(picture.map(|picture| ScreenPicture { picture, present: None }))
        }

        fn present(&mut self, _queue: &mut Queue, _canvas: &ScreenPicture) -> Result<()> {
            Ok(())
        }

        fn is_hidden(&mut self) -> bool {
            false
        }

        fn set_title(&mut self, _title: &str) {}

        fn copy(&mut self, _text: &str) -> String {
            String::new()
        }
    }

    /// Over Wayland, the scale of the window is known only after its first frame.
    #[test]
    fn the_overlay_is_laid_out_for_the_size_and_the_scale_of_its_picture() {
        let config = Config {
            grid: Grid { cols: 16, rows: 12 },
            producer: ProducerKind::Compute,
            overlay: OverlayMode::On,
            validation: Validation::IfInstalled,
            ..Config::default()
        };
        let table = DeviceTable::headless(config.validation).unwrap();
        let choice = table.choose(None, config.producer).unwrap();
        let (size, stop) = (vk::Extent2D { width: 60, height: 40 }, Stop::default());
        let mut egui = None;
        let mut state = WindowState::open(choice, false, &config, None, &stop, None, |_, context| {
            egui = Some(context);
            Ok((Unseen { target: None, wanted: size }, PresentMode::Immediate, 1.0))
        })
        .unwrap();
        let egui = egui.unwrap();
        let laid_out_for = |state: &mut WindowState<Unseen>| {
            state.redraw().unwrap();
            (egui.content_rect().size(), egui.pixels_per_point())
        };
        assert_eq!(laid_out_for(&mut state), (egui::vec2(60.0, 40.0), 1.0));
        let twice = vk::Extent2D { width: 120, height: 80 };
        state.on_inputs(vec![Input::Size(twice, 2.0)]).unwrap();
        assert_eq!(laid_out_for(&mut state), (egui::vec2(60.0, 40.0), 2.0));
        // A swapchain may notice a new size before there is an event.
        state.screen.resize(size);
        assert_eq!(laid_out_for(&mut state), (egui::vec2(30.0, 20.0), 2.0));
        let log = state.run.engine.device().instance().validation_log().clone();
        drop(state);
        assert_eq!((log.errors(), log.warnings()), (0, 0), "of validation");
    }
}
