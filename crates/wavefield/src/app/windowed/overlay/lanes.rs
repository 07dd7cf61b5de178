//! The last frames on a time axis: CPU, CUDA and Vulkan, as `--trace` draws them. Also the states of the ring's slots.

use egui::{Align2, Color32, FontId, Pos2, Rect, Sense, Stroke, Ui, pos2, vec2};
use std::collections::VecDeque;

use super::figures::time;
use super::{DRAW, KERNEL, NEITHER};
use crate::app::SlotNow;
use crate::axis::round_step;
use crate::trace::{FrameSpans, GpuClock, Recorder, neither};

const SHOWN: usize = 8;
/// The number of frames to record, enough that none is missed between two layouts.
pub(super) const WATCHED: usize = 256;

/// The colours of even and odd frames.
const DRAWS: [Color32; 2] = [DRAW, Color32::from_rgb(123, 163, 207)];
const CPU: Color32 = Color32::from_rgb(112, 173, 94);
const ROW: Color32 = Color32::from_rgb(35, 38, 45);
const NAMES: f32 = 62.0;
const HEIGHT: f32 = 20.0;

/// A copy of the last frames, which stays the same while the lanes are frozen.
#[derive(Clone)]
pub(super) struct Moment {
    frames: Vec<FrameSpans>,
    clock: GpuClock,
    axis: Axis,
}

/// A time axis that can be zoomed, in nanoseconds of the GPU's clock.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Axis {
    whole: (f64, f64),
    seen: (f64, f64),
}

/// The shortest visible part of an axis, in nanoseconds.
const SHORTEST: f64 = 1e3;

impl Axis {
    /// Shows `factor` times as much. The time `at` stays where it is.
    fn zoom(&mut self, at: f64, factor: f64) {
        let (from, to) = self.seen;
        let whole = self.whole.1 - self.whole.0;
        let width = ((to - from) * factor).clamp(SHORTEST.min(whole), whole);
        self.show(at - (at - from) / (to - from) * width, width);
    }

    fn slide(&mut self, by: f64) {
        self.show(self.seen.0 + by, self.seen.1 - self.seen.0);
    }

    fn show(&mut self, from: f64, width: f64) {
        let from = from.min(self.whole.1 - width).max(self.whole.0);
        self.seen = (from, from + width);
    }
}

impl Moment {
    pub(super) fn of(recorder: &Recorder) -> Option<Self> {
        let frames: &VecDeque<_> = recorder.frames();
        let frames: Vec<_> = frames.iter().skip(frames.len().saturating_sub(SHOWN)).cloned().collect();
        let whole = (frames.first()?.vulkan[2], frames.last()?.vulkan[2]);
        let axis = Axis { whole, seen: whole };
        (whole.1 > whole.0).then(|| Self { frames, clock: *recorder.clock(), axis })
    }

    /// Start and end of the CPU's work on a frame, in nanoseconds of the GPU's clock.
    fn cpu(&self, spans: &FrameSpans) -> (f64, f64) {
        let (began, took) = spans.cpu;
        let from = self.clock.at(began);
        (from, from + took.as_nanos() as f64)
    }
}

