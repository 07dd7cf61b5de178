//! The window: acquire an image, draw a frame, present it; again.

use std::panic::catch_unwind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ash::vk;
use tracing::trace_span;
use winit::application::ApplicationHandler;
use winit::dpi::PhysicalSize;
use winit::error::EventLoopError;
use winit::event::{ElementState, MouseButton, MouseScrollDelta, StartCause, WindowEvent};
use winit::event_loop::{ActiveEventLoop, ControlFlow};
use winit::keyboard::{Key, NamedKey};
use winit::platform::run_on_demand::EventLoopExtRunOnDemand;
use winit::raw_window_handle::HasDisplayHandle;
use winit::window::{Window, WindowId};

use super::engine::{Engine, Moment, PresentSync};
use super::headless::announce;
use super::retire;
use super::traced::Traced;
use super::{Choice, Companion, Config, DeviceTable, Ended, FrameTimes, Parameters, Scene, Stop, Summary};
use crate::handoff::Handoff;
use crate::render::{Camera, ColorMap, OffscreenTarget, Picture};
use crate::report::Failures;
use crate::vulkan::{
    Acquired, DeviceDesc, Flight, Instance, InstanceDesc, PresentMode, Swapchain, SwapchainImage, read_image,
};
use crate::{Error, Result};

/// The connection to the window system. A process can have one only, but may open one window after another with it.
pub struct EventLoop(winit::event_loop::EventLoop<()>);

impl EventLoop {
    /// Connects to the display.
    ///
    /// # Errors
    /// No display, or the libraries that speak to it are not installed.
    pub fn new() -> Result<Self> {
        let failed = |reason| Error::Window { what: "no display", reason };
        // winit panics where one of the X11 libraries that it opens at run time is missing; that is an error here.
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| ()));
        let made = catch_unwind(winit::event_loop::EventLoop::new);
        std::panic::set_hook(hook);
        match made {
            Ok(Ok(event_loop)) => Ok(Self(event_loop)),
            Ok(Err(error)) => Err(failed(words(&error))),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or(panic.downcast_ref::<&str>().copied());
                Err(failed(text.unwrap_or("the window system's libraries are incomplete").to_owned()))
            }
        }
    }
}

/// winit's error without the source line that it begins with.
fn words(error: &EventLoopError) -> String {
    let text = error.to_string();
    let reason = text.split_once(".rs:").and_then(|(_, rest)| rest.split_once(": "));
    reason.map_or(&*text, |(_line, reason)| reason).trim_end_matches('.').to_owned()
}

/// Opens a window and draws in it until it is closed, Escape is pressed, `stop` is asked, or `config.frames` are drawn.
///
/// # Errors
/// Whatever stands in the way, an error of the validation layer included.
pub fn run_windowed(event_loop: &mut EventLoop, config: &Config, stop: &Stop) -> Result<Summary> {
    attempt_windowed(event_loop, config, stop)?.whole()
}

/// [`run_windowed`], which tells what was done before something failed.
///
/// # Errors
/// What stands in the way of the first frame.
pub fn attempt_windowed(event_loop: &mut EventLoop, config: &Config, stop: &Stop) -> Result<Ended> {
    run_with(event_loop, config, stop, None)
}

/// Somebody who is invited once the device is chosen, and works on the engine between two frames from then on.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))] // Clients can connect on Linux only.
pub(crate) struct Guest<'a> {
    /// Makes it.
    pub(crate) invite: Box<dyn FnOnce(Choice) -> Result<Box<dyn Companion>> + 'a>,
    /// Frames in flight that it may need resources for.
    pub(crate) flights: usize,
}

/// [`attempt_windowed`], with a guest perhaps.
pub(crate) fn run_with(
    event_loop: &mut EventLoop,
    config: &Config,
    stop: &Stop,
    guest: Option<Guest<'_>>,
) -> Result<Ended> {
    let traced = Traced::begin(config)?;
    let mut app =
        App { config, stop, guest, traced, state: None, failures: Failures::default(), left: false };
    let ran = event_loop.0.run_app_on_demand(&mut app);
    let App { traced, state, mut failures, .. } = app;
    let ended = |reason| Error::Window { what: "the event loop ended", reason };
    failures.catch(ran.map_err(|error| ended(error.to_string())));
    let Some(mut state) = state else {
        failures.outcome()?;
        return Err(ended("before a window could be opened".into()));
    };
    if let Some(traced) = traced {
        traced.end(&mut state.engine, &mut failures);
    }
    let times = std::mem::take(&mut state.times);
    let summary = state.engine.summary(times, state.skipped, &mut failures);
    if let Some(companion) = &mut state.companion {
        let reason = failures.first().map_or("the renderer was ended".into(), Error::to_string);
        failures.catch(companion.close(&state.engine, &reason));
    }
    let log = state.instance.validation_log().clone();
    retire(state);
    Ok(Ended::new(summary, failures, &log))
}

