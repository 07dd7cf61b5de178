//! Opens the window, draws in it, and handles its events.

use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind, set_hook, take_hook};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use winit::application::ApplicationHandler;
use winit::dpi::PhysicalSize;
use winit::event::{ElementState, MouseButton, MouseScrollDelta, WindowEvent};
use winit::event_loop::{ActiveEventLoop, ControlFlow, EventLoop};
use winit::keyboard::{Key, NamedKey};
use winit::raw_window_handle::HasDisplayHandle;
use winit::window::{Window, WindowId};

use crate::draw::{Bar, Camera, View};
use crate::gpu::Gpu;
use crate::instance::{Instance, Surface};
use crate::measure::{Alone, Summary, Times};
use crate::options::{KEYS, Options, must_stop, say};
use crate::swapchain::{Canvas, Swapchain};
use crate::ways::{HandOff, Ways};

/// The interval of checks for an image and for Ctrl-C while nothing is drawn.
const LOOK: Duration = Duration::from_millis(30);
const TITLE: Duration = Duration::from_millis(500);
/// How long the window must keep its size before the draw is measured again.
const STILL: Duration = Duration::from_millis(500);

/// Connects to the display. Fails if there is none.
pub fn connect() -> Result<EventLoop<()>> {
    let made = without_winit_panic(|| {
        #[allow(unused_mut)]
        let mut builder = EventLoop::builder();
        #[cfg(target_os = "linux")]
        if std::env::var_os("DISPLAY").is_some() && !has_wayland() {
            use winit::platform::x11::EventLoopBuilderExtX11;
            builder.with_x11();
        }
        builder.build()
    });
    // The text begins with a location in winit's source. Leave that out.
    let made = made.and_then(|made| {
        made.map_err(|error| anyhow!("{}", error.to_string().rsplit(": ").next().unwrap_or_default()))
    });
    made.map_err(|error| match package(&error.to_string()) {
        Some(package) => {
            error.context(format!("install Debian's package {package}, or another system's of that library"))
        }
        None => error,
    })
}

/// Returns whether a Wayland compositor listens where the environment says. winit does not try X11 after it.
#[cfg(target_os = "linux")]
fn has_wayland() -> bool {
    let variable = |name| std::env::var_os(name).unwrap_or_default();
    let socket = std::path::PathBuf::from(variable("XDG_RUNTIME_DIR")).join(variable("WAYLAND_DISPLAY"));
    !variable("WAYLAND_SOCKET").is_empty() || std::os::unix::net::UnixStream::connect(socket).is_ok()
}

/// Returns Debian's package of the first shared library that `text` names: its name in lower case, and its version.
fn package(text: &str) -> Option<String> {
    if text.contains("xlib's shared libraries") {
        // winit does not say which of them.
        return Some("libx11-6, libx11-xcb1, libxcursor1 or libxi6".into());
    }
    let library =
        text.split([' ', ':', '"', '`', ',']).find(|word| word.starts_with("lib") && word.contains(".so"))?;
    let (name, version) = library.split_once(".so")?;
    let version = version.split('.').nth(1).unwrap_or("0");
    let dash = if name.ends_with(|last: char| last.is_ascii_digit()) { "-" } else { "" };
    Some(format!("{}{dash}{version}", name.to_lowercase()))
}

/// Draws in a window until it is closed. Returns the frame times.
pub fn run(event_loop: EventLoop<()>, options: &Options) -> Result<Option<Summary>> {
    let mut app = App { options, state: None, outcome: Ok(()) };
    let ended = without_winit_panic(|| event_loop.run_app(&mut app)).and_then(|ran| Ok(ran?));
    let outcome = app.outcome.and(ended.context("the window system ended"));
    match app.state {
        None => outcome.map(|()| None),
        Some(State { ways, times, .. }) => ways.close(outcome).map(|()| times.newest(usize::MAX)),
    }
}

/// Turns a panic of winit into an error, and does not print it. winit panics if an X11 library is missing, and on
/// some errors of the X server. Other panics go on.
fn without_winit_panic<T>(run: impl FnOnce() -> T) -> Result<T> {
    let previous = Arc::new(take_hook());
    let is_of_winit = Arc::new(AtomicBool::new(false));
    let (print, seen) = (previous.clone(), is_of_winit.clone());
    set_hook(Box::new(move |panic| match panic.location().map(Location::file) {
        Some(file) if ["winit-", "xkbcommon-dl-"].iter().any(|name| file.contains(name)) => {
            seen.store(true, Relaxed)
        }
        _ => print(panic),
    }));
    let outcome = catch_unwind(AssertUnwindSafe(run));
    set_hook(Box::new(move |panic| previous(panic)));
    outcome.map_err(|panic| {
        if !is_of_winit.load(Relaxed) {
            resume_unwind(panic);
        }
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied());
        anyhow!("{}", text.unwrap_or("the window system failed"))
    })
}

