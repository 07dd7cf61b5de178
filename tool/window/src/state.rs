mod open;
mod pictures;
mod switching;

use std::time::{Duration, Instant};

use tracing::trace_span;

use self::pictures::Snapshot;
use super::clock::FieldClock;
use super::controls::Controls;
use super::keys::Action;
use super::overlay::{Overlay, OverlayView};
use super::reload::Reloader;
use super::screen::{Input, Screen, ScreenPicture};
use super::title::{self, Title};
use wavefield_draw::Camera;
use wavefield_gpu::cuda::KernelSource;
use wavefield_gpu::vulkan::{Flight, Instance, PresentMode};
use wavefield_gpu::{Error, Result};
use wavefield_handoff::contents::array::DrawnArray;
use wavefield_run::watch::recording::Film;
use wavefield_run::{
    AfterDraw, Choice, Config, Engine, FrameHook, FrameTimes, Moment, OverlayMode, Parameters, record,
};

/// How often to try again without an image to draw on: nothing else paces the loop then.
const IDLE: Duration = Duration::from_millis(50);

/// A client's still picture rests after this time. Tooltips appear within it.
const STILL: Duration = Duration::from_secs(1);
/// How often a resting window looks for a new frame.
const CALM: Duration = Duration::from_millis(10);

pub(super) struct WindowState<S: Screen> {
    // Field order is drop order: the engine waits for the GPU, then the screen goes.
    pub(super) engine: Engine,
    pub(super) hook: Option<Box<dyn FrameHook>>,
    snapshot: Snapshot,
    pub(super) screen: S,
    pub(super) instance: Instance,
    pub(super) overlay: Overlay,
    film: Option<Film>,
    config: Config,
    choice: Choice,
    /// The user's own kernel, in its last version that was drawn.
    own: Option<KernelSource>,
    reload: Option<Reloader>,
    controls: Controls,
    clock: FieldClock,
    pub(super) times: FrameTimes,
    title: Title,
    /// When the picture last changed, the next frame then, and its view: see [`WindowState::is_still`].
    changed: (Instant, u64, Option<(wavefield_draw::FieldView, Parameters)>),
    /// When to try again, if the last redraw found no image to draw on.
    retry: Option<Instant>,
    pub(super) skipped: u64,
    began: Instant,
}

fn shown(config: &Config, controls: &Controls, camera: Camera) -> Config {
    Config {
        camera: Some(camera.rounded()).filter(|camera| *camera != Camera::of(config.scene).rounded()),
        speed: controls.parameters.speed,
        ..config.clone()
    }
}

impl<S: Screen> WindowState<S> {
    /// Draws or skips a frame. The image is acquired first, so a skipped frame has enqueued nothing.
    pub(super) fn redraw(&mut self) -> Result<()> {
        self.consult()?;
        self.lay_out().or_else(|error| self.recover(error))?;
        if !self.may_begin() {
            self.skip();
            return Ok(());
        }
        let flight = match (self.engine.begin(), &mut self.hook) {
            (Err(error), Some(hook)) => {
                hook.rescue(&mut self.engine, error)?;
                if !self.may_begin() {
                    self.skip();
                    return Ok(());
                }
                self.engine.begin()?
            }
            (begun, _) => begun?,
        };
        let Some(canvas) = trace_span!("acquire").in_scope(|| self.acquire(&flight))? else {
            self.skip();
            return Ok(());
        };
        self.retry = None;
        let now = Instant::now();
        if let Some(elapsed) = self.clock.frame(now, &self.controls.parameters) {
            self.times.add(elapsed);
            if self.controls.rotating {
                self.engine.drawer.view.camera.rotate(elapsed.as_secs_f32());
            }
        }
        let moment = self.clock.moment;
        let drawn = self.draw(&flight, moment, &canvas);
        if let Err(error) = drawn {
            // The acquired image must be drawn on. Begin the frame again, which returns the same flight.
            self.recover(error)?;
            let flight = self.engine.begin()?;
            self.draw(&flight, moment, &canvas)?;
        }
        if let Some(hook) = &mut self.hook {
            hook.drawn();
        }
        trace_span!("present").in_scope(|| self.screen.present(self.engine.queue(), &canvas))?;
        let (text, states) = self.title_words();
        if let Some(title) = self.title.frame(now, &text, &states) {
            self.screen.set_title(title);
        }
        self.hand_out_picture()
    }

