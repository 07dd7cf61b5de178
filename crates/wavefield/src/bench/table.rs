//! The report for a terminal.

use std::fmt;

use super::advice::advice;
use super::figures::{
    align, by_grid, count, elements, figure, grid, limits, machine, maybe, places, plain, short, skipped,
    unless_zero, vertices, wrapped,
};
use super::record::{Cell, Report};
use super::stats::NOISY_SPREAD;

/// The most characters that a strategy's name takes.
const NAME: usize = 24;

/// The most characters that a line takes.
const WIDTH: usize = 160;

/// A report as a table of at most 160 columns with one row for each cell, by grid. The last sentence says which hand-off to use.
pub struct Table<'a>(pub &'a Report);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        for (what, name) in machine(report) {
            writeln!(f, "{what:<9} {}", short(&name, 149))?;
        }
        if !report.complete {
            writeln!(
                f,
                "\nINCOMPLETE: the run was stopped before its last round; cells may have fewer frames than planned."
            )?;
        }
        let limits = limits(report);
        if !limits.is_empty() {
            writeln!(f, "\n{}", wrapped(&plain(&limits), WIDTH))?;
        }
        cells(f, &report.cells, elements(report))?;
        for (names, reason) in skipped(report) {
            write!(f, "\n\n{}", wrapped(&format!("skipped: {}: {}", plain(&names), plain(reason)), WIDTH))?;
        }
        if let Some(advice) = advice(report) {
            write!(f, "\n\n{}", wrapped(&advice, WIDTH))?;
        }
        Ok(())
    }
}

/// The rows and their explanation, without a final newline.
fn cells(f: &mut fmt::Formatter<'_>, cells: &[Cell], elements: &str) -> fmt::Result {
    if cells.is_empty() {
        return write!(f, "\nNo cell was measured.");
    }
    let row = |entries: &[&str]| entries.iter().map(|&entry| entry.to_owned()).collect::<Vec<_>>();
    let mut rows = vec![
        row(&[
            "strategy", "ring", "batch", "frame", "p50", "p95", "p99", "max", "rate", "kernel", "draw",
            "overhead", "CPU", "waits", "written", "latency",
        ]),
        row(&[
            "", "", "", "µs", "µs", "µs", "µs", "µs", "frames/s", "µs", "µs", "µs", "µs", "/frame", "GB/s",
            "frames",
        ]),
    ];
    let grids = by_grid(cells);
    rows.extend(grids.iter().flat_map(|(_, cells)| cells).map(|cell| cell_row(cell)));

    let lines = align(&rows);
    let (header, mut lines) = lines.split_at(2);
    writeln!(f)?;
    for line in header {
        writeln!(f, "{line}")?;
    }
    for (name, cells) in grids {
        let (group, rest) = lines.split_at(cells.len());
        lines = rest;
        writeln!(f, "\ngrid {}, {} {elements}", grid(name), count(vertices(name)))?;
        for line in group {
            writeln!(f, "{line}")?;
        }
    }

    for line in baselines(cells) {
        writeln!(f, "\n{line}")?;
    }
    writeln!(
        f,
        "\nframe: mean time from the end of one frame on the GPU to the end of the next; p50 to max: of the same."
    )?;
    let inline = cells.iter().any(|cell| cell.strategy == "inline");
    let one_slot = if inline { " (inline: one slot)" } else { "" };
    writeln!(
        f,
        "overhead: frame - kernel - the frame of render-only with the same ring{one_slot}.\ndraw: includes the GPU's switches to CUDA during it. CPU: to produce, record and submit."
    )?;
    write!(f, "-: nothing to measure.")?;
    if cells.iter().any(|cell| cell.noisy) {
        let percent = NOISY_SPREAD * 100.0;
        write!(
            f,
            "\n~: NOISY, the means of its rounds lie more than {percent:.0} % apart; measure again before quoting it."
        )?;
    }
    Ok(())
}