/// Draws the lanes. While they are frozen, the wheel zooms them and a drag moves them. True if they were clicked.
pub(super) fn show(ui: &mut Ui, moment: &mut Moment, in_queue: bool, is_frozen: bool) -> bool {
    let has_cuda = moment.frames.iter().any(|spans| spans.cuda.is_some());
    let mut names = vec!["CPU"];
    names.extend(has_cuda.then_some("CUDA"));
    names.push("Vulkan");
    names.push("neither");
    let size = vec2(ui.available_width(), HEIGHT * (names.len() as f32 + 1.0));
    let sense = if is_frozen { Sense::click_and_drag() } else { Sense::click() };
    let (area, response) = ui.allocate_exact_size(size, sense);
    let painter = ui.painter_at(area);
    let left = area.left() + NAMES;
    let hover = response.hover_pos().filter(|at| at.x >= left);
    let per_point = |axis: &Axis| (axis.seen.1 - axis.seen.0) / f64::from(area.right() - left - 4.0);
    let time_at = |axis: &Axis, x: f32| axis.seen.0 + f64::from(x - left) * per_point(axis);
    if let Some(hover) = hover.filter(|_| is_frozen) {
        let (scroll, pinch) = ui.input(|input| (input.smooth_scroll_delta.y, input.zoom_delta()));
        let at = time_at(&moment.axis, hover.x);
        moment.axis.zoom(at, f64::from((-0.005 * scroll).exp() / pinch));
        moment.axis.slide(f64::from(-response.drag_delta().x) * per_point(&moment.axis));
    }
    let moment = &*moment;
    let (from, to) = moment.axis.seen;
    let scale = per_point(&moment.axis).recip() as f32;
    let x = |at: f64| left + (at - from) as f32 * scale;
    let row = |name: &str| {
        let index = names.iter().position(|one| *one == name).unwrap_or(0);
        area.top() + index as f32 * HEIGHT
    };
    let font = FontId::proportional(12.0);
    for name in &names {
        let top = row(name);
        painter.text(
            pos2(area.left(), top + HEIGHT / 2.0),
            Align2::LEFT_CENTER,
            name,
            font.clone(),
            ui.visuals().text_color(),
        );
        painter.rect_filled(
            Rect::from_min_max(pos2(left, top + 1.0), pos2(area.right() - 4.0, top + HEIGHT - 1.0)),
            2.0,
            ROW,
        );
    }
    let mut said = None;
    let mut bar = |name: &str, (begin, end): (f64, f64), color: Color32, words: &dyn Fn() -> String| {
        let (begin, end) = (begin.max(from), end.min(to));
        if begin >= end {
            return;
        }
        // A kernel of 3 µs must be visible among draws of milliseconds.
        let right = x(end).max(x(begin) + 1.5);
        let top = row(name);
        let rect = Rect::from_min_max(pos2(x(begin), top + 2.0), pos2(right, top + HEIGHT - 2.0));
        painter.rect_filled(rect, 1.0, color);
        if hover.is_some_and(|at| rect.expand(1.0).contains(at)) {
            said = Some(format!("{}: {}", words(), time((end - begin) * 1e-9)));
        }
    };
    for spans in &moment.frames {
        let (frame, [begin, draw, end]) = (spans.frame, spans.vulkan);
        bar("CPU", moment.cpu(spans), CPU, &|| format!("frame {frame}, the CPU's work"));
        if in_queue {
            bar("Vulkan", (begin, draw), KERNEL, &|| format!("frame {frame}, filled in Vulkan's queue"));
        }
        bar("Vulkan", (draw, end), DRAWS[(frame % 2) as usize], &|| format!("frame {frame}, draw"));
        if let Some(kernel) = spans.cuda {
            bar("CUDA", kernel, KERNEL, &|| format!("frame {frame}, kernel"));
        }
    }
    for gap in neither(&moment.frames) {
        bar("neither", gap, NEITHER, &|| "the GPU switches, or waits".to_owned());
    }
    // Times below the lanes, in round steps.
    let (first, color) = (moment.axis.whole.0, ui.visuals().weak_text_color());
    let step = round_step((to - from) * 1e-9 / 6.0);
    let top = area.bottom() - HEIGHT;
    for number in ((from - first) * 1e-9 / step).ceil() as u64..=((to - first) * 1e-9 / step) as u64 {
        let at = number as f64 * step;
        let x = x(first + at * 1e9);
        painter.line_segment([pos2(x, top), pos2(x, top + 4.0)], Stroke::new(1.0, color));
        let words = painter.layout_no_wrap(on_axis(at, step), FontId::proportional(11.0), color);
        // The last one may have no room.
        if x + 3.0 + words.size().x <= area.right() {
            painter.galley(pos2(x + 3.0, top + 3.0), words, color);
        }
    }
    if let Some(hover) = hover {
        painter.vline(hover.x, area.top()..=top, Stroke::new(1.0, color));
        let at = (time_at(&moment.axis, hover.x) - first) * 1e-9;
        let words = match is_frozen {
            true => "frozen: the wheel zooms, a drag moves, a click resumes",
            false => "a click or a pause freezes this",
        };
        let said = said.unwrap_or_else(|| words.to_owned());
        response.clone().on_hover_text_at_pointer(format!("at {}\n{said}", on_axis(at, step * 0.01)));
    }
    response.clicked()
}

