//! Everything that exists while the window does, and how it draws a frame.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ash::vk;
use tracing::trace_span;
use winit::dpi::PhysicalSize;
use winit::event::WindowEvent;
use winit::event_loop::ActiveEventLoop;
use winit::raw_window_handle::HasDisplayHandle;
use winit::window::{Fullscreen, Window};

use super::aside::Aside;
use super::clock::Clock;
use super::controls::Controls;
use super::keys::Action;
use super::overlay::{self, Draft, Overlay, View};
use super::reload::Reloader;
use super::title::Title;
use super::visibility::Visibility;
use crate::app::command_line::picture_texts;
use crate::app::engine::{Behind, PresentSync};
use crate::app::filmed;
use crate::app::headless::{STEP, announce};
use crate::app::write_png;
use crate::app::{
    Choice, Companion, CompanionDesc, Config, DeviceTable, EarlyContext, EarlyDriver, Engine, FrameTimes,
    Moment, Parameters,
};
use crate::array::Array;
use crate::cuda::KernelSource;
use crate::film::{Film, Recorded};
use crate::handoff::Handoff;
use crate::render::{Camera, Picture};
use crate::report::Failures;
use crate::vulkan::{
    Acquired, DeviceDesc, Flight, Instance, InstanceDesc, PresentMode, Swapchain, SwapchainImage,
};
use crate::{Error, Result};

/// With nothing to draw on there is nothing that paces the loop: it looks again this often.
const IDLE: Duration = Duration::from_millis(50);

/// The engine, the window that it draws in, and what changes from frame to frame.
pub(super) struct State {
    // Field order is drop order: the engine waits for the GPU, then swapchain and window go.
    pub(super) engine: Engine,
    pub(super) companion: Option<Box<dyn Companion>>,
    aside: Aside,
    /// Whether presenting sets the pace.
    paced: bool,
    swapchain: Swapchain,
    pub(super) window: Arc<Window>,
    pub(super) instance: Instance,
    overlay: Overlay,
    film: Option<Film>,
    /// What is drawn now.
    config: Config,
    choice: Choice,
    /// The user's own kernel, as it was drawn last.
    own: Option<KernelSource>,
    /// Watches the kernel's file.
    reload: Option<Reloader>,
    controls: Controls,
    clock: Clock,
    pub(super) times: FrameTimes,
    title: Title,
    visibility: Visibility,
    /// When to try again, if the last redraw found no image to draw on.
    retry: Option<Instant>,
    pub(super) skipped: u64,
    began: Instant,
}

/// Refuses a window that no window system has: X11 counts in 16 bits, and winit panics beyond.
fn check_size(size: vk::Extent2D) -> Result<()> {
    let limit = u32::from(u16::MAX);
    match size.width.max(size.height) > limit {
        true => Err(Error::Unsupported(format!(
            "a window of {}x{} is too large: neither side may exceed {limit}",
            size.width, size.height
        ))),
        false => Ok(()),
    }
}

/// The settings that show what is shown now.
fn shown(config: &Config, controls: &Controls, camera: Camera) -> Config {
    Config {
        camera: Some(camera).filter(|camera| *camera != config.scene.camera()),
        speed: controls.parameters.speed,
        ..config.clone()
    }
}

/// The kernel, if it is the user's own.
fn own(config: &Config) -> Option<KernelSource> {
    config.kernel.clone().filter(|_| config.has_own_kernel())
}

