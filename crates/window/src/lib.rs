//! The window: draws and presents frames, takes keys and mouse, shows the overlay, reloads kernels that were saved.
//!
//! - `state`: draws a frame; `state/open`: the start; `state/switching`: settings that change; `state/pictures`: what is saved
//! - `controls`, `keys`: what the user changes, and how
//! - `overlay`: the panel with figures and settings, the lanes, the legend
//! - `reload`: a kernel's file was saved
//! - `clock`, `title`, `visibility`, `event_loop`: the field's time, the title's text, hidden windows, the connection to the display

mod clock;
mod controls;
mod event_loop;
mod keys;
mod overlay;
mod reload;
mod state;
mod title;
mod visibility;

use std::time::Instant;

use winit::application::ApplicationHandler;
use winit::event::{ElementState, StartCause, WindowEvent};
use winit::event_loop::{ActiveEventLoop, ControlFlow};
use winit::window::WindowId;

use self::event_loop::ended;
use self::keys::Action;
use self::state::State;
use wavefield_base::{Error, Result, report::Failures, stuck_gpu};
use wavefield_engine::{Config, Ended, FrameHookDesc, Stop, Summary, Traced};

pub use self::event_loop::EventLoop;

/// Opens a window and draws in it until the user closes or leaves it, `stop` is requested, or `config.frames` are drawn.
/// Once there is a window, a failure comes with a summary.
///
/// # Errors
/// The run failed before it had a window.
pub fn run_windowed(event_loop: &mut EventLoop, config: &Config, stop: &Stop) -> Result<Ended> {
    run_with(event_loop, config, stop, None)
}

/// [`run_windowed`] with an optional hook.
pub fn run_with(
    event_loop: &mut EventLoop,
    config: &Config,
    stop: &Stop,
    hook: Option<FrameHookDesc<'_>>,
) -> Result<Ended> {
    let traced = Traced::begin(config)?;
    let mut app = App { config, stop, hook, traced, state: None, failures: Failures::default(), left: false };
    let ran = event_loop.run(&mut app);
    let App { traced, state, mut failures, .. } = app;
    failures.catch(ran);
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
    let summary = Summary { recorded, parts: state.overlay.parts(), ..summary };
    if let Some(hook) = &mut state.hook {
        let reason = failures.first().map_or("the renderer was ended".into(), Error::to_string);
        failures.catch(hook.close(&state.engine, &reason));
    }
    let log = state.instance.validation_log().clone();
    // A client's memory is the hook's.
    match state.engine.quiesce() {
        true => drop(state),
        false => stuck_gpu::leak(state),
    }
    Ok(Ended::new(summary, failures, &log))
}

struct App<'a> {
    config: &'a Config,
    stop: &'a Stop,
    traced: Option<Traced>,
    hook: Option<FrameHookDesc<'a>>,
    state: Option<State>,
    failures: Failures,
    /// Whether the event loop was told to exit. Nothing is drawn any more.
    left: bool,
}

impl App<'_> {
    /// Runs a step. An error ends the run.
    fn attempt(&mut self, event_loop: &ActiveEventLoop, step: impl FnOnce(&mut Self) -> Result<()>) {
        if self.left {
            return;
        }
        if let Err(error) = step(self) {
            self.failures.add(error);
            self.leave(event_loop);
        }
    }

    /// [`App::attempt`] for a step that needs the window. Does nothing without one.
    fn attempt_shown(&mut self, event_loop: &ActiveEventLoop, step: impl FnOnce(&mut State) -> Result<()>) {
        self.attempt(event_loop, |app| app.state.as_mut().map_or(Ok(()), step));
    }

    fn leave(&mut self, event_loop: &ActiveEventLoop) {
        self.left = true;
        event_loop.exit();
    }

    /// Whether to leave. Never before the window exists, so that even an early stop ends with a summary.
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
                let mut state = State::new(event_loop, app.config, app.hook.take())?;
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
        if let Some(state) = &mut self.state {
            if !matches!(event, WindowEvent::RedrawRequested) {
                state.stir();
            }
            if state.overlay_takes(&event) {
                return;
            }
        }
        match event {
            WindowEvent::CloseRequested => self.leave(event_loop),
            // The key was already down when the window got the focus, so it was meant for another window.
            WindowEvent::KeyboardInput { is_synthetic: true, .. } => {}
            WindowEvent::KeyboardInput { event, .. } => {
                let is_pressed = event.state == ElementState::Pressed && !event.repeat;
                match Action::of(&event.logical_key).filter(|_| is_pressed) {
                    Some(Action::Leave) => self.leave(event_loop),
                    Some(Action::Close) if !self.state.as_mut().is_some_and(State::close_innermost) => {
                        self.leave(event_loop);
                    }
                    Some(action) => self.attempt_shown(event_loop, |state| state.press(action)),
                    None => {}
                }
            }
            WindowEvent::RedrawRequested if !self.is_done() => {
                self.attempt_shown(event_loop, State::redraw);
            }
            event => self.attempt_shown(event_loop, |state| state.handle(event)),
        }
    }

    fn about_to_wait(&mut self, event_loop: &ActiveEventLoop) {
        if self.is_done() {
            return self.leave(event_loop);
        }
        self.attempt_shown(event_loop, |state| {
            state.look(Instant::now());
            state.reload()?;
            state.serve_while_still(Instant::now())
        });
        let Some(state) = &mut self.state else { return };
        match state.sleeps_until(Instant::now()) {
            Some(at) => event_loop.set_control_flow(ControlFlow::WaitUntil(at)),
            None => {
                event_loop.set_control_flow(ControlFlow::Poll);
                state.window.request_redraw();
            }
        }
    }
}