    fn draw(&mut self, flight: &Flight, moment: Moment, canvas: &ScreenPicture) -> Result<()> {
        let Self { engine, overlay, film, screen, .. } = self;
        let (picture, frame) = (&canvas.picture, engine.next_frame());
        let wants = record::wants(film, flight, self.began.elapsed());
        let mut film = film.as_mut().filter(|_| wants);
        let mut overlay = overlay.is_shown().then_some(overlay);
        let mut screen = screen.wants().then_some(screen);
        let has_more = film.is_some() || overlay.is_some() || screen.is_some();
        let mut record = |commands| {
            if let Some(overlay) = &mut overlay {
                // SAFETY: the engine records these commands after the draw of this picture, which lives as
                // long as the screen's images; no more frames are in flight than the deepest ring has slots.
                unsafe { overlay.record(commands, flight.index, picture) }?;
            }
            if let Some(film) = &mut film {
                // SAFETY: as above; `make_readable` allows copies; `record::wants` told the film.
                unsafe { film.record(commands, flight.index, picture) };
            }
            if let Some(screen) = &mut screen {
                // SAFETY: as above; it is the screen's own picture.
                unsafe { screen.record(commands, flight.index, picture, frame) };
            }
            if let Some(overlay) = &overlay {
                overlay.end(commands, flight.index);
            }
            Ok(())
        };
        let commands = has_more.then_some(&mut record as &mut dyn FnMut(_) -> _);
        engine.draw(
            flight,
            moment,
            picture,
            AfterDraw { commands, present: canvas.present.map(|image| image.rendered) },
        )
    }

    pub(super) fn collect(&mut self) -> Result<()> {
        // A hook that is not ready repairs the engine between two frames.
        if !self.may_begin() {
            return Ok(());
        }
        match (self.screen.collect(&mut self.engine), &mut self.hook) {
            (Err(error), Some(hook)) => hook.rescue(&mut self.engine, error),
            (collected, _) => collected,
        }
    }

    fn title_words(&self) -> (String, Vec<&'static str>) {
        let client = self.hook.as_ref().and_then(|hook| hook.shown_client());
        let states = [(self.controls.parameters.paused, "paused"), (self.film.is_some(), "recording")];
        let states = states.into_iter().filter_map(|(is, word)| is.then_some(word)).collect();
        (title::text(&self.engine, &self.config, client), states)
    }

    /// Lays the overlay out if that is due, and applies what the user changed in it.
    fn lay_out(&mut self) -> Result<()> {
        if !self.overlay.is_due() {
            return Ok(());
        }
        let Self { engine, config, choice, controls, own, hook, .. } = self;
        let no_cuda = match &choice.twin {
            Some(_) => None,
            None => Some(choice.fallback.as_deref().unwrap_or("CUDA does not share this device")),
        };
        let (camera, screen) = (engine.drawer.view.camera, &self.screen);
        let command = || shown(config, controls, camera).command_line(false) + S::OPTION;
        let mut view = OverlayView {
            engine,
            config,
            own: own.as_ref(),
            modes: screen.modes(),
            choice,
            no_cuda,
            command: &command,
            extent: screen.extent(),
            scale: screen.scale(),
            takes: &|action| screen.takes(action),
            serves: hook.is_some(),
            still: config.overlay == OverlayMode::Legend
                && hook.as_ref().is_some_and(|hook| hook.shown_client().is_some()),
        };
        let (wish, platform) = self.overlay.lay_out(&mut view, &controls.parameters)?;
        let copied = wish.as_ref().filter(|wish| wish.copy).map(|_| command());
        self.screen.follow(platform);
        if let Some(command) = copied {
            let words = self.screen.copy(&command);
            wavefield_gpu::note!("note: {words}");
            self.overlay.notify(words);
        }
        wish.map_or(Ok(()), |wish| self.follow(wish))
    }

