//! The last frames on a time axis: CPU, CUDA and Vulkan, as `--trace` draws them. Also the states of the ring's slots.

use egui::{Align2, Color32, FontId, Pos2, Rect, Sense, Stroke, Ui, pos2, vec2};
use std::collections::VecDeque;

use super::figures::time;
use super::{DRAW, KERNEL, NEITHER};
use crate::app::SlotNow;
use crate::axis::round_step;
use crate::trace::{FrameSpans, GpuClock, Recorder, neither};

/// The number of frames to show.
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
}

impl Moment {
    pub(super) fn of(recorder: &Recorder) -> Option<Self> {
        let frames: &VecDeque<_> = recorder.frames();
        let frames: Vec<_> = frames.iter().skip(frames.len().saturating_sub(SHOWN)).cloned().collect();
        (frames.len() > 1).then(|| Self { frames, clock: *recorder.clock() })
    }

    /// The start and the end of the time axis, in nanoseconds of the GPU's clock.
    fn window(&self) -> Option<(f64, f64)> {
        let (first, last) = (self.frames.first()?, self.frames.last()?);
        Some((first.vulkan[2], last.vulkan[2])).filter(|(from, to)| to > from)
    }

    /// Start and end of the CPU's work on a frame, in nanoseconds of the GPU's clock.
    fn cpu(&self, spans: &FrameSpans) -> (f64, f64) {
        let (began, took) = spans.cpu;
        let from = self.clock.at(began);
        (from, from + took.as_nanos() as f64)
    }
}

/// Draws the lanes. True if they were clicked.
pub(super) fn show(ui: &mut Ui, moment: &Moment, in_queue: bool, is_frozen: bool) -> bool {
    let Some((from, to)) = moment.window() else { return false };
    let has_cuda = moment.frames.iter().any(|spans| spans.cuda.is_some());
    let mut names = vec!["CPU"];
    names.extend(has_cuda.then_some("CUDA"));
    names.push("Vulkan");
    names.push("neither");
    let size = vec2(ui.available_width(), HEIGHT * (names.len() as f32 + 1.0));
    let (area, response) = ui.allocate_exact_size(size, Sense::click());
    let painter = ui.painter_at(area);
    let left = area.left() + NAMES;
    let scale = (area.right() - left - 4.0) / (to - from) as f32;
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
    let hover = response.hover_pos();
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
    axis(ui, &painter, (left, area.bottom() - HEIGHT), (to - from) * 1e-9, scale);
    let words = if is_frozen { "frozen: click to resume" } else { "click to freeze" };
    match said {
        Some(said) => response.clone().on_hover_text_at_pointer(said),
        None => response.clone().on_hover_text_at_pointer(words),
    };
    response.clicked()
}

/// Draws times below the lanes, in round steps.
fn axis(ui: &Ui, painter: &egui::Painter, (left, top): (f32, f32), seconds: f64, scale: f32) {
    let step = round_step(seconds / 6.0);
    let color = ui.visuals().weak_text_color();
    let mut at = 0.0;
    while at < seconds {
        let x = left + (at * 1e9) as f32 * scale;
        painter.line_segment([pos2(x, top), pos2(x, top + 4.0)], Stroke::new(1.0, color));
        let words = if at == 0.0 { "0".to_owned() } else { time(at) };
        painter.text(pos2(x + 3.0, top + 3.0), Align2::LEFT_TOP, words, FontId::proportional(11.0), color);
        at += step;
    }
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