struct App<'a> {
    config: &'a Config,
    stop: &'a Stop,
    traced: Option<Traced>,
    guest: Option<Guest<'a>>,
    state: Option<State>,
    failures: Failures,
    /// Nothing is drawn any more.
    left: bool,
}

impl App<'_> {
    /// Runs a step; its error ends the program.
    fn attempt(&mut self, event_loop: &ActiveEventLoop, step: impl FnOnce(&mut Self) -> Result<()>) {
        if self.left {
            return;
        }
        if let Err(error) = step(self) {
            self.failures.add(error);
            self.leave(event_loop);
        }
    }

    fn leave(&mut self, event_loop: &ActiveEventLoop) {
        self.left = true;
        event_loop.exit();
    }

    /// Never before there is a window: a stop that comes that early still ends with a summary, of no frames.
    fn is_done(&self) -> bool {
        let Some(state) = &self.state else { return false };
        let drawn = state.engine.next_frame();
        self.stop.requested() || self.config.frames.is_some_and(|frames| drawn >= frames)
    }
}

impl ApplicationHandler for App<'_> {
    fn resumed(&mut self, event_loop: &ActiveEventLoop) {
        if self.state.is_none() {
            self.attempt(event_loop, |app| {
                let mut state = State::new(event_loop, app.config, app.guest.take())?;
                state.engine.heed(app.stop);
                if let Some(traced) = &app.traced {
                    traced.follow(&mut state.engine)?;
                }
                app.state = Some(state);
                Ok(())
            });
        }
    }

    fn new_events(&mut self, event_loop: &ActiveEventLoop, _cause: StartCause) {
        if self.is_done() {
            self.leave(event_loop);
        }
    }

    fn window_event(&mut self, event_loop: &ActiveEventLoop, _window: WindowId, event: WindowEvent) {
        let escape = |key: &winit::event::KeyEvent| {
            key.state == ElementState::Pressed && key.logical_key == Key::Named(NamedKey::Escape)
        };
        match event {
            WindowEvent::CloseRequested => self.leave(event_loop),
            // A key that was down already when the focus came: pressed for another window.
            WindowEvent::KeyboardInput { is_synthetic: true, .. } => {}
            WindowEvent::KeyboardInput { ref event, .. } if escape(event) => self.leave(event_loop),
            WindowEvent::RedrawRequested if !self.is_done() => {
                self.attempt(event_loop, |app| match &mut app.state {
                    Some(state) => state.redraw(),
                    None => Ok(()),
                })
            }
            event => self.attempt(event_loop, |app| match &mut app.state {
                Some(state) => state.handle(event),
                None => Ok(()),
            }),
        }
    }

    fn about_to_wait(&mut self, event_loop: &ActiveEventLoop) {
        if self.is_done() {
            return self.leave(event_loop);
        }
        self.attempt(event_loop, |app| match &mut app.state {
            // Nothing is drawn, but whoever asks is answered.
            Some(state) if !state.visible => state.consult().and_then(|()| state.hand_out_picture()),
            _ => Ok(()),
        });
        let Some(state) = &self.state else { return };
        let now = Instant::now();
        // A hidden window only looks whether it is to stop.
        let wait = if state.visible { state.retry.filter(|&at| at > now) } else { Some(now + IDLE) };
        match wait {
            Some(at) => event_loop.set_control_flow(ControlFlow::WaitUntil(at)),
            None => {
                event_loop.set_control_flow(ControlFlow::Poll);
                state.window.request_redraw();
            }
        }
    }
}

/// With nothing to draw on there is nothing that paces the loop: it looks again this often.
const IDLE: Duration = Duration::from_millis(50);

