//! One sentence that says which hand-off to use on a report's machine.

use super::compare::SAME_WITHIN;
use super::figures::{by_grid, figure, grid};
use super::record::{Cell, Report};
use super::strategy::Strategy;

/// A hand-off slower by at most this part counts as fast as the fastest. `--batch auto` allows itself the same; a smaller gain
/// is not worth the latency of a deeper ring.
const WORTH: f64 = 0.05;

/// Names the simplest hand-off that is about as fast as the fastest on every grid. If there is none, names one for each grid.
/// The simplest has the smallest ring, and so the lowest latency; among equal rings it has the smallest batch.
///
/// `inline` is experimental, so it is only named as an alternative. Noisy cells are ignored. `None` if there is nothing to
/// choose: without CUDA, with a single hand-off, or after a stopped run, whose cells were not measured equally long.
pub(super) fn advice(report: &Report) -> Option<String> {
    let grids: Vec<Field> = by_grid(&report.cells).into_iter().filter_map(Field::of).collect();
    if !report.complete || grids.is_empty() || grids.iter().all(|grid| grid.measured < 2) {
        return None;
    }
    let chosen: Vec<&Cell> = match everywhere(&grids) {
        Some(chosen) => chosen,
        None => grids.iter().filter_map(|grid| grid.good.first().copied()).collect(),
    };
    let first = typed(chosen[0]);
    let use_what = if chosen.iter().all(|cell| typed(cell) == first) {
        match grids.len() == by_grid(&report.cells).len() {
            true => format!("`{first}` here"),
            // Leaves out grids with noisy cells only.
            false => format!("`{first}` for {}", listed(chosen.iter().map(|cell| grid(cell.grid)))),
        }
    } else {
        listed(chosen.iter().map(|cell| format!("`{}` for {}", typed(cell), grid(cell.grid))))
    };
    let quicker = grids.iter().zip(&chosen).filter_map(|(grid, chosen)| grid.quicker_inline(chosen));
    let inline = match listed(quicker) {
        none if none.is_empty() => none,
        some => format!("; `--handoff inline`, which is experimental, takes {some}"),
    };
    Some(format!("Use {use_what}: {}{inline}.", costs(&chosen)))
}

/// The hand-offs measured on one grid.
struct Field<'a> {
    /// How many hand-offs were measured, noisy ones included.
    measured: usize,
    /// The cells as fast as the fastest, the simplest first, without `inline`. Never empty.
    good: Vec<&'a Cell>,
    inline: Option<&'a Cell>,
}

impl<'a> Field<'a> {
    fn of((_, cells): ([u32; 2], Vec<&'a Cell>)) -> Option<Self> {
        let mut handoffs: Vec<(Strategy, &Cell)> =
            cells.iter().filter_map(|cell| Some((handoff(&cell.strategy)?, *cell))).collect();
        let measured = handoffs.len();
        handoffs
            .retain(|(_, cell)| !cell.noisy && cell.frame_us.mean > 0.0 && cell.frame_us.mean.is_finite());
        let is_inline = |(strategy, _): &(Strategy, &Cell)| *strategy == Strategy::INLINE;
        let inline = handoffs.iter().find(|handoff| is_inline(handoff)).map(|&(_, cell)| cell);
        handoffs.retain(|handoff| !is_inline(handoff));
        let fastest = handoffs.iter().map(|(_, cell)| cell.frame_us.mean).min_by(f64::total_cmp)?;
        handoffs.retain(|(_, cell)| cell.frame_us.mean <= fastest * (1.0 + WORTH));
        let order = |strategy| Strategy::ALL.iter().position(|&other| other == strategy);
        // `auto` needs no options, so it is the simplest, whatever its ring.
        let chosen_for = |strategy| strategy == Strategy::Auto;
        handoffs
            .sort_by_key(|&(strategy, cell)| (!chosen_for(strategy), cell.ring, cell.batch, order(strategy)));
        Some(Self { measured, good: handoffs.into_iter().map(|(_, cell)| cell).collect(), inline })
    }

    /// How much less a frame takes with `inline`, if the difference is more than noise.
    fn quicker_inline(&self, chosen: &Cell) -> Option<String> {
        let [inline, chosen] = [self.inline?, chosen].map(|cell| cell.frame_us.mean);
        let at = grid(self.inline?.grid);
        (inline * (1.0 + SAME_WITHIN) < chosen)
            .then(|| format!("{:.1} % less at {at}", (1.0 - inline / chosen) * 100.0))
    }
}

/// The simplest hand-off that is good on every grid: its cells, one for each grid.
fn everywhere<'a>(grids: &[Field<'a>]) -> Option<Vec<&'a Cell>> {
    let on_all = |wanted: &Cell| -> Option<Vec<&'a Cell>> {
        let of = |grid: &Field<'a>| grid.good.iter().copied().find(|cell| typed(cell) == typed(wanted));
        grids.iter().map(of).collect()
    };
    grids[0].good.iter().find_map(|cell| on_all(cell))
}