impl State {
    /// Opens the window, chooses a device that can present there, and makes the engine.
    pub(super) fn new(
        event_loop: &ActiveEventLoop,
        config: &Config,
        companion: Option<CompanionDesc<'_>>,
    ) -> Result<Self> {
        check_size(config.size)?;
        let cuda = EarlyDriver::begin();
        let display = event_loop.display_handle().map_err(|error| Error::Window {
            what: "asking the display for its handle",
            reason: error.to_string(),
        })?;
        let instance =
            Instance::new(&InstanceDesc { validation: config.validation, display: Some(display.as_raw()) })?;
        let attributes = Window::default_attributes()
            .with_title("wavefield")
            .with_inner_size(PhysicalSize::new(config.size.width, config.size.height));
        let window = event_loop
            .create_window(attributes)
            .map_err(|error| Error::Window { what: "opening a window", reason: error.to_string() })?;
        let window = Arc::new(window);
        let visibility = Visibility::new(&window);
        let surface = instance.create_surface(window.clone())?;
        let choice = DeviceTable::query(&instance, Some(&surface), cuda)?
            .choose(config.device.as_deref(), config.producer)?;
        announce(&choice);
        // A client's kernels are kept out of command buffers unless that was asked for.
        let inline = companion.is_none() || config.handoff == Handoff::Inline;
        let context = EarlyContext::begin(&choice, config, inline);
        let (device, queue) = choice.adapter.request_device(&DeviceDesc {
            present: true,
            // Whatever the run begins with, it can be switched to what shares with CUDA.
            interop: choice.twin.is_some() || (companion.is_some() && choice.can_export()),
            inline,
            ..DeviceDesc::default()
        })?;
        let mut swapchain = Swapchain::new(&device, &surface, config.present)?;
        if config.record.is_some() {
            swapchain.make_readable()?;
        }
        let flights = companion.as_ref().map_or(1, |companion| companion.flights);
        let mut engine = Engine::new(queue, context, &choice, config, swapchain.format(), flights)?;
        let present = swapchain.mode();
        let overlay = Overlay::new(&window, engine.queue(), swapchain.format(), config.overlay)?;
        let film = filmed::film(&device, config, swapchain.format(), false)?;
        Ok(Self {
            title: Title::new(&engine, config),
            companion: companion.map(|companion| (companion.make)(choice.clone())).transpose()?,
            aside: Aside::default(),
            paced: swapchain.mode() == PresentMode::Fifo,
            engine,
            swapchain,
            window,
            instance,
            overlay,
            film,
            config: Config { present, ..config.clone() },
            choice,
            own: own(config),
            reload: config.reload.clone().and_then(Reloader::new),
            controls: Controls::new(config),
            clock: Clock::new(),
            times: FrameTimes::default(),
            visibility,
            retry: None,
            skipped: 0,
            began: Instant::now(),
        })
    }

    /// One frame, or none: the image comes first, so a frame that is skipped has enqueued nothing.
    pub(super) fn redraw(&mut self) -> Result<()> {
        self.consult()?;
        self.lay_out().or_else(|error| self.mend(error))?;
        if !self.may_begin() {
            self.skip();
            return Ok(());
        }
        let seen = (self.engine.view().camera, self.swapchain.extent());
        // Clients decide what is drawn, and a film has no pauses.
        let may_hold = self.companion.is_none() && self.film.is_none();
        if self.overlay.before_frame(&mut self.engine, seen, may_hold)? {
            self.clock.rest();
        }
        let flight = match (self.engine.begin(), &mut self.companion) {
            (Err(error), Some(companion)) => {
                companion.rescue(&mut self.engine, error)?;
                if !self.may_begin() {
                    self.skip();
                    return Ok(());
                }
                self.engine.begin()?
            }
            (begun, _) => begun?,
        };
        let Some(image) = trace_span!("acquire").in_scope(|| self.acquire(&flight))? else {
            self.skip();
            return Ok(());
        };
        self.retry = None;
        let now = Instant::now();
        // A held engine shows the field as it was.
        let is_held = self.engine.is_held();
        let paused = self.controls.parameters.paused || is_held;
        if let Some(elapsed) = self.clock.frame(now, &Parameters { paused, ..self.controls.parameters }) {
            if !is_held {
                self.times.add(elapsed);
            }
            self.controls.pass(elapsed, &mut self.engine.view_mut().camera);
        }
        let picture = Picture {
            image: image.image,
            view: image.view,
            extent: image.extent,
            final_layout: vk::ImageLayout::PRESENT_SRC_KHR,
        };
        let present = PresentSync { acquired: flight.acquired, rendered: image.rendered };
        let moment = self.clock.moment();
        let drawn = self.draw(&flight, moment, &picture, present);
        if let Err(error) = drawn {
            // The image is ours now and has to be drawn on: once more from the begin, which gives the same resources.
            self.mend(error)?;
            let flight = self.engine.begin()?;
            self.draw(&flight, moment, &picture, present)?;
        }
        if let Some(companion) = &mut self.companion {
            companion.drawn(&self.engine)?;
        }
        self.window.pre_present_notify();
        trace_span!("present").in_scope(|| self.swapchain.present(self.engine.queue(), &image))?;
        self.title.frame(&self.window, now, self.controls.parameters.paused);
        self.hand_out_picture()
    }

