//! The report as one self-contained page, without network or scripts.
//!
//! The page is made with `maud`, which escapes all text, so that no name in a report can become markup. The charts are
//! this crate's own SVG: they follow the reader's light or dark theme and show their figures as tooltips. Chart libraries
//! have fixed colours.

use std::fmt::Write as _;
use std::path::Path;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::chart::{self, Axis, Line, Point, Range, Scale};
use super::figures::{
    by_grid, count, elements, figure, grid, limits, machine, maybe, moment, no_handoff, places, skipped,
    strategies, unless_zero, vertices,
};
use super::record::{Cell, Report};
use super::stats::NOISY_SPREAD;
use super::strategy::Strategy;
use crate::{Result, whole_file};

/// The number of colours in the style sheet.
const COLOURS: usize = 11;

/// Writes the report as a page, whole or not at all.
///
/// # Errors
/// A path that cannot be written.
pub fn write_html(path: &Path, report: &Report) -> Result<()> {
    let text = page(report).into_string();
    whole_file::write(path, |file| file.write_all(text.as_bytes()))
}

fn page(report: &Report) -> Markup {
    let strategies = strategies(&report.cells);
    let view = View { strategies: &strategies, grids: by_grid(&report.cells), elements: elements(report) };
    let title = format!("wavefield bench on {}", report.machine.gpu);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(include_str!("page.css"))) (PreEscaped(strategy_styles(strategies.len()))) }
            }
            body {
                header {
                    h1 { (title) }
                    div.soft {
                        (report.machine.driver) ", Vulkan " (report.machine.vulkan)
                        @if let Some(cuda) = &report.machine.cuda { ", CUDA " (cuda) } @else { ", no CUDA" }
                        "; " (moment(report.started))
                    }
                    @if !report.complete {
                        p.banner role="status" {
                            strong { "Incomplete. " }
                            "The run was stopped before its last round: cells may have fewer frames than planned."
                        }
                    }
                    @let limits = limits(report);
                    @if !limits.is_empty() { p.banner role="status" { strong { "What this machine cannot answer. " } (limits) } }
                    @if report.machine.build == "debug" {
                        p.banner role="status" { strong { "Debug build. " } "CPU times are not those of a release build." }
                    }
                }
                main {
                    @if report.cells.is_empty() {
                        p.banner { "No cell was measured." }
                    } @else if no_handoff(report) {
                        (view.table())
                    } @else {
                        (view.cards())
                        (view.legend())
                        (view.overhead())
                        @if view.grids.iter().any(|(_, cells)| !view.best(cells).is_empty()) {
                            (view.frame_times())
                            (view.distributions())
                        }
                        (view.table())
                    }
                    (about(report))
                }
            }
        }
    }
}

/// The data that the parts of the page share.
struct View<'a> {
    strategies: &'a [&'a str],
    grids: Vec<([u32; 2], Vec<&'a Cell>)>,
    /// Vertices, or texels.
    elements: &'static str,
}

impl<'a> View<'a> {
    fn style(&self, strategy: &str) -> usize {
        self.strategies.iter().position(|name| *name == strategy).unwrap_or(0)
    }

