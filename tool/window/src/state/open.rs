//! Opens the window, and ends the run.

use std::sync::Arc;
use std::time::Instant;

use ash::vk;
use winit::dpi::PhysicalSize;
use winit::event_loop::ActiveEventLoop;
use winit::raw_window_handle::HasDisplayHandle;
use winit::window::Window;

use super::settings::own;
use super::{Pace, Pictures, Running, WindowState};
use crate::clock::FieldClock;
use crate::controls::Controls;
use crate::desktop::Desktop;
use crate::overlay::Overlay;
use crate::reload::Reloader;
use crate::screen::Screen;
use crate::title::Title;
use wavefield_gpu::vulkan::{Device, DeviceDesc, Instance, PresentMode, Swapchain, WindowSurface};
use wavefield_gpu::{Error, Result, report::Failures, stuck_gpu};
use wavefield_run::watch::recording::Film;
use wavefield_run::{
    Choice, Config, ContextThread, DeviceTable, DriverThread, Ended, Engine, FrameHookDesc, FrameTimes,
    Parameters, RunSummary, Stop, Traced, announce,
};

impl WindowState<Desktop> {
    pub(crate) fn window(
        event_loop: &ActiveEventLoop,
        config: &Config,
        hook: Option<FrameHookDesc<'_>>,
        stop: &Stop,
        traced: Option<&Traced>,
    ) -> Result<Self> {
        let (vk::Extent2D { width, height }, limit) = (config.size, u32::from(u16::MAX));
        if width.max(height) > limit {
            // winit would panic: X11 has 16 bits for each side.
            return Err(Error::Unsupported(format!(
                "a window of {width}x{height} is too large: neither side may exceed {limit}"
            )));
        }
        let cuda = DriverThread::begin();
        let display = event_loop.display_handle().map_err(|error| Error::Window {
            what: "asking the display for its handle",
            reason: error.to_string(),
        })?;
        let instance = Instance::new(config.validation, Some(display.as_raw()))?;
        let attributes = Window::default_attributes()
            .with_title("wavefield")
            .with_inner_size(PhysicalSize::new(width, height));
        let window = event_loop
            .create_window(attributes)
            .map_err(|error| Error::Window { what: "opening a window", reason: error.to_string() })?;
        let window = Arc::new(window);
        let scale = window.scale_factor();
        if !(0.1..=100.0).contains(&scale) {
            let reason =
                format!("the display's scale is {scale:e}: correct WINIT_X11_SCALE_FACTOR or Xft.dpi");
            return Err(Error::Window { what: "opening a window", reason });
        }
        let surface = WindowSurface::new(&instance, window.clone())?;
        let choice = DeviceTable::query(&instance, Some(&surface), cuda)?
            .choose(config.device.as_deref(), config.producer)?;
        Self::open(choice, true, config, hook, stop, traced, |device, egui| {
            let mut swapchain = Swapchain::new(device, &surface, config.present)?;
            if config.record.is_some() {
                swapchain.make_readable()?;
            }
            let (mode, scale) = (swapchain.mode(), scale as f32);
            Ok((Desktop::new(window, swapchain, egui, scale), mode, scale))
        })
    }
}

impl<S: Screen> WindowState<S> {
    /// Begins a run: creates the device, the screen, the engine and the overlay. `presents`: whether Vulkan
    /// presents the screen's pictures. `screen` creates the screen, and returns it with its present mode and
    /// its pixels per point.
    pub(crate) fn open(
        choice: Choice,
        presents: bool,
        config: &Config,
        hook: Option<FrameHookDesc<'_>>,
        stop: &Stop,
        traced: Option<&Traced>,
        screen: impl FnOnce(&Device, egui::Context) -> Result<(S, PresentMode, f32)>,
    ) -> Result<Self> {
        let config = &config.suited_to(choice.adapter.info().kind, true);
        announce(&choice, config);
        let context = ContextThread::begin(&choice, config, true);
        let (device, queue) = choice.adapter.request_device(&DeviceDesc {
            present: presents,
            // The user may later switch to a producer that shares memory with CUDA, or to `inline`.
            interop: choice.twin.is_some() || (hook.is_some() && choice.can_export()),
            inline: true,
        })?;
        let egui = egui::Context::default();
        let (screen, present, scale) = screen(&device, egui.clone())?;
        let flights = hook.as_ref().map_or(1, |hook| hook.flights);
        let mut engine = Engine::new(queue, context, &choice, config, screen.format(), flights)?;
        let overlay = Overlay::new(egui, scale, engine.queue(), screen.format(), config.overlay)?;
        let film = Film::start(&device, config, screen.format(), false)?;
        let now = Instant::now();
        let mut state = Self {
            run: Running {
                hook: hook.map(|hook| (hook.make)(choice.clone())).transpose()?,
                engine,
                config: Config { present, ..config.clone() },
                parameters: Parameters::new(config),
                choice,
                own: own(config),
                reload: config.reload.clone().and_then(Reloader::new),
            },
            pictures: Pictures { snapshot: None, film, began: now },
            screen,
            overlay,
            controls: Controls::new(config),
            pace: Pace {
                clock: FieldClock::default(),
                times: FrameTimes::default(),
                skipped: 0,
                retry: None,
                changed: (now, 0),
                seen: None,
            },
            title: Title::new(),
        };
        state.run.engine.set_stop(stop);
        traced.map_or(Ok(()), |traced| traced.follow(&mut state.run.engine))?;
        Ok(state)
    }

    /// Ends the run, even after a failure.
    pub(crate) fn end(mut self, traced: Option<Traced>, mut failures: Failures) -> Ended {
        if let Some(hook) = &mut self.run.hook {
            hook.shut();
        }
        let recorded = self.end_film(&mut failures);
        if let Some(traced) = traced {
            traced.end(&mut self.run.engine, &mut failures);
        }
        let times = std::mem::take(&mut self.pace.times);
        let summary = self.run.engine.summary(times, self.pace.skipped, &mut failures);
        let summary = RunSummary { recorded, parts: self.overlay.parts(), ..summary };
        if let Some(hook) = &mut self.run.hook {
            let reason = failures.first().map_or("the renderer was ended".into(), Error::to_string);
            failures.catch(hook.close(&self.run.engine, &reason));
        }
        let log = self.run.engine.device().instance().validation_log().clone();
        // The hook owns a client's memory, so drop it only when the GPU is idle, and leak it otherwise.
        match self.run.engine.work.quiesce() {
            true => drop(self),
            false => stuck_gpu::leak(self),
        }
        Ended::new(summary, failures, &log)
    }
}
