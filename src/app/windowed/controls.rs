//! What the user changes with mouse and keys.

use winit::event::{ElementState, MouseButton, MouseScrollDelta, WindowEvent};
use winit::keyboard::{Key, NamedKey};

use crate::app::{Config, Parameters, Scene};
use crate::render::Camera;

/// The camera and the parameters, and the mouse that turns the camera.
pub(super) struct Controls {
    pub(super) camera: Camera,
    pub(super) parameters: Parameters,
    scene: Scene,
    dragging: bool,
    pointer: Option<(f64, f64)>,
}

impl Controls {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            camera: config.scene.camera(),
            parameters: Parameters::new(config),
            scene: config.scene,
            dragging: false,
            pointer: None,
        }
    }

    /// Does what an event asks for. Answers whether the colours are others now.
    pub(super) fn handle(&mut self, event: WindowEvent) -> bool {
        match event {
            WindowEvent::MouseInput { state, button: MouseButton::Left, .. } => {
                self.dragging = state == ElementState::Pressed;
            }
            WindowEvent::CursorMoved { position, .. } => {
                let (x, y) = (position.x, position.y);
                if let (true, Some((from_x, from_y))) = (self.dragging, self.pointer) {
                    self.camera.orbit((x - from_x) as f32, (y - from_y) as f32);
                }
                self.pointer = Some((x, y));
            }
            WindowEvent::MouseWheel { delta, .. } => self.camera.zoom(match delta {
                MouseScrollDelta::LineDelta(_, lines) => lines,
                MouseScrollDelta::PixelDelta(pixels) => pixels.y as f32 / 40.0,
            }),
            WindowEvent::KeyboardInput { event, .. }
                if event.state == ElementState::Pressed && !event.repeat =>
            {
                return self.press(&event.logical_key);
            }
            _ => {}
        }
        false
    }

    fn press(&mut self, key: &Key) -> bool {
        let Parameters { colormap, paused, .. } = &mut self.parameters;
        match key.as_ref() {
            Key::Named(NamedKey::Space) => *paused = !*paused,
            Key::Character("r" | "R") => self.camera = self.scene.camera(),
            Key::Character("c" | "C") => {
                *colormap = colormap.next();
                return true;
            }
            _ => {}
        }
        false
    }
}
