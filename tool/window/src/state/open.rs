use std::sync::Arc;
use std::time::Instant;

use ash::vk;
use winit::dpi::PhysicalSize;
use winit::event_loop::ActiveEventLoop;
use winit::raw_window_handle::HasDisplayHandle;
use winit::window::Window;

use super::WindowState;
use super::pictures::Snapshot;
use super::switching::own;
use crate::clock::FieldClock;
use crate::controls::Controls;
use crate::desktop::Desktop;
use crate::offscreen::Offscreen;
use crate::overlay::Overlay;
use crate::reload::Reloader;
use crate::screen::{RemoteViewer, Screen};
use crate::title::Title;
use wavefield_gpu::vulkan::{Device, DeviceDesc, Instance, PresentMode, Swapchain, WindowSurface};
use wavefield_gpu::{Error, Result};
use wavefield_run::{
    Choice, Config, ContextThread, DeviceTable, DriverThread, Engine, FrameHookDesc, FrameTimes, announce,
    check_picture, record,
};

/// X11's sizes have 16 bits, and winit would panic.
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

impl WindowState<Desktop> {
    pub(crate) fn window(
        event_loop: &ActiveEventLoop,
        config: &Config,
        hook: Option<FrameHookDesc<'_>>,
    ) -> Result<Self> {
        check_size(config.size)?;
        let cuda = DriverThread::begin();
        let display = event_loop.display_handle().map_err(|error| Error::Window {
            what: "asking the display for its handle",
            reason: error.to_string(),
        })?;
        let instance = Instance::new(config.validation, Some(display.as_raw()))?;
        let attributes = Window::default_attributes()
            .with_title("wavefield")
            .with_inner_size(PhysicalSize::new(config.size.width, config.size.height));
        let window = event_loop
            .create_window(attributes)
            .map_err(|error| Error::Window { what: "opening a window", reason: error.to_string() })?;
        let window = Arc::new(window);
        let surface = WindowSurface::new(&instance, window.clone())?;
        let choice = DeviceTable::query(&instance, Some(&surface), cuda)?
            .choose(config.device.as_deref(), config.producer)?;
        Self::open(choice, instance, config, hook, |device, egui| {
            let mut swapchain = Swapchain::new(device, &surface, config.present)?;
            if config.record.is_some() {
                swapchain.make_readable()?;
            }
            let mode = swapchain.mode();
            Ok((Desktop::new(window, swapchain, egui), mode))
        })
    }
}

impl WindowState<Offscreen> {
    pub(crate) fn remote(
        remote: Box<dyn RemoteViewer>,
        config: &Config,
        hook: Option<FrameHookDesc<'_>>,
    ) -> Result<Self> {
        let choice =
            DeviceTable::headless(config.validation)?.choose(config.device.as_deref(), config.producer)?;
        let instance = choice.adapter.instance().clone();
        // Without a display, the newest picture is always the one that is sent.
        let mode = match config.present {
            PresentMode::Mailbox => PresentMode::Immediate,
            mode => mode,
        };
        let remote = (remote, hook.is_some());
        Self::open(choice, instance, config, hook, |device, _| {
            check_picture(config.size, device)?;
            Ok((Offscreen::new(device, config.size, mode, remote), mode))
        })
    }
}

impl<S: Screen> WindowState<S> {
    fn open(
        choice: Choice,
        instance: Instance,
        config: &Config,
        hook: Option<FrameHookDesc<'_>>,
        screen: impl FnOnce(&Device, egui::Context) -> Result<(S, PresentMode)>,
    ) -> Result<Self> {
        let config = &config.suited_to(choice.adapter.info().kind, true);
        announce(&choice, config);
        let context = ContextThread::begin(&choice, config, true);
        let (device, queue) = choice.adapter.request_device(&DeviceDesc {
            present: S::PRESENTS,
            // The user may later switch to a producer that shares memory with CUDA, or to `inline`.
            interop: choice.twin.is_some() || (hook.is_some() && choice.can_export()),
            inline: true,
        })?;
        let egui = egui::Context::default();
        let (screen, present) = screen(&device, egui.clone())?;
        let flights = hook.as_ref().map_or(1, |hook| hook.flights);
        let mut engine = Engine::new(queue, context, &choice, config, screen.format(), flights)?;
        let overlay = Overlay::new(&egui, screen.scale(), engine.queue(), screen.format(), config.overlay)?;
        let film = record::film(&device, config, screen.format(), false)?;
        Ok(Self {
            title: Title::new(),
            changed: (Instant::now(), 0, None),
            hook: hook.map(|hook| (hook.make)(choice.clone())).transpose()?,
            snapshot: Snapshot::default(),
            engine,
            screen,
            instance,
            overlay,
            film,
            config: Config { present, ..config.clone() },
            choice,
            own: own(config),
            reload: config.reload.clone().and_then(Reloader::new),
            controls: Controls::new(config),
            clock: FieldClock::new(),
            times: FrameTimes::default(),
            retry: None,
            skipped: 0,
            began: Instant::now(),
        })
    }
}
