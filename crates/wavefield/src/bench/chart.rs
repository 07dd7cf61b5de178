//! Charts as inline SVG. Colours come from the page's style sheet, so that charts follow the light and dark themes.

use crate::axis::round_step;
use maud::{Markup, html};

use super::figures::figure;

const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 44.0;

/// Maps values to positions between 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    low: f64,
    high: f64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Linear,
    Log,
    /// On both sides of 0, linear up to about this size and logarithmic beyond.
    Symmetric(f64),
}

impl Kind {
    /// Maps a value so that equal steps of the result are equal distances.
    fn bend(self, value: f64) -> f64 {
        match self {
            Kind::Linear => value,
            Kind::Log => value.ln(),
            Kind::Symmetric(size) => (value / size).asinh(),
        }
    }
}

impl Scale {
    /// From tick to tick around all of `values`, including 0. Logarithmic and without 0 if the largest is many times the
    /// smallest. If some are 0 or less and the largest is many times the median, logarithmic on both sides of 0: otherwise the
    /// small ones would fall on one line.
    pub fn covering(values: impl IntoIterator<Item = f64>) -> Scale {
        Scale::around(values.into_iter().collect(), true)
    }

    /// The same, but includes 0 only if it lies among `values`. Shows the differences between close values.
    pub fn spanning(values: impl IntoIterator<Item = f64>) -> Scale {
        Scale::around(values.into_iter().collect(), false)
    }

    fn around(values: Vec<f64>, with_zero: bool) -> Scale {
        let (low, high) = bounds(values.iter().copied());
        let mut sizes: Vec<f64> =
            values.iter().map(|value| value.abs()).filter(|size| size.is_finite()).collect();
        sizes.sort_unstable_by(f64::total_cmp);
        let middle = sizes.get(sizes.len() / 2).copied().unwrap_or(0.0);
        let largest = sizes.last().copied().unwrap_or(0.0);
        let kind = if low > 0.0 && high / low > 8.0 {
            Kind::Log
        } else if low <= 0.0 && largest > 20.0 * middle && largest > 0.0 {
            Kind::Symmetric(middle.max(largest * 1e-4))
        } else {
            Kind::Linear
        };
        // A single value alone has no range.
        let with_zero = kind == Kind::Linear && (with_zero || low == high);
        let (low, high) = if with_zero { (low.min(0.0), high.max(0.0)) } else { (low, high) };
        let scale = Scale { low, high, kind }.sound();
        // Extend to the next ticks, so that no value lies beyond the last tick of an axis.
        let ticks = scale.round_values();
        let low = ticks.iter().copied().filter(|&tick| tick <= scale.low).fold(f64::NEG_INFINITY, f64::max);
        let high = ticks.iter().copied().filter(|&tick| tick >= scale.high).fold(f64::INFINITY, f64::min);
        let wide = Scale {
            low: if low.is_finite() { low } else { scale.low },
            high: if high.is_finite() { high } else { scale.high },
            kind: scale.kind,
        };
        wide.sound()
    }

    /// Logarithmic, from the smallest to the largest of `values`, with room at both ends.
    pub fn steps(values: impl IntoIterator<Item = f64>) -> Scale {
        let (low, high) = bounds(values.into_iter().map(|value| value.max(1.0)));
        let room = ((high / low).ln() * 0.05).max(0.1).exp();
        Scale { low: low / room, high: high * room, kind: Kind::Log }.sound()
    }

    /// This scale, or 0 to 1 if this one cannot be drawn.
    fn sound(self) -> Scale {
        let (from, to) = (self.kind.bend(self.low), self.kind.bend(self.high));
        let sound = from < to
            && [self.low, self.high, from, to, self.high - self.low].iter().all(|end| end.is_finite());
        if sound { self } else { Scale { low: 0.0, high: 1.0, kind: Kind::Linear } }
    }

    /// The position of `value`: 0 at the low end, 1 at the high end. Values beyond an end are moved to it.
    pub fn at(&self, value: f64) -> f64 {
        let [from, to, value] =
            [self.low, self.high, value.clamp(self.low, self.high)].map(|value| self.kind.bend(value));
        let place = (value - from) / (to - from);
        if place.is_nan() { 0.0 } else { place.clamp(0.0, 1.0) }
    }

