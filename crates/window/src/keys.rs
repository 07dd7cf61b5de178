//! The window's keys.

use winit::keyboard::{Key, NamedKey};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Pause,
    Step,
    Colors,
    Picture,
    Record,
    Reset,
    Rotate,
    FullScreen,
    Overlay,
    Help,
    Close,
    Leave,
}

/// A key's name, all keys with the same action, the action, and its description.
type Row = (&'static str, &'static [Key<&'static str>], Action, &'static str);

/// Every key. docs/guide/src/program.md lists them too.
const KEYS: [Row; 12] = [
    ("Space", &[Key::Named(NamedKey::Space)], Action::Pause, "pauses or resumes"),
    (
        ".",
        &[Key::Character("."), Key::Character("n")],
        Action::Step,
        "advances by one step while paused (or N)",
    ),
    ("C", &[Key::Character("c")], Action::Colors, "changes the colours"),
    (
        "S",
        &[Key::Character("s")],
        Action::Picture,
        "saves the picture, without the panel, as wavefield-1.png in the current folder",
    ),
    (
        "V",
        &[Key::Character("v")],
        Action::Record,
        "starts or stops a recording, with the panel if it is shown, as wavefield-1.gif",
    ),
    ("R", &[Key::Character("r"), Key::Named(NamedKey::Home)], Action::Reset, "resets the camera (or Home)"),
    ("A", &[Key::Character("a")], Action::Rotate, "starts or stops the camera's rotation"),
    ("F", &[Key::Character("f")], Action::FullScreen, "enters or leaves full screen"),
    ("Tab", &[Key::Named(NamedKey::Tab)], Action::Overlay, "hides or shows the panel: figures and settings"),
    ("F1", &[Key::Named(NamedKey::F1), Key::Character("?")], Action::Help, "shows or hides this list (or ?)"),
    (
        "Escape",
        &[Key::Named(NamedKey::Escape)],
        Action::Close,
        "closes a list, this one, then full screen; leaves if none is open",
    ),
    ("Q", &[Key::Character("q")], Action::Leave, "leaves"),
];

impl Action {
    /// The action of a key. Caps Lock and Shift make no difference.
    pub(super) fn of(pressed: &Key) -> Option<Self> {
        let is = |key: &Key<&str>| match (key, pressed.as_ref()) {
            (Key::Character(key), Key::Character(pressed)) => key.eq_ignore_ascii_case(pressed),
            (key, pressed) => *key == pressed,
        };
        KEYS.iter().find(|(_, keys, ..)| keys.iter().any(is)).map(|&(_, _, action, _)| action)
    }
}

pub(super) fn help() -> impl Iterator<Item = (&'static str, &'static str)> {
    let mouse = [
        ("drag", "turns the camera; with the right button, moves it"),
        ("wheel", "zooms; over the lanes of a pause, zooms the time"),
    ];
    mouse.into_iter().chain(KEYS.map(|(key, _, _, does)| (key, does)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_means_the_same_in_both_cases() {
        let key = |text: &str| Action::of(&Key::Character(text.into()));
        assert_eq!(
            (key("q"), key("Q"), key("N")),
            (Some(Action::Leave), Some(Action::Leave), Some(Action::Step))
        );
        assert_eq!(Action::of(&Key::Named(NamedKey::Escape)), Some(Action::Close));
        assert_eq!((key("x"), Action::of(&Key::Named(NamedKey::Enter))), (None, None));
    }

    #[test]
    fn the_guide_names_every_key() {
        let guide = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide"));
        if !guide.exists() {
            eprintln!("skipped: the published package has no guide");
            return;
        }
        let page = std::fs::read_to_string(guide.join("src/program.md")).unwrap();
        let (_, table) = page.split_once("\n| key | what it does |\n").expect("the table");
        let (table, _) = table.split_once("\n\n").expect("its end");
        let named: Vec<_> =
            table.lines().map(|row| row.split('|').nth(1).unwrap().trim().trim_matches('`')).collect();
        for (key, ..) in KEYS {
            assert!(named.contains(&key), "{key}: {table}");
        }
    }
}
