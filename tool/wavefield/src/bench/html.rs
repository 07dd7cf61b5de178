//! The report as a page that loads nothing and runs no script. `maud` escapes all text, so names cannot add
//! markup.

use std::path::Path;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::advice::advice;
use super::chart;
use super::figures::{by_grid, elements, grid, limits, machine, skipped};
use super::record::Report;
use super::table::{COLUMNS, MEANING};
use wavefield_gpu::{Result, output_file};

/// Writes the whole page or nothing. If the file name ends with `.svg`, writes only the chart.
pub fn write_report(path: &Path, report: &Report) -> Result<()> {
    let text = match wavefield_gpu::svg::is_name_of(path) {
        true => chart::chart(report, &by_grid(&report.cells)).into_string() + "\n",
        false => page(report).into_string(),
    };
    output_file::write(path, |file| file.write_all(text.as_bytes()))
}

fn page(report: &Report) -> Markup {
    let title = format!("wavefield bench on {}", report.machine.gpu);
    let limits = limits(report);
    let charts = chart::each(report);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(include_str!("page.css"))) }
            }
            body {
                h1 { (title) }
                @if !limits.is_empty() { p.banner role="status" { (limits) } }
                dl { @for (what, name) in machine(report) { dt { (what) } dd { (name) } } }
                @if let Some(advice) = advice(report) { p.lead { (advice) } }
                @if !charts.is_empty() {
                    h2 { "What each hand-off costs" }
                    div.grid { @for chart in charts { figure { (chart) } } }
                }
                h2 { "All cells" }
                (table(report))
                @if !report.skipped.is_empty() {
                    h2 { "Skipped strategies" }
                    dl { @for (names, reason) in skipped(report) { dt { (names) } dd { (reason) } } }
                }
                p.soft { "Made by " code { (report.command) } ", schema " (report.schema) "." }
            }
        }
    }
}

fn table(report: &Report) -> Markup {
    html! {
        @if report.cells.is_empty() { p.banner { "No cell was measured." } }
        p.soft { (MEANING) }
        div.scroll {
            table {
                thead { tr { @for (name, unit, _) in COLUMNS { th scope="col" { (name) small { (unit) } } } } }
                @for (size, cells) in by_grid(&report.cells) {
                    tbody {
                        tr { th scope="rowgroup" colspan=(COLUMNS.len()) { (grid(size)) " " (elements(report)) } }
                        @for cell in cells { tr { @for (.., text) in COLUMNS { td { (text(cell)) } } } }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Skipped;
    use super::super::sample;
    use super::super::strategy::Strategy;
    use super::super::table::Table;
    use super::*;

    #[test]
    fn one_self_contained_page_with_everything_on_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        let report = sample::report();
        write_report(&path, &report).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("<!DOCTYPE html>") && text.ends_with("</html>"));
        // The name of the format is no address.
        let text = text.replace("http://www.w3.org/2000/svg", "");
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
        // For each of three grids a chart and a part of the table.
        for part in ["<svg", "<tbody>"] {
            assert_eq!(text.matches(part).count(), 3, "{part}");
        }
        assert_eq!(text.matches("<tr><td>").count(), report.cells.len());
        assert!(!text.contains("role=\"status\""));
    }

    #[test]
    fn the_chart_alone_is_a_picture() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.svg");
        write_report(&path, &sample::report()).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("<svg xmlns=") && text.ends_with("</svg>\n"));
        // The smallest ring and the default one of each strategy, on each of three grids.
        assert_eq!(text.matches("latency, ms").count(), 3);
        assert_eq!(text.matches("timeline, ring ").count(), 2);
        assert_eq!(text.matches("<rect class=\"hot\"").count(), 3 * 2 * 8);
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
        assert!(text.contains("INCOMPLETE") && text.contains("No cell was measured"));
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
    fn the_page_says_what_to_use_as_the_table_does() {
        let report = sample::report();
        let advice = advice(&report).unwrap();
        assert!(page(&report).into_string().contains(&format!("<p class=\"lead\">{advice}</p>")), "{advice}");
        let stopped = Report { complete: false, ..report };
        assert!(!page(&stopped).into_string().contains("class=\"lead\""));
    }

    /// A software device without CUDA, as on a machine without a GPU.
    #[test]
    fn a_machine_that_cannot_answer_says_so_and_has_no_chart() {
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
        assert!(text.find("software device") < text.find("<dl>"), "at the top");
        assert!(!text.contains("class=\"lead") && !text.contains("<svg"));
        assert!(text.contains("<dt>auto, timeline, inline</dt><dd>no CUDA</dd>"), "{text}");
        let text = Table(&report).to_string();
        assert!(
            text.contains("is a software device")
                && text.contains("skipped: auto, timeline, inline: no CUDA"),
            "{text}"
        );
    }
}