    /// Round values within the scale, few enough to read.
    pub fn ticks(&self) -> Vec<f64> {
        let mut ticks = self.round_values();
        ticks.retain(|tick| (self.low..=self.high).contains(tick));
        if let Kind::Symmetric(_) = self.kind {
            // Ticks next to 0 are too close to it for their labels.
            ticks.retain(|&tick| tick == 0.0 || (self.at(tick) - self.at(0.0)).abs() > 0.06);
        }
        ticks
    }

    /// Round values from just below the low end to just above the high one.
    fn round_values(&self) -> Vec<f64> {
        match self.kind {
            Kind::Linear => {
                let step = round_step((self.high - self.low) / 5.0);
                let first = (self.low / step).floor();
                (0..12).map(|at| (first + f64::from(at)) * step).collect()
            }
            Kind::Log => decades(self.low, self.high),
            Kind::Symmetric(size) => {
                let powers = decades(size, self.high.max(-self.low));
                let down = powers.iter().rev().map(|power| -power);
                down.chain([0.0]).chain(powers.iter().copied()).collect()
            }
        }
    }

    /// The kind of scale, as text for the label of an axis.
    pub fn kind(&self) -> &'static str {
        match self.kind {
            Kind::Linear => "",
            Kind::Log => ", log scale",
            Kind::Symmetric(_) => ", log scale on both sides of 0",
        }
    }
}

/// Powers of ten around `low` and `high`, with steps in between if there are few.
fn decades(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let decades = last - first;
    let parts: &[f64] = match decades {
        ..=2 => &[1.0, 2.0, 5.0],
        3..=4 => &[1.0, 3.0],
        _ => &[1.0],
    };
    let stride = (decades / 8 + 1) as usize;
    (first..=last)
        .step_by(stride)
        .flat_map(|decade| parts.iter().map(move |part| part * 10f64.powi(decade)))
        .collect()
}

fn bounds(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let finite = values.into_iter().filter(|value| value.is_finite());
    finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
}

/// A point of a line.
pub struct Point {
    /// The value on the horizontal axis.
    pub x: f64,
    /// The value on the vertical axis.
    pub y: f64,
    /// The smallest and the largest of the rounds.
    pub reach: Option<(f64, f64)>,
    /// Whether it is noisy: then it is drawn hollow.
    pub noisy: bool,
    /// The tooltip.
    pub tip: String,
}

/// A line of a chart.
pub struct Line {
    /// The strategy's index, which selects colour and marker.
    pub style: usize,
    /// Whether its only point stands for the whole width.
    pub level: bool,
    /// The label to its right. A line with a label is dashed.
    pub name: Option<String>,
    /// The points, from left to right.
    pub points: Vec<Point>,
}

/// An axis: its label, scale and ticks.
pub struct Axis<'a> {
    /// The label, with the unit.
    pub name: &'a str,
    /// Maps values to positions.
    pub scale: Scale,
    /// The ticks' values and labels.
    pub ticks: Vec<(f64, String)>,
}

