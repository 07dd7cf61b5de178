//! The last frames on a time axis, as `--trace` draws them: one lane each for the CPU, CUDA, Vulkan, and the
//! times when neither API works. Below the lanes are the states of the ring's slots.

use egui::{Button, Color32, Rangef, RichText, Sense, Stroke, Ui, Vec2};
use egui_plot::{AxisHints, Bar, BarChart, GridMark, Plot};

use super::figures::time;
use super::{DRAW, KERNEL, NEITHER};
use wavefield_run::SlotNow;
use wavefield_run::watch::trace::{FrameSpans, GpuClock, Recorder, neither};

const SHOWN: usize = 8;
/// The number of frames to keep, which is enough to miss none between two layouts.
pub(super) const WATCHED: usize = 256;

const DRAWS: [Color32; 2] = [DRAW, Color32::from_rgb(123, 163, 207)];
const CPU: Color32 = Color32::from_rgb(112, 173, 94);
const ROW: Color32 = Color32::from_rgb(35, 38, 45);
const NAMES: f32 = 62.0;
const HEIGHT: f32 = 20.0;
/// The smallest visible range of the axis, in seconds.
const SHORTEST: f64 = 1e-6;

/// A copy of the last frames. It does not change while the lanes are frozen.
#[derive(Clone)]
pub(super) struct LaneFrames {
    frames: Vec<FrameSpans>,
    clock: GpuClock,
    /// The start and the end of the axis, in nanoseconds of the GPU's clock.
    whole: (f64, f64),
}

/// A bar in a lane. Times are in seconds since the start of the axis.
struct Span {
    lane: &'static str,
    from: f64,
    to: f64,
    color: Color32,
    words: String,
}

impl LaneFrames {
    pub(super) fn of(recorder: &Recorder) -> Option<Self> {
        let frames = &recorder.frames;
        let frames: Vec<_> = frames.iter().skip(frames.len().saturating_sub(SHOWN)).cloned().collect();
        let whole = (frames.first()?.vulkan[2], frames.last()?.vulkan[2]);
        (whole.1 > whole.0).then_some(Self { frames, clock: recorder.clock, whole })
    }

    fn spans(&self, in_queue: bool) -> Vec<Span> {
        let mut all = Vec::new();
        let mut add = |lane, (from, to): (f64, f64), color, words| {
            let [from, to] = [from, to].map(|at| (at - self.whole.0) * 1e-9);
            all.push(Span { lane, from, to, color, words });
        };
        for spans in &self.frames {
            let (frame, [begin, draw, end]) = (spans.frame, spans.vulkan);
            let (began, took) = spans.cpu;
            let (began, took) = (self.clock.at(began), took.as_nanos() as f64);
            add("CPU", (began, began + took), CPU, format!("frame {frame}, the CPU's work"));
            if in_queue {
                add("Vulkan", (begin, draw), KERNEL, format!("frame {frame}, filled in Vulkan's queue"));
            }
            add("Vulkan", (draw, end), DRAWS[(frame % 2) as usize], format!("frame {frame}, draw"));
            if let Some(kernel) = spans.cuda {
                add("CUDA", kernel, KERNEL, format!("frame {frame}, kernel"));
            }
        }
        for gap in neither(&self.frames) {
            add("neither", gap, NEITHER, "the GPU switches, or waits".to_owned());
        }
        all
    }
}

