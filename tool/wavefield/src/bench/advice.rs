use clap::ValueEnum;

use super::figures::{by_grid, figure, grid};
use super::record::{Cell, Report};
use super::strategy::Strategy;

/// A hand-off that is slower by at most this share counts as good as the fastest. `--batch auto` accepts the
/// same share: a smaller gain is not worth the latency of a deeper ring.
const WORTH: f64 = 0.05;

/// Names the simplest hand-off that is about as fast as the fastest on every grid, or else the hand-off with
/// the best worst case. The simplest has the smallest ring, for the lowest latency, then the smallest batch.
///
/// Ignores noisy cells and `inline`, which is experimental. Returns `None` if there is no choice: without
/// CUDA, with a single hand-off, or after a stopped run, whose cells were not measured equally long.
pub(super) fn advice(report: &Report) -> Option<String> {
    let measured = |mean: f64| mean.is_finite() && mean > 0.0;
    let quiet = |cell: &&Cell| !cell.noisy && measured(cell.frame_us.mean) && options(cell).is_some();
    let grids = by_grid(&report.cells).into_iter();
    let grids: Vec<Vec<&Cell>> = grids
        .map(|(_, cells)| cells.into_iter().filter(quiet).collect::<Vec<_>>())
        .filter(|cells| !cells.is_empty())
        .collect();
    if !report.complete || grids.iter().all(|cells| cells.len() < 2) {
        return None;
    }
    let on_all = |wanted: &&Cell| -> Option<Vec<&Cell>> {
        grids
            .iter()
            .map(|cells| cells.iter().copied().find(|cell| options(cell) == options(wanted)))
            .collect()
    };
    let mut choices: Vec<Vec<&Cell>> = grids[0].iter().filter_map(on_all).collect();
    // `auto` needs no options, so it is the simplest, whatever its ring.
    choices.sort_by_key(|cells| (cells[0].strategy != Strategy::Auto.name(), cells[0].ring, cells[0].batch));
    let fastest =
        |cells: &Vec<&Cell>| cells.iter().map(|cell| cell.frame_us.mean).fold(f64::INFINITY, f64::min);
    let behind = |choice: &Vec<&Cell>| {
        choice.iter().zip(&grids).map(|(cell, grid)| cell.frame_us.mean / fastest(grid)).fold(1.0, f64::max)
    };
    let good = choices.iter().find(|choice| behind(choice) <= 1.0 + WORTH);
    let chosen = good.or_else(|| choices.iter().min_by(|a, b| behind(a).total_cmp(&behind(b))))?;
    let costs: Vec<String> = chosen.iter().map(|cell| cost(cell)).collect();
    let takes = match chosen[0].overhead_us {
        Some(_) => "beyond the kernel and the draw, it costs",
        None => "a frame takes",
    };
    Some(format!("Use `{}` here: {takes} {}.", options(chosen[0])?, costs.join(", ")))
}

/// Returns the options that select a cell, including defaults; `None` for `inline` and the baselines.
fn options(cell: &Cell) -> Option<String> {
    let Cell { ring, batch, strategy, .. } = cell;
    match Strategy::from_str(strategy, false).ok()? {
        Strategy::Auto => Some("--batch auto".into()),
        Strategy::TIMELINE => Some(format!("--ring {ring} --batch {batch}")),
        Strategy::ProduceOnly | Strategy::INLINE => None,
        other if !other.uses_cuda() => None,
        other if other.has_ring() => Some(format!("--handoff {strategy} --ring {ring}")),
        _ => Some(format!("--handoff {strategy}")),
    }
}