/// Comparisons between the baselines, one line for each grid and question.
fn baselines(cells: &[Cell]) -> Vec<String> {
    let mut lines = Vec::new();
    for cell in cells {
        let at = grid(cell.grid);
        if let (Some(memset), Some(kernel)) = (cell.memset_us, cell.kernel_us) {
            let percent = memset / kernel * 100.0;
            lines.push(format!(
                "{at}: the kernel alone takes {} µs, cuMemsetD32Async over the same bytes {} µs: {percent:.0} % of its speed.",
                figure(kernel),
                figure(memset)
            ));
        }
        let only = |other: &&Cell| {
            (other.grid, other.ring) == (cell.grid, cell.ring) && other.strategy == "render-only"
        };
        if let (true, Some(only)) = (cell.strategy == "render-shared", cells.iter().find(only)) {
            let only = only.frame_us.mean;
            let shared = cell.frame_us.mean;
            lines.push(format!(
                "{at}: drawing from memory that could be shared takes {:.3} times as long as from ordinary memory; these baselines \
                 cannot resolve overheads below {} µs.",
                shared / only,
                figure((shared - only).abs())
            ));
        }
    }
    lines
}

fn cell_row(cell: &Cell) -> Vec<String> {
    let frame = &cell.frame_us;
    let mut row = vec![short(&cell.strategy, NAME), cell.ring.to_string(), cell.batch.to_string()];
    row.extend(
        [frame.mean, frame.p50, frame.p95, frame.p99, frame.max, cell.frames_per_second()].map(figure),
    );
    row.extend([cell.kernel_us, cell.draw_us, cell.overhead_us].map(maybe));
    row.extend([
        figure(cell.cpu_us.mean),
        places(cell.blocking_waits),
        unless_zero(cell.gigabytes_per_second()),
    ]);
    row.push(places(cell.latency_frames));
    row.push(if cell.noisy { "~".into() } else { String::new() });
    row
}

#[cfg(test)]
mod tests {
    use super::super::record::Skipped;
    use super::super::sample;
    use super::*;

    #[test]
    fn every_cell_has_its_row_under_its_grid() {
        let report = sample::report();
        let text = Table(&report).to_string();
        for cell in &report.cells {
            let from = text.find(&format!("\ngrid {},", grid(cell.grid))).unwrap();
            let group = text[from + 1..].split("\n\n").next().unwrap();
            let found = group.lines().any(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                words.starts_with(&[&cell.strategy, &cell.ring.to_string()])
                    && words[3] == figure(cell.frame_us.mean)
                    && words[11] == maybe(cell.overhead_us)
                    && (words.last() == Some(&"~")) == cell.noisy
            });
            assert!(found, "{} ring {} is not in:\n{group}", cell.strategy, cell.ring);
        }
        for part in ["Toy RTX 9000", "Toy 570.86.15", "CUDA 12.8", "1280x720", "implicit-sync", "dma-buf"] {
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
        assert!(!text.ends_with('\n'), "whoever prints it ends the line");
        assert!(text.contains("~: NOISY") && !text.contains("INCOMPLETE"));
    }

    #[test]
    fn it_fits_160_columns_whatever_the_figures() {
        let mut report = sample::report();
        report.machine.gpu = "x".repeat(500);
        report.cells[0].strategy = "y".repeat(500);
        for (at, value) in [1e300, -1e300, f64::NAN, 0.0, 99_999_999.4].into_iter().enumerate() {
            let frame = &mut report.cells[at].frame_us;
            (frame.mean, frame.p99, frame.max) = (value, value, value);
            report.cells[at].overhead_us = Some(value);
        }
        let text = Table(&report).to_string();
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 160, "{widest}:\n{text}");
    }

    #[test]
    fn incomplete_empty_and_hostile_reports() {
        let mut report = Report { complete: false, cells: Vec::new(), ..sample::small() };
        report.skipped = vec![Skipped { strategy: "\x1b[2J".into(), reason: "a\x07b".into() }];
        let text = Table(&report).to_string();
        assert!(text.contains("INCOMPLETE") && text.contains("No cell"), "{text}");
        assert!(!text.contains('\x1b') && !text.contains('\x07'));
    }

    #[test]
    fn it_ends_with_what_to_use() {
        let mut report = sample::report();
        let text = Table(&report).to_string();
        let (_, last) = text.rsplit_once("\n\n").unwrap();
        assert!(last.starts_with("Use `") && last.ends_with('.'), "{text}");
        report.cells.retain(|cell| cell.strategy == "fence");
        assert!(!Table(&report).to_string().contains("Use `"));
    }

    #[test]
    fn no_legend_without_a_noisy_cell() {
        let mut report = sample::small();
        report.cells.iter_mut().for_each(|cell| cell.noisy = false);
        assert!(!Table(&report).to_string().contains('~'));
    }
}
