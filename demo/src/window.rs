//! The window: opens it, draws in it, and does what the user asks for.

use std::panic::catch_unwind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use winit::application::ApplicationHandler;
use winit::dpi::PhysicalSize;
use winit::event::{ElementState, KeyEvent, MouseButton, MouseScrollDelta, WindowEvent};
use winit::event_loop::{ActiveEventLoop, ControlFlow, EventLoop};
use winit::keyboard::{Key, NamedKey};
use winit::raw_window_handle::HasDisplayHandle;
use winit::window::{Window, WindowId};

use crate::Options;
use crate::draw::{Bar, Camera, View};
use crate::frame::{Canvas, Frames, Sync};
use crate::gpu::Gpu;
use crate::instance::Instance;
use crate::measure::{Alone, Summary, Times};
use crate::swapchain::{Surface, Swapchain};

const KEYS: &str = "Drag to turn, wheel to zoom. Keys: up and down change the ring, left and right the batch; \
                    C lets the CPU wait, B hides the bar, space pauses, escape ends.";

/// How often to look whether a hidden window can be drawn again, and whether Ctrl-C was pressed.
const HIDDEN: Duration = Duration::from_millis(100);
/// How often the title changes.
const TITLE: Duration = Duration::from_millis(500);
/// How long the window must have had its size before the draw is measured again.
const STILL: Duration = Duration::from_millis(500);

/// Connects to the display. An error if there is none.
pub fn connect() -> Result<EventLoop<()>> {
    // winit panics if one of the X11 libraries that it opens at run time is missing.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let made = catch_unwind(|| EventLoop::builder().build());
    std::panic::set_hook(hook);
    match made {
        Ok(Ok(event_loop)) => Ok(event_loop),
        Ok(Err(error)) => Err(anyhow!("{error}")),
        Err(panic) => Err(match panic.downcast_ref::<String>() {
            Some(text) => anyhow!("{text}"),
            None => anyhow!("the window system's libraries are incomplete"),
        }),
    }
}

/// Draws in a window until it is closed. Returns the frame times.
pub fn run(event_loop: EventLoop<()>, options: &Options) -> Result<Option<Summary>> {
    let mut app = App { options, state: None, outcome: Ok(()) };
    let ended = event_loop.run_app(&mut app).context("the window system ended");
    let outcome = app.outcome.and(ended);
    match app.state {
        None => outcome.map(|()| None),
        Some(State { frames, times, .. }) => frames.close(outcome).map(|()| times.newest(usize::MAX)),
    }
}

struct App<'a> {
    options: &'a Options,
    /// `None` until the window is open.
    state: Option<State>,
    outcome: Result<()>,
}

impl App<'_> {
    /// Ends after an error.
    fn note(&mut self, event_loop: &ActiveEventLoop, outcome: Result<()>) {
        if outcome.is_err() && self.outcome.is_ok() {
            self.outcome = outcome;
            event_loop.exit();
        }
    }
}

impl ApplicationHandler for App<'_> {
    fn resumed(&mut self, event_loop: &ActiveEventLoop) {
        if self.state.is_none() {
            let opened = State::open(event_loop, self.options).map(|state| self.state = Some(state));
            self.note(event_loop, opened);
        }
    }

    fn window_event(&mut self, event_loop: &ActiveEventLoop, _: WindowId, event: WindowEvent) {
        let Some(state) = &mut self.state else { return };
        if self.outcome.is_err() {
            return;
        }
        let done = match event {
            WindowEvent::CloseRequested => {
                event_loop.exit();
                Ok(())
            }
            WindowEvent::RedrawRequested => {
                let drawn = state.redraw();
                if self.options.frames.is_some_and(|frames| state.drawn >= frames) {
                    event_loop.exit();
                }
                drawn
            }
            WindowEvent::KeyboardInput {
                event: KeyEvent { logical_key, state: ElementState::Pressed, .. },
                ..
            } => match logical_key {
                Key::Named(NamedKey::Escape) => {
                    event_loop.exit();
                    Ok(())
                }
                key => state.press(&key),
            },
            event => {
                state.heed(&event);
                Ok(())
            }
        };
        self.note(event_loop, done);
    }

    fn about_to_wait(&mut self, event_loop: &ActiveEventLoop) {
        if crate::must_stop() {
            event_loop.exit();
        }
        let Some(state) = &mut self.state else { return };
        let now = Instant::now();
        if state.is_hidden {
            return event_loop.set_control_flow(ControlFlow::WaitUntil(now + HIDDEN));
        }
        match state.retry.filter(|&retry| retry > now) {
            Some(retry) => event_loop.set_control_flow(ControlFlow::WaitUntil(retry)),
            None => {
                state.window.request_redraw();
                // A redraw wakes the loop, but Ctrl-C does not.
                event_loop.set_control_flow(ControlFlow::WaitUntil(now + HIDDEN));
            }
        }
    }
}