impl<'a> Axis<'a> {
    /// An axis with ticks at round values.
    pub fn new(name: &'a str, scale: Scale) -> Axis<'a> {
        let ticks = scale.ticks().into_iter().map(|tick| (tick, tick_text(tick))).collect();
        Axis { name, scale, ticks }
    }
}

/// A chart of lines. `label` is the text for screen readers.
pub fn lines(label: &str, x: &Axis<'_>, y: &Axis<'_>, lines: &[Line]) -> Markup {
    // Room for the lines' names.
    let end = WIDTH - if lines.iter().any(|line| line.name.is_some()) { 5.0 * RIGHT } else { RIGHT };
    let across = |value| LEFT + x.scale.at(value) * (end - LEFT);
    let up = |value| HEIGHT - BOTTOM - y.scale.at(value) * (HEIGHT - TOP - BOTTOM);
    let names = names(lines, up);
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(label) {
            g.grid {
                @for (value, text) in &y.ticks {
                    line.zero[*value == 0.0] x1=(n(LEFT)) x2=(n(end)) y1=(n(up(*value))) y2=(n(up(*value))) {}
                    text.end x=(n(LEFT - 7.0)) y=(n(up(*value) + 4.0)) { (text) }
                }
                @for (value, text) in &x.ticks {
                    line.tick x1=(n(across(*value))) x2=(n(across(*value))) y1=(n(HEIGHT - BOTTOM)) y2=(n(HEIGHT - BOTTOM + 5.0)) {}
                    // The text of the last tick must not reach over the edge.
                    @let half = 4.5 * text.chars().count() as f64;
                    text.middle x=(n(across(*value).min(WIDTH - half))) y=(n(HEIGHT - BOTTOM + 18.0)) { (text) }
                }
                line.axis x1=(n(LEFT)) x2=(n(end)) y1=(n(HEIGHT - BOTTOM)) y2=(n(HEIGHT - BOTTOM)) {}
                text.middle.name x=(n((LEFT + end) / 2.0)) y=(n(HEIGHT - 8.0)) { (x.name) (x.scale.kind()) }
                text.name x="0" y="12" { (y.name) (y.scale.kind()) }
            }
            @for (line, named) in lines.iter().zip(names) {
                g class={ "series s" (line.style) } {
                    @let path = line.points.iter().map(|point| format!("{},{}", n(across(point.x)), n(up(point.y))));
                    polyline.dashed[line.name.is_some()] points=(path.collect::<Vec<_>>().join(" ")) {}
                    @if let (true, [point]) = (line.level, &line.points[..]) {
                        line.level x1=(n(LEFT)) x2=(n(end)) y1=(n(up(point.y))) y2=(n(up(point.y))) {}
                    }
                    @if let Some((name, y)) = line.name.as_ref().zip(named) {
                        text x=(n(end + 4.0)) y=(n(y)) { (name) }
                    }
                    @for point in &line.points {
                        g.noisy[point.noisy] {
                            title { (point.tip) }
                            @if let Some((low, high)) = point.reach {
                                line.reach x1=(n(across(point.x))) x2=(n(across(point.x))) y1=(n(up(low))) y2=(n(up(high))) {}
                            }
                            circle.hit cx=(n(across(point.x))) cy=(n(up(point.y))) r="9" {}
                            (marker(line.style, across(point.x), up(point.y)))
                        }
                    }
                }
            }
        }
    }
}

/// The height of each line's name, beside its end. No two names overlap.
fn names(lines: &[Line], up: impl Fn(f64) -> f64) -> Vec<Option<f64>> {
    const APART: f64 = 15.0;
    let end = |line: &Line| line.name.as_ref().and(line.points.last()).map(|point| up(point.y) + 4.0);
    let mut heights: Vec<Option<f64>> = lines.iter().map(end).collect();
    let mut order: Vec<usize> = (0..heights.len()).filter(|&at| heights[at].is_some()).collect();
    // From below, because there is always room above.
    order.sort_by(|&a, &b| heights[b].unwrap_or(0.0).total_cmp(&heights[a].unwrap_or(0.0)));
    let mut free = f64::INFINITY;
    for at in order {
        heights[at] = heights[at].map(|height| height.min(free));
        free = heights[at].unwrap_or(free) - APART;
    }
    heights
}

/// A row of a chart of ranges.
pub struct Range {
    /// The strategy's index, which selects the colour.
    pub style: usize,
    /// The label to its left.
    pub name: String,
    /// p50, p95, p99 and max.
    pub at: [f64; 4],
    /// Whether it is noisy: then it is drawn hollow.
    pub noisy: bool,
    /// The tooltip.
    pub tip: String,
}

/// A chart of ranges, one below the other: a mark at the p50, a broad bar to the p95, a narrow bar to the p99, a line to the
/// largest.
pub fn ranges(label: &str, name: &str, rows: &[Range]) -> Markup {
    const NAMES: f64 = 160.0;
    const ROW: f64 = 26.0;
    let scale = Scale::spanning(rows.iter().flat_map(|row| row.at));
    let height = 8.0 + ROW * rows.len() as f64 + BOTTOM;
    let end = height - BOTTOM;
    let across = |value| NAMES + scale.at(value) * (WIDTH - NAMES - RIGHT);
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (n(height)) } role="img" aria-label=(label) {
            g.grid {
                @for tick in scale.ticks() {
                    line x1=(n(across(tick))) x2=(n(across(tick))) y1="4" y2=(n(end)) {}
                    text.middle x=(n(across(tick))) y=(n(end + 17.0)) { (tick_text(tick)) }
                }
                text.middle.name x=(n((NAMES + WIDTH - RIGHT) / 2.0)) y=(n(height - 8.0)) { (name) (scale.kind()) }
            }
            @for (at, row) in rows.iter().enumerate() {
                @let middle = 8.0 + ROW * (at as f64 + 0.5);
                @let [p50, p95, p99, max] = row.at.map(across);
                g class={ "series range s" (row.style) } {
                    g.noisy[row.noisy] {
                        title { (row.tip) }
                        text.end x=(n(NAMES - 12.0)) y=(n(middle + 4.0)) { (row.name) }
                        line.reach x1=(n(p99)) x2=(n(max)) y1=(n(middle)) y2=(n(middle)) {}
                        line.reach x1=(n(max)) x2=(n(max)) y1=(n(middle - 4.0)) y2=(n(middle + 4.0)) {}
                        (bar(p95, p99, middle, 4.0))
                        (bar(p50, p95, middle, 11.0))
                        rect.hit x=(n(p50 - 8.0)) y=(n(middle - ROW / 2.0)) width=(n((max - p50).max(0.0) + 16.0)) height=(n(ROW)) {}
                        (marker(row.style, p50, middle))
                    }
                }
            }
        }
    }
}