    /// Draws the field, and what lies over it.
    fn draw(
        &mut self,
        flight: &Flight,
        moment: Moment,
        picture: &Picture,
        present: PresentSync,
    ) -> Result<()> {
        let Self { engine, overlay, film, .. } = self;
        let wants = filmed::wants(film, flight, self.began.elapsed());
        let mut film = film.as_mut().filter(|_| wants);
        let mut overlay = overlay.is_shown().then_some(overlay);
        let has_more = film.is_some() || overlay.is_some();
        let mut record = |commands| {
            if let Some(overlay) = &mut overlay {
                // SAFETY: the engine records these behind the draw of this picture, which lives as long as the swapchain's images; no more
                // frames are in flight than the deepest ring has slots.
                unsafe { overlay.record(commands, flight.index, picture) }?;
            }
            if let Some(film) = &mut film {
                // SAFETY: as above; the picture may be copied from since `make_readable`; the flight was free, and the film told so.
                unsafe { film.record(commands, flight.index, picture) };
            }
            if let Some(overlay) = &overlay {
                overlay.end(commands, flight.index);
            }
            Ok(())
        };
        let commands = has_more.then_some(&mut record as &mut dyn FnMut(_) -> _);
        engine.draw(flight, moment, picture, Behind { commands, present: Some(present) })
    }

    /// Hands on what the film has of frames in flight: a frame that is not for it comes next.
    fn settle_film(&mut self) -> Result<()> {
        if self.film.is_some() {
            self.drain()?;
        }
        if let Some(film) = &mut self.film {
            film.all_done();
        }
        Ok(())
    }

    /// What the last frames were made of, if that was shown.
    pub(super) fn parts(&self) -> Option<String> {
        self.overlay.parts()
    }

    /// The field goes on by one step in a pause.
    fn step(&mut self) -> Result<()> {
        self.go_on()?;
        self.clock.step(&self.controls.parameters);
        Ok(())
    }

    /// The next frame shows the field as it is at its moment.
    fn go_on(&mut self) -> Result<()> {
        if self.engine.is_held() {
            self.engine.go_on()?;
            self.overlay.stir();
        }
        Ok(())
    }

    /// Ends the film, if there is one.
    pub(super) fn end_film(&mut self, failures: &mut Failures) -> Option<Recorded> {
        self.film.as_ref()?;
        let at_rest = failures.first().is_none() && failures.catch(self.engine.finish()).is_some();
        filmed::end(&mut self.film, at_rest, failures)
    }

    /// Lays the overlay out, and does what the user asks for there.
    fn lay_out(&mut self) -> Result<()> {
        if !self.overlay.is_due() {
            return Ok(());
        }
        let Self { engine, config, choice, controls, own, .. } = self;
        let no_cuda = match &choice.twin {
            Some(_) => None,
            None => Some(choice.fallback.as_deref().unwrap_or("CUDA does not share this device")),
        };
        let camera = engine.view().camera;
        let command = || shown(config, controls, camera).command_line(false);
        let mut view = View {
            engine,
            config,
            own: own.as_ref(),
            modes: self.swapchain.modes(),
            no_cuda,
            command: &command,
            extent: self.swapchain.extent(),
            serves: self.companion.is_some(),
        };
        match self.overlay.lay_out(&self.window, &mut view, &controls.parameters)? {
            Some(wish) => self.follow(wish),
            None => Ok(()),
        }
    }

