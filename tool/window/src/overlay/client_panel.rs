//! Shows the sliders, buttons and check boxes of a client.

use egui::{Area, Context, Frame, Grid as Table, Label, Pos2, ScrollArea, Slider, Ui};

use wavefield_run::{ClientPanel, Control, PanelEntry, PanelEvent, PanelValue};

/// The widest label, in points. A longer one has several lines.
const WIDEST: f32 = 130.0;

/// Shows the entries in a corner of their own, for as long as the window's panel is hidden. Returns the height of what they
/// cover.
pub(super) fn area(egui: &Context, frame: Frame, panel: Option<&mut ClientPanel>) -> f32 {
    let Some(panel) = panel.filter(|panel| !panel.wish.entries.is_empty()) else { return 0.0 };
    let area = Area::new("client".into()).fixed_pos(Pos2::ZERO);
    area.show(egui, |ui| frame.show(ui, |ui| show(ui, Some(panel)))).response.rect.height()
}

pub(super) fn show(ui: &mut Ui, panel: Option<&mut ClientPanel>) {
    let Some(panel) = panel.filter(|panel| !panel.wish.entries.is_empty()) else { return };
    let mut events = Vec::new();
    let most = 0.6 * ui.ctx().content_rect().height();
    ScrollArea::vertical().id_salt("client").max_height(most).show(ui, |ui| {
        let table = Table::new("client's entries").num_columns(2).spacing([8.0, 5.0]).max_col_width(WIDEST);
        table.show(ui, |ui| {
            for PanelEntry { label, control } in &mut panel.wish.entries {
                if let Some(value) = entry(ui, label, control) {
                    events.push(PanelEvent::Changed { label: label.clone(), value });
                }
                ui.end_row();
            }
        });
    });
    ui.add_space(6.0);
    events.into_iter().for_each(|event| panel.push(event));
}

/// Shows one entry. Returns its new value, if the user has changed it.
fn entry(ui: &mut Ui, label: &str, control: &mut Control) -> Option<PanelValue> {
    match control {
        Control::Slider { low, high, value, integer } => {
            ui.add(Label::new(label).wrap());
            let value = value.get_or_insert(*low);
            let slider = Slider::new(value, *low..=*high);
            let slider = if *integer { slider.integer() } else { slider };
            ui.add(slider).changed().then_some(PanelValue::Number(*value))
        }
        Control::Button {} => {
            ui.label("");
            ui.button(label).clicked().then_some(PanelValue::Flag(true))
        }
        Control::Checkbox { value } => {
            ui.add(Label::new(label).wrap());
            let value = value.get_or_insert(false);
            ui.checkbox(value, "").changed().then_some(PanelValue::Flag(*value))
        }
    }
}