/// The strategy of this name, if `--handoff` or the defaults of a run can choose it.
fn handoff(name: &str) -> Option<Strategy> {
    let of_that_name = Strategy::ALL.into_iter().find(|strategy| strategy.name() == name)?;
    (of_that_name.uses_cuda() && of_that_name != Strategy::ProduceOnly).then_some(of_that_name)
}

/// The options that select what a cell measured. Defaults that may change are spelled out.
fn typed(cell: &Cell) -> String {
    let Cell { ring, batch, strategy, .. } = cell;
    match handoff(strategy) {
        Some(Strategy::Auto) => "--batch auto".into(),
        Some(Strategy::TIMELINE) => format!("--ring {ring} --batch {batch}"),
        Some(other) if other.has_ring() => format!("--handoff {strategy} --ring {ring}"),
        _ => format!("--handoff {strategy}"),
    }
}

/// What the chosen hand-offs cost, grid by grid. If `render-only` was not measured, gives the frame times instead.
fn costs(chosen: &[&Cell]) -> String {
    let cost = |cell: &&Cell| {
        let at = grid(cell.grid);
        Some(match cell.overhead_us? {
            // Kernel and draw overlap by more than the hand-off costs.
            overhead if overhead <= 0.0 => format!("nothing at {at}"),
            overhead => {
                let percent = overhead / cell.frame_us.mean * 100.0;
                format!("{} µs ({percent:.1} % of the frame) at {at}", figure(overhead))
            }
        })
    };
    match listed(chosen.iter().filter_map(cost)) {
        none if none.is_empty() => {
            let times =
                chosen.iter().map(|cell| format!("{} µs at {}", figure(cell.frame_us.mean), grid(cell.grid)));
            format!("a frame takes {}", listed(times))
        }
        some => format!("beyond the kernel and the draw, it costs {some}"),
    }
}

/// `a, b and c`.
fn listed(items: impl Iterator<Item = String>) -> String {
    let mut items: Vec<String> = items.collect();
    match items.pop() {
        Some(last) if items.is_empty() => last,
        Some(last) => format!("{} and {last}", items.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    /// A report of these rows: strategy, ring, batch, and frame times in µs at 64x64 and 128x128. Kernel and draw take 100 µs.
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
        let wanted = "Use `--ring 8 --batch 8` here: beyond the kernel and the draw, it costs 25.00 µs (20.0 % of the frame) at 64x64 \
                      and 100.0 µs (50.0 % of the frame) at 128x128.";
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
        let text = said(&[("binary", 1, 1, [110.0, 110.0]), ("timeline", 1, 1, [111.0, 111.0])]);
        assert!(text.starts_with("Use `--ring 1 --batch 1` here"), "{text}");
    }

    #[test]
    fn a_choice_that_is_good_everywhere_goes_before_one_for_each_grid() {
        let rings = |third| {
            [
                ("timeline", 1, 1, [150.0, 200.0]),
                ("timeline", 3, 3, [120.0, 900.0]),
                ("timeline", 8, 8, [third, 201.0]),
            ]
        };
        assert!(
            said(&rings(121.0)).starts_with("Use `--ring 8 --batch 8` here: "),
            "{}",
            said(&rings(121.0))
        );
        let wanted = "Use `--ring 3 --batch 3` for 64x64 and `--ring 1 --batch 1` for 128x128: beyond the kernel and the draw, \
                      it costs 20.00 µs (16.7 % of the frame) at 64x64 and 100.0 µs (50.0 % of the frame) at 128x128.";
        assert_eq!(said(&rings(127.0)), wanted);
    }

    #[test]
    fn inline_is_an_alternative_where_it_is_faster_by_more_than_noise() {
        let by = |inline| said(&[("timeline", 8, 8, [200.0, 200.0]), SLOW, ("inline", 3, 1, inline)]);
        assert!(
            by([180.0, 197.0])
                .ends_with("; `--handoff inline`, which is experimental, takes 10.0 % less at 64x64.")
        );
        let both = by([180.0, 190.0]);
        assert!(both.ends_with("takes 10.0 % less at 64x64 and 5.0 % less at 128x128."), "{both}");
        let none = by([197.0, 300.0]);
        assert!(none.starts_with("Use `--ring 8 --batch 8` here") && !none.contains("inline"), "{none}");
    }

    #[test]
    fn a_cost_below_zero_or_unknown_is_not_told() {
        let mut report = measured(&[("timeline", 3, 3, [98.0, 150.0]), SLOW]);
        let text = advice(&report).unwrap();
        assert!(
            text.contains("costs nothing at 64x64 and 50.00 µs (33.3 % of the frame) at 128x128"),
            "{text}"
        );
        report.cells.iter_mut().for_each(|cell| cell.overhead_us = None);
        let text = advice(&report).unwrap();
        assert_eq!(
            text,
            "Use `--ring 3 --batch 3` here: a frame takes 98.00 µs at 64x64 and 150.0 µs at 128x128."
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
        assert!(text.starts_with("Use `--ring 3 --batch 3` for 64x64: "), "{text}");
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
