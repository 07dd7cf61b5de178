use std::time::{Duration, Instant};

use egui::{
    Align2, Area, Color32, Context, FontId, Frame, Grid as Table, Label, LayerId, Painter, Pos2, Rect,
    RichText, ScrollArea, Window, vec2,
};

use super::{ACCENT, OverlayView, PAPER};
use crate::keys::{self, Shown};

const NOTICE: Duration = Duration::from_secs(12);

/// The boxes over the picture: the list of keys, the mark of a recording, a notice, and a kernel's problem.
#[derive(Default)]
pub(crate) struct Boxes {
    /// Whether the list of keys is shown.
    pub(crate) help: bool,
    /// Whether a recording runs that a key has started.
    pub(crate) records: bool,
    /// The notice, and when it disappears.
    pub(super) notice: Option<(String, Instant)>,
    /// A kernel's problem. It stays until it is fixed, even while the overlay is hidden.
    problem: Option<String>,
}

impl Boxes {
    pub(crate) fn notify(&mut self, words: String) {
        self.notice = Some((words, Instant::now() + NOTICE));
    }

    pub(crate) fn show_problem(&mut self, problem: Option<String>) {
        // Remove an older notice, which may report success.
        self.notice.take_if(|_| problem.is_some());
        self.problem = problem;
    }

    /// Returns whether something is shown even while the overlay is off.
    pub(super) fn stay(&self) -> bool {
        self.help || self.records || self.problem.is_some()
    }

    /// Shows the boxes in `picture`, the area that no panel covers. `notices`: whether to show a notice too.
    pub(super) fn show(&self, egui: &Context, picture: Rect, view: &OverlayView<'_>, notices: bool) {
        if self.records {
            let red = Some(Color32::from_rgb(235, 60, 50));
            let at = picture.right_bottom() - vec2(8.0, 8.0);
            let paint = egui.layer_painter(LayerId::background());
            caption(&paint, at, Align2::RIGHT_BOTTOM, "recording: V ends it", red);
        }
        if let Some(words) = &self.problem {
            problem(egui, picture, words);
        }
        if let Some((words, _)) = self.notice.as_ref().filter(|_| notices) {
            notice(egui, picture, words);
        }
        if self.help {
            keys(egui, view);
        }
    }
}

/// Shows a message beside the panel, where it does not cover the colour scale.
fn notice(egui: &Context, picture: Rect, words: &str) {
    Area::new("notice".into()).fixed_pos(picture.left_top() + vec2(8.0, 8.0)).show(egui, |ui| {
        Frame::new().fill(PAPER).inner_margin(10.0).corner_radius(4.0).show(ui, |ui| {
            ui.set_max_width((picture.width() - 120.0).clamp(120.0, 620.0));
            ui.label(RichText::new(words).color(ACCENT));
        });
    });
}

fn keys(egui: &Context, view: &OverlayView<'_>) {
    let drawer = &view.engine.drawer;
    let shown = Shown {
        is_image: drawer.renderer.drawing().is_flat(),
        has_color_map: drawer.has_colors(),
        still: view.still,
        has_lanes: !view.serves,
    };
    let room = egui.content_rect().size() - vec2(40.0, 70.0);
    let list = Window::new("keys").anchor(Align2::CENTER_CENTER, [0.0, 0.0]);
    list.collapsible(false).resizable(false).show(egui, |ui| {
        let scroll = ScrollArea::vertical().max_height(room.y).min_scrolled_height(room.y.min(440.0));
        scroll.show(ui, |ui| {
            Table::new("keys").num_columns(2).max_col_width((room.x - 80.0).min(360.0)).show(ui, |ui| {
                for (key, does) in keys::help(|action| view.screen.takes(action), shown) {
                    ui.label(RichText::new(key).monospace().strong());
                    ui.add(Label::new(does).wrap());
                    ui.end_row();
                }
            });
        });
    });
}

pub(super) fn caption(paint: &Painter, at: Pos2, anchor: Align2, words: &str, dot: Option<Color32>) {
    let text = paint.layout_no_wrap(words.to_owned(), FontId::proportional(12.0), Color32::from_gray(225));
    let room = vec2(if dot.is_some() { 16.0 } else { 0.0 }, 0.0);
    let rect = anchor.anchor_size(at, text.size() + room + vec2(12.0, 8.0));
    paint.rect_filled(rect, 4.0, PAPER);
    if let Some(dot) = dot {
        paint.circle_filled(rect.left_center() + vec2(13.0, 0.0), 5.0, dot);
    }
    paint.galley(rect.min + room + vec2(6.0, 4.0), text, Color32::WHITE);
}

/// Shows a kernel's problem at the bottom of the picture. Notices are at the top.
fn problem(egui: &Context, picture: Rect, problem: &str) {
    let offset = picture.center_bottom() - egui.content_rect().center_bottom() - vec2(0.0, 14.0);
    Window::new("not reloaded: the last good kernel keeps running")
        .anchor(Align2::CENTER_BOTTOM, offset)
        .default_width((picture.width() - 40.0).min(800.0))
        .collapsible(false)
        .resizable(false)
        .show(egui, |ui| {
            let text = ScrollArea::vertical().max_height(picture.height() * 0.35);
            text.show(ui, |ui| ui.label(RichText::new(problem).monospace().color(ACCENT)));
        });
}
