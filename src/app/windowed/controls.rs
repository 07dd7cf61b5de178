//! What the user changes with mouse and keys.

use std::time::Duration;

use winit::event::{ElementState, MouseButton, MouseScrollDelta, WindowEvent};

use super::keys::Action;
use crate::app::{Config, Parameters};
use crate::render::Camera;

/// The camera and the parameters, and the mouse that moves the camera.
pub(super) struct Controls {
    pub(super) camera: Camera,
    pub(super) parameters: Parameters,
    /// Where a reset puts the camera.
    first: Camera,
    /// Whether the camera turns by itself.
    rotating: bool,
    dragging: Option<MouseButton>,
    pointer: Option<(f64, f64)>,
}

impl Controls {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            camera: config.camera(),
            parameters: Parameters::new(config),
            first: config.camera(),
            rotating: false,
            dragging: None,
            pointer: None,
        }
    }

    /// Does what the mouse asks for. `height` is the picture's, in pixels.
    pub(super) fn handle(&mut self, event: WindowEvent, height: u32) {
        match event {
            WindowEvent::MouseInput { state: ElementState::Pressed, button, .. } => {
                self.dragging = Some(button);
            }
            WindowEvent::MouseInput { state: ElementState::Released, button, .. } => {
                self.dragging.take_if(|dragging| *dragging == button);
            }
            WindowEvent::CursorMoved { position, .. } => {
                let (from_x, from_y) =
                    self.pointer.replace((position.x, position.y)).unwrap_or(position.into());
                let (right, down) = ((position.x - from_x) as f32, (position.y - from_y) as f32);
                match self.dragging {
                    Some(MouseButton::Left) => self.camera.orbit(right, down),
                    Some(MouseButton::Right) => {
                        let height = height.max(1) as f32;
                        self.camera.pan(right / height, down / height);
                    }
                    _ => {}
                }
            }
            WindowEvent::MouseWheel { delta, .. } => self.camera.zoom(match delta {
                MouseScrollDelta::LineDelta(_, lines) => lines,
                MouseScrollDelta::PixelDelta(pixels) => pixels.y as f32 / 40.0,
            }),
            _ => {}
        }
    }

    /// Does what a key asks for, as far as it is about the camera and the parameters.
    pub(super) fn press(&mut self, action: Action) {
        match action {
            Action::Pause => self.parameters.paused = !self.parameters.paused,
            Action::Colors => self.parameters.colormap = self.parameters.colormap.next(),
            Action::Reset => (self.camera, self.rotating) = (self.first, false),
            Action::Rotate => self.rotating = !self.rotating,
            Action::Step
            | Action::Picture
            | Action::FullScreen
            | Action::Overlay
            | Action::Help
            | Action::Leave => {}
        }
    }

    /// Time has passed since the last frame.
    pub(super) fn pass(&mut self, elapsed: Duration) {
        if self.rotating {
            self.camera.rotate(elapsed.as_secs_f32());
        }
    }
}
