//! The messages of a page, as JSON text: its input, its size, and which pictures it has received.

use ash::vk;
use egui::{Event, Key, Modifiers, MouseWheelUnit, PointerButton, TouchPhase, pos2, vec2};
use serde::Deserialize;

use crate::Input;

/// The maximum length of a message in bytes.
pub(crate) const MOST: usize = 512;
/// The maximum side of a picture in pixels, because a page may ask for any size.
const LONGEST: f32 = 4096.0;

/// Whether Alt, Ctrl and Shift are held.
type HeldKeys = [bool; 3];

// Coordinates are in pixels of the picture.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Message {
    // The page has received this picture, so the next one may be sent.
    Seen { picture: u32 },
    Visible { visible: bool },
    // The page's size in pixels; `scale` is in pixels per point.
    Size { width: f32, height: f32, scale: f32 },
    Move { x: f32, y: f32 },
    Leave {},
    // `button` has the value of `MouseEvent.button`: 0 is left, 1 middle, 2 right.
    Button { x: f32, y: f32, button: usize, down: bool, held: HeldKeys },
    // Positive values move the content right and down.
    Wheel { x: f32, y: f32, held: HeldKeys },
    // The factor by which the distance between two fingers has grown.
    Zoom { factor: f32 },
    // `key` has the value of `KeyboardEvent.key`.
    Key { key: String, down: bool, repeat: bool, held: HeldKeys },
}

impl Message {
    /// Parses a message. Returns `None` if no page would send it.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let said = serde_json::from_str(text).ok()?;
        // Reject coordinates that no page can have, because the drawing code computes with them.
        let sane = |numbers: &[f32]| numbers.iter().all(|number| number.abs() <= 1e5);
        let makes_sense = match &said {
            Self::Size { width, height, scale } => sane(&[*width, *height]) && (0.25..=8.0).contains(scale),
            Self::Move { x, y } | Self::Wheel { x, y, .. } => sane(&[*x, *y]),
            Self::Button { x, y, button, .. } => sane(&[*x, *y]) && *button < BUTTONS.len(),
            Self::Zoom { factor } => (0.01..=100.0).contains(factor),
            _ => true,
        };
        makes_sense.then_some(said)
    }

    /// Converts the message to input. `scale` is in pixels per point.
    pub(crate) fn inputs(self, scale: f32) -> Vec<Input> {
        let at = |x: f32, y: f32| pos2(x / scale, y / scale);
        let events = match self {
            Self::Seen { .. } | Self::Visible { visible: false } => vec![],
            // Send input, so that a renderer that has stopped drawing replaces an outdated picture.
            Self::Visible { visible: true } => vec![Event::WindowFocused(true)],
            Self::Size { width, height, scale } => {
                let [width, height] = [width, height].map(|pixels| pixels.clamp(16.0, LONGEST) as u32);
                let focus = Input::Event(Event::WindowFocused(true));
                return vec![focus, Input::Size(vk::Extent2D { width, height }, scale)];
            }
            Self::Move { x, y } => vec![Event::PointerMoved(at(x, y))],
            Self::Leave {} => vec![Event::PointerGone],
            Self::Button { x, y, button, down: pressed, held } => {
                let (pos, modifiers) = (at(x, y), modifiers(held));
                let button = Event::PointerButton { pos, button: BUTTONS[button], pressed, modifiers };
                vec![Event::PointerMoved(pos), button]
            }
            Self::Wheel { x, y, held } => {
                let (unit, phase) = (MouseWheelUnit::Point, TouchPhase::Move);
                let (delta, modifiers) = (vec2(x / scale, y / scale), modifiers(held));
                vec![Event::MouseWheel { unit, delta, phase, modifiers }]
            }
            Self::Zoom { factor } => vec![Event::Zoom(factor)],
            Self::Key { key: name, down: pressed, repeat, held } => {
                let modifiers = modifiers(held);
                let key = Key::from_name(&name);
                let key = key.map(|key| Event::Key { key, physical_key: None, pressed, repeat, modifiers });
                let is_text = pressed && !modifiers.ctrl && name.chars().count() == 1;
                key.into_iter().chain(is_text.then_some(Event::Text(name))).collect()
            }
        };
        events.into_iter().map(Input::Event).collect()
    }
}

pub(crate) const BUTTONS: [PointerButton; 3] =
    [PointerButton::Primary, PointerButton::Middle, PointerButton::Secondary];