/// Everything that exists while the window does.
struct State {
    // Field order is drop order: the engine waits for the GPU, then swapchain and window go.
    engine: Engine,
    companion: Option<Box<dyn Companion>>,
    /// For pictures that the companion asks for.
    aside: Option<OffscreenTarget>,
    /// Whether presenting sets the pace.
    paced: bool,
    swapchain: Swapchain,
    window: Arc<Window>,
    instance: Instance,
    camera: Camera,
    scene: Scene,
    color_map: ColorMap,
    clock: Clock,
    times: FrameTimes,
    last_frame: Option<Instant>,
    title: Title,
    /// False while the window is minimised or covered.
    visible: bool,
    /// When to try again, if the last redraw found no image to draw on.
    retry: Option<Instant>,
    skipped: u64,
    dragging: bool,
    pointer: Option<(f64, f64)>,
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

impl State {
    fn new(event_loop: &ActiveEventLoop, config: &Config, guest: Option<Guest<'_>>) -> Result<Self> {
        check_size(config.size)?;
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
        let surface = instance.create_surface(window.clone())?;
        let choice = DeviceTable::query(&instance, Some(&surface))?
            .choose(config.device.as_deref(), config.producer)?;
        announce(&choice);
        let (device, queue) = choice.adapter.request_device(&DeviceDesc {
            present: true,
            interop: choice.cuda.is_some() || (guest.is_some() && choice.can_export()),
            inline: config.handoff == Handoff::Inline,
            ..DeviceDesc::default()
        })?;
        let swapchain = Swapchain::new(&device, &surface, config.present)?;
        let flights = guest.as_ref().map_or(1, |guest| guest.flights);
        let engine = Engine::with_flights(queue, &choice, config, swapchain.format(), flights)?;
        Ok(Self {
            title: Title::new(&engine, config),
            companion: guest.map(|guest| (guest.invite)(choice)).transpose()?,
            aside: None,
            paced: swapchain.mode() == PresentMode::Fifo,
            engine,
            swapchain,
            window,
            instance,
            camera: config.scene.camera(),
            scene: config.scene,
            color_map: config.color_map,
            clock: Clock { time: 0.0, step: 0.0, speed: config.speed, paused: false },
            times: FrameTimes::default(),
            last_frame: None,
            visible: true,
            retry: None,
            skipped: 0,
            dragging: false,
            pointer: None,
        })
    }

