//! The sliders, buttons and check boxes that a client asks the window to show, and what the user does there. Pure.

use serde::{Deserialize, Serialize};

const MAX_ENTRIES: usize = 64;
/// The maximum length of a label, in characters.
const MAX_LABEL: usize = 100;
/// The maximum number of keys that a client takes from the window, and the longest name of one, in bytes.
const MAX_KEYS: usize = 128;
const MAX_KEY: usize = 32;
/// The maximum number of events that wait for a client that does not read.
const MAX_EVENTS: usize = 256;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PanelEntry {
    pub label: String,
    #[serde(flatten)]
    pub control: Control,
}

/// Without a value in the request, the entry keeps the one that the user chose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Control {
    Slider {
        low: f64,
        high: f64,
        value: Option<f64>,
        #[serde(default)]
        integer: bool,
    },
    Button {},
    Checkbox {
        value: Option<bool>,
    },
}

/// What a client wants the window to show and to report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PanelWish {
    pub entries: Vec<PanelEntry>,
    /// The keys that the window leaves to the client, besides those that it does not use; `None` for no keys.
    pub keys: Option<Vec<String>>,
    pub clicks: bool,
}

impl PanelWish {
    /// Returns what is wrong with the wish.
    pub fn check(&self) -> Result<(), String> {
        let (count, keys) = (self.entries.len(), self.keys.as_deref().unwrap_or_default());
        if count > MAX_ENTRIES {
            return Err(format!("{count} entries: a panel has at most {MAX_ENTRIES}"));
        }
        if keys.len() > MAX_KEYS || keys.iter().any(|key| key.len() > MAX_KEY) {
            return Err(format!("more than {MAX_KEYS} keys, or a name of more than {MAX_KEY} bytes"));
        }
        for (index, PanelEntry { label, control }) in self.entries.iter().enumerate() {
            if label.is_empty() || label.chars().nth(MAX_LABEL).is_some() {
                return Err(format!("label {index} does not have 1 to {MAX_LABEL} characters"));
            }
            if self.entries[..index].iter().any(|other| other.label == *label) {
                return Err(format!("labels {index} and an earlier one are the same"));
            }
            if let &Control::Slider { low, high, value, .. } = control {
                if !(low < high && (high - low).is_finite()) {
                    return Err(format!(
                        "a slider from {low} to {high}: the first must be less, both finite"
                    ));
                }
                if value.is_some_and(|value| !(low..=high).contains(&value)) {
                    return Err(format!("the value of slider {index} is not between {low} and {high}"));
                }
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PanelValue {
    Flag(bool),
    Number(f64),
}

/// What the user did. A press of a button is a change to `true`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PanelEvent {
    Changed {
        label: String,
        value: PanelValue,
    },
    Key {
        key: String,
    },
    Click {
        /// Which of several arrays.
        #[serde(default, skip_serializing_if = "is_first")]
        array: usize,
        index: u32,
        values: Vec<f64>,
    },
}

fn is_first(array: &usize) -> bool {
    *array == 0
}

/// The panel of the client whose array is shown.
#[derive(Debug, Default)]
pub struct ClientPanel {
    pub wish: PanelWish,
    /// Counts the wishes: the window draws again after each.
    pub revision: u64,
    events: Vec<PanelEvent>,
}

impl ClientPanel {
    /// Takes a checked wish.
    pub fn set(&mut self, mut wish: PanelWish) {
        for PanelEntry { label, control } in &mut wish.entries {
            let old = self.wish.entries.iter().find(|old| old.label == *label).map(|old| &old.control);
            match (control, old) {
                (Control::Slider { low, high, value, .. }, old) => {
                    let kept = if let Some(Control::Slider { value, .. }) = old { *value } else { None };
                    *value = Some(value.or(kept).unwrap_or(*low).clamp(*low, *high));
                }
                (Control::Checkbox { value }, Some(Control::Checkbox { value: kept })) => {
                    *value = value.or(*kept);
                }
                _ => {}
            }
        }
        self.wish = wish;
        self.revision += 1;
    }

    /// Whether the client is told of this key, which the window `uses` itself or not.
    pub fn hears(&self, key: &str, uses: bool) -> bool {
        self.wish.keys.as_ref().is_some_and(|keys| !uses || keys.iter().any(|wanted| wanted == key))
    }

    /// Keeps an event for the client. Of a slider that moves on, only the newest value counts.
    pub fn push(&mut self, event: PanelEvent) {
        use PanelEvent::Changed;
        use PanelValue::Number;
        if let (Changed { label, value: Number(_) }, Some(Changed { label: last, value: Number(_) })) =
            (&event, self.events.last())
            && label == last
        {
            self.events.pop();
        }
        if self.events.len() < MAX_EVENTS {
            self.events.push(event);
        }
    }

    pub fn take_events(&mut self) -> Vec<PanelEvent> {
        std::mem::take(&mut self.events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(entries: &str) -> PanelWish {
        serde_json::from_str(&format!(r#"{{"entries": [{entries}]}}"#)).unwrap()
    }

    #[test]
    fn an_entry_without_a_value_keeps_the_users() {
        let mut panel = ClientPanel::default();
        panel.set(wish(
            r#"{"kind": "slider", "label": "a", "low": -1, "high": 3}, {"kind": "checkbox", "label": "b"}"#,
        ));
        let slider = |value, high| Control::Slider { low: -1.0, high, value: Some(value), integer: false };
        assert_eq!(panel.wish.entries[0].control, slider(-1.0, 3.0));
        if let Control::Slider { value, .. } = &mut panel.wish.entries[0].control {
            *value = Some(2.5);
        }
        panel.wish.entries[1].control = Control::Checkbox { value: Some(true) };
        let again =
            r#"{"kind": "checkbox", "label": "b"}, {"kind": "slider", "label": "a", "low": -1, "high": 2}"#;
        panel.set(wish(again));
        let controls: Vec<_> = panel.wish.entries.iter().map(|entry| entry.control.clone()).collect();
        assert_eq!(
            controls,
            [Control::Checkbox { value: Some(true) }, slider(2.0, 2.0)],
            "within its new bounds"
        );
        panel.set(wish(r#"{"kind": "slider", "label": "a", "low": -1, "high": 2, "value": 0}"#));
        assert_eq!((panel.wish.entries[0].control.clone(), panel.revision), (slider(0.0, 2.0), 3));
    }

    #[test]
    fn a_wish_is_checked_whole() {
        let slider = |rest: &str| format!(r#"{{"kind": "slider", "label": "a", {rest}}}"#);
        let button = |label: &str| format!(r#"{{"kind": "button", "label": "{label}"}}"#);
        let many: Vec<_> = (0..65).map(|number| button(&number.to_string())).collect();
        for (entries, words) in [
            (slider(r#""low": 1, "high": 1"#), "from 1 to 1"),
            (slider(r#""low": -1e308, "high": 1e308"#), "finite"),
            (slider(r#""low": 0, "high": 1, "value": 2"#), "not between 0 and 1"),
            (button(""), "1 to 100"),
            (button(&"é".repeat(101)), "1 to 100"),
            (format!("{}, {}", button("a"), button("a")), "the same"),
            (many.join(","), "at most 64"),
        ] {
            assert!(wish(&entries).check().unwrap_err().contains(words), "{entries}");
        }
        assert_eq!(wish(&button(&"é".repeat(100))).check(), Ok(()));
        assert_eq!(wish(&many[..64].join(",")).check(), Ok(()));
        let keys = Some(vec!["x".repeat(33)]);
        assert!(PanelWish { keys, ..PanelWish::default() }.check().is_err());
    }

    #[test]
    fn what_waits_is_bounded_and_each_press_counts() {
        let mut panel = ClientPanel::default();
        let moved = |number| PanelEvent::Changed { label: "a".into(), value: PanelValue::Number(number) };
        let pressed = || PanelEvent::Changed { label: "b".into(), value: PanelValue::Flag(true) };
        for event in [moved(1.0), moved(2.0), pressed(), pressed(), moved(3.0), moved(4.0)] {
            panel.push(event);
        }
        assert_eq!(panel.take_events(), [moved(2.0), pressed(), pressed(), moved(4.0)]);
        (0..1000).for_each(|_| panel.push(pressed()));
        assert_eq!(panel.take_events().len(), MAX_EVENTS);
    }

    #[test]
    fn the_windows_keys_are_heard_only_if_they_are_named() {
        let mut panel = ClientPanel::default();
        assert!(!panel.hears("x", false));
        panel.wish.keys = Some(vec!["c".into()]);
        assert!(panel.hears("x", false) && panel.hears("c", true) && !panel.hears("q", true));
    }
}