    /// Does what the user asks for.
    fn follow(&mut self, wish: Draft) -> Result<()> {
        let Draft { mut config, parameters, values, step, .. } = wish;
        if config.kernel == self.config.kernel && config.scene == self.config.scene {
            if self.engine.parameters() != values {
                self.overlay.stir();
            }
            self.engine.set_parameters(&values);
            self.config.parameters = self.engine.producer().profile().parameters.values(&values);
            config.parameters = self.config.parameters;
        }
        let other_colors = parameters.colormap != self.controls.parameters.colormap;
        self.controls.parameters = parameters;
        if other_colors {
            self.recolor()?;
        }
        if step {
            self.step()?;
        }
        if config.present != self.config.present {
            let before = overlay::settings(&self.config, &self.engine);
            self.swapchain.set_mode(config.present);
            self.config.present = config.present;
            self.paced = config.present == PresentMode::Fifo;
            self.switched(before);
        }
        config.color_map = self.config.color_map;
        let restyled = Config { style: config.style, ..self.config.clone() };
        if config == restyled && config != self.config {
            let before = overlay::settings(&self.config, &self.engine);
            self.engine.set_style(config.style)?;
            self.config.style = config.style;
            self.switched(before);
        }
        if config != self.config
            && let Some(error) = self.switch(config)?
        {
            crate::note!("note: that cannot be switched to: {error}");
            self.overlay.notify(error.to_string());
        }
        Ok(())
    }

    /// Takes the kernel over as it was saved. If it is no good the one before goes on, and the problem is shown until it is mended.
    pub(super) fn reload(&mut self) -> Result<()> {
        let Some(reload) = &mut self.reload else { return Ok(()) };
        let device = self.choice.twin.as_ref().map(|(_, info)| info);
        let Some(read) = reload.poll(&self.config, device) else { return Ok(()) };
        let name = reload.name();
        let problem = match read {
            // As it is drawn already.
            Ok(source) if self.config.kernel.as_ref() == Some(&source) => None,
            Ok(source) => {
                let refused = self.take_kernel(source)?;
                if refused.is_none() {
                    crate::note!("note: reloaded {name}");
                    self.overlay.notify(format!("reloaded {name}"));
                }
                refused
            }
            Err(error) => Some(error),
        };
        if let Some(error) = &problem {
            crate::note!("note: not reloaded, the last good kernel goes on: {error}");
        }
        self.overlay.show_problem(problem.map(|error| error.to_string()));
        Ok(())
    }

    /// Has this kernel fill the field; its parameters keep their values, as far as it has them. If it cannot, tells why.
    fn take_kernel(&mut self, source: KernelSource) -> Result<Option<Error>> {
        let before = &self.engine.producer().profile().parameters;
        let parameters = match source.parameters() {
            Ok(parameters) => parameters.carry(before, self.engine.parameters()),
            Err(error) => return Ok(Some(error)),
        };
        self.switch(Config { kernel: Some(source), parameters, ..self.config.clone() })
    }

    /// Shows the chosen colours from the next frame on.
    fn recolor(&mut self) -> Result<()> {
        self.drain()?;
        let map = self.controls.parameters.colormap;
        self.config.color_map = map;
        self.engine.set_color_map(map)
    }

    /// Draws with other settings from the next frame on. If they cannot be, tells why, and all goes on as before.
    fn switch(&mut self, config: Config) -> Result<Option<Error>> {
        let before = overlay::settings(&self.config, &self.engine);
        let switched = trace_span!("switch").in_scope(|| self.engine.switch(&self.choice, &config));
        match switched {
            Ok(()) => {
                if let Some(film) = &mut self.film {
                    film.all_done();
                }
                if config.scene != self.config.scene {
                    self.controls.start_at(config.scene.camera(), &mut self.engine.view_mut().camera);
                }
                if config.kernel != self.config.kernel {
                    // It was one of a kernel that is no longer asked for.
                    self.overlay.show_problem(None);
                    if let Some(reload) = self.reload.as_mut().filter(|_| !self.config.has_own_kernel()) {
                        // The file may have been saved while another kernel ran.
                        reload.read_again();
                    }
                    self.own = own(&config).or(self.own.take());
                }
                self.config = config;
                self.switched(before);
                self.title.renew(&self.engine, &self.config);
                Ok(None)
            }
            Err(error) if !self.engine.has_failed() => Ok(Some(error)),
            Err(error) => Err(error),
        }
    }