    /// Returns whether the user wants to leave.
    pub(super) fn on_input(&mut self, input: Input) -> Result<bool> {
        self.wake();
        let event = match input {
            Input::Close => return Ok(true),
            Input::Size(extent, scale) => {
                self.screen.resize(extent, scale);
                self.overlay.lay_out_soon();
                self.retry = None;
                return Ok(false);
            }
            Input::Event(event) => event,
        };
        let (action, is_pressed) = match event {
            egui::Event::Key { key, pressed, repeat, .. } => (Action::of(key), pressed && !repeat),
            _ => (None, false),
        };
        // egui would use the overlay's own key to move the focus.
        if action != Some(Action::Overlay) && self.overlay.on_event(&event) {
            return Ok(false);
        }
        match action.filter(|action| is_pressed && self.screen.takes(*action)) {
            Some(Action::Leave) => return Ok(true),
            Some(Action::Close) => return Ok(!self.close_innermost() && self.screen.takes(Action::Leave)),
            Some(action) => self.press(action)?,
            None => {
                let (extent, scale) = (self.screen.extent(), self.screen.scale());
                let image = self.engine.drawer.image_in(extent);
                self.controls.handle(
                    &event,
                    &mut self.engine.drawer.view.camera,
                    image,
                    (extent.height, scale),
                );
            }
        }
        Ok(false)
    }

    /// Tries twice, because the window may change between remaking the images and acquiring one.
    fn acquire(&mut self, flight: &Flight) -> Result<Option<ScreenPicture>> {
        for _ in 0..2 {
            if self.screen.is_stale() {
                // Remaking the images waits for the queue without a limit, so wait with one first.
                self.drain()?;
                self.engine.drawer.recordings.forget();
                self.screen.fit(&mut self.engine)?;
            }
            // SAFETY: the engine's own semaphore for this flight, whose last submission has waited for it and
            // is done. If the pictures are stale, every frame is drained.
            match unsafe { self.screen.acquire(self.engine.queue(), flight) }? {
                Some(canvas) => return Ok(Some(canvas)),
                None if self.screen.is_stale() => {}
                None => break,
            }
        }
        Ok(None)
    }

    /// Only a hook can forbid a frame.
    fn may_begin(&self) -> bool {
        self.hook.as_ref().is_none_or(|hook| hook.is_ready())
    }

    fn consult(&mut self) -> Result<()> {
        let Some(hook) = &mut self.hook else { return Ok(()) };
        // Presenting in FIFO order paces the frames.
        match self.config.present == PresentMode::Fifo || self.screen.is_hidden() {
            true => hook.before_frame(&mut self.engine, &mut self.controls.parameters),
            false => hook.wait(&mut self.engine, &mut self.controls.parameters),
        }
    }

    /// Waits until every frame is drawn. If that takes too long, the hook may drop a client.
    fn drain(&mut self) -> Result<()> {
        self.engine.work.drain().or_else(|error| self.recover(error))
    }

