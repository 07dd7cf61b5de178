//! Draws the same in a window.

use std::sync::Arc;

use anyhow::{Context, Result};
use vulkan_cuda_wgpu::Gpu;
use wgpu::CurrentSurfaceTexture as Current;
use winit::application::ApplicationHandler;
use winit::event::{ElementState, KeyEvent, WindowEvent};
use winit::event_loop::{ActiveEventLoop, EventLoop};
use winit::keyboard::{Key, NamedKey};
use winit::window::{Window, WindowId};

use crate::check::wait;
use crate::draw::Scene;

/// Shows `frames` frames, or draws until the window is closed.
pub fn show(
    instance: &wgpu::Instance,
    adapter: &wgpu::Adapter,
    gpu: &Gpu,
    texture: bool,
    grid: (u32, u32),
    frames: Option<u64>,
) -> Result<()> {
    let events = EventLoop::new().context("no window can be opened (--output draws without one)")?;
    let app = App { instance, adapter, gpu, texture, grid, left: frames, shown: None, result: Ok(()) };
    let mut app = app;
    events.run_app(&mut app)?;
    app.result
}

struct App<'a> {
    instance: &'a wgpu::Instance,
    adapter: &'a wgpu::Adapter,
    gpu: &'a Gpu,
    texture: bool,
    grid: (u32, u32),
    left: Option<u64>,
    shown: Option<Shown<'a>>,
    result: Result<()>,
}

/// Everything that exists once the window is open.
struct Shown<'a> {
    scene: Scene<'a>,
    config: wgpu::SurfaceConfiguration,
    surface: wgpu::Surface<'static>,
    window: Arc<Window>,
    last: Option<wgpu::SubmissionIndex>,
}

impl<'a> App<'a> {
    fn open(&self, events: &ActiveEventLoop) -> Result<Shown<'a>> {
        let attributes = Window::default_attributes().with_title("CUDA writes, wgpu draws");
        let window = Arc::new(events.create_window(attributes)?);
        let surface = self.instance.create_surface(window.clone())?;
        let size = window.inner_size();
        let mut config = surface
            .get_default_config(self.adapter, size.width.max(1), size.height.max(1))
            .context("the GPU that CUDA has cannot show pictures in this window")?;
        let formats = surface.get_capabilities(self.adapter).formats;
        config.format = formats.into_iter().find(wgpu::TextureFormat::is_srgb).unwrap_or(config.format);
        surface.configure(self.gpu.device(), &config);
        let scene = Scene::new(self.gpu, self.texture, self.grid, config.format)?;
        window.request_redraw();
        Ok(Shown { scene, config, surface, window, last: None })
    }

    /// Draws a frame. Returns whether another one should follow.
    fn redraw(&mut self) -> Result<bool> {
        let Some(shown) = &mut self.shown else { return Ok(true) };
        // Get the picture before CUDA is asked for a frame: without a picture, there is no frame.
        let (picture, stale) = match shown.surface.get_current_texture() {
            Current::Success(picture) => (picture, false),
            Current::Suboptimal(picture) => (picture, true),
            Current::Outdated | Current::Lost => {
                shown.surface.configure(self.gpu.device(), &shown.config);
                return Ok(true);
            }
            Current::Timeout | Current::Occluded | Current::Validation => return Ok(true),
        };
        let view = picture.texture.create_view(&Default::default());
        let size = (shown.config.width, shown.config.height);
        let index = shown.scene.draw(&view, size, |_| ())?;
        self.gpu.queue().present(picture);
        // At most one frame ahead of the GPU.
        if let Some(last) = shown.last.replace(index) {
            wait(self.gpu.device(), Some(last))?;
        }
        if stale {
            shown.surface.configure(self.gpu.device(), &shown.config);
        }
        self.left = self.left.map(|left| left.saturating_sub(1));
        Ok(self.left != Some(0))
    }
}

impl ApplicationHandler for App<'_> {
    fn resumed(&mut self, events: &ActiveEventLoop) {
        if self.shown.is_some() {
            return;
        }
        match self.open(events) {
            Ok(shown) => self.shown = Some(shown),
            Err(error) => {
                self.result = Err(error);
                events.exit();
            }
        }
    }

    fn window_event(&mut self, events: &ActiveEventLoop, _: WindowId, event: WindowEvent) {
        match event {
            WindowEvent::CloseRequested => events.exit(),
            WindowEvent::KeyboardInput {
                event:
                    KeyEvent { logical_key: Key::Named(NamedKey::Escape), state: ElementState::Pressed, .. },
                ..
            } => events.exit(),
            WindowEvent::Resized(size) => {
                if let Some(shown) = &mut self.shown
                    && size.width > 0
                    && size.height > 0
                {
                    (shown.config.width, shown.config.height) = (size.width, size.height);
                    shown.surface.configure(self.gpu.device(), &shown.config);
                }
            }
            WindowEvent::RedrawRequested => match self.redraw() {
                Ok(true) => {
                    if let Some(shown) = &self.shown {
                        shown.window.request_redraw();
                    }
                }
                Ok(false) => events.exit(),
                Err(error) => {
                    self.result = Err(error);
                    events.exit();
                }
            },
            _ => {}
        }
    }

    fn exiting(&mut self, _: &ActiveEventLoop) {
        self.shown = None;
    }
}