fn modifiers([alt, ctrl, shift]: HeldKeys) -> Modifiers {
    Modifiers { alt, ctrl, shift, mac_cmd: false, command: ctrl }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn inputs(text: &str) -> Option<Vec<Input>> {
        Some(Message::read(text)?.inputs(2.0))
    }

    #[test]
    fn what_a_page_says_becomes_input() {
        let moved = Input::Event(Event::PointerMoved(pos2(10.0, 5.0)));
        assert_eq!(inputs(r#"{"type":"move","x":20,"y":10}"#), Some(vec![moved.clone()]));
        let modifiers = Modifiers { shift: true, ..Modifiers::NONE };
        let button = Event::PointerButton {
            pos: pos2(10.0, 5.0),
            button: PointerButton::Secondary,
            pressed: true,
            modifiers,
        };
        assert_eq!(
            inputs(r#"{"type":"button","x":20,"y":10,"button":2,"down":true,"held":[false,false,true]}"#),
            Some(vec![moved, Input::Event(button)])
        );
        let extent = vk::Extent2D { width: 390, height: 16 };
        assert_eq!(
            inputs(r#"{"type":"size","width":390,"height":1,"scale":3}"#),
            Some(vec![Input::Event(Event::WindowFocused(true)), Input::Size(extent, 3.0)])
        );
        let key = |key, text: Option<&str>| {
            let key = Event::Key {
                key,
                physical_key: None,
                pressed: true,
                repeat: false,
                modifiers: Modifiers::NONE,
            };
            let text = text.map(|text| Event::Text(text.into()));
            Some([key].into_iter().chain(text).map(Input::Event).collect::<Vec<_>>())
        };
        for (name, want) in [
            ("Tab", key(Key::Tab, None)),
            ("c", key(Key::C, Some("c"))),
            (" ", key(Key::Space, Some(" "))),
            ("?", key(Key::Questionmark, Some("?"))),
            ("AudioVolumeUp", Some(vec![])),
        ] {
            let said = format!(
                r#"{{"type":"key","key":"{name}","down":true,"repeat":false,"held":[false,false,false]}}"#
            );
            assert_eq!(inputs(&said), want, "{name}");
        }
    }

    #[test]
    fn what_no_page_says_is_refused() {
        for said in [
            "",
            "null",
            "[]",
            r#"{"type":"paste","text":"x"}"#,
            r#"{"type":"move","x":1e9,"y":0}"#,
            r#"{"type":"move","x":1e999,"y":0}"#,
            r#"{"type":"move","x":null,"y":0}"#,
            r#"{"type":"move","x":1,"y":2,"z":3}"#,
            r#"{"type":"button","x":1,"y":2,"button":9,"down":true,"held":[false,false,false]}"#,
            r#"{"type":"size","width":100,"height":100,"scale":0}"#,
            r#"{"type":"size","width":100,"height":100,"scale":1e30}"#,
            r#"{"type":"zoom","factor":0}"#,
            r#"{"type":"seen","picture":-1}"#,
        ] {
            assert_eq!(inputs(said), None, "{said}");
        }
    }

    proptest! {
        #[test]
        fn numbers_of_a_page_are_finite_and_in_range(
            kind in "move|button|wheel|zoom|size|key|leave|visible|seen|x",
            numbers in proptest::collection::vec(any::<f64>(), 4), word in ".{0,20}", flag in any::<bool>(),
        ) {
            let [x, y, z, w] = numbers[..] else { unreachable!() };
            let all = serde_json::json!({"move": {"x": x, "y": y}, "button": {"x": x, "y": y, "button": w as u8 % 4, "down": flag, "held": [flag, false, flag]},
                "wheel": {"x": x, "y": y, "held": [flag, flag, flag]}, "zoom": {"factor": z}, "size": {"width": x, "height": y, "scale": z},
                "key": {"key": word, "down": flag, "repeat": flag, "held": [false, flag, flag]}, "leave": {},
                "visible": {"visible": flag}, "seen": {"picture": w as u32}, "x": {}});
            let mut said = all[&kind].clone();
            said["type"] = kind.into();
            for input in inputs(&said.to_string()).unwrap_or_default() {
                match input {
                    Input::Size(extent, scale) => {
                        prop_assert!(extent.width.max(extent.height) <= 4096 && extent.width.min(extent.height) >= 16);
                        prop_assert!((0.25..=8.0).contains(&scale));
                    }
                    Input::Event(Event::PointerMoved(at)) => prop_assert!(at.is_finite()),
                    Input::Event(Event::MouseWheel { delta, .. }) => prop_assert!(delta.is_finite()),
                    Input::Event(Event::Zoom(by)) => prop_assert!(by > 0.0 && by.is_finite()),
                    _ => {}
                }
            }
        }
    }
}