    /// One frame, or none: the image comes first, so a frame that is skipped has enqueued nothing.
    fn redraw(&mut self) -> Result<()> {
        self.consult()?;
        if self.companion.as_ref().is_some_and(|companion| !companion.is_ready()) {
            self.skip();
            return Ok(());
        }
        let flight = match (self.engine.begin(), &mut self.companion) {
            (Err(error), Some(companion)) => {
                companion.rescue(&mut self.engine, error)?;
                if !companion.is_ready() {
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
        if let Some(last) = self.last_frame.replace(now) {
            self.times.add(now - last);
            self.clock.advance(now - last);
        }
        let picture = Picture {
            image: image.image,
            view: image.view,
            extent: image.extent,
            final_layout: vk::ImageLayout::PRESENT_SRC_KHR,
        };
        let present = PresentSync { acquired: flight.acquired, rendered: image.rendered };
        let moment = self.clock.moment();
        let drawn = self.engine.draw(&flight, moment, &self.camera, &picture, Some(present));
        if let Err(error) = drawn {
            // The image is ours now and has to be drawn on: once more from the begin, which gives the same resources.
            self.mend(error)?;
            let flight = self.engine.begin()?;
            self.engine.draw(&flight, moment, &self.camera, &picture, Some(present))?;
        }
        if let Some(companion) = &mut self.companion {
            companion.drawn(&self.engine)?;
        }
        self.window.pre_present_notify();
        trace_span!("present").in_scope(|| self.swapchain.present(self.engine.queue(), &image))?;
        self.title.frame(&self.window, now);
        self.hand_out_picture()
    }

    /// Lets the companion do what it has to do between two frames.
    fn consult(&mut self) -> Result<()> {
        let Some(companion) = &mut self.companion else { return Ok(()) };
        let Clock { speed, paused, .. } = self.clock;
        let mut parameters = Parameters { speed, colormap: self.color_map, paused };
        match self.paced || !self.visible {
            true => companion.turn(&mut self.engine, &mut parameters)?,
            false => companion.wait(&mut self.engine, &mut parameters)?,
        }
        (self.clock.speed, self.clock.paused) = (parameters.speed, parameters.paused);
        self.color_map = parameters.colormap;
        Ok(())
    }

    /// What was presented cannot be read back, so the same is drawn once more, aside.
    fn hand_out_picture(&mut self) -> Result<()> {
        let Some(companion) = self.companion.as_mut().filter(|companion| companion.wants_picture()) else {
            return Ok(());
        };
        let (extent, format) = (self.swapchain.extent(), self.swapchain.format());
        if extent.width == 0 || extent.height == 0 {
            let reason = "the window has no size, so there is no picture".into();
            companion.send_picture(extent, Err(Error::Unsupported(reason)));
            return Ok(());
        }
        let target = match self.aside.take().filter(|target| target.image().extent() == extent) {
            Some(target) => target,
            None => {
                self.engine.forget_recorded();
                match OffscreenTarget::with_format(self.engine.device(), extent, format) {
                    Ok(target) => target,
                    // No memory for it, perhaps: the client's affair, not the window's.
                    Err(error) => {
                        companion.send_picture(extent, Err(error));
                        return Ok(());
                    }
                }
            }
        };
        let target = self.aside.insert(target);
        let image = target.image();
        let picture = Picture {
            image: image.raw(),
            view: image.view(),
            extent,
            final_layout: vk::ImageLayout::TRANSFER_SRC_OPTIMAL,
        };
        let drawn = self.engine.begin().and_then(|flight| {
            self.engine.draw(&flight, self.clock.moment(), &self.camera, &picture, None)?;
            self.engine.drain()
        });
        if let Err(error) = drawn {
            // Nothing was drawn aside; the next frame tries again.
            return companion.rescue(&mut self.engine, error);
        }
        companion.drawn(&self.engine)?;
        let mut pixels = read_image(self.engine.queue(), target.image());
        if matches!(format, vk::Format::B8G8R8A8_SRGB | vk::Format::B8G8R8A8_UNORM) {
            pixels.iter_mut().flat_map(|bytes| bytes.chunks_exact_mut(4)).for_each(|pixel| pixel.swap(0, 2));
        }
        companion.send_picture(extent, pixels);
        Ok(())
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
        while self.companion.as_ref().is_some_and(|companion| !companion.is_ready()) {
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

    /// No frame for a while: the pause is no frame time, and the field does not jump after it.
    fn rest(&mut self) {
        self.last_frame = None;
    }

    fn show(&mut self, visible: bool) {
        self.visible = visible;
        // Whatever changed, it is worth a try.
        self.retry = None;
        if !visible {
            self.rest();
        }
    }

    fn handle(&mut self, event: WindowEvent) -> Result<()> {
        match event {
            WindowEvent::Resized(size) => {
                self.show(size.width > 0 && size.height > 0);
                self.swapchain.invalidate();
            }
            WindowEvent::ScaleFactorChanged { .. } => self.swapchain.invalidate(),
            WindowEvent::Occluded(occluded) => self.show(!occluded),
            WindowEvent::MouseInput { state, button: MouseButton::Left, .. } => {
                self.dragging = state == ElementState::Pressed;
            }
            WindowEvent::CursorMoved { position, .. } => {
                let (x, y) = (position.x, position.y);
                if let (true, Some((from_x, from_y))) = (self.dragging, self.pointer) {
                    self.camera.orbit((x - from_x) as f32, (y - from_y) as f32);
                }
                self.pointer = Some((x, y));
            }
            WindowEvent::MouseWheel { delta, .. } => self.camera.zoom(match delta {
                MouseScrollDelta::LineDelta(_, lines) => lines,
                MouseScrollDelta::PixelDelta(pixels) => pixels.y as f32 / 40.0,
            }),
            WindowEvent::KeyboardInput { event, .. }
                if event.state == ElementState::Pressed && !event.repeat =>
            {
                return self.key(&event.logical_key);
            }
            _ => {}
        }
        Ok(())
    }

    fn key(&mut self, key: &Key) -> Result<()> {
        match key.as_ref() {
            Key::Named(NamedKey::Space) => self.clock.paused = !self.clock.paused,
            Key::Character("r" | "R") => self.camera = self.scene.camera(),
            Key::Character("c" | "C") => {
                self.color_map = self.color_map.next();
                self.drain()?;
                self.engine.set_color_map(self.color_map)?;
            }
            _ => {}
        }
        Ok(())
    }
}

impl AsMut<Engine> for State {
    fn as_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }
}

/// The field's time.
struct Clock {
    time: f64,
    step: f64,
    speed: f64,
    paused: bool,
}

impl Clock {
    fn advance(&mut self, elapsed: Duration) {
        self.step = if self.paused { 0.0 } else { elapsed.as_secs_f64() * self.speed };
        self.time += self.step;
    }

    /// The next frame is taken to come as late as this one came after the last.
    fn moment(&self) -> Moment {
        Moment { time: self.time, step: self.step }
    }
}

/// The window's title, with the rate of the last second.
struct Title {
    text: String,
    since: Instant,
    frames: u32,
}

impl Title {
    fn new(engine: &Engine, config: &Config) -> Self {
        let (cols, rows) = (config.grid.cols, config.grid.rows);
        Self {
            text: format!(
                "wavefield: {} on {}, {cols}x{rows}",
                engine.producer().name(),
                engine.device().info().name
            ),
            since: Instant::now(),
            frames: 0,
        }
    }

    fn frame(&mut self, window: &Window, now: Instant) {
        self.frames += 1;
        let elapsed = now - self.since;
        if elapsed >= Duration::from_secs(1) {
            window.set_title(&format!(
                "{}, {:.0} frames/s",
                self.text,
                f64::from(self.frames) / elapsed.as_secs_f64()
            ));
            (self.since, self.frames) = (now, 0);
        }
    }
}
