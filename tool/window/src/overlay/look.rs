use egui::{Color32, RichText, Ui};

pub(super) const KERNEL: Color32 = Color32::from_rgb(228, 87, 46);
pub(super) const DRAW: Color32 = Color32::from_rgb(76, 120, 168);
pub(super) const NEITHER: Color32 = Color32::from_rgb(196, 160, 60);
pub(super) const PAPER: Color32 = Color32::from_rgb(22, 24, 29);
pub(super) const ACCENT: Color32 = Color32::from_rgb(255, 196, 87);

pub(super) fn visuals() -> egui::Visuals {
    egui::Visuals {
        panel_fill: PAPER,
        window_fill: PAPER,
        weak_text_color: Some(Color32::from_gray(125)),
        ..egui::Visuals::dark()
    }
}

/// Returns the default fonts, with the code font as a fallback for missing glyphs, such as arrows.
pub(super) fn fonts() -> egui::FontDefinitions {
    let mut fonts = egui::FontDefinitions::default();
    let code = fonts.families.get(&egui::FontFamily::Monospace).and_then(|fonts| fonts.first().cloned());
    fonts.families.entry(egui::FontFamily::Proportional).or_default().extend(code);
    fonts
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