struct App<'a> {
    options: &'a Options,
    /// `None` until the window is open.
    state: Option<State>,
    outcome: Result<()>,
}

impl App<'_> {
    /// Exits the event loop if `outcome` is an error, which is kept, or `false`.
    fn go_on(&mut self, event_loop: &ActiveEventLoop, outcome: Result<bool>) {
        if !matches!(outcome, Ok(true)) {
            event_loop.exit();
        }
        if let Err(error) = outcome {
            self.outcome = Err(error);
        }
    }
}

impl ApplicationHandler for App<'_> {
    fn resumed(&mut self, event_loop: &ActiveEventLoop) {
        if self.state.is_none() {
            let opened = State::open(event_loop, self.options).map(|state| self.state = Some(state));
            self.go_on(event_loop, opened.map(|()| true));
        }
    }

    fn window_event(&mut self, event_loop: &ActiveEventLoop, _: WindowId, event: WindowEvent) {
        if let (Some(state), Ok(())) = (&mut self.state, &self.outcome) {
            let outcome = match event {
                WindowEvent::CloseRequested => Ok(false),
                WindowEvent::RedrawRequested => {
                    state.redraw().map(|()| self.options.frames.is_none_or(|frames| state.drawn < frames))
                }
                WindowEvent::KeyboardInput { event, is_synthetic: false, .. }
                    if event.state == ElementState::Pressed =>
                {
                    state.press(&event.logical_key)
                }
                event => {
                    state.heed(&event);
                    Ok(true)
                }
            };
            self.go_on(event_loop, outcome);
        }
    }

    fn about_to_wait(&mut self, event_loop: &ActiveEventLoop) {
        if must_stop() {
            event_loop.exit();
        }
        let Some(state) = &mut self.state else { return };
        let now = Instant::now();
        // Ctrl-C does not wake the loop, so wake it from time to time.
        let retry = state.retry.filter(|&retry| retry > now);
        event_loop.set_control_flow(ControlFlow::WaitUntil(retry.unwrap_or(now + LOOK)));
        if retry.is_none() && !state.is_hidden {
            state.window.request_redraw();
        }
    }
}

struct State {
    ways: Ways,
    window: Arc<Window>,
    view: View,
    times: Times,
    drawn: u64,
    /// `None` until the window has kept its size for a while.
    alone: Option<Alone>,
    resized: Instant,
    titled: Instant,
    since_title: usize,
    pointer: Option<(f64, f64)>,
    is_dragged: bool,
    is_paused: bool,
    is_hidden: bool,
    shows_bar: bool,
    /// When to try again to acquire an image.
    retry: Option<Instant>,
}

impl State {
    fn open(event_loop: &ActiveEventLoop, options: &Options) -> Result<Self> {
        let display = event_loop.display_handle().context("the display has no handle")?.as_raw();
        let instance = Instance::new(Some(display), options.validation)?;
        let [width, height] = options.size;
        let attributes = Window::default_attributes()
            .with_title("wavefield")
            .with_inner_size(PhysicalSize::new(width, height));
        let window = Arc::new(event_loop.create_window(attributes).context("the window cannot be opened")?);
        let surface = Surface::new(&instance, &window)?;
        let gpu = Gpu::new(instance, options, Some(&surface))?;
        let swapchain = Swapchain::new(&gpu, surface, options.present)?;
        let ways = Ways::new(&gpu, Canvas::Window(swapchain), options)?;
        say(KEYS);
        let now = Instant::now();
        Ok(Self {
            ways,
            window,
            view: View { camera: Camera::default(), time: 0.0, step: 1.0 / 60.0, bar: None },
            times: Times::default(),
            drawn: 0,
            alone: None,
            resized: now,
            titled: now,
            since_title: 0,
            pointer: None,
            is_dragged: false,
            is_paused: false,
            is_hidden: false,
            shows_bar: true,
            retry: None,
        })
    }

