use egui::{Event, MouseWheelUnit, PointerButton, Pos2};

use wavefield_draw::{Camera, Placement};
use wavefield_run::Config;

pub(super) struct Controls {
    /// The camera that a reset restores. A client's array has another one: see `Config::camera_for`.
    pub(super) first: Camera,
    pub(super) rotating: bool,
    dragging: Option<PointerButton>,
    pointer: Option<Pos2>,
    /// Where the left button was pressed, until the pointer has moved too far for a click.
    pressed: Option<Pos2>,
}

/// How far the pointer may move between the press and the release of a click, in points.
const STILL: f32 = 4.0;

impl Controls {
    pub(super) fn new(config: &Config) -> Self {
        Self { first: config.camera(), rotating: false, dragging: None, pointer: None, pressed: None }
    }

    /// Sets `first`, the initial camera of another scene, and moves `camera` there unless the user has moved
    /// it.
    pub(super) fn start_at(&mut self, first: Camera, camera: &mut Camera) {
        if *camera == self.first {
            *camera = first;
        }
        self.first = first;
    }

    /// Returns where a click with the left button ends with this event. Call this after [`Controls::handle`].
    pub(super) fn clicked(&mut self, event: &Event) -> Option<Pos2> {
        match *event {
            Event::PointerButton { pos, button, pressed, .. } => {
                let began = self.pressed.take();
                self.pressed = Some(pos).filter(|_| pressed && button == PointerButton::Primary);
                began.filter(|began| !pressed && began.distance(pos) <= STILL).map(|_| pos)
            }
            Event::PointerMoved(at) => {
                self.pressed.take_if(|began| began.distance(at) > STILL);
                None
            }
            _ => None,
        }
    }

    /// Handles the mouse and touches. `height` is the picture's height in pixels; `scale` is in pixels per
    /// point.
    pub(super) fn handle(
        &mut self,
        event: &Event,
        camera: &mut Camera,
        image: Option<Placement>,
        (height, scale): (u32, f32),
    ) {
        match *event {
            Event::PointerButton { pos, button, pressed: true, .. } => {
                (self.dragging, self.pointer) = (Some(button), Some(pos));
            }
            Event::PointerButton { button, pressed: false, .. } => {
                self.dragging.take_if(|dragging| *dragging == button);
            }
            Event::PointerMoved(at) => {
                let from = self.pointer.replace(at).unwrap_or(at);
                let (right, down) = (scale * (at.x - from.x), scale * (at.y - from.y));
                match (self.dragging, image) {
                    (Some(PointerButton::Primary | PointerButton::Secondary), Some(image)) => {
                        camera.slide(right / image.unit(), down / image.unit());
                    }
                    (Some(PointerButton::Primary), None) => camera.orbit(right, down),
                    (Some(PointerButton::Secondary), None) => {
                        let height = height.max(1) as f32;
                        camera.pan(right / height, down / height);
                    }
                    _ => {}
                }
            }
            Event::MouseWheel { unit, delta, .. } => camera.zoom(match unit {
                MouseWheelUnit::Point => delta.y / 40.0,
                MouseWheelUnit::Line | MouseWheelUnit::Page => delta.y,
            }),
            // Moving two fingers twice as far apart halves the camera's distance.
            Event::Zoom(factor) if factor > 0.0 => camera.zoom(factor.ln() / -0.9f32.ln()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use egui::{Modifiers, pos2};

    use super::*;
    use wavefield_handoff::contents::wave::Grid;
    use wavefield_run::Scene;

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
        for button in [PointerButton::Primary, PointerButton::Secondary] {
            let (mut controls, mut camera) = (Controls::new(&Config::default()), Camera::UPRIGHT);
            camera.zoom(3.0);
            let mut handle = |event| {
                let place = Placement::new(image, &camera, size);
                controls.handle(&event, &mut camera, Some(place), (size.1, 2.0));
                Placement::new(image, &camera, size).corner
            };
            let before = handle(Event::PointerMoved(pos2(50.0, 50.0)));
            let (pos, modifiers) = (pos2(50.0, 50.0), Modifiers::NONE);
            handle(Event::PointerButton { pos, button, pressed: true, modifiers });
            let after = handle(Event::PointerMoved(pos2(65.0, 40.0)));
            assert!(
                (after[0] - before[0] - 30.0).abs() < 1e-2 && (after[1] - before[1] + 20.0).abs() < 1e-2,
                "{after:?}"
            );
            assert_eq!((camera.azimuth, camera.elevation), (0.0, 0.0));
        }
    }

    #[test]
    fn a_drag_is_no_click() {
        let mut controls = Controls::new(&Config::default());
        let at = |x| pos2(x, 50.0);
        let button = |x, button, pressed| {
            let modifiers = Modifiers::NONE;
            Event::PointerButton { pos: at(x), button, pressed, modifiers }
        };
        let left = |x, pressed| button(x, PointerButton::Primary, pressed);
        let right = |pressed| button(0.0, PointerButton::Secondary, pressed);
        let mut clicks = |events: &[Event]| -> Vec<_> {
            events.iter().filter_map(|event| controls.clicked(event)).collect()
        };
        assert_eq!(clicks(&[left(0.0, true), Event::PointerMoved(at(3.0)), left(3.0, false)]), [at(3.0)]);
        let drag =
            [left(0.0, true), Event::PointerMoved(at(9.0)), Event::PointerMoved(at(0.0)), left(0.0, false)];
        assert_eq!(clicks(&drag), []);
        assert_eq!(clicks(&[right(true), right(false), left(0.0, false)]), []);
        assert_eq!(clicks(&[left(0.0, true), left(90.0, false)]), [], "no move in between");
    }

    #[test]
    fn two_fingers_zoom_as_far_as_they_move() {
        let (mut controls, mut camera) = (Controls::new(&Config::default()), Camera::UPRIGHT);
        let before = camera.distance;
        controls.handle(&Event::Zoom(1.5), &mut camera, None, (100, 1.0));
        assert!((camera.distance * 1.5 - before).abs() < 1e-5, "{camera:?}");
        controls.handle(&Event::Zoom(0.0), &mut camera, None, (100, 1.0));
        assert!(camera.distance.is_finite());
    }
}