    /// The fastest cell of each strategy in a group, without baselines, in the strategies' order.
    fn best(&self, cells: &[&'a Cell]) -> Vec<&'a Cell> {
        let of = |strategy: &str| fastest(cells.iter().copied().filter(|cell| cell.strategy == strategy));
        self.strategies
            .iter()
            .filter(|name| !Strategy::is_baseline(name))
            .filter_map(|name| of(name))
            .collect()
    }

    /// What the default costs on each grid, or else the fastest hand-off.
    fn cards(&self) -> Markup {
        let card = |(size, cells): &([u32; 2], Vec<&'a Cell>)| {
            let handoffs: Vec<&Cell> =
                cells.iter().copied().filter(|cell| Strategy::has_handoff(&cell.strategy)).collect();
            let default = handoffs
                .iter()
                .copied()
                .find(|cell| cell.strategy == Strategy::Auto.name() && is_time(cell.frame_us.mean));
            let lead = default.or_else(|| fastest(handoffs.iter().copied()))?;
            let name = match default {
                Some(_) => format!("the default (--batch auto, {})", ring(lead)),
                None => format!("the fastest hand-off, {}", setting(lead)),
            };
            let mut known: Vec<(&Cell, f64)> =
                handoffs.into_iter().filter_map(|cell| Some((cell, cell.overhead_us?))).collect();
            known.sort_by(|a, b| a.1.total_cmp(&b.1));
            Some(html! {
                section.card {
                    h3 { (grid(*size)) span.soft { " · " (count(vertices(*size))) " " (self.elements) } }
                    p.big { (lead.overhead_us.map_or_else(|| frame_time(lead), cost)) }
                    p {
                        @match lead.overhead_us {
                            Some(overhead) => { "is what " (name) " costs: " (percent(overhead.max(0.0) / lead.frame_us.mean)) " of a frame of " (figure(lead.frame_us.mean)) " µs" }
                            None => { "is a frame of " (name) "; its hand-off is not known without render-only" }
                        }
                        ", " (figure(lead.frames_per_second())) " frames/s, p99 " (figure(lead.frame_us.p99)) " µs"
                        @if lead.noisy { span.warn { " (noisy)" } }
                    }
                    @if let [(least, from), .., (most, to)] = known[..] {
                        p.soft { "Least: " (setting(least)) ", " (cost(from)) ". Most: " (setting(most)) ", " (cost(to)) "." }
                    }
                }
            })
        };
        html! { div.cards { @for card in self.grids.iter().filter_map(card) { (card) } } }
    }

    /// The strategies' colours, with boxes that show and hide them.
    fn legend(&self) -> Markup {
        html! {
            div.legend role="group" aria-label="Strategies to show" {
                @for (at, strategy) in self.strategies.iter().enumerate() {
                    label {
                        input id={ "show" (at) } type="checkbox" checked;
                        (chart::key(at)) (strategy)
                    }
                }
            }
        }
    }

    fn overhead(&self) -> Markup {
        let panels: Vec<_> = self
            .grids
            .iter()
            .map(|(size, cells)| (*size, self.overhead_lines(cells)))
            .filter(|(_, lines)| has_line(lines))
            .collect();
        if panels.is_empty() {
            return html! {};
        }
        html! {
            h2 { "Hand-off overhead against ring depth" }
            p.soft {
                "Mean frame time minus the kernel and the frame of render-only. Below zero, kernel and draw overlap by more than the hand-off "
                "costs. Thin level lines: one ring only. Dashed: batches. Vertical strokes show the range of the rounds, hollow marks "
                "are noisy. Each panel has its own scale."
            }
            div.panels { @for (size, lines) in &panels { (overhead_panel(*size, lines)) } }
        }
    }

    /// One line for each strategy and batch.
    fn overhead_lines(&self, cells: &[&Cell]) -> Vec<Line> {
        let mut batches: Vec<(usize, u32)> =
            cells.iter().map(|cell| (self.style(&cell.strategy), cell.batch)).collect();
        batches.sort_unstable();
        batches.dedup();
        let line = |(style, batch): (usize, u32)| {
            let own = cells.iter().filter(|cell| cell.batch == batch && self.style(&cell.strategy) == style);
            let mut points: Vec<Point> = own.filter_map(|cell| overhead_point(cell)).collect();
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            let level = cells.iter().filter(|cell| self.style(&cell.strategy) == style).count() == 1;
            Line { style, level, name: (batch > 1 && !level).then(|| format!("batch {batch}")), points }
        };
        batches.into_iter().map(line).filter(|line| !line.points.is_empty()).collect()
    }

    fn frame_times(&self) -> Markup {
        let best: Vec<Vec<&Cell>> = self.grids.iter().map(|(_, cells)| self.best(cells)).collect();
        html! {
            h2 { "Frame time against grid size" }
            p.soft {
                "The mean of each strategy with the ring and batch that are fastest at that grid"
                @if self.grids.len() > 1 { ", and how many times as long as the fastest strategy it takes" } "."
            }
            div.panels.wide {
                // One grid gives no line, and its figures are in the table.
                @if self.grids.len() > 1 { figure { (self.frame_times_chart(&best)) } }
                (self.best_table(&best))
            }
        }
    }

    fn frame_times_chart(&self, best: &[Vec<&Cell>]) -> Markup {
        let sizes = || self.grids.iter().map(|(size, _)| *size);
        let point = |cell: &Cell, first: &Cell| {
            let times = |time: f64| time / first.frame_us.mean;
            Point {
                x: vertices(cell.grid) as f64,
                y: times(cell.frame_us.mean),
                reach: reach(cell, cell.frame_us.mean).map(|(low, high)| (times(low), times(high))),
                noisy: cell.noisy,
                tip: format!(
                    "{}, {}: {} µs a frame",
                    setting(cell),
                    grid(cell.grid),
                    figure(cell.frame_us.mean)
                ),
            }
        };
        let line = |style: usize| {
            let own = best.iter().filter_map(|cells| {
                let cell = cells.iter().find(|cell| self.style(&cell.strategy) == style)?;
                Some(point(cell, fastest(cells.iter().copied())?))
            });
            Line { style, level: false, name: None, points: own.collect() }
        };
        let lines: Vec<Line> =
            (0..self.strategies.len()).map(line).filter(|line| !line.points.is_empty()).collect();
        let x = Axis {
            name: self.elements,
            scale: Scale::steps(sizes().map(|size| vertices(size) as f64)),
            ticks: sizes().map(|size| (vertices(size) as f64, grid(size))).collect(),
        };
        let times = lines.iter().flat_map(|line| &line.points).map(|point| point.y);
        let y = Axis::new("frame time, times the fastest", Scale::spanning(times));
        chart::lines("Frame time against grid size, in multiples of the fastest", &x, &y, &lines)
    }

    /// The figures of the chart next to it, as a table.
    fn best_table(&self, best: &[Vec<&Cell>]) -> Markup {
        html! {
            div.scroll {
                table {
                    thead {
                        tr {
                            th scope="col" { "strategy" }
                            @for (size, _) in &self.grids { th scope="col" { (grid(*size)) small { "µs, times the fastest" } } }
                        }
                    }
                    tbody {
                        @for (style, strategy) in self.strategies.iter().enumerate() {
                            @let row: Vec<Option<&Cell>> = best.iter().map(|cells| cells.iter().copied().find(|cell| cell.strategy == *strategy)).collect();
                            @if row.iter().any(Option::is_some) {
                                tr class={ "s" (style) } {
                                    td { (chart::key(style)) (strategy) }
                                    @for (cell, cells) in row.into_iter().zip(best) {
                                        td { @if let Some(cell) = cell { (best_cell(cell, cells)) } @else { "-" } }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    fn distributions(&self) -> Markup {
        let row = |cell: &Cell| {
            let frame = &cell.frame_us;
            let [mean, p50, p95, p99, max] =
                [frame.mean, frame.p50, frame.p95, frame.p99, frame.max].map(figure);
            Range {
                style: self.style(&cell.strategy),
                name: short_name(&cell.strategy),
                at: [frame.p50, frame.p95, frame.p99, frame.max],
                noisy: cell.noisy,
                tip: format!("{}: p50 {p50}, p95 {p95}, p99 {p99}, max {max}, mean {mean} µs", setting(cell)),
            }
        };
        html! {
            h2 { "How frame times are spread" }
            p.soft {
                "Mark: p50. Broad bar: to the p95. Narrow bar: to the p99. Line: to the longest frame. Each strategy with its fastest ring and "
                "batch, as above. The scales do not begin at 0."
            }
            div.panels {
                @for (size, cells) in &self.grids {
                    @let rows: Vec<Range> = self.best(cells).into_iter().map(row).collect();
                    @let label = format!("Frame time distribution of each strategy, grid {}", grid(*size));
                    figure { h3 { (grid(*size)) } (chart::ranges(&label, "frame time in µs", &rows)) }
                }
            }
        }
    }

    fn table(&self) -> Markup {
        const COLUMNS: [(&str, &str); 16] = [
            ("strategy", ""),
            ("ring", "slots"),
            ("batch", "frames"),
            ("frame", "µs, mean"),
            ("p50", "µs"),
            ("p95", "µs"),
            ("p99", "µs"),
            ("max", "µs"),
            ("rate", "frames/s"),
            ("kernel", "µs"),
            ("draw", "µs"),
            ("overhead", "µs"),
            ("CPU", "µs"),
            ("waits", "/frame"),
            ("written", "GB/s"),
            ("latency", "frames"),
        ];
        html! {
            h2 { "All cells" }
            p.soft {
                "Overhead: frame - kernel - the frame of render-only with the same ring (inline: one slot). CPU: to produce, record and submit, without waits. Bold: the "
                "fastest of its grid; render-only, render-shared and produce-only do only a part of the work, for comparison. "
                span.warn { "~" } " noisy: the means of its rounds lie more than "
                (percent(NOISY_SPREAD)) " apart; measure again before quoting it."
            }
            div.scroll.all {
                table {
                    thead { tr { @for (name, unit) in COLUMNS { th scope="col" { (name) small { (unit) } } } } }
                    @for (size, cells) in &self.grids {
                        @let first = fastest(self.best(cells));
                        tbody {
                            tr {
                                th scope="rowgroup" colspan="16" {
                                    (grid(*size)) span.soft { " · " (count(vertices(*size))) " " (self.elements) }
                                }
                            }
                            @for cell in cells { (self.row(cell, first.is_some_and(|first| std::ptr::eq(first, *cell)))) }
                        }
                    }
                }
            }
        }
    }

    fn row(&self, cell: &Cell, best: bool) -> Markup {
        let frame = &cell.frame_us;
        let style = self.style(&cell.strategy);
        let figures = [frame.p50, frame.p95, frame.p99, frame.max, cell.frames_per_second()].map(figure);
        html! {
            tr class={ "s" (style) @if best { " best" } } {
                td { (chart::key(style)) (cell.strategy) }
                td { (cell.ring) }
                td { (cell.batch) }
                td {
                    @if cell.noisy {
                        span.warn title={ "noisy: the rounds spread by " (figure(cell.spread * 100.0)) " %" } { "~ " }
                    }
                    (figure(frame.mean))
                }
                @for text in figures { td { (text) } }
                @for value in [cell.kernel_us, cell.draw_us, cell.overhead_us] { td { (maybe(value)) } }
                td { (figure(cell.cpu_us.mean)) }
                td { (places(cell.blocking_waits)) }
                td { (unless_zero(cell.gigabytes_per_second())) }
                td { (places(cell.latency_frames)) }
            }
        }
    }
}

fn best_cell(cell: &Cell, cells: &[&Cell]) -> Markup {
    html! {
        (figure(cell.frame_us.mean)) span.times.soft { (times(cell, cells)) }
        small.soft { (ring(cell)) @if cell.noisy { span.warn { " ~" } } }
    }
}

/// The section on where and how it was measured.
fn about(report: &Report) -> Markup {
    html! {
        @if !report.skipped.is_empty() {
            h2 { "Skipped strategies" }
            dl.skipped { @for (names, reason) in skipped(report) { dt { (names) } dd { (reason) } } }
        }
        h2 { "Machine and method" }
        dl {
            @for (what, name) in machine(report) { dt { (what) } dd { (name) } }
            dt { "command" } dd { code { (report.command) } }
            dt { "schema" } dd { (report.schema) }
        }
        p.soft {
            "Quantiles are by nearest rank, so each is a frame that happened. In every round each cell runs once, so that drift affects "
            "all cells alike."
        }
    }
}

/// The colour of each strategy, and the rule that hides it if its box is not ticked. Browsers without `:has` show all.
fn strategy_styles(count: usize) -> String {
    let mut rules = String::new();
    for at in 0..count {
        let _ = writeln!(
            rules,
            ".s{at} {{ --c: var(--c{}); }} body:has(#show{at}:not(:checked)) main :is(g, tr).s{at} {{ display: none; }}",
            at % COLOURS
        );
    }
    rules
}

/// The cell with the smallest valid mean frame time.
fn fastest<'a>(cells: impl IntoIterator<Item = &'a Cell>) -> Option<&'a Cell> {
    cells
        .into_iter()
        .filter(|cell| is_time(cell.frame_us.mean))
        .min_by(|a, b| a.frame_us.mean.total_cmp(&b.frame_us.mean))
}

/// An overhead as text.
fn cost(overhead: f64) -> String {
    // Kernel and draw overlap by more than the hand-off costs.
    if overhead <= 0.0 { "nothing".into() } else { format!("{} µs a frame", figure(overhead)) }
}

fn frame_time(cell: &Cell) -> String {
    format!("{} µs a frame", figure(cell.frame_us.mean))
}

fn is_time(time: f64) -> bool {
    time.is_finite() && time > 0.0
}

fn overhead_point(cell: &Cell) -> Option<Point> {
    let overhead = cell.overhead_us.filter(|overhead| overhead.is_finite())?;
    Some(Point {
        x: f64::from(cell.ring),
        y: overhead,
        reach: reach(cell, overhead),
        noisy: cell.noisy,
        tip: format!(
            "{}: overhead {} µs of {} µs a frame",
            setting(cell),
            figure(overhead),
            figure(cell.frame_us.mean)
        ),
    })
}

fn overhead_panel(size: [u32; 2], lines: &[Line]) -> Markup {
    let points = || lines.iter().flat_map(|line| &line.points);
    let mut rings: Vec<f64> = points().map(|point| point.x).collect();
    rings.sort_unstable_by(f64::total_cmp);
    rings.dedup();
    let x = Axis {
        name: "slots in the ring",
        scale: Scale::steps(rings.iter().copied()),
        ticks: rings.iter().map(|&ring| (ring, ring.to_string())).collect(),
    };
    let y = Axis::new("overhead in µs", Scale::covering(points().map(|point| point.y)));
    let label = format!("Hand-off overhead against ring depth, grid {}", grid(size));
    html! { figure { h3 { (grid(size)) } (chart::lines(&label, &x, &y, lines)) } }
}

/// Whether any line has two points. Single points are easier to read in the table.
fn has_line(lines: &[Line]) -> bool {
    lines.iter().any(|line| line.points.len() > 1)
}

/// The range of the rounds' means relative to the mean, moved to `value`.
fn reach(cell: &Cell, value: f64) -> Option<(f64, f64)> {
    let mut means = cell.round_means_us.clone();
    means.retain(|mean| mean.is_finite());
    means.sort_unstable_by(f64::total_cmp);
    let around = |mean: &f64| value + mean - cell.frame_us.mean;
    Some((around(means.first()?), around(means.last()?)))
}

/// The frame time as a multiple of the fastest of `cells`.
fn times(cell: &Cell, cells: &[&Cell]) -> String {
    let first = fastest(cells.iter().copied()).map_or(f64::NAN, |first| first.frame_us.mean);
    format!("×{}", places(cell.frame_us.mean / first))
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A cell's name without its grid.
fn setting(cell: &Cell) -> String {
    format!("{}, {}", cell.strategy, ring(cell))
}

fn ring(cell: &Cell) -> String {
    match cell.batch {
        0..=1 => format!("ring {}", cell.ring),
        batch => format!("ring {}, batch {batch}", cell.ring),
    }
}

/// A name short enough for the space next to the bars.
fn short_name(name: &str) -> String {
    super::figures::short(name, 22)
}

#[cfg(test)]
mod tests {
    use super::super::record::{Distribution, Skipped};
    use super::super::sample;
    use super::*;

    #[test]
    fn one_self_contained_page_with_everything_on_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        let report = sample::report();
        write_html(&path, &report).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("<!DOCTYPE html>") && text.ends_with("</html>"));
        for outside in ["http://", "https://", "//cdn", "<script", "<link", "<img", "@import", "url("] {
            assert!(!text.contains(outside), "{outside} reaches outside");
        }
        for part in [
            "prefers-color-scheme: dark",
            "Toy RTX 9000",
            "Toy 570.86.15",
            "--rings 1,2,3,4,8,16",
            "implicit-sync",
        ] {
            assert!(text.contains(part), "{part} is missing");
        }
        // For each of three grids a chart of overhead and one of ranges, and one chart of times.
        assert_eq!(text.matches("<svg viewBox").count(), 7);
        assert_eq!(text.matches("<tbody>").count(), 4);
        for cell in &report.cells {
            assert!(text.contains(&format!("{}: overhead {} µs", setting(cell), maybe(cell.overhead_us))));
        }
        assert!(!text.contains("Incomplete"));
    }

    #[test]
    fn nothing_in_a_report_becomes_markup() {
        let mut report = sample::report();
        let evil = "<script>alert('x')</script>\"onload=\"&";
        report.machine.gpu = evil.into();
        report.machine.driver = evil.into();
        report.machine.cpu = evil.into();
        report.machine.cuda = Some(evil.into());
        report.command = evil.into();
        report.schema = evil.into();
        report.cells[0].strategy = evil.into();
        report.skipped[0].strategy = evil.into();
        report.skipped[0].reason = evil.into();
        let text = page(&report).into_string();
        assert!(!text.contains("<script") && !text.contains("\"onload=\""));
        assert!(text.contains("&lt;script&gt;"));
    }

    #[test]
    fn incomplete_and_empty_are_said() {
        let report = Report { complete: false, cells: Vec::new(), ..sample::small() };
        let text = page(&report).into_string();
        assert!(text.contains("Incomplete.") && text.contains("No cell was measured"));
    }

    #[test]
    fn broken_figures_make_no_broken_page() {
        let mut report = sample::report();
        let values = [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e300, -1e300, 5e-324];
        for (cell, value) in report.cells.iter_mut().zip(values.into_iter().cycle()) {
            let frame = &mut cell.frame_us;
            (frame.mean, frame.p50, frame.p95, frame.p99, frame.max) = (value, value, -value, value, value);
            (cell.overhead_us, cell.kernel_us) = (Some(value), None);
            (cell.spread, cell.ring, cell.batch, cell.bytes) = (value, 0, 0, 0);
            cell.round_means_us = vec![value, 1.0];
        }
        report.cells[0].grid = [0, 0];
        report.cells[1].grid = [u32::MAX, u32::MAX];
        report.started = u64::MAX;
        let text = page(&report).into_string();
        assert!(!text.contains("NaN") && !text.contains("inf\"") && !text.contains("width=\"-"));
    }

    #[test]
    fn the_fastest_cell_is_one_that_was_measured() {
        let mut report = sample::small();
        report.cells.truncate(3);
        for (cell, mean) in report.cells.iter_mut().zip([f64::NAN, 0.0, 5.0]) {
            cell.frame_us.mean = mean;
        }
        assert_eq!(fastest(report.cells.iter()).unwrap().frame_us.mean, 5.0);
        assert!(fastest(report.cells[..2].iter()).is_none());
    }

    #[test]
    fn a_baseline_wins_nothing_and_the_card_is_the_bold_row() {
        let mut report = sample::report();
        let mut alone = report.cells[0].clone();
        alone.strategy = Strategy::ProduceOnly.name().into();
        (alone.frame_us.mean, alone.overhead_us, alone.draw_us) = (0.01, None, None);
        report.cells.push(alone);
        let text = page(&report).into_string();
        assert!(!text.contains("produce-only, ring"), "a chart or a card has it");
        assert!(
            !text.contains("s8 best") && text.contains("<td>0.010</td>"),
            "the table has it, not as the fastest"
        );
        for (_, cells) in by_grid(&report.cells[..report.cells.len() - 1]) {
            let first = fastest(cells).unwrap();
            let card = format!("is what the fastest hand-off, {} costs", setting(first));
            assert!(text.contains(&card), "{card}");
        }
        assert_eq!(text.matches(" best\">").count(), 3);

        report.cells.retain(|cell| Strategy::is_baseline(&cell.strategy));
        let text = page(&report).into_string();
        assert!(
            !text.contains("class=\"card") && !text.contains("<svg viewBox=\"0 0 460"),
            "nothing to compare"
        );
    }

    #[test]
    fn a_card_leads_with_what_the_default_costs() {
        let mut report = sample::small();
        let default = Cell {
            strategy: Strategy::Auto.name().into(),
            overhead_us: Some(131.5),
            frame_us: Distribution { mean: 2662.0, ..report.cells[0].frame_us },
            ..report.cells[0].clone()
        };
        let mut compute = default.clone();
        (compute.strategy, compute.overhead_us, compute.frame_us.mean) =
            (Strategy::Compute.name().into(), None, 0.5);
        report.cells.extend([default, compute]);
        let text = page(&report).into_string();
        assert!(text.contains("<p class=\"big\">131.5 µs a frame</p><p>is what the default (--batch auto, ring 3) costs: 5 % of a frame of 2662 µs"), "{text}");
        for cell in &mut report.cells {
            cell.overhead_us = cell.overhead_us.map(|_| -7.0);
        }
        assert!(page(&report).into_string().contains("<p class=\"big\">nothing</p>"));
        report.cells.iter_mut().for_each(|cell| cell.overhead_us = None);
        let text = page(&report).into_string();
        assert!(text.contains("2662 µs a frame</p><p>is a frame of the default (--batch auto, ring 3); its hand-off is not known"), "{text}");
    }

    /// A software device without CUDA, as on a machine without a GPU.
    #[test]
    fn a_machine_that_cannot_answer_says_so_and_has_no_cards() {
        let mut report = sample::report();
        report.machine.software = true;
        report.cells.truncate(2);
        report.cells.iter_mut().for_each(|cell| cell.strategy = Strategy::Compute.name().into());
        let skip = |name: &str| Skipped { strategy: name.into(), reason: "no CUDA".into() };
        report.skipped = ["auto", "timeline", "inline"].map(skip).to_vec();
        let text = page(&report).into_string();
        assert!(
            text.contains("Toy RTX 9000 is a software device")
                && text.contains("What a hand-off costs cannot be measured here"),
            "{text}"
        );
        assert!(!text.contains("class=\"card") && !text.contains("<svg viewBox=\"0 0 460"));
        assert!(text.contains("<dt>auto, timeline, inline</dt><dd>no CUDA</dd>"), "{text}");
        let text = super::super::table::Table(&report).to_string();
        assert!(
            text.contains("is a software device")
                && text.contains("skipped: auto, timeline, inline: no CUDA"),
            "{text}"
        );
        assert!(!page(&sample::report()).into_string().contains("cannot answer"));
    }

    #[test]
    fn one_ring_and_one_grid_make_no_lines() {
        let text = page(&sample::small()).into_string();
        assert_eq!(text.matches("<svg viewBox=\"0 0 460").count(), 1, "how frame times are spread");
    }

    #[test]
    fn there_is_a_colour_for_every_strategy() {
        let css = include_str!("page.css");
        for at in 0..COLOURS {
            // Once for light, once for dark.
            assert_eq!(css.matches(&format!("--c{at}: #")).count(), 2, "{at}");
        }
        assert!(Strategy::ALL.len() <= COLOURS, "two strategies share a colour");
        let mut colours: Vec<&str> = css
            .split("--c")
            .skip(1)
            .filter_map(|part| {
                part.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix(": #")?.get(..6)
            })
            .collect();
        assert_eq!(colours.len(), 2 * COLOURS);
        for theme in colours.chunks_mut(COLOURS) {
            theme.sort_unstable();
            assert!(theme.windows(2).all(|pair| pair[0] != pair[1]), "{theme:?}");
        }
        let first_again = format!(".s{COLOURS} {{ --c: var(--c0); }}");
        assert!(strategy_styles(COLOURS + 1).contains(&first_again));
    }
}
