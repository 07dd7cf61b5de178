//! The window: draws and presents frames, takes input, shows the overlay, reloads saved kernels. It is on the
//! desktop, or offscreen for viewers elsewhere.
//!
//! - `state`: draws a frame; in it `open`, `switching` (settings) and `pictures` (what is saved)
//! - `screen`: what a window needs from its place, [`Input`] and [`RemoteViewer`]; `desktop`: winit's window;
//!   `offscreen`: a window for viewers elsewhere
//! - `controls`, `keys`: what the user changes, and how
//! - `overlay`: the panel with figures and settings, the lanes, the legend
//! - `reload`: a kernel's file was saved
//! - `web`: the window in a browser
//! - `clock`, `title`, `visibility`, `event_loop`: the field's time, the title, hidden windows, the display

#![warn(unreachable_pub)]

mod clock;
mod controls;
mod desktop;
mod event_loop;
mod keys;
mod offscreen;
mod overlay;
mod reload;
mod screen;
mod state;
mod title;
mod visibility;
#[cfg(all(feature = "web", target_os = "linux"))]
pub mod web;

use std::time::Instant;

use winit::application::ApplicationHandler;
use winit::event::{StartCause, WindowEvent};
use winit::event_loop::{ActiveEventLoop, ControlFlow};
use winit::window::WindowId;

use self::desktop::Desktop;
use self::event_loop::ended;
use self::offscreen::Offscreen;
use self::screen::Screen;
use self::state::WindowState;
use wavefield_gpu::{Error, Result, report::Failures, stuck_gpu};
use wavefield_run::{Config, Ended, FrameHookDesc, RunSummary, Stop, Traced};

pub use self::event_loop::EventLoop;
pub use self::screen::{Input, RemoteViewer, ViewerEvent};

/// Draws in a window until the user leaves, `stop` is requested, or `config.frames` are drawn. `hook` works
/// between two frames. Returns an error only before there is a window; later, a failure comes with a summary.
pub fn run_windowed(
    event_loop: &mut EventLoop,
    config: &Config,
    stop: &Stop,
    hook: Option<FrameHookDesc<'_>>,
) -> Result<Ended> {
    let mut app = WindowApp::<Desktop>::begin(config, stop, hook)?;
    let ran = event_loop.run(&mut app);
    app.failures.catch(ran);
    app.end()
}

/// Like [`run_windowed`], without a display: `remote` shows the pictures.
pub fn run_remote(
    remote: Box<dyn RemoteViewer>,
    config: &Config,
    stop: &Stop,
    hook: Option<FrameHookDesc<'_>>,
) -> Result<Ended> {
    let mut app = WindowApp::begin(config, stop, hook)?;
    app.open(|hook| WindowState::remote(remote, config, hook))?;
    while !app.left && !app.is_done() {
        app.turn();
    }
    app.end()
}

struct WindowApp<'a, S: Screen> {
    config: &'a Config,
    stop: &'a Stop,
    traced: Option<Traced>,
    hook: Option<FrameHookDesc<'a>>,
    state: Option<WindowState<S>>,
    failures: Failures,
    left: bool,
}

impl<'a, S: Screen> WindowApp<'a, S> {
    fn begin(config: &'a Config, stop: &'a Stop, hook: Option<FrameHookDesc<'a>>) -> Result<Self> {
        let traced = Traced::begin(config)?;
        Ok(Self { config, stop, hook, traced, state: None, failures: Failures::default(), left: false })
    }

