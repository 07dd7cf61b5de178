//! What the user changes with the mouse and the keys.

use winit::event::{ElementState, MouseButton, MouseScrollDelta, WindowEvent};

use wavefield_engine::{Config, Parameters};
use wavefield_render::{Camera, Placement};

pub(super) struct Controls {
    pub(super) parameters: Parameters,
    /// Where a reset puts the camera. A client's array has a camera of its own.
    pub(super) first: Camera,
    pub(super) rotating: bool,
    dragging: Option<MouseButton>,
    pointer: Option<(f64, f64)>,
}

impl Controls {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            parameters: Parameters::new(config),
            first: config.camera(),
            rotating: false,
            dragging: None,
            pointer: None,
        }
    }

    /// Sets the initial camera of another scene. Moves `camera` there at once, unless the user has moved it.
    pub(super) fn start_at(&mut self, first: Camera, camera: &mut Camera) {
        if *camera == self.first {
            *camera = first;
        }
        self.first = first;
    }

    /// Handles a mouse event. `image` is where an image lies in the picture, `height` the picture's height in pixels.
    pub(super) fn handle(
        &mut self,
        event: WindowEvent,
        camera: &mut Camera,
        image: Option<Placement>,
        height: u32,
    ) {
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
                match (self.dragging, image) {
                    (Some(MouseButton::Left | MouseButton::Right), Some(image)) => {
                        camera.slide(right / image.unit(), down / image.unit());
                    }
                    (Some(MouseButton::Left), None) => camera.orbit(right, down),
                    (Some(MouseButton::Right), None) => {
                        let height = height.max(1) as f32;
                        camera.pan(right / height, down / height);
                    }
                    _ => {}
                }
            }
            WindowEvent::MouseWheel { delta, .. } => camera.zoom(match delta {
                MouseScrollDelta::LineDelta(_, lines) => lines,
                MouseScrollDelta::PixelDelta(pixels) => pixels.y as f32 / 40.0,
            }),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use winit::event::DeviceId;

    use super::*;
    use wavefield_engine::Scene;
    use wavefield_field::wave::Grid;

    #[test]
    fn another_scene_is_seen_from_its_own_place() {
        let mut controls = Controls::new(&Config::default());
        let (field, texture) = (Camera::of(Scene::Field), Camera::of(Scene::Texture));
        let mut camera = controls.first;
        assert_eq!((camera, field != texture), (field, true));
        controls.start_at(texture, &mut camera);
        assert_eq!((camera, controls.first), (texture, texture));
        camera.rotate(1.0);
        let moved = camera;
        controls.start_at(field, &mut camera);
        assert_eq!((camera, controls.first), (moved, field), "the user has put it there");
    }

    #[test]
    fn an_image_follows_the_pointer_and_does_not_turn() {
        let (image, size) = (Grid { cols: 40, rows: 30 }, (800, 500));
        for button in [MouseButton::Left, MouseButton::Right] {
            let (mut controls, mut camera) = (Controls::new(&Config::default()), Camera::UPRIGHT);
            camera.zoom(3.0);
            let mut handle = |event| {
                let place = Placement::new(image, &camera, size);
                controls.handle(event, &mut camera, Some(place), size.1);
                Placement::new(image, &camera, size).corner
            };
            let device_id = DeviceId::dummy();
            let moved = |x, y| WindowEvent::CursorMoved { device_id, position: (x, y).into() };
            let before = handle(moved(100.0, 100.0));
            handle(WindowEvent::MouseInput { device_id, state: ElementState::Pressed, button });
            let after = handle(moved(130.0, 80.0));
            assert!(
                (after[0] - before[0] - 30.0).abs() < 1e-2 && (after[1] - before[1] + 20.0).abs() < 1e-2,
                "{after:?}"
            );
            assert_eq!((camera.azimuth, camera.elevation), (0.0, 0.0));
        }
    }
}