fn bar(from: f64, to: f64, middle: f64, thick: f64) -> Markup {
    html! {
        rect.bar x=(n(from)) y=(n(middle - thick / 2.0)) width=(n((to - from).max(0.0))) height=(n(thick)) {}
    }
}

/// A legend's mark.
pub fn key(style: usize) -> Markup {
    html! {
        svg class={ "key series s" (style) } viewBox="0 0 30 14" aria-hidden="true" {
            polyline points="1,7 29,7" {}
            (marker(style, 15.0, 7.0))
        }
    }
}

/// Shapes tell the strategies apart for readers who cannot see the colours.
fn marker(style: usize, x: f64, y: f64) -> Markup {
    const SHAPES: [&str; 10] = [
        "M-4.2,0a4.2,4.2 0 1,0 8.4,0a4.2,4.2 0 1,0 -8.4,0z",
        "M-3.8,-3.8h7.6v7.6h-7.6z",
        "M0,-5.2L4.8,3.6H-4.8z",
        "M0,-5.4L5.4,0L0,5.4L-5.4,0z",
        "M-1.7,-5h3.4v3.3h3.3v3.4h-3.3v3.3h-3.4v-3.3h-3.3v-3.4h3.3z",
        "M0,5.2L4.8,-3.6H-4.8z",
        "M-5,-2.8L-2.8,-5L0,-2.2L2.8,-5L5,-2.8L2.2,0L5,2.8L2.8,5L0,2.2L-2.8,5L-5,2.8L-2.2,0z",
        "M0,-5.6L1.6,-1.8L5.4,-1.8L2.4,0.8L3.4,4.8L0,2.6L-3.4,4.8L-2.4,0.8L-5.4,-1.8L-1.6,-1.8z",
        "M-2.2,-5.2h4.4v10.4h-4.4z",
        "M-5.2,-2.2h10.4v4.4h-10.4z",
    ];
    // After the last shape they begin again, shifted by one, so that a repeated colour gets another shape.
    let shape = SHAPES[(style + style / SHAPES.len()) % SHAPES.len()];
    html! { path.marker d=(shape) transform={ "translate(" (n(x)) " " (n(y)) ")" } {} }
}