/// Returns what a cell's hand-off costs or, if that is unknown, the time of a frame.
fn cost(cell: &Cell) -> String {
    let (frame, at) = (cell.frame_us.mean, grid(cell.grid));
    match cell.overhead_us {
        None => format!("{} µs at {at}", figure(frame)),
        // The kernel and the draw overlap by at least as much as the hand-off costs.
        Some(cost) if cost <= 0.0 => format!("nothing at {at}"),
        Some(cost) => format!("{} µs ({:.1} % of the frame) at {at}", figure(cost), cost / frame * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    /// A report of these rows: strategy, ring, batch, and frame times in µs at 64x64 and 128x128. Kernel and
    /// draw take 100 µs.
    fn measured(rows: &[(&str, u32, u32, [f64; 2])]) -> Report {
        let mut report = sample::small();
        let template = report.cells[0].clone();
        let cells = rows.iter().flat_map(|&(strategy, ring, batch, times)| {
            [64, 128].into_iter().zip(times).map(move |(side, mean)| (strategy, ring, batch, side, mean))
        });
        report.cells = cells
            .map(|(strategy, ring, batch, side, mean)| {
                let mut cell =
                    Cell { strategy: strategy.into(), ring, batch, grid: [side; 2], ..template.clone() };
                (cell.frame_us.mean, cell.overhead_us, cell.noisy) = (mean, Some(mean - 100.0), false);
                cell
            })
            .collect();
        report
    }

    fn said(rows: &[(&str, u32, u32, [f64; 2])]) -> String {
        advice(&measured(rows)).unwrap()
    }

    const SLOW: (&str, u32, u32, [f64; 2]) = ("cpu-sync", 1, 1, [500.0, 500.0]);

    #[test]
    fn the_simplest_of_the_fastest_is_named_with_its_cost() {
        let text = said(&[
            ("timeline", 1, 1, [300.0, 300.0]),
            ("timeline", 16, 8, [123.5, 198.5]),
            ("timeline", 8, 8, [125.0, 200.0]),
            ("timeline", 8, 3, [131.0, 200.0]),
            ("render-only", 3, 1, [100.0, 100.0]),
            ("render-shared", 3, 1, [100.0, 100.0]),
            ("produce-only", 3, 1, [5.0, 5.0]),
            ("compute", 3, 1, [101.0, 101.0]),
            SLOW,
        ]);
        let wanted = "Use `--ring 8 --batch 8` here: beyond the kernel and the draw, it costs 25.00 µs (20.0 % of the frame) at 64x64, \
                      100.0 µs (50.0 % of the frame) at 128x128.";
        assert_eq!(text, wanted);
    }

    #[test]
    fn each_kind_of_handoff_is_named_as_it_is_typed() {
        for (strategy, ring, typed) in [
            ("binary", 1, "`--handoff binary`"),
            ("cpu-sync", 1, "`--handoff cpu-sync`"),
            ("host-copy", 1, "`--handoff host-copy`"),
            ("device-copy", 2, "`--handoff device-copy --ring 2`"),
            ("timeline", 2, "`--ring 2 --batch 1`"),
        ] {
            let slow = ("timeline", 1, 1, [900.0, 900.0]);
            let text = said(&[slow, (strategy, ring, 1, [110.0, 110.0])]);
            assert!(text.starts_with(&format!("Use {typed} here: ")), "{text}");
        }
        // Among equals, the smallest ring wins, then the smallest batch.
        let text = said(
            &[(16, 1), (3, 3), (3, 2), (8, 1)].map(|(ring, batch)| ("timeline", ring, batch, [110.0; 2])),
        );
        assert!(text.starts_with("Use `--ring 3 --batch 2` here"), "{text}");
        // `auto` needs no option, so it wins whatever its ring.
        let text = said(&[("timeline", 1, 1, [110.0, 110.0]), ("auto", 16, 16, [114.0, 114.0])]);
        assert!(text.starts_with("Use `--batch auto` here"), "{text}");
        // Among equals with the same ring and batch, the order of the table decides.
        let text = said(&[("timeline", 1, 1, [111.0, 111.0]), ("binary", 1, 1, [110.0, 110.0])]);
        assert!(text.starts_with("Use `--ring 1 --batch 1` here"), "{text}");
    }

    #[test]
    fn without_a_choice_that_is_good_everywhere_the_one_that_is_never_far_behind_is_named() {
        let rings = |third| {
            said(&[
                ("timeline", 1, 1, [150.0, 200.0]),
                ("timeline", 3, 3, [120.0, 900.0]),
                ("timeline", 8, 8, [third, 201.0]),
            ])
        };
        assert!(rings(121.0).starts_with("Use `--ring 8 --batch 8` here: "), "{}", rings(121.0));
        assert!(rings(140.0).starts_with("Use `--ring 8 --batch 8` here: "), "{}", rings(140.0));
        assert!(rings(160.0).starts_with("Use `--ring 1 --batch 1` here: "), "{}", rings(160.0));
    }

    #[test]
    fn inline_is_never_advised() {
        let text = said(&[("timeline", 8, 8, [200.0, 200.0]), SLOW, ("inline", 3, 1, [100.0, 100.0])]);
        assert!(text.starts_with("Use `--ring 8 --batch 8` here") && !text.contains("inline"), "{text}");
    }

    #[test]
    fn a_cost_below_zero_or_unknown_is_not_told() {
        let mut report = measured(&[("timeline", 3, 3, [98.0, 150.0]), SLOW]);
        let text = advice(&report).unwrap();
        assert!(
            text.ends_with("costs nothing at 64x64, 50.00 µs (33.3 % of the frame) at 128x128."),
            "{text}"
        );
        report.cells.iter_mut().for_each(|cell| cell.overhead_us = None);
        let text = advice(&report).unwrap();
        assert_eq!(
            text,
            "Use `--ring 3 --batch 3` here: a frame takes 98.00 µs at 64x64, 150.0 µs at 128x128."
        );
    }

    #[test]
    fn noisy_cells_have_no_say() {
        let mut report =
            measured(&[("binary", 1, 1, [110.0, 110.0]), ("timeline", 3, 3, [120.0, 120.0]), SLOW]);
        report.cells[..2].iter_mut().for_each(|cell| cell.noisy = true);
        let text = advice(&report).unwrap();
        assert!(text.starts_with("Use `--ring 3 --batch 3` here"), "{text}");
        for cell in report.cells.iter_mut().filter(|cell| cell.grid == [128, 128]) {
            cell.noisy = true;
        }
        let text = advice(&report).unwrap();
        assert!(text.starts_with("Use `--ring 3 --batch 3` here: ") && !text.contains("128x128"), "{text}");
        report.cells.iter_mut().for_each(|cell| cell.noisy = true);
        assert_eq!(advice(&report), None);
    }

    #[test]
    fn nothing_is_said_where_there_is_nothing_to_choose() {
        let alone = [
            ("timeline", 3, 1, [110.0, 110.0]),
            ("render-only", 3, 1, [100.0, 100.0]),
            ("compute", 3, 1, [101.0, 101.0]),
        ];
        assert_eq!(advice(&measured(&alone)), None);
        // No CUDA.
        assert_eq!(advice(&measured(&alone[1..])), None);
        assert_eq!(advice(&measured(&[("inline", 3, 1, [110.0, 110.0])])), None);
        assert_eq!(advice(&measured(&[])), None);
        let two = [alone[0], SLOW];
        assert!(advice(&measured(&two)).is_some());
        assert_eq!(advice(&Report { complete: false, ..measured(&two) }), None);
    }
}
