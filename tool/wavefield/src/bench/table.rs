//! The report for a terminal, and the columns that it shares with the page.

use std::fmt;

use super::advice::advice;
use super::figures::{align, by_grid, elements, figure, grid, limits, machine, maybe, plain, short, skipped};
use super::record::{Cell, Report};
use wavefield_gpu::report::wrap;

const WIDTH: usize = 160;

type Column = (&'static str, &'static str, fn(&Cell) -> String);

pub(super) const COLUMNS: [Column; 17] = [
    ("strategy", "", |cell| short(&cell.strategy, 24)),
    ("ring", "", |cell| cell.ring.to_string()),
    ("batch", "", |cell| cell.batch.to_string()),
    ("frame", "µs", |cell| figure(cell.frame_us.mean)),
    ("p50", "µs", |cell| figure(cell.frame_us.p50)),
    ("p95", "µs", |cell| figure(cell.frame_us.p95)),
    ("p99", "µs", |cell| figure(cell.frame_us.p99)),
    ("max", "µs", |cell| figure(cell.frame_us.max)),
    ("rate", "frames/s", |cell| figure(1e6 / cell.frame_us.mean)),
    ("kernel", "µs", |cell| maybe(cell.kernel_us)),
    ("draw", "µs", |cell| {
        let draw = maybe(cell.draw_us);
        if cell.by_compute { format!("{draw}c") } else { draw }
    }),
    ("overhead", "µs", |cell| maybe(cell.overhead_us)),
    ("CPU", "µs", |cell| figure(cell.cpu_us.mean)),
    ("waits", "/frame", |cell| figure(cell.blocking_waits)),
    ("written", "GB/s", |cell| {
        maybe(Some(cell.bytes as f64 / cell.frame_us.mean * 1e-3).filter(|rate| *rate > 0.0))
    }),
    ("latency", "frames", |cell| figure(cell.latency_frames)),
    ("", "", |cell| if cell.noisy { "~".into() } else { String::new() }),
];

pub(super) const MEANING: &str = "frame: mean time from the end of one frame on the GPU to the end of the next; p50 to max: of the same. \
     overhead: frame - kernel - the frame of render-only with as many slots. draw: includes the GPU's switches to CUDA \
     during it; c: by compute shaders. CPU: to produce, record and submit. -: nothing to measure. ~: noisy, the means of its rounds lie more than 10 % apart; \
     measure again before quoting it.";

/// A table of at most 160 columns with one row per cell, grouped by grid. It ends with the recommended
/// hand-off.
pub struct Table<'a>(pub &'a Report);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        for (what, name) in machine(report) {
            writeln!(f, "{what:<9} {}", short(&name, WIDTH - 11))?;
        }
        let limits = limits(report);
        if !limits.is_empty() {
            writeln!(f, "\n{}", wrap(&plain(&limits), WIDTH, 0))?;
        }
        rows(f, report)?;
        for (names, reason) in skipped(report) {
            write!(f, "\n\n{}", wrap(&format!("skipped: {}: {}", plain(&names), plain(reason)), WIDTH, 0))?;
        }
        if let Some(advice) = advice(report) {
            write!(f, "\n\n{}", wrap(&advice, WIDTH, 0))?;
        }
        Ok(())
    }
}

fn rows(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    if report.cells.is_empty() {
        return write!(f, "\nNo cell was measured.");
    }
    let grids = by_grid(&report.cells);
    let mut rows =
        vec![COLUMNS.map(|(name, ..)| name.to_owned()), COLUMNS.map(|(_, unit, _)| unit.to_owned())];
    rows.extend(grids.iter().flat_map(|(_, cells)| cells).map(|cell| COLUMNS.map(|(.., text)| text(cell))));
    let mut lines = align(&rows).into_iter();
    writeln!(f)?;
    lines.by_ref().take(2).try_for_each(|line| writeln!(f, "{line}"))?;
    for (size, cells) in grids {
        writeln!(f, "\ngrid {} {}", grid(size), elements(report))?;
        lines.by_ref().take(cells.len()).try_for_each(|line| writeln!(f, "{line}"))?;
    }
    write!(f, "\n{}", wrap(MEANING, WIDTH, 0))
}

#[cfg(test)]
mod tests {
    use super::super::record::Skipped;
    use super::super::sample;
    use super::super::stats::NOISY_SPREAD;
    use super::*;

    #[test]
    fn every_cell_has_its_row_under_its_grid() {
        let report = sample::report();
        let text = Table(&report).to_string();
        for cell in &report.cells {
            let from = text.find(&format!("\ngrid {} vertices", grid(cell.grid))).unwrap();
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
        assert!(MEANING.contains(&format!("more than {:.0} % apart", NOISY_SPREAD * 100.0)));
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
        assert!(!Table(&sample::report()).to_string().contains("INCOMPLETE"));
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
}
