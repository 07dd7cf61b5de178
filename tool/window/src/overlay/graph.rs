//! Draws the figures and their graph, and the values under the pointer.

use egui::{Color32, FontId, Grid as Table, Painter, Pos2, Rangef, Rect, RichText, Sense, Ui, pos2, vec2};
use egui_plot::{AxisHints, HLine, Line, Plot, PlotPoints};

use super::figures::{FRAMES, Figures, FrameParts, time};
use super::{DRAW, KERNEL, NEITHER};
use wavefield_draw::number as number_in;
use wavefield_handoff::contents::array::ArrayKind;
use wavefield_handoff::contents::parts::PartName;
use wavefield_run::FoundElement;

const BEHIND: Color32 = Color32::from_rgb(140, 150, 90);
const IDLE: Color32 = Color32::from_gray(110);

const MEANINGS: [(&str, &str); 9] = [
    ("rate", "Frames in a second."),
    (
        "frame",
        "From the end of one draw to the end of the next: the median and the 99th percentile of the last 240.",
    ),
    ("kernel", "How long the GPU works on the field's values."),
    ("draw", "How long the GPU draws, without waits and switches."),
    (
        "hand-off",
        "What is left of the frame: the GPU switches between CUDA and Vulkan, one of them waits, or the picture is presented. \
         `wavefield bench` measures the hand-off alone.",
    ),
    (
        "other",
        "What is left of the frame, such as presenting. There is no hand-off: no CUDA kernel fills the field.",
    ),
    ("overlay", "How long the GPU works on this panel."),
    ("idle", "How long the GPU has no work, because it waits for the display or the CPU."),
    ("CPU", "How long the CPU works on a frame, and then on this panel. With Tab, the panel costs nothing."),
];

/// Shows the figures and their graph. `cost` is the overlay's CPU time per frame, in seconds.
pub(super) fn figures(ui: &mut Ui, figures: &Figures, name: &str, cost: f64) {
    ui.label(RichText::new(name).strong());
    let (Some(mean), Some((p50, p99))) = (figures.mean(), figures.quantiles()) else {
        ui.label("no figures yet");
        return;
    };
    Table::new("figures").num_columns(2).spacing([14.0, 2.0]).show(ui, |ui| {
        let rate = 1.0 / mean.frame;
        let decimals = if rate < 10.0 { 2 } else { 0 };
        line(ui, "rate", &format!("{rate:.decimals$} frames/s"), None);
        line(ui, "frame", &format!("{}  p99 {}", time(p50), time(p99)), None);
        line(ui, "kernel", &mean.kernel.map_or("–".into(), time), Some(KERNEL));
        line(ui, "draw", &time(mean.draw), Some(DRAW));
        let (name, other) = mean.other_text();
        line(ui, name, &other, Some(NEITHER));
        line(ui, "overlay", &time(mean.behind), Some(BEHIND));
        line(ui, "idle", &time(mean.idle), Some(IDLE));
        line(ui, "CPU", &format!("{} + {}", time(mean.cpu), time(cost)), None);
    });
    stack(ui, &mean);
    plot(ui, figures, p50, p99);
}

fn line(ui: &mut Ui, name: &str, value: &str, color: Option<Color32>) {
    let text = RichText::new(name);
    let label = ui.label(color.map_or(text.clone(), |color| text.color(color)));
    let meaning = MEANINGS.iter().find(|(one, _)| *one == name).map_or("", |(_, meaning)| meaning);
    (label | ui.label(value)).on_hover_text(meaning);
    ui.end_row();
}

fn stack(ui: &mut Ui, mean: &FrameParts) {
    let (area, _) = ui.allocate_exact_size(vec2(ui.available_width(), 12.0), Sense::hover());
    let painter = ui.painter_at(area);
    let mut left = area.left();
    let parts = [
        (mean.kernel.unwrap_or(0.0), KERNEL),
        (mean.draw, DRAW),
        (mean.other(), NEITHER),
        (mean.behind, BEHIND),
        (mean.idle, IDLE),
    ];
    for (part, color) in parts {
        let width = area.width() * (part / mean.frame) as f32;
        let rect = Rect::from_min_size(pos2(left, area.top()), vec2(width, area.height()));
        painter.rect_filled(rect.intersect(area), 0.0, color);
        left += width;
    }
}

const TIMES: Color32 = Color32::from_gray(210);

fn plot(ui: &mut Ui, figures: &Figures, p50: f64, p99: f64) {
    let points: PlotPoints<'_> =
        figures.frame_times().enumerate().map(|(frame, time)| [frame as f64, time * 1e3]).collect();
    Plot::new("frames")
        .height(70.0)
        .include_x(0.0)
        .include_x(FRAMES as f64)
        .include_y(0.0)
        .include_y(p99 * 1.3e3)
        .custom_x_axes(Vec::new())
        .custom_y_axes(vec![AxisHints::new_y().label("ms").label_spacing(Rangef::new(12.0, 22.0))])
        .show_grid([false, true])
        .allow_drag(false)
        .allow_zoom(false)
        .allow_scroll(false)
        .allow_boxed_zoom(false)
        .allow_double_click_reset(false)
        .show_x(false)
        .show(ui, |plot| {
            plot.line(Line::new("frame", points).width(1.0).color(TIMES));
            plot.hline(HLine::new("p50", p50 * 1e3).color(DRAW));
            plot.hline(HLine::new("p99", p99 * 1e3).color(KERNEL));
        });
    // The plot's built-in legend would cover a third of the plot.
    ui.horizontal(|ui| {
        for (name, color) in [("each frame", TIMES), ("median", DRAW), ("99th percentile", KERNEL)] {
            ui.label(RichText::new(format!("— {name}")).small().color(color));
        }
    });
}