    fn redraw(&mut self) -> Result<()> {
        let now = Instant::now();
        if self.alone.is_none() && self.drawn > 0 && now - self.resized > STILL {
            self.alone = Alone::measure(&mut self.ways, &self.view)?;
            self.times.pause();
        }
        let step = if self.is_paused { 0.0 } else { self.view.step };
        if !self.ways.draw(&View { step, ..self.view })? {
            // The window is minimised, or is being resized.
            self.retry = Some(now + LOOK);
            self.times.pause();
            return Ok(());
        }
        self.retry = None;
        self.drawn += 1;
        self.since_title += 1;
        if let Some(seconds) = self.times.frame() {
            // Smooth the step, because it is also the time between the frames of a batch.
            self.view.step += 0.1 * (seconds.min(0.25) - self.view.step);
            if !self.is_paused {
                self.view.time += seconds.min(0.25);
            }
        }
        if now - self.titled > TITLE {
            self.retitle();
            (self.titled, self.since_title) = (now, 0);
        }
        Ok(())
    }

    fn retitle(&mut self) {
        let Some(Summary { mean, p50, p95, p99, .. }) = self.times.newest(self.since_title) else { return };
        let Ways { frames, hand_off, batch, .. } = &self.ways;
        let who = match frames.field {
            Some(_) => format!("CUDA, ring {}, batch {batch}", frames.ring()),
            None => "compute shader, no CUDA".to_owned(),
        };
        let waits = if *hand_off == HandOff::Cpu { ", the CPU waits" } else { "" };
        let mut title = format!(
            "wavefield: {}, {who}{waits}: {mean:.2} ms a frame (p50 {p50:.2}, p95 {p95:.2}, p99 {p99:.2})",
            frames.gpu.name
        );
        self.view.bar = None;
        if let (Some(Alone { kernel, draw }), true) = (self.alone, self.shows_bar) {
            let rest = (mean - kernel - draw).max(0.0);
            title +=
                &format!(" = kernel {kernel:.2} (orange) + draw {draw:.2} (blue) + rest {rest:.2} (grey)");
            self.view.bar = Some(Bar([kernel, draw, rest]));
        }
        self.window.set_title(&title);
    }

    /// Handles a key. Returns `false` to end the program.
    fn press(&mut self, key: &Key) -> Result<bool> {
        let ring = self.ways.frames.ring();
        let Ways { batch, hand_off, .. } = &mut self.ways;
        match key.as_ref() {
            Key::Named(NamedKey::Escape) => return Ok(false),
            Key::Named(NamedKey::ArrowUp) => self.ways.change_ring(1)?,
            Key::Named(NamedKey::ArrowDown) => self.ways.change_ring(-1)?,
            Key::Named(NamedKey::ArrowRight) => *batch = (*batch + 1).min(ring),
            Key::Named(NamedKey::ArrowLeft) => *batch = (*batch - 1).max(1),
            Key::Named(NamedKey::Space) => self.is_paused ^= true,
            Key::Character("c" | "C") => {
                *hand_off = if *hand_off == HandOff::Cpu { HandOff::Gpu } else { HandOff::Cpu }
            }
            Key::Character("b" | "B") => self.shows_bar ^= true,
            _ => return Ok(true),
        }
        // Discard what was measured before the change.
        (self.since_title, self.titled) = (0, Instant::now());
        Ok(true)
    }

    /// Handles all other events.
    fn heed(&mut self, event: &WindowEvent) {
        match *event {
            WindowEvent::Resized(_) | WindowEvent::ScaleFactorChanged { .. } => {
                if let Canvas::Window(swapchain) = &mut self.ways.frames.canvas {
                    swapchain.is_stale = true;
                }
                (self.resized, self.alone, self.view.bar, self.retry) = (Instant::now(), None, None, None);
            }
            WindowEvent::Occluded(is_hidden) => {
                self.is_hidden = is_hidden;
                self.times.pause();
            }
            WindowEvent::MouseInput { state, button: MouseButton::Left, .. } => {
                self.is_dragged = state == ElementState::Pressed;
            }
            WindowEvent::CursorMoved { position, .. } => {
                let (x, y) = self.pointer.replace((position.x, position.y)).unwrap_or(position.into());
                if self.is_dragged {
                    self.view.camera.orbit((position.x - x) as f32, (position.y - y) as f32);
                }
            }
            WindowEvent::MouseWheel { delta, .. } => self.view.camera.zoom(match delta {
                MouseScrollDelta::LineDelta(_, lines) => lines,
                MouseScrollDelta::PixelDelta(pixels) => pixels.y as f32 / 40.0,
            }),
            _ => {}
        }
    }
}