/// An open window.
struct State {
    frames: Frames,
    window: Arc<Window>,
    view: View,
    times: Times,
    drawn: u64,
    /// `None` until the window had its size for a while.
    alone: Option<Alone>,
    resized: Instant,
    titled: Instant,
    since_title: usize,
    pointer: Option<(f64, f64)>,
    is_dragged: bool,
    is_paused: bool,
    is_hidden: bool,
    shows_bar: bool,
    /// When to try again to get an image.
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
        let presents = |physical, family| surface.is_reached_by(physical, family);
        let gpu = Gpu::new(instance, &options.wish(Some(&presents)))?;
        let swapchain = Swapchain::new(&gpu, surface, options.present)?;
        let frames = options.frames(&gpu, Canvas::Window(swapchain))?;
        crate::say(KEYS);
        let now = Instant::now();
        Ok(Self {
            frames,
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
        if self.is_hidden {
            return Ok(());
        }
        let now = Instant::now();
        if self.alone.is_none() && self.drawn > 0 && now - self.resized > STILL {
            self.measure()?;
        }
        if !self.frames.draw(&self.view)? {
            // Minimised, or being resized.
            self.retry = Some(now + HIDDEN);
            self.times.pause();
            return Ok(());
        }
        self.retry = None;
        self.drawn += 1;
        self.since_title += 1;
        if let Some(seconds) = self.times.frame() {
            // A smooth step, because the frames of a batch are that far apart.
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

    fn measure(&mut self) -> Result<()> {
        if let Canvas::Window(swapchain) = &self.frames.canvas {
            let extent = swapchain.extent();
            self.alone = Some(Alone::measure(&mut self.frames, &self.view, extent)?);
            self.times.pause();
        }
        Ok(())
    }

    /// Brings the title and the bar up to date.
    fn retitle(&mut self) {
        let Some(Summary { mean, p99, .. }) = self.times.newest(self.since_title) else { return };
        let Frames { field, sync, batch, gpu, .. } = &self.frames;
        let who = match (field, sync) {
            (None, _) => "compute shader, no CUDA".to_owned(),
            (Some(_), Sync::Cpu) => {
                format!("CUDA, ring {}, batch {batch}, the CPU waits", self.frames.ring())
            }
            (Some(_), _) => format!("CUDA, ring {}, batch {batch}", self.frames.ring()),
        };
        let mut title = format!("wavefield: {}, {who}: {mean:.2} ms a frame, p99 {p99:.2}", gpu.name);
        self.view.bar = None;
        if let (Some(Alone { kernel, draw }), true) = (self.alone, self.shows_bar) {
            let rest = (mean - kernel - draw).max(0.0);
            title +=
                &format!(" = kernel {kernel:.2} (orange) + draw {draw:.2} (blue) + rest {rest:.2} (grey)");
            self.view.bar = Some(Bar::of([kernel, draw, rest]));
        }
        self.window.set_title(&title);
    }

    /// Does what a key stands for.
    fn press(&mut self, key: &Key) -> Result<()> {
        let (ring, batch) = (self.frames.ring(), self.frames.batch);
        match key {
            Key::Named(NamedKey::ArrowUp) => self.frames.set_ring((ring + 1).min(32))?,
            Key::Named(NamedKey::ArrowDown) => self.frames.set_ring((ring - 1).max(1))?,
            Key::Named(NamedKey::ArrowRight) => self.frames.batch = (batch + 1).min(ring),
            Key::Named(NamedKey::ArrowLeft) => self.frames.batch = (batch - 1).max(1),
            Key::Named(NamedKey::Space) => self.is_paused ^= true,
            Key::Character(letter) if letter == "c" => {
                self.frames.sync = if self.frames.sync == Sync::Cpu { Sync::Gpu } else { Sync::Cpu };
            }
            Key::Character(letter) if letter == "b" => self.shows_bar ^= true,
            _ => return Ok(()),
        }
        // What was measured before the change does not count.
        self.since_title = 0;
        self.titled = Instant::now();
        Ok(())
    }

    /// What the window system tells.
    fn heed(&mut self, event: &WindowEvent) {
        match *event {
            WindowEvent::Resized(_) | WindowEvent::ScaleFactorChanged { .. } => {
                if let Canvas::Window(swapchain) = &mut self.frames.canvas {
                    swapchain.invalidate();
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