/// A time with the digits that tell it from others `step` away. Both are in seconds.
fn on_axis(at: f64, step: f64) -> String {
    let (unit, name) = match step {
        _ if at == 0.0 => return "0".to_owned(),
        1.0.. => (1.0, "s"),
        1e-6.. => (1e-3, "ms"),
        _ => (1e-6, "µs"),
    };
    let decimals = (unit / step).log10().ceil().max(0.0) as usize;
    format!("{:.decimals$} {name}", at / unit)
}

/// Draws the ring: a box for each slot, with its frame's number.
pub(super) fn ring(ui: &mut Ui, slots: &[SlotNow]) {
    let width = ((ui.available_width() - 4.0) / slots.len().max(1) as f32).clamp(8.0, 46.0);
    let (area, _) = ui.allocate_exact_size(vec2(width * slots.len() as f32, 26.0), Sense::hover());
    let painter = ui.painter_at(area);
    for (index, slot) in slots.iter().enumerate() {
        let (color, frame, words) = match *slot {
            SlotNow::New => (ROW, None, "no frame has reached it"),
            SlotNow::Drawn(frame) => (Color32::from_gray(70), Some(frame), "drawn; can be filled again"),
            SlotNow::AtWork(frame) => (DRAWS[0], Some(frame), "being filled or drawn"),
            SlotNow::Submitted(frame) => (DRAWS[1], Some(frame), "submitted"),
            SlotNow::Ahead(frame) => (KERNEL, Some(frame), "filled ahead, in a batch"),
        };
        let min: Pos2 = pos2(area.left() + index as f32 * width, area.top());
        let rect = Rect::from_min_size(min, vec2(width - 2.0, 24.0));
        painter.rect_filled(rect, 3.0, color);
        if let Some(frame) = frame.filter(|_| width > 30.0) {
            let text = format!("{}", frame % 10_000);
            painter.text(
                rect.center(),
                Align2::CENTER_CENTER,
                text,
                FontId::proportional(11.0),
                Color32::WHITE,
            );
        }
        let response = ui.interact(rect, ui.id().with(("slot", index)), Sense::hover());
        if response.hovered() {
            response.on_hover_text(format!("slot {index}: {words}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zoom_keeps_the_time_under_the_pointer_and_stays_inside() {
        let whole = (1e9, 1.01e9);
        let mut axis = Axis { whole, seen: whole };
        axis.zoom(1.002e9, 0.5);
        assert_eq!(axis.seen, (1.001e9, 1.006e9));
        axis.slide(-1e9);
        assert_eq!(axis.seen, (1e9, 1.005e9));
        axis.slide(1e9);
        assert_eq!(axis.seen, (1.005e9, 1.01e9));
        axis.zoom(1.007e9, 1e-9);
        assert!((axis.seen.1 - axis.seen.0 - SHORTEST).abs() < 1.0, "{axis:?}");
        axis.zoom(1.007e9, 1e9);
        assert_eq!(axis.seen, whole);
    }

    #[test]
    fn times_of_an_axis_differ() {
        for (at, step, text) in [
            (0.0, 0.1, "0"),
            (0.3, 0.1, "300 ms"),
            (2.0, 1.0, "2 s"),
            (0.0125, 0.0005, "12.5 ms"),
            (0.0125, 0.000_01, "12.50 ms"),
            (0.000_012_5, 0.000_000_5, "12.5 µs"),
        ] {
            assert_eq!(on_axis(at, step), text);
        }
    }
}