    /// Frames take something else from now on than with the settings `before`.
    fn switched(&mut self, before: Vec<String>) {
        self.overlay.switched(before);
        // The switch itself is no frame time.
        self.clock.rest();
    }

    /// Tells the overlay of an event. True: nobody else is to act on it.
    pub(super) fn overlay_takes(&mut self, event: &WindowEvent) -> bool {
        if let WindowEvent::KeyboardInput { event: key, .. } = event {
            // The overlay's own key must not move its focus.
            if Action::of(&key.logical_key) == Some(Action::Overlay) {
                return false;
            }
        }
        self.overlay.hear(&self.window, event)
    }

    /// The next image; twice, because the window may change between remaking the images and asking for one.
    fn acquire(&mut self, flight: &Flight) -> Result<Option<SwapchainImage>> {
        for _ in 0..2 {
            if self.swapchain.is_stale() {
                // Remaking the images waits for the queue without an end; this wait gives up when the GPU is stuck.
                self.drain()?;
                self.engine.forget_recorded();
            }
            match self.swapchain.acquire(self.engine.queue(), flight.acquired)? {
                Acquired::Image(image) => return Ok(Some(image)),
                Acquired::NotReady if self.swapchain.is_stale() => {}
                Acquired::NotReady => break,
            }
        }
        Ok(None)
    }

    /// Whether the companion, if there is one, lets a frame begin.
    fn may_begin(&self) -> bool {
        self.companion.as_ref().is_none_or(|companion| companion.is_ready())
    }

    /// Lets the companion do what it has to do between two frames.
    fn consult(&mut self) -> Result<()> {
        let Some(companion) = &mut self.companion else { return Ok(()) };
        match self.paced || self.visibility.is_hidden() {
            true => companion.before_frame(&mut self.engine, &mut self.controls.parameters),
            false => companion.wait(&mut self.engine, &mut self.controls.parameters),
        }
    }

    /// Sends the companion a picture, if it wants one.
    fn hand_out_picture(&mut self) -> Result<()> {
        let Some(companion) = self.companion.as_mut().filter(|companion| companion.wants_picture()) else {
            return Ok(());
        };
        let like = (self.swapchain.extent(), self.swapchain.format());
        let moment = self.clock.moment();
        self.aside.send_picture(&mut self.engine, &mut **companion, like, moment)
    }

    /// Waits until every frame is drawn. A client's kernel that faults meanwhile is the companion's affair.
    fn drain(&mut self) -> Result<()> {
        self.engine.drain().or_else(|error| self.mend(error))
    }