pub(super) fn found(painter: &Painter, at: Pos2, words: &str) {
    let font = FontId::monospace(12.0);
    let galley = painter.layout_no_wrap(words.to_owned(), font, Color32::from_gray(235));
    let rect = Rect::from_min_size(at + vec2(18.0, 14.0), galley.size());
    // Near the window's right and bottom edges, move to the opposite side of the pointer.
    let outside = rect.max + vec2(6.0, 6.0) - painter.clip_rect().max;
    let rect = rect.translate(-vec2(
        if outside.x > 0.0 { galley.size().x + 36.0 } else { 0.0 },
        if outside.y > 0.0 { galley.size().y + 28.0 } else { 0.0 },
    ));
    painter.rect_filled(rect.expand(6.0), 4.0, super::PAPER);
    painter.galley(rect.min, galley, Color32::WHITE);
}

/// Returns an element's index, as NumPy writes it, and its value or its colour; for a mesh of our own, all of
/// the vertex. The places of a client's may be in other units than the client's own, which only it knows.
pub(super) fn words(found: &FoundElement, serves: bool, units: [f64; 2], name: &str) -> String {
    let FoundElement { array, index, numbers, .. } = found;
    let (cols, components) = (array.grid().cols, array.components() as usize);
    let names: &[&str] = match array.kind() {
        ArrayKind::Mesh if !serves => &["x", "y", "z", "w"],
        ArrayKind::Image if components > 1 => &["r", "g", "b", "a"][..components],
        _ => &[],
    };
    let [offset, factor] = units;
    let number = |drawn: f32| {
        let number = f64::from(drawn);
        if units != [0.0, 1.0] && number.is_finite() {
            let step = 10f64.powf((1e-4 * factor.abs()).log10().floor());
            return number_in(offset + factor * number, step);
        }
        let size = number.abs();
        match number.fract() == 0.0 && size < 1e6 || !size.is_finite() {
            true => format!("{number}"),
            false if (1e-3..1e6).contains(&size) => format!("{number:+.4}"),
            false => format!("{number:+.4e}"),
        }
    };
    let has_colors = array.part(PartName::Colors).is_some();
    let (place, value) = match (array.kind(), components) {
        // A point without a value takes its height as the value.
        (ArrayKind::Points | ArrayKind::Lines, 3) => (format!("[{index}]"), 1),
        (ArrayKind::Points | ArrayKind::Lines, _) => (format!("[{index}]"), components - 1),
        (ArrayKind::Triangles, count) => (format!("triangle [{index}]"), if count == 3 { 1 } else { 3 }),
        _ => (format!("[{}, {}]", index / cols, index % cols), components - 1),
    };
    let place = if name.is_empty() { place } else { format!("{name} {place}") };
    // The height of a point with a colour is not what is shown.
    if has_colors && components == 3 {
        return place;
    }
    match names {
        [] => format!("{place} = {}", number(numbers[value])),
        _ => names
            .iter()
            .zip(numbers)
            .fold(place, |text, (name, &drawn)| format!("{text}\n{name} {}", number(drawn))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wavefield_handoff::contents::array::{DrawnArray, Number};

    /// The words for the element with index 11 of an array with 3 columns, or for point 11.
    fn said(kind: ArrayKind, shape: &[u64], numbers: [f32; 4], serves: bool, units: [f64; 2]) -> String {
        let array = DrawnArray::new(kind, shape, Number::F32).unwrap();
        words(&FoundElement { array, which: 0, index: 11, numbers }, serves, units, "")
    }

    #[test]
    fn what_is_found_is_said_with_the_digits_it_needs() {
        let found = |kind, shape, numbers| said(kind, shape, numbers, false, [0.0, 1.0]);
        assert_eq!(found(ArrayKind::Image, &[5, 3, 3], [213.0, 0.0, 7.0, 9.0]), "[3, 2]\nr 213\ng 0\nb 7");
        assert_eq!(
            found(ArrayKind::Mesh, &[5, 3, 4], [-0.25, 1e-7, f32::NAN, 2e9]),
            "[3, 2]\nx -0.2500\ny +1.0000e-7\nz NaN\nw +2.0000e9"
        );
    }

    #[test]
    fn what_is_found_is_in_the_users_units() {
        use ArrayKind::{Image, Mesh, Points, Surface};
        let units = [1e6, 2e-3];
        for (kind, shape, want) in [
            (Image, &[5, 3][..], "[3, 2] = 1000000.0010000"),
            (Surface, &[5, 3], "[3, 2] = 1000000.0010000"),
            // A client's places may be in other units.
            (Mesh, &[5, 3, 4], "[3, 2] = 1000000.0000000"),
            (Points, &[12, 3], "[11] = 1000000.0020000"),
            (Points, &[12, 4], "[11] = 1000000.0000000"),
            (ArrayKind::Lines, &[12, 4], "[11] = 1000000.0000000"),
            (ArrayKind::Lines, &[12], "[11] = 1000000.0010000"),
            (ArrayKind::Triangles, &[12, 3], "triangle [11] = 1000000.0020000"),
            (ArrayKind::Triangles, &[12, 4], "triangle [11] = 1000000.0000000"),
        ] {
            assert_eq!(said(kind, shape, [0.5, 1.0, 2.0, 0.0], true, units), want);
        }
        let colours = said(Image, &[5, 3, 3], [0.5, 1.0, 0.0, 0.0], true, [0.0, 65535.0]);
        assert_eq!(colours, "[3, 2]\nr 32768\ng 65535\nb 0");
    }

    #[test]
    fn every_figure_has_a_meaning() {
        let names = ["rate", "frame", "kernel", "draw", "hand-off", "other", "overlay", "idle", "CPU"];
        assert_eq!(MEANINGS.map(|(name, _)| name), names);
    }
}
