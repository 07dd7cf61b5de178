use egui::Key;

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

/// Each key's name, all keys with the same action, the action, and its description.
/// docs/guide/src/program.md lists the same keys.
const KEYS: [(&str, &[Key], Action, &str); 12] = [
    ("Space", &[Key::Space], Action::Pause, "pauses or resumes"),
    (".", &[Key::Period, Key::N], Action::Step, "advances by one step while paused (or N)"),
    ("C", &[Key::C], Action::Colors, "changes the colours"),
    (
        "S",
        &[Key::S],
        Action::Picture,
        "saves the picture, without the panel, as wavefield-1.png in the current folder",
    ),
    (
        "V",
        &[Key::V],
        Action::Record,
        "starts or stops a recording, with the panel if it is shown, as wavefield-1.gif",
    ),
    ("R", &[Key::R, Key::Home], Action::Reset, "resets the camera (or Home)"),
    ("A", &[Key::A], Action::Rotate, "starts or stops the camera's rotation"),
    ("F", &[Key::F], Action::FullScreen, "enters or leaves full screen"),
    ("Tab", &[Key::Tab], Action::Overlay, "hides or shows the panel: figures and settings"),
    ("F1", &[Key::F1, Key::Questionmark], Action::Help, "shows or hides this list (or ?)"),
    ("Escape", &[Key::Escape], Action::Close, "closes a list, this one, then full screen, then the window"),
    ("Q", &[Key::Q], Action::Leave, "closes the window"),
];

impl Action {
    /// Returns a key's action. Shift makes no difference.
    pub(super) fn of(pressed: Key) -> Option<Self> {
        KEYS.iter().find(|(_, keys, ..)| keys.contains(&pressed)).map(|&(_, _, action, _)| action)
    }
}

/// Returns the name of a key for a client: "a", "7", "+", "left", "space", "f1". Modifiers have none.
pub(super) fn name(key: Key) -> Option<String> {
    let name = match key {
        Key::ShiftLeft | Key::ShiftRight | Key::ControlLeft | Key::ControlRight => return None,
        Key::AltLeft | Key::AltRight | Key::SuperLeft | Key::SuperRight => return None,
        Key::ArrowDown | Key::ArrowLeft | Key::ArrowRight | Key::ArrowUp => key.name(),
        // egui's symbol is U+2212.
        Key::Minus => "-",
        Key::Quote => "'",
        _ => key.symbol_or_name(),
    };
    Some(name.to_lowercase())
}

/// What the list of keys depends on.
#[derive(Clone, Copy)]
pub(super) struct Shown {
    pub(super) is_image: bool,
    pub(super) has_color_map: bool,
    /// See [`crate::overlay::OverlayView`].
    pub(super) still: bool,
    pub(super) has_lanes: bool,
}

/// Lists the keys that do something to what is `shown`. `takes`: see [`crate::screen::Screen::takes`]. The
/// viewer's page handles the others.
pub(super) fn help(takes: impl Fn(Action) -> bool, shown: Shown) -> Vec<(&'static str, &'static str)> {
    let drag = match shown.is_image {
        true => "moves the image",
        false => "turns the camera; with the right button, moves it",
    };
    let wheel = if shown.has_lanes { "zooms; over the lanes of a pause, zooms the time" } else { "zooms" };
    let does = |action| match action {
        Action::Pause | Action::Step => !shown.still,
        Action::Colors => shown.has_color_map,
        Action::Rotate => !shown.is_image,
        _ => true,
    };
    let mut all = vec![("drag", drag), ("wheel", wheel)];
    let keys = KEYS.iter().filter(|(_, _, action, _)| takes(*action) && does(*action));
    all.extend(keys.map(|&(key, _, _, does)| (key, does)));
    if !takes(Action::Leave) {
        all.retain(|(key, _)| *key != "Escape");
        all.push(("Escape", "closes a list, or this one"));
        all.push(("S, V, F", "as the page's buttons: save the picture, record, fill the screen"));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_fits_what_is_shown() {
        let wave = Shown { is_image: false, has_color_map: true, still: false, has_lanes: true };
        let listed = |shown| help(|_| true, shown);
        let keys = |shown| -> Vec<_> { listed(shown).into_iter().map(|(key, _)| key).collect() };
        assert_eq!(keys(wave)[2..], KEYS.map(|(key, ..)| key));
        // An RGB image that a client shows once.
        let image = Shown { is_image: true, has_color_map: false, still: true, has_lanes: false };
        assert_eq!(listed(image)[..2], [("drag", "moves the image"), ("wheel", "zooms")]);
        assert_eq!(keys(image)[2..], ["S", "V", "R", "F", "Tab", "F1", "Escape", "Q"]);
        let on_page = help(|action| action != Action::Leave, image);
        assert!(!on_page.iter().any(|(key, _)| *key == "Q") && on_page.last().unwrap().0 == "S, V, F");
    }

    #[test]
    fn a_client_knows_keys_by_the_names_of_matplotlib() {
        let names =
            [Key::A, Key::Num7, Key::Minus, Key::Quote, Key::Period, Key::ArrowLeft, Key::Space, Key::F1];
        let names = names.map(|key| name(key).unwrap());
        assert_eq!(names, ["a", "7", "-", "'", ".", "left", "space", "f1"]);
        assert_eq!(name(Key::ShiftLeft), None);
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
