use std::sync::Arc;

use ash::vk;
use egui::{Event, Modifiers, PointerButton, Pos2, ViewportId};
use winit::dpi::PhysicalSize;
use winit::event::{ElementState, MouseButton, TouchPhase, WindowEvent};
use winit::keyboard::Key;
use winit::window::{Fullscreen, Window};

use crate::screen::{Input, Screen, ScreenPicture};
use crate::visibility::Visibility;
use wavefield_draw::Picture;
use wavefield_gpu::Result;
use wavefield_gpu::vulkan::{Flight, PresentMode, Queue, Swapchain};
use wavefield_run::Engine;

pub(crate) struct Desktop {
    // The swapchain is dropped before its window.
    swapchain: Swapchain,
    window: Arc<Window>,
    pub(crate) visibility: Visibility,
    words: egui_winit::State,
    pointer: Pos2,
    /// Kept alive, because on X11 other programs request the copied text from this one.
    clipboard: Option<arboard::Clipboard>,
}

impl Desktop {
    pub(crate) fn new(window: Arc<Window>, swapchain: Swapchain, egui: egui::Context, scale: f32) -> Self {
        Self {
            swapchain,
            visibility: Visibility::new(&window),
            words: egui_winit::State::new(egui, ViewportId::ROOT, &window, Some(scale), None, None),
            window,
            pointer: Pos2::ZERO,
            clipboard: None,
        }
    }

    pub(crate) fn request_redraw(&mut self) {
        self.window.request_redraw();
        self.visibility.redraw_requested();
    }

    pub(crate) fn inputs(&mut self, event: &WindowEvent) -> Vec<Input> {
        let resized = |size: PhysicalSize<u32>, scale: f64| {
            vec![Input::Size(vk::Extent2D { width: size.width, height: size.height }, scale as f32)]
        };
        match event {
            WindowEvent::CloseRequested => return vec![Input::Close],
            WindowEvent::Resized(size) => return resized(*size, self.window.scale_factor()),
            WindowEvent::ScaleFactorChanged { scale_factor, .. } => {
                return resized(self.window.inner_size(), *scale_factor);
            }
            WindowEvent::Occluded(occluded) => self.visibility.occluded(*occluded),
            _ => {}
        }
        let _ = self.words.on_window_event(&self.window, event);
        let mut events = std::mem::take(&mut self.words.egui_input_mut().events);
        if let WindowEvent::KeyboardInput { event, .. } = event {
            // If egui does not know a character, egui-winit reports the key at that position: AltGr+Q would
            // be Q.
            let is_unknown =
                matches!(&event.logical_key, Key::Character(it) if egui::Key::from_name(it).is_none());
            events.retain_mut(|one| match one {
                Event::Key { repeat, .. } => {
                    *repeat = event.repeat;
                    !is_unknown
                }
                _ => true,
            });
        }
        let place = events.iter().find_map(|event| match event {
            Event::PointerMoved(at) | Event::PointerButton { pos: at, .. } => Some(*at),
            _ => None,
        });
        match place {
            Some(at) => self.pointer = at,
            // egui-winit drops the release of a button after the pointer has left the window.
            None => events.extend(released(event, self.pointer)),
        }
        events.into_iter().map(Input::Event).collect()
    }
}

/// Returns egui's event for the release of a mouse button or for a cancelled touch.
fn released(event: &WindowEvent, pos: Pos2) -> Option<Event> {
    let button = match event {
        WindowEvent::Touch(touch) if touch.phase == TouchPhase::Cancelled => PointerButton::Primary,
        WindowEvent::MouseInput { state: ElementState::Released, button, .. } => match button {
            MouseButton::Left => PointerButton::Primary,
            MouseButton::Right => PointerButton::Secondary,
            MouseButton::Middle => PointerButton::Middle,
            MouseButton::Back => PointerButton::Extra1,
            MouseButton::Forward => PointerButton::Extra2,
            MouseButton::Other(_) => return None,
        },
        _ => return None,
    };
    Some(Event::PointerButton { pos, button, pressed: false, modifiers: Modifiers::NONE })
}

impl Screen for Desktop {
    fn extent(&self) -> vk::Extent2D {
        self.swapchain.extent()
    }

    fn format(&self) -> vk::Format {
        self.swapchain.format()
    }

    fn modes(&self) -> &[PresentMode] {
        &self.swapchain.modes
    }

    fn set_mode(&mut self, mode: PresentMode) {
        self.swapchain.set_mode(mode);
    }

    fn resize(&mut self, extent: vk::Extent2D) {
        self.visibility.resized(extent.width == 0 || extent.height == 0);
        self.swapchain.stale = true;
    }

    fn is_stale(&self) -> bool {
        self.swapchain.stale
    }

    fn fit(&mut self, engine: &mut Engine) -> Result<()> {
        self.swapchain.rebuild(engine.queue()).map(drop)
    }

    unsafe fn acquire(&mut self, queue: &mut Queue, flight: &Flight) -> Result<Option<ScreenPicture>> {
        // SAFETY: the caller upholds the contract of `Screen::acquire`.
        let Some(image) = (unsafe { self.swapchain.acquire(queue, flight.acquired) })? else {
            return Ok(None);
        };
        let picture = Picture {
            image: image.image,
            view: image.view,
            extent: image.extent,
            final_layout: vk::ImageLayout::PRESENT_SRC_KHR,
            stays: false,
            takes_copies: image.takes_copies,
        };
        Ok(Some(ScreenPicture { picture, present: Some(image) }))
    }

    fn present(&mut self, queue: &mut Queue, canvas: &ScreenPicture) -> Result<()> {
        self.window.pre_present_notify();
        canvas.present.map_or(Ok(()), |image| self.swapchain.present(queue, &image))
    }

    fn make_readable(&mut self) -> Result<()> {
        self.swapchain.make_readable()
    }

    fn is_hidden(&mut self) -> bool {
        self.visibility.is_hidden(&self.window)
    }

    fn set_title(&mut self, title: &str) {
        self.window.set_title(title);
    }

    fn is_full(&self) -> bool {
        self.window.fullscreen().is_some()
    }

    fn set_full(&mut self, full: bool) {
        self.window.set_fullscreen(full.then_some(Fullscreen::Borderless(None)));
    }

    fn copy(&mut self, text: &str) -> String {
        let mut made = arboard::Clipboard::new();
        let copied = made.as_mut().is_ok_and(|clipboard| clipboard.set_text(text).is_ok());
        self.clipboard = made.ok();
        if copied {
            return format!("copied: {text}");
        }
        // Wayland's clipboard needs eight more crates, and not every compositor allows its use.
        wavefield_gpu::note!("note: {text}");
        "no clipboard (on Linux it must be X11's): the command is on standard error".to_owned()
    }

    fn follow(&mut self, wishes: egui::PlatformOutput) {
        self.words.handle_platform_output(&self.window, wishes);
    }
}
