//! Opens the window, chooses a device that can present there, and makes the engine.

use std::sync::Arc;
use std::time::Instant;

use ash::vk;
use winit::dpi::PhysicalSize;
use winit::event_loop::ActiveEventLoop;
use winit::raw_window_handle::HasDisplayHandle;
use winit::window::Window;

use super::State;
use super::pictures::Snapshot;
use super::switching::own;
use crate::clock::Clock;
use crate::controls::Controls;
use crate::overlay::Overlay;
use crate::reload::Reloader;
use crate::title::Title;
use crate::visibility::Visibility;
use wavefield_base::{Error, Result};
use wavefield_engine::announce;
use wavefield_engine::{
    Config, ContextThread, DeviceTable, DriverThread, Engine, FrameHookDesc, FrameTimes, record,
};
use wavefield_gpu::vulkan::{DeviceDesc, Instance, InstanceDesc, Swapchain};

/// Refuses a window that is too large for X11, whose sizes have 16 bits. winit would panic.
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
    pub(crate) fn new(
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
        let context = ContextThread::begin(&choice, config, true);
        let (device, queue) = choice.adapter.request_device(&DeviceDesc {
            present: true,
            // The user may later switch to a producer that shares memory with CUDA, or to `inline`.
            interop: choice.twin.is_some() || (hook.is_some() && choice.can_export()),
            inline: true,
        })?;
        let mut swapchain = Swapchain::new(&device, &surface, config.present)?;
        if config.record.is_some() {
            swapchain.make_readable()?;
        }
        let flights = hook.as_ref().map_or(1, |hook| hook.flights);
        let mut engine = Engine::new(queue, context, &choice, config, swapchain.format(), flights)?;
        let present = swapchain.mode();
        let overlay = Overlay::new(&window, engine.queue(), swapchain.format(), config.overlay)?;
        let film = record::film(&device, config, swapchain.format(), false)?;
        Ok(Self {
            title: Title::new(),
            changed: (Instant::now(), 0, None),
            hook: hook.map(|hook| (hook.make)(choice.clone())).transpose()?,
            snapshot: Snapshot::default(),
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
}
