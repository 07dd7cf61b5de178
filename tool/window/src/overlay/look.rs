use egui::{Color32, RichText, Ui};

pub(super) const KERNEL: Color32 = Color32::from_rgb(228, 87, 46);
pub(super) const DRAW: Color32 = Color32::from_rgb(76, 120, 168);
pub(super) const NEITHER: Color32 = Color32::from_rgb(196, 160, 60);
pub(super) const PAPER: Color32 = Color32::from_rgb(22, 24, 29);
pub(super) const ACCENT: Color32 = Color32::from_rgb(255, 196, 87);

pub(super) fn set_up(egui: &egui::Context) {
    egui.set_visuals(egui::Visuals {
        panel_fill: PAPER,
        window_fill: PAPER,
        weak_text_color: Some(Color32::from_gray(125)),
        ..egui::Visuals::dark()
    });
    // The code font is a fallback for missing glyphs, such as arrows.
    let mut fonts = egui::FontDefinitions::default();
    let code = fonts.families.get(&egui::FontFamily::Monospace).and_then(|fonts| fonts.first().cloned());
    fonts.families.entry(egui::FontFamily::Proportional).or_default().extend(code);
    egui.set_fonts(fonts);
    egui.options_mut(|options| {
        // The camera works in pixels, so egui must not change the scale.
        options.zoom_with_keyboard = false;
        // On a slow device, or over a slow connection, long passes between a press and its release.
        options.input_options.max_click_duration = f64::INFINITY;
    });
}

pub(super) fn every_glyph(ui: &mut Ui) {
    let text: String = (' '..='~').chain("×µ→…’°²·–—".chars()).collect();
    egui::Area::new("glyphs".into()).show(ui.ctx(), |ui| {
        for size in [9.0, 11.0, 12.0, 12.5, 14.0, 17.0, 18.0] {
            ui.label(RichText::new(&text).size(size));
        }
        ui.label(RichText::new(&text).monospace());
        ui.label(RichText::new(&text).small());
    });
}

#[cfg(test)]
mod tests {
    use egui::{Context, Event, Modifiers, PointerButton, Pos2, RawInput, Rect, vec2};

    use super::*;

    #[test]
    fn a_slow_click_is_a_click() {
        let egui = Context::default();
        set_up(&egui);
        let (mut clicked, mut area) = (false, Rect::NOTHING);
        let mut layout = |time, pressed: Option<bool>| {
            let (pos, modifiers) = (area.center(), Modifiers::NONE);
            let button =
                |pressed| Event::PointerButton { pos, button: PointerButton::Primary, pressed, modifiers };
            let events = pressed.map(button).into_iter().collect();
            let screen_rect = Some(Rect::from_min_size(Pos2::ZERO, vec2(400.0, 100.0)));
            let input = RawInput { events, screen_rect, time: Some(time), ..RawInput::default() };
            let output = egui.run_ui(input, |ui| {
                let button = ui.button("press");
                (clicked, area) = (button.clicked(), button.rect);
            });
            output.drop_without_applying_deltas();
        };
        for (time, pressed) in [(0.0, None), (0.1, None), (0.2, Some(true)), (5.0, Some(false))] {
            layout(time, pressed);
        }
        assert!(clicked);
    }
}