    /// Has the companion mend what it can, and waits for that.
    fn mend(&mut self, error: Error) -> Result<()> {
        match &mut self.companion {
            Some(companion) => companion.rescue(&mut self.engine, error)?,
            None => return Err(error),
        }
        while !self.may_begin() {
            self.consult()?;
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// No frame this time.
    fn skip(&mut self) {
        self.retry = Some(Instant::now() + IDLE);
        self.skipped += 1;
        self.rest();
    }

    /// The time until the next frame is no frame time.
    fn rest(&mut self) {
        self.clock.rest();
        self.overlay.rest();
    }

    /// Saves the picture, as it is without the overlay, under a name that is free.
    fn save_picture(&mut self) -> Result<()> {
        let Some(path) =
            (1..).map(|number| PathBuf::from(format!("wavefield-{number}.png"))).find(|path| !path.exists())
        else {
            return Ok(());
        };
        self.settle_film()?;
        self.go_on()?;
        let like = (self.swapchain.extent(), self.swapchain.format());
        let moment = self.clock.moment();
        let saved = self.aside.draw(&mut self.engine, like, moment).and_then(|()| {
            let pixels = self.aside.pixels(&mut self.engine)?;
            let shown = shown(&self.config, &self.controls, self.engine.view().camera);
            let shown = Config { output: Some(path.clone()), size: like.0, speed: 1.0, ..shown };
            // A run without a window shows frame n at n steps.
            let frames = (moment.time / STEP).round().max(0.0) as u64 + 1;
            let serves = self.companion.is_some();
            write_png(&path, like.0, &pixels, &picture_texts(&shown, &self.engine, frames, serves))
        });
        let words = match saved {
            Ok(()) => format!("saved {}", path.display()),
            Err(error) if self.engine.has_failed() => return Err(error),
            Err(error) => error.to_string(),
        };
        crate::note!("note: {words}");
        self.overlay.notify(words);
        Ok(())
    }

    /// Takes note of what an event says of the window's visibility.
    fn show(&mut self, change: impl FnOnce(&mut Visibility)) {
        change(&mut self.visibility);
        // Whatever changed, it is worth a try.
        self.retry = None;
    }

    /// Finds out whether the window can be seen.
    pub(super) fn look(&mut self, now: Instant) {
        self.visibility.look(&self.window, now);
        if self.visibility.is_hidden() {
            self.rest();
        }
    }

    /// While the window is hidden nothing is drawn, but a companion that asks is answered.
    pub(super) fn serve_hidden(&mut self) -> Result<()> {
        if !self.visibility.is_hidden() {
            return Ok(());
        }
        self.consult()?;
        self.hand_out_picture()
    }

    /// When to look again, if no frame is to be drawn now. A hidden window only looks whether it is to stop.
    pub(super) fn rests_until(&self, now: Instant) -> Option<Instant> {
        if self.visibility.is_hidden() { Some(now + IDLE) } else { self.retry.filter(|&at| at > now) }
    }

    /// Does what an event asks for.
    pub(super) fn handle(&mut self, event: WindowEvent) -> Result<()> {
        match event {
            WindowEvent::Resized(size) => {
                self.show(|visibility| visibility.resized(size.width == 0 || size.height == 0));
                self.swapchain.invalidate();
            }
            WindowEvent::ScaleFactorChanged { .. } => self.swapchain.invalidate(),
            WindowEvent::Occluded(occluded) => self.show(|visibility| visibility.occluded(occluded)),
            event => {
                let extent = self.swapchain.extent();
                let image = self.engine.image_in(extent);
                self.controls.handle(event, &mut self.engine.view_mut().camera, image, extent.height);
            }
        }
        Ok(())
    }

    /// Where a reset puts the camera: a client's array has a place of its own to be seen from.
    fn home(&self) -> Camera {
        match *self.engine.array() == Array::mesh(self.config.grid) {
            true => self.controls.first(),
            false => self.config.camera_for(self.engine.array()),
        }
    }

    /// Does what a key asks for.
    pub(super) fn press(&mut self, action: Action) -> Result<()> {
        self.controls.press(action);
        match action {
            Action::Step => self.step()?,
            Action::Colors => self.recolor()?,
            Action::Picture => self.save_picture()?,
            Action::FullScreen => {
                let is_full = self.window.fullscreen().is_some();
                self.window.set_fullscreen((!is_full).then_some(Fullscreen::Borderless(None)));
            }
            Action::Overlay => {
                let toggled = self.overlay.toggle(&mut self.engine);
                toggled.or_else(|error| self.mend(error))?;
            }
            Action::Help => self.overlay.toggle_help(),
            Action::Reset => self.engine.view_mut().camera = self.home(),
            Action::Pause | Action::Rotate | Action::Leave => {}
        }
        Ok(())
    }
}

impl AsMut<Engine> for State {
    fn as_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }
}