/// A coordinate; a tenth of a pixel is enough.
fn n(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

fn tick_text(value: f64) -> String {
    let text = figure(value);
    if !text.contains('.') || text.contains('e') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_range_is_logarithmic() {
        let wide = Scale::covering([1.0, 100.0, 10.0]);
        assert!(wide.kind == Kind::Log && (wide.at(10.0) - 0.5).abs() < 1e-9, "{wide:?}");
        let narrow = Scale::covering([10.0, 20.0]);
        assert_eq!((narrow.kind, narrow.low), (Kind::Linear, 0.0));
        let below = Scale::covering([-10.0, 20.0]);
        assert!(below.kind == Kind::Linear && below.low <= -10.0 && below.high >= 20.0, "{below:?}");
        assert!(below.ticks().contains(&0.0), "{below:?}");
    }

    #[test]
    fn a_wide_range_around_zero_keeps_the_small_ones_apart() {
        let scale = Scale::covering([-20.0, 5.0, 10.0, 40.0, 30_000.0]);
        assert!(matches!(scale.kind, Kind::Symmetric(_)), "{scale:?}");
        assert!(scale.at(40.0) - scale.at(5.0) > 0.1 && scale.at(5.0) - scale.at(-20.0) > 0.1, "{scale:?}");
        assert!(scale.at(0.0) < scale.at(5.0) && scale.at(40.0) < scale.at(30_000.0));
        let ticks = scale.ticks();
        assert!(ticks.contains(&0.0) && ticks.contains(&100.0) && ticks.contains(&10_000.0), "{ticks:?}");
        assert!(ticks.is_sorted() && ticks.len() <= 12, "{ticks:?}");
    }

    #[test]
    fn ticks_are_round_few_and_inside() {
        assert_eq!(Scale::covering([10.0, 20.0]).ticks(), [0.0, 5.0, 10.0, 15.0, 20.0]);
        assert_eq!(Scale::covering([3.0, 40.0]).ticks(), [2.0, 5.0, 10.0, 20.0, 50.0]);
        for values in [
            [1e-9, 1e12],
            [1e-300, 1e300],
            [-1e300, 1e300],
            [-3.0, -2.0],
            [-1e-9, 1e9],
            [7.0, 7.0],
            [f64::MAX, -f64::MAX],
        ] {
            let scale = Scale::covering(values);
            let ticks = scale.ticks();
            assert!((1..=16).contains(&ticks.len()), "{values:?}: {ticks:?}");
            assert!(ticks.iter().all(|&tick| (scale.low..=scale.high).contains(&tick)), "{values:?}");
        }
    }

    #[test]
    fn every_value_lies_between_two_ticks() {
        for values in [
            vec![15.3, 331.0, 621.0],
            vec![-299.0, -195.0, 176.0, 182.0, 364.0, 19_727.0],
            vec![1.0, 1.29, 1.66],
            vec![35_649.0, 36_410.0, 56_721.0],
            vec![-3.0, -2.0],
        ] {
            let inside = |scale: Scale| {
                let ticks = scale.ticks();
                values.iter().all(|&value| ticks[0] <= value && value <= ticks[ticks.len() - 1])
            };
            assert!(inside(Scale::spanning(values.clone())), "{values:?}");
            assert!(inside(Scale::covering(values.clone())), "{values:?}");
        }
        assert_eq!(Scale::spanning([7.0, 7.0]), Scale::covering([7.0]));
        assert_eq!(Scale::spanning([1.0, 1.66]).ticks()[0], 1.0, "no room is wasted down to 0");
    }

    #[test]
    fn nothing_and_nonsense_can_be_drawn_on() {
        for values in [vec![], vec![f64::NAN], vec![f64::INFINITY, f64::NEG_INFINITY], vec![0.0, 0.0]] {
            let scale = Scale::covering(values.clone());
            for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
                assert!((0.0..=1.0).contains(&scale.at(value)), "{values:?}");
            }
        }
        assert!((0.0..=1.0).contains(&Scale::steps([0.0, 16.0]).at(0.0)));
        assert_eq!(Scale::steps([]).ticks().len(), 6);
    }

    #[test]
    fn text_is_escaped_and_every_point_has_its_tip() {
        let point =
            |x, tip: &str| Point { x, y: x, reach: Some((0.5, 2.0)), noisy: x > 1.0, tip: tip.into() };
        let line = Line {
            style: 9,
            level: false,
            name: Some("<b>".into()),
            points: vec![point(1.0, "<script>"), point(2.0, "second")],
        };
        let axis = Axis::new("a & b", Scale::covering([1.0, 2.0]));
        let text = lines("\"quoted\"", &axis, &axis, &[line]).into_string();
        assert!(
            !text.contains("<script>") && text.contains("&lt;script&gt;") && text.contains("a &amp; b"),
            "{text}"
        );
        assert!(text.contains("aria-label=\"&quot;quoted&quot;\"") && text.contains("series s9"), "{text}");
        assert_eq!(text.matches("<title>").count(), 2);
        assert_eq!(text.matches("class=\"noisy\"").count(), 1);
    }

    #[test]
    fn names_of_lines_that_end_together_do_not_overlap() {
        let line = |y, name: Option<&str>| Line {
            style: 0,
            level: false,
            name: name.map(str::to_owned),
            points: vec![Point { x: 1.0, y, reach: None, noisy: false, tip: String::new() }],
        };
        let lines =
            [line(100.0, Some("a")), line(102.0, Some("b")), line(101.0, None), line(10.0, Some("c"))];
        let found = names(&lines, |y| y);
        assert_eq!(found, [Some(91.0), Some(106.0), None, Some(14.0)]);
    }

    #[test]
    fn ranges_of_broken_figures_have_no_negative_width() {
        let row = Range {
            style: 0,
            name: "a".into(),
            at: [9.0, 5.0, f64::NAN, -1.0],
            noisy: false,
            tip: "t".into(),
        };
        let text = ranges("label", "µs", &[row]).into_string();
        assert!(!text.contains("width=\"-") && !text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