    fn open(&mut self, make: impl FnOnce(Option<FrameHookDesc<'_>>) -> Result<WindowState<S>>) -> Result<()> {
        if self.state.is_none() {
            let mut state = make(self.hook.take())?;
            state.engine.set_stop(self.stop);
            if let Some(traced) = &self.traced {
                traced.follow(&mut state.engine)?;
            }
            self.state = Some(state);
        }
        Ok(())
    }

    /// An error ends the run.
    fn attempt(&mut self, step: impl FnOnce(&mut Self) -> Result<()>) {
        if self.left {
            return;
        }
        if let Err(error) = step(self) {
            self.failures.add(error);
            self.left = true;
        }
    }

    /// Like [`WindowApp::attempt`], for a step that needs the screen. Does nothing without one.
    fn attempt_shown(&mut self, step: impl FnOnce(&mut WindowState<S>) -> Result<()>) {
        self.attempt(|app| app.state.as_mut().map_or(Ok(()), step));
    }

    fn on_input(&mut self, input: Input) {
        self.attempt(|app| {
            let Some(state) = &mut app.state else { return Ok(()) };
            app.left |= state.on_input(input)?;
            Ok(())
        });
    }

    /// Never true before there is a screen, so that even an early stop ends with a summary.
    fn is_done(&self) -> bool {
        let Some(state) = &self.state else { return false };
        let drawn = state.engine.next_frame();
        self.stop.requested() || self.config.frames.is_some_and(|frames| drawn >= frames)
    }

    fn end(self) -> Result<Ended> {
        let Self { traced, state, mut failures, .. } = self;
        let Some(mut state) = state else {
            failures.outcome()?;
            return Err(ended("before a window could be opened".into()));
        };
        if let Some(hook) = &mut state.hook {
            hook.shut();
        }
        let recorded = state.end_film(&mut failures);
        if let Some(traced) = traced {
            traced.end(&mut state.engine, &mut failures);
        }
        let times = std::mem::take(&mut state.times);
        let summary = state.engine.summary(times, state.skipped, &mut failures);
        let summary = RunSummary { recorded, parts: state.overlay.parts(), ..summary };
        if let Some(hook) = &mut state.hook {
            let reason = failures.first().map_or("the renderer was ended".into(), Error::to_string);
            failures.catch(hook.close(&state.engine, &reason));
        }
        let log = state.instance.validation_log().clone();
        // The hook owns a client's memory, so it may be dropped only at rest.
        match state.engine.work.quiesce() {
            true => drop(state),
            false => stuck_gpu::leak(state),
        }
        Ok(Ended::new(summary, failures, &log))
    }
}

impl WindowApp<'_, Offscreen> {
    fn turn(&mut self) {
        let Some(state) = &mut self.state else { return };
        state.screen.inputs().into_iter().for_each(|input| self.on_input(input));
        self.attempt_shown(|state| {
            state.between_frames(Instant::now())?;
            match state.sleeps_until(Instant::now()) {
                Some(at) => state.screen.wait(at),
                None => state.redraw()?,
            }
            state.collect()
        });
    }
}

impl WindowApp<'_, Desktop> {
    fn leave_if_over(&mut self, event_loop: &ActiveEventLoop) {
        self.left |= self.is_done();
        if self.left {
            event_loop.exit();
        }
    }
}

impl ApplicationHandler for WindowApp<'_, Desktop> {
    fn resumed(&mut self, event_loop: &ActiveEventLoop) {
        let config = self.config;
        self.attempt(|app| app.open(|hook| WindowState::window(event_loop, config, hook)));
        self.leave_if_over(event_loop);
    }

    fn new_events(&mut self, event_loop: &ActiveEventLoop, _cause: StartCause) {
        self.leave_if_over(event_loop);
    }

    fn window_event(&mut self, event_loop: &ActiveEventLoop, _window: WindowId, event: WindowEvent) {
        if let WindowEvent::RedrawRequested = event {
            if !self.is_done() {
                self.attempt_shown(WindowState::redraw);
            }
        } else if let Some(state) = &mut self.state {
            state.wake();
            state.screen.inputs(&event).into_iter().for_each(|input| self.on_input(input));
        }
        self.leave_if_over(event_loop);
    }

    fn about_to_wait(&mut self, event_loop: &ActiveEventLoop) {
        self.attempt_shown(|state| state.between_frames(Instant::now()));
        self.leave_if_over(event_loop);
        let Some(state) = self.state.as_mut().filter(|_| !self.left) else { return };
        match state.sleeps_until(Instant::now()) {
            Some(at) => event_loop.set_control_flow(ControlFlow::WaitUntil(at)),
            None => {
                event_loop.set_control_flow(ControlFlow::Poll);
                state.screen.window().request_redraw();
            }
        }
    }
}