    /// Makes the hook repair the engine, and waits until a frame may begin. Without a hook, returns `error`.
    fn recover(&mut self, error: Error) -> Result<()> {
        match &mut self.hook {
            Some(hook) => hook.rescue(&mut self.engine, error)?,
            None => return Err(error),
        }
        while !self.may_begin() {
            self.consult()?;
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    fn skip(&mut self) {
        self.retry = Some(Instant::now() + IDLE);
        self.skipped += 1;
        self.ignore_gap();
    }

    fn ignore_gap(&mut self) {
        self.clock.ignore_gap();
        self.overlay.ignore_gap();
    }

    /// Does what is due between two frames, whether they are drawn or not.
    pub(super) fn between_frames(&mut self, now: Instant) -> Result<()> {
        self.screen.look(now);
        if self.screen.is_hidden() {
            self.ignore_gap();
        }
        self.reload()?;
        // The hook works even while nothing is drawn in the window.
        if self.screen.is_hidden() {
            self.consult()?;
            return self.hand_out_picture();
        }
        if self.is_still(now) {
            self.ignore_gap();
            let (text, states) = self.title_words();
            if let Some(title) = self.title.still(&text, &states) {
                self.screen.set_title(title);
            }
            if let Some(hook) = &mut self.hook {
                hook.ignore_gap();
                hook.before_frame(&mut self.engine, &mut self.controls.parameters)?;
            }
        }
        Ok(())
    }

    /// Whether a client's frames are shown, and nothing has changed for [`STILL`].
    fn is_still(&mut self, now: Instant) -> bool {
        let Some(hook) = &self.hook else { return false };
        let seen = Some((self.engine.drawer.view, self.controls.parameters));
        let busy = self.film.is_some() || self.overlay.has_notice() || !hook.is_still();
        if busy || self.changed.2 != seen {
            self.changed = (now, self.engine.next_frame(), seen);
        }
        let (since, frame, _) = self.changed;
        // What is under the pointer is known once every frame in flight is another one.
        let enough = self.engine.work.producer.profile().slots.len() as u64 + 3;
        now - since >= STILL && self.engine.next_frame() >= frame + enough
    }

    pub(super) fn wake(&mut self) {
        (self.changed.0, self.changed.1) = (Instant::now(), self.engine.next_frame());
    }

    /// Returns when to wake up, or `None` to draw now. A hidden window wakes up to see whether it must stop.
    pub(super) fn sleeps_until(&mut self, now: Instant) -> Option<Instant> {
        match () {
            () if self.screen.is_hidden() => Some(now + IDLE),
            () if self.is_still(now) => Some(now + CALM),
            () => self.retry.or(self.screen.due()).filter(|&at| at > now),
        }
    }

    fn home(&self) -> Camera {
        match *self.engine.drawer.array() == DrawnArray::mesh(self.config.grid) {
            true => self.controls.first,
            false => self.config.camera_for(self.engine.drawer.array()),
        }
    }

    fn press(&mut self, action: Action) -> Result<()> {
        let parameters = &mut self.controls.parameters;
        match action {
            Action::Pause => parameters.paused = !parameters.paused,
            Action::Step => self.clock.step(parameters),
            Action::Colors => {
                parameters.colormap = parameters.colormap.next();
                self.recolor()?;
            }
            Action::Picture => self.save_picture()?,
            Action::Record => self.record()?,
            Action::FullScreen => self.screen.set_full(!self.screen.is_full()),
            Action::Overlay => {
                let toggled = self.overlay.toggle(&mut self.engine);
                toggled.or_else(|error| self.recover(error))?;
            }
            Action::Help => self.overlay.toggle_help(),
            Action::Reset => {
                self.controls.rotating = false;
                self.engine.drawer.view.camera = self.home();
            }
            Action::Rotate => self.controls.rotating = !self.controls.rotating,
            Action::Close | Action::Leave => {}
        }
        Ok(())
    }

    /// Returns false if nothing was open.
    fn close_innermost(&mut self) -> bool {
        if self.overlay.close_innermost() {
            return true;
        }
        let is_full = self.screen.is_full();
        if is_full {
            self.screen.set_full(false);
        }
        is_full
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wavefield_gpu::vulkan::Validation;

    #[test]
    fn the_copied_command_has_a_camera_that_a_person_can_read() {
        let config = Config { validation: Validation::IfInstalled, ..Config::default() };
        let command = |camera| shown(&config, &Controls::new(&config), camera).command_line(false);
        let mut camera = config.camera();
        assert_eq!(command(camera), "wavefield");
        camera.orbit(37.3, 11.7);
        camera.zoom(1.7);
        assert_eq!(command(camera), "wavefield --camera=0.3562,0.5902,2.7588,0,-0.2,0");
    }
}
