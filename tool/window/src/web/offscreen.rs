//! A window without a display: draws into an image, and sends the pictures to the pages.

use std::time::{Duration, Instant};

use ash::vk;

use super::{ViewerEvent, Web};
use crate::keys::Action;
use crate::screen::{Screen, ScreenPicture};
use crate::state::WindowState;
use wavefield_draw::{OffscreenTarget, Picture};
use wavefield_gpu::vulkan::{Flight, PresentMode, Queue};
use wavefield_gpu::{Result, report::Failures};
use wavefield_run::watch::recording::Copies;
use wavefield_run::{Config, DeviceTable, Ended, Engine, FrameHookDesc, Stop, Traced, check_picture};

/// 62.5 pictures a second, a few more than most displays show.
const PERIOD: Duration = Duration::from_millis(16);

struct Offscreen {
    target: Option<OffscreenTarget>,
    /// The size that a viewer last asked for, and the last size for which there was enough memory.
    extent: vk::Extent2D,
    fitting: vk::Extent2D,
    /// Pictures on their way to the viewers, with the numbers of their frames.
    copies: Copies<u64>,
    mode: PresentMode,
    due: Instant,
    /// Whether this run is `serve`, whose clients ask for pictures even before there is a viewer.
    serves: bool,
    failed: bool,
    web: Web,
}

/// Like [`crate::run_windowed`], but without a display: the pages show the pictures.
pub fn run_remote(web: Web, config: &Config, stop: &Stop, hook: Option<FrameHookDesc<'_>>) -> Result<Ended> {
    let traced = Traced::begin(config)?;
    let choice =
        DeviceTable::headless(config.validation)?.choose(config.device.as_deref(), config.producer)?;
    // Without a display, the newest picture is always sent, so `Mailbox` is the same as `Immediate`.
    let mode = match config.present {
        PresentMode::Mailbox => PresentMode::Immediate,
        mode => mode,
    };
    let serves = hook.is_some();
    let mut state = WindowState::open(choice, false, config, hook, stop, traced.as_ref(), |device, _| {
        check_picture(config.size, device)?;
        let offscreen = Offscreen {
            target: None,
            extent: config.size,
            fitting: config.size,
            copies: Copies::new(device),
            mode,
            due: Instant::now(),
            serves,
            failed: false,
            web,
        };
        Ok((offscreen, mode, 1.0))
    })?;
    let mut failures = Failures::default();
    while !state.is_done(stop) && failures.catch(state.turn()).unwrap_or(false) {}
    Ok(state.end(traced, failures))
}

impl WindowState<Offscreen> {
    /// Returns false once a viewer wants to leave.
    fn turn(&mut self) -> Result<bool> {
        let inputs = self.screen.web.inputs();
        if self.on_inputs(inputs)? {
            return Ok(false);
        }
        match self.between_frames()? {
            Some(at) => self.screen.web.wait(at),
            None => self.redraw()?,
        }
        // A hook that is not ready is still repairing the engine.
        if self.run.is_ready() {
            self.screen.collect(&mut self.run.engine).or_else(|error| self.run.mend(error))?;
        }
        Ok(true)
    }
}

impl Offscreen {
    /// Schedules the next picture one period after the previous one was due, so that the rate does not drift.
    fn go_on(&mut self) {
        self.due = (self.due + PERIOD).max(Instant::now() - PERIOD);
    }

    fn collect(&mut self, engine: &mut Engine) -> Result<()> {
        for (frame, flight) in self.copies.pending() {
            if self.mode == PresentMode::Fifo {
                // The next picture is not due yet, so there is time to wait.
                engine.work.wait_drawn(frame + 1)?;
            } else if engine.work.drawn()? <= frame {
                break;
            }
            if let Some((_, pixels)) = self.copies.take(flight) {
                self.web.send(pixels?);
            }
        }
        Ok(())
    }
}

impl Screen for Offscreen {
    fn option(&self) -> String {
        let address = self.web.address();
        if address.port() == 0 {
            return String::new();
        }
        format!(" --web {address}{}", if address.ip().is_loopback() { "" } else { " --web-exposed" })
    }

    fn extent(&self) -> vk::Extent2D {
        self.target.as_ref().map_or(vk::Extent2D::default(), |target| target.image().extent())
    }

    fn format(&self) -> vk::Format {
        OffscreenTarget::FORMAT
    }

    fn modes(&self) -> &[PresentMode] {
        &[PresentMode::Fifo, PresentMode::Immediate]
    }

    fn set_mode(&mut self, mode: PresentMode) {
        self.mode = mode;
    }

    fn resize(&mut self, extent: vk::Extent2D) {
        self.extent = extent;
    }

    fn is_stale(&self) -> bool {
        self.extent() != self.extent
    }

    fn fit(&mut self, engine: &mut Engine) -> Result<()> {
        let mut make = |extent| -> Result<()> {
            // Drop the old target first, so that two never exist at once.
            self.target = None;
            engine.resize(extent)?;
            self.target = Some(OffscreenTarget::new(engine.device(), extent, OffscreenTarget::FORMAT)?);
            Ok(())
        };
        if let Err(error) = make(self.extent) {
            let vk::Extent2D { width, height } = self.extent;
            wavefield_gpu::note!("note: the picture cannot have {width}x{height} pixels: {error}");
            self.extent = self.fitting;
            make(self.extent)?;
        }
        self.fitting = self.extent;
        Ok(())
    }

    unsafe fn acquire(&mut self, _queue: &mut Queue, _flight: &Flight) -> Result<Option<ScreenPicture>> {
        Ok(self.target.as_ref().map(|target| ScreenPicture { picture: target.picture(), present: None }))
    }

    fn present(&mut self, _queue: &mut Queue, _canvas: &ScreenPicture) -> Result<()> {
        if self.mode == PresentMode::Fifo {
            self.go_on();
        }
        Ok(())
    }

    fn wants(&mut self) -> bool {
        let is_due = self.mode == PresentMode::Fifo || Instant::now() >= self.due;
        is_due && self.web.is_watched() && self.copies.pending().is_empty()
    }

    unsafe fn record(&mut self, commands: vk::CommandBuffer, flight: usize, picture: &Picture, frame: u64) {
        // SAFETY: the caller upholds the contract of `Screen::record`.
        let recorded = unsafe { self.copies.record(commands, flight, picture, frame) };
        let failure = recorded.err();
        if let Some(error) = failure.as_ref().filter(|_| !self.failed) {
            wavefield_gpu::note!("note: no picture is sent: {error}");
        }
        self.failed = failure.is_some();
        if self.mode != PresentMode::Fifo {
            self.go_on();
        }
    }

    fn is_hidden(&mut self) -> bool {
        // The first redraw makes the target, and with it the size of such a picture.
        !(self.web.is_watched() || self.serves && self.target.is_none())
    }

    fn due(&self) -> Option<Instant> {
        (self.mode == PresentMode::Fifo).then_some(self.due)
    }

    fn set_title(&mut self, title: &str) {
        self.web.send_event(ViewerEvent::Title(title.to_owned()));
    }

    /// A viewer cannot access files on this machine, and must not end a run that others watch.
    fn takes(&self, action: Action) -> bool {
        !matches!(action, Action::Picture | Action::Record | Action::FullScreen | Action::Leave)
    }

    fn copy(&mut self, text: &str) -> String {
        self.web.send_event(ViewerEvent::Copy(text.to_owned()));
        format!("sent to the page: {text}")
    }
}
