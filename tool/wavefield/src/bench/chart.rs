use maud::{Markup, html};

use super::figures::{by_grid, figure, grid, setting, short};
use super::record::{Cell, Report};
use super::strategy::Strategy;
use wavefield_gpu::svg;

type ChartField<'a> = ([u32; 2], Vec<&'a Cell>);

// Sizes in pixels: the names, a field's column, its two bars at full length, a row, the top and the bottom.
const NAMES: f64 = 196.0;
const COLUMN: f64 = 254.0;
const COST: f64 = 96.0;
const LATENCY: f64 = 56.0;
const ROW: f64 = 36.0;
const HEAD: f64 = 60.0;
const FOOT: f64 = 30.0;

/// Draws a chart for each field that has a hand-off, narrow enough for a small screen.
pub(super) fn each(report: &Report) -> Vec<Markup> {
    let fields = by_grid(&report.cells);
    fields.chunks(1).filter(|field| !rows(field).is_empty()).map(|field| chart(report, field)).collect()
}

/// Draws one chart with a column for each field.
pub(super) fn chart(report: &Report, fields: &[ChartField<'_>]) -> Markup {
    let rows = rows(fields);
    let (width, height) = (NAMES + COLUMN * fields.len() as f64, HEAD + ROW * rows.len() as f64 + FOOT);
    let top = |row: usize| HEAD + ROW * row as f64;
    let machine = &report.machine;
    let foot = format!("{}, {}. Cost: without the kernel and the draw.", machine.gpu, machine.driver);
    let content = html! {
        @for (row, first) in rows.iter().enumerate() {
            @if row % 2 == 0 { (svg::bar("row", [0.0, top(row)], [width, ROW], "")) }
            (svg::text("ink", [10.0, top(row) + 16.0], &name(first)))
            (svg::text("soft", [10.0, top(row) + 30.0], &Strategy::meaning(&first.strategy)))
        }
        @for (at, field) in fields.iter().enumerate() {
            (column(field, &rows, NAMES + COLUMN * at as f64, top))
        }
        (svg::text("soft", [10.0, height - 11.0], &foot))
    };
    svg::picture("What each hand-off costs, and its latency", [width, height], &content)
}

fn column((size, cells): &ChartField<'_>, rows: &[&Cell], left: f64, top: impl Fn(usize) -> f64) -> Markup {
    let latency = |cell: &Cell| cell.latency_frames * cell.frame_us.mean * 1e-3;
    let cells: Vec<Option<&Cell>> =
        rows.iter().map(|row| cells.iter().copied().find(|cell| alike(cell, row))).collect();
    let known = || cells.iter().copied().flatten();
    let (costs, latencies) = (full(known().filter_map(|cell| cell.overhead_us)), full(known().map(latency)));
    let right = left + COST + 64.0;
    html! {
        (svg::text("ink head", [left, 22.0], &grid(*size)))
        (svg::text("soft", [left, 44.0], "hand-off, µs a frame"))
        (svg::text("soft", [right, 44.0], "latency, ms"))
        @for (row, cell) in cells.iter().enumerate() {
            @let at = top(row) + 10.0;
            @if let Some(cell) = cell {
                @if let Some(cost) = cell.overhead_us { (bar("a", [left, at], COST, cost, costs)) }
                (bar("hot", [right, at], LATENCY, latency(cell), latencies))
            }
        }
    }
}

/// Draws a bar. It has the full `length` for the value `full`, and ends in an arrow for a greater value.
fn bar(class: &str, [x, y]: [f64; 2], length: f64, value: f64, full: f64) -> Markup {
    // NaN draws an empty bar.
    let width = length * (value / full).clamp(0.0, 1.0).max(0.0);
    let (cut, end) = (value > full, x + width);
    html! {
        (svg::bar(class, [x, y], [width, 16.0], ""))
        @if cut { path class=(class) d=(format!("M{},{} l8,8 l-8,8 z", svg::n(end + 3.0), svg::n(y))) {} }
        (svg::text("ink", [end + if cut { 15.0 } else { 5.0 }, y + 12.0], &digits(value)))
    }
}

/// Returns the largest value that is at most four times the median, so that one slow hand-off does not shrink
/// all other bars.
fn full(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.filter(|value| value.is_finite() && *value > 0.0).collect();
    values.sort_unstable_by(f64::total_cmp);
    let median = values.get(values.len() / 2).copied().unwrap_or(1.0);
    values.into_iter().rfind(|value| *value <= 4.0 * median).unwrap_or(1.0)
}

fn digits(value: f64) -> String {
    match value.abs() {
        size if !size.is_finite() || size >= 1e5 => figure(value),
        size if size >= 99.5 => format!("{value:.0}"),
        size if size >= 0.05 => format!("{value:.1}"),
        _ => "0".into(),
    }
}

/// Returns a cell for each row. Each pair of hand-off and batch has up to two rows: its smallest ring and the
/// default ring.
fn rows<'a>(fields: &[ChartField<'a>]) -> Vec<&'a Cell> {
    let cells = || fields.iter().flat_map(|(_, cells)| cells).copied();
    let default = vulkan_cuda::Ring::default().depth() as u32;
    let smallest = |cell: &Cell| {
        let same = cells().filter(|other| (&other.strategy, other.batch) == (&cell.strategy, cell.batch));
        same.map(|other| other.ring).min() == Some(cell.ring)
    };
    let mut rows: Vec<&Cell> = Vec::new();
    for cell in cells().filter(|cell| Strategy::has_handoff(&cell.strategy)) {
        let shown = is_auto(cell) || cell.ring == default || smallest(cell);
        if shown && !rows.iter().any(|row| alike(row, cell)) {
            rows.push(cell);
        }
    }
    rows
}

/// Returns whether two cells belong in the same row. `auto` may choose a different ring for each field.
fn alike(a: &Cell, b: &Cell) -> bool {
    a.strategy == b.strategy && (is_auto(a) || (a.ring, a.batch) == (b.ring, b.batch))
}

fn is_auto(cell: &Cell) -> bool {
    cell.strategy == Strategy::Auto.name()
}

fn name(cell: &Cell) -> String {
    short(&if is_auto(cell) { cell.strategy.clone() } else { setting(cell) }, 28)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_handoff_does_not_hide_the_others() {
        assert_eq!(full([320.0, 300.0, 24_000.0, 60.0].into_iter()), 320.0);
        assert_eq!(full([f64::NAN, -5.0, 7.0].into_iter()), 7.0);
        assert_eq!(full([].into_iter()), 1.0);
        assert!(bar("a", [0.0, 0.0], 100.0, 24_000.0, 320.0).into_string().contains("<path"));
        assert!(!bar("a", [0.0, 0.0], 100.0, 320.0, 320.0).into_string().contains("<path"));
    }
}