/// Draws the lanes. While they are frozen, the wheel zooms and a drag moves them. Returns whether they were
/// clicked.
pub(super) fn show(ui: &mut Ui, moment: &LaneFrames, in_queue: bool, is_frozen: bool) -> bool {
    let spans = moment.spans(in_queue);
    // Ordered from bottom to top.
    let lanes: Vec<_> = ["neither", "Vulkan", "CUDA", "CPU"]
        .into_iter()
        .filter(|lane| *lane != "CUDA" || spans.iter().any(|span| span.lane == "CUDA"))
        .collect();
    let row = |span: &Span| lanes.iter().position(|lane| *lane == span.lane).unwrap_or(0) as f64;
    let length = (moment.whole.1 - moment.whole.0) * 1e-9;
    let name =
        |mark: GridMark, _: &_| lanes.get(mark.value as usize).map_or(String::new(), |lane| (*lane).into());
    let times = AxisHints::new_x().formatter(|mark, _| on_axis(mark.value, mark.step_size));
    let names = AxisHints::new_y().formatter(name).min_thickness(NAMES).label_spacing(Rangef::new(1.0, 2.0));
    let rows = lanes.len();
    let plot = Plot::new("lanes")
        .height(HEIGHT * (lanes.len() as f32 + 1.0))
        .custom_x_axes(vec![times])
        .custom_y_axes(vec![names])
        .y_grid_spacer(move |_| (0..rows).map(|row| GridMark { value: row as f64, step_size: 1.0 }).collect())
        .include_y(-0.5)
        .include_y(rows as f64 - 0.5)
        .set_margin_fraction(Vec2::ZERO)
        .show_grid([true, false])
        .show_x(false)
        .show_y(false)
        .allow_drag([is_frozen, false])
        .allow_zoom(false)
        .allow_scroll(false)
        .allow_boxed_zoom(false)
        .allow_axis_zoom_drag(false)
        .allow_double_click_reset(false);
    let shown = plot.show(ui, |plot| {
        let pointer = plot.pointer_coordinate().filter(|_| plot.response().hovered());
        let seen = plot.plot_bounds();
        let mut seen = if is_frozen { (seen.min()[0], seen.max()[0]) } else { (0.0, length) };
        if let (true, Some(at)) = (is_frozen, pointer) {
            let (scroll, pinch) = plot.ctx().input(|input| (input.smooth_scroll_delta.y, input.zoom_delta()));
            seen = zoomed(seen, at.x, f64::from((-0.005 * scroll).exp() / pinch), length);
        }
        // A drag may have moved the visible range past an end of the axis.
        let (from, to) = inside(seen, length);
        plot.set_plot_bounds_x(from..=to);
        let bar = |span: &Span| {
            let bar = Bar::new(row(span), span.to - span.from).base_offset(span.from).width(0.8);
            // The outline keeps a kernel of 3 µs visible among draws that take milliseconds.
            bar.fill(span.color).stroke(Stroke::new(1.0, span.color))
        };
        plot.bar_chart(
            BarChart::new("frames", spans.iter().map(bar).collect()).horizontal().allow_hover(false),
        );
        pointer
    });
    let clicked = shown.response.clicked();
    if let Some(at) = shown.inner {
        let found =
            spans.iter().rfind(|span| at.y.round() == row(span) && (span.from..=span.to).contains(&at.x));
        let words = match found {
            Some(span) => format!("{}: {}", span.words, time(span.to - span.from)),
            None if is_frozen => "frozen: the wheel zooms, a drag moves, a click resumes".to_owned(),
            None => "a click or a pause freezes this".to_owned(),
        };
        shown.response.on_hover_text_at_pointer(format!("at {}\n{words}", on_axis(at.x, length * 1e-3)));
    }
    clicked
}

/// Scales the visible range of an axis by `factor`. The time `at` stays at the same place on the screen.
fn zoomed((from, to): (f64, f64), at: f64, factor: f64, length: f64) -> (f64, f64) {
    let width = ((to - from) * factor).clamp(SHORTEST.min(length), length);
    let from = at - (at - from) / (to - from) * width;
    (from, from + width)
}

/// Moves the visible range inside the axis, without changing its width if possible.
fn inside((from, to): (f64, f64), length: f64) -> (f64, f64) {
    let width = (to - from).clamp(SHORTEST.min(length), length);
    let from = from.min(length - width).max(0.0);
    (from, from + width)
}

/// Formats a time with enough digits to distinguish times that are `step` apart. Both are in seconds.
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

pub(super) fn ring(ui: &mut Ui, slots: &[SlotNow]) {
    ui.spacing_mut().item_spacing.x = 2.0;
    let width = (ui.available_width() / slots.len().max(1) as f32 - 2.0).clamp(6.0, 44.0);
    for (index, slot) in slots.iter().enumerate() {
        let (color, frame, words) = match *slot {
            SlotNow::New => (ROW, None, "no frame has reached it"),
            SlotNow::Drawn(frame) => (Color32::from_gray(70), Some(frame), "drawn; can be filled again"),
            SlotNow::AtWork(frame) => (DRAWS[0], Some(frame), "being filled or drawn"),
            SlotNow::Submitted(frame) => (DRAWS[1], Some(frame), "submitted"),
            SlotNow::Ahead(frame) => (KERNEL, Some(frame), "filled ahead, in a batch"),
        };
        let number = frame.filter(|_| width > 28.0).map(|frame| (frame % 10_000).to_string());
        let number = RichText::new(number.unwrap_or_default()).size(11.0).color(Color32::WHITE);
        let slot = Button::new(number).fill(color).sense(Sense::hover());
        ui.add_sized([width, 24.0], slot).on_hover_text(format!("slot {index}: {words}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zoom_keeps_the_time_under_the_pointer_and_stays_inside() {
        let length = 0.01;
        let near = |(from, to): (f64, f64), wanted: (f64, f64)| {
            assert!((from - wanted.0).abs() + (to - wanted.1).abs() < 1e-12, "{from} {to}, not {wanted:?}");
        };
        let half = inside(zoomed((0.0, length), 0.002, 0.5, length), length);
        near(half, (0.001, 0.006));
        let slid = |by: f64| inside((half.0 + by, half.1 + by), length);
        near(slid(-1.0), (0.0, 0.005));
        near(slid(1.0), (0.005, 0.01));
        let (from, to) = inside(zoomed(half, 0.004, 1e-9, length), length);
        assert!((to - from - SHORTEST).abs() < 1e-9, "{from} {to}");
        near(inside(zoomed(half, 0.004, 1e9, length), length), (0.0, length));
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
