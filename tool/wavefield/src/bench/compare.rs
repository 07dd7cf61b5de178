//! Compares old and new runs: which cells became slower, and how certain that is.

use std::collections::BTreeSet;
use std::fmt;

use clap::ValueEnum;

use super::figures::{NOTHING, align, by_grid, figure, grid, moment, plain, setting, short};
use super::record::{Cell, Report};
use super::stats::{NOISY_SPREAD, Ratio, ratio};
use wavefield_gpu::{Error, Result, report::word};

/// A change of at most this share is neither slower nor faster, even if the interval excludes 1. Runs of one
/// program differ by as much because of clocks, memory layout and other load, and no interval within a run
/// shows that.
pub(super) const SAME_WITHIN: f64 = 0.02;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompareVerdict {
    Slower,
    Faster,
    Same,
    /// The rounds differ too much, or are too few, to tell.
    Noisy,
}

#[derive(Clone, Debug)]
pub struct Compared {
    /// The cell as measured by the first new run.
    pub cell: Cell,
    pub old_us: f64,
    pub new_us: f64,
    /// new / old; `None` if rounds or runs are too few for an interval.
    pub ratio: Option<Ratio>,
    pub verdict: CompareVerdict,
    pub failed: bool,
}

/// The result of [`compare`]. Displays as a table of at most 160 columns.
#[derive(Clone, Debug)]
pub struct Comparison {
    runs: Vec<(&'static str, u64)>,
    notes: Vec<String>,
    /// In the order of the first new run, grid by grid.
    pub cells: Vec<Compared>,
    /// Cells that are not in every run. They are not compared: a cell with fewer runs would look more certain
    /// than it is, and old and new runs that were measured in turn would no longer alternate.
    pub left_out: Vec<String>,
    fail_above: Option<f64>,
}

impl Comparison {
    /// Returns whether a cell exceeds the factor or no cell could be judged: an empty check does not pass.
    pub fn failed(&self) -> bool {
        self.fail_above.is_some() && (self.cells.iter().any(|cell| cell.failed) || self.judged() == 0)
    }

    fn judged(&self) -> usize {
        self.cells.iter().filter(|cell| cell.ratio.is_some()).count()
    }
}

/// Compares runs by the mean frame time of each cell: see `docs/bench-schema.md`. With `force`, compares even
/// runs that come from different machines or measured different things. A cell fails if the lower end of its
/// interval is above `fail_above`.
pub fn compare(old: &[Report], new: &[Report], force: bool, fail_above: Option<f64>) -> Result<Comparison> {
    check("old", old)?;
    check("new", new)?;

    let mut notes = Vec::new();
    let apart = differences(&APART, old, new).join("; ");
    if !apart.is_empty() {
        if !force {
            return Err(Error::Unsupported(format!(
                "these runs cannot be compared: {apart}; compare runs that were measured alike, or use --force"
            )));
        }
        notes.push(format!("compared by force: {apart}"));
    }
    notes.extend(differences(&NOTED, old, new));
    let mut started = Vec::new();
    for (which, runs) in [("old", old), ("new", new)] {
        started.extend(runs.iter().map(|run| (which, run.started)));
        for at in (0..runs.len()).filter(|&at| !runs[at].complete) {
            let run = called(which, at, runs);
            notes.push(format!("{run} is INCOMPLETE: it was stopped before its last round"));
        }
    }

    let in_all = |cell: &Cell| old.iter().chain(new).all(|run| find(run, cell).is_some());
    let cells = by_grid(&new[0].cells).into_iter().flat_map(|(_, cells)| cells).filter(|cell| in_all(cell));
    let all = || old.iter().chain(new).flat_map(|run| &run.cells);
    let left_out: BTreeSet<String> = all().filter(|cell| !in_all(cell)).map(name).collect();
    Ok(Comparison {
        runs: started,
        notes,
        cells: cells.map(|cell| compare_cell(cell, old, new, fail_above)).collect(),
        left_out: left_out.into_iter().collect(),
        fail_above,
    })
}

fn name(cell: &Cell) -> String {
    plain(&format!("{}, grid {}", setting(cell), grid(cell.grid)))
}

fn find<'a>(run: &'a Report, cell: &Cell) -> Option<&'a Cell> {
    let key = |cell: &Cell| (cell.grid, cell.ring, cell.batch);
    run.cells.iter().find(|other| key(other) == key(cell) && other.strategy == cell.strategy)
}

fn called(which: &str, at: usize, runs: &[Report]) -> String {
    if runs.len() == 1 { format!("the {which} run") } else { format!("{which} run {}", at + 1) }
}

/// Refuses a side without runs, and runs or cells that appear twice.
fn check(which: &str, runs: &[Report]) -> Result<()> {
    if runs.is_empty() {
        return Err(Error::Usage(format!("there is no {which} run to compare: give at least one")));
    }
    for (at, run) in runs.iter().enumerate() {
        let called = |at| called(which, at, runs);
        // One run counted twice would make every figure look more certain than it is.
        if let Some(same) = runs[..at].iter().position(|earlier| earlier == run) {
            let (first, second) = (called(same), called(at));
            return Err(Error::Usage(format!(
                "{first} and {second} are the same run: name each run once on its side"
            )));
        }
        if let Some(twice) =
            run.cells.iter().find(|cell| find(run, cell).is_none_or(|first| !std::ptr::eq(first, *cell)))
        {
            let (run, twice) = (called(at), name(twice));
            return Err(Error::Usage(format!("{run} has a cell twice: {twice}; measure it again")));
        }
    }
    Ok(())
}

type Property = (&'static str, fn(&Report) -> String);

const APART: [Property; 6] = [
    ("GPU", |run| run.machine.gpu.clone()),
    ("driver", |run| run.machine.driver.clone()),
    ("build", |run| run.machine.build.clone()),
    ("scene", |run| run.settings.scene.clone()),
    ("picture", |run| grid(run.settings.size)),
    ("samples per pixel", |run| run.settings.samples.to_string()),
];

/// Properties that may explain a difference, but do not prevent the comparison.
const NOTED: [Property; 8] = [
    ("CUDA", |run| run.machine.cuda.clone().unwrap_or_else(|| "none".into())),
    ("Vulkan", |run| run.machine.vulkan.clone()),
    ("processor", |run| run.machine.cpu.clone()),
    ("threads", |run| run.machine.threads.to_string()),
    ("system", |run| run.machine.os.clone()),
    ("wavefield", |run| run.machine.wavefield.clone()),
    ("what draws", |run| run.settings.raster.clone()),
    ("rounds", |run| format!("{} of {} ms", run.settings.rounds, run.settings.round_ms)),
];

/// Lists the properties that differ within the old runs, within the new runs, or between the two.
fn differences(properties: &[Property], old: &[Report], new: &[Report]) -> Vec<String> {
    let words =
        |names: &BTreeSet<String>| names.iter().map(|name| short(name, 60)).collect::<Vec<_>>().join(" or ");
    let difference = |(what, of): &Property| {
        let [old, new] = [old, new].map(|runs| runs.iter().map(of).collect::<BTreeSet<_>>());
        let alike = old.len() == 1 && old == new;
        (!alike).then(|| format!("{what} was {}, is {}", words(&old), words(&new)))
    };
    properties.iter().filter_map(difference).collect()
}

fn compare_cell(cell: &Cell, old: &[Report], new: &[Report], fail_above: Option<f64>) -> Compared {
    let [old, new] = [old, new].map(|runs| runs.iter().filter_map(|run| find(run, cell)).collect::<Vec<_>>());
    let mean =
        |cells: &[&Cell]| cells.iter().map(|cell| cell.frame_us.mean).sum::<f64>() / cells.len() as f64;
    let [old_rounds, new_rounds] =
        [&old, &new].map(|cells| cells.iter().map(|cell| cell.round_means_us.as_slice()).collect::<Vec<_>>());
    let ratio = ratio(&old_rounds, &new_rounds);
    let noisy = old.iter().chain(&new).any(|cell| cell.noisy);
    Compared {
        cell: cell.clone(),
        old_us: mean(&old),
        new_us: mean(&new),
        ratio,
        verdict: ratio.map_or(CompareVerdict::Noisy, |ratio| verdict(&ratio, noisy)),
        failed: ratio.zip(fail_above).is_some_and(|(ratio, factor)| ratio.low > factor),
    }
}

fn verdict(ratio: &Ratio, noisy: bool) -> CompareVerdict {
    let margin = 1.0 + if noisy { NOISY_SPREAD } else { SAME_WITHIN };
    if ratio.low > 1.0 && ratio.value > margin {
        CompareVerdict::Slower
    } else if ratio.high < 1.0 && ratio.value < 1.0 / margin {
        CompareVerdict::Faster
    } else if noisy || ratio.high > ratio.low * (1.0 + NOISY_SPREAD) {
        CompareVerdict::Noisy
    } else {
        CompareVerdict::Same
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (which, started) in &self.runs {
            writeln!(f, "{which:<9} {}", moment(*started))?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "note      {note}"))?;
        if self.cells.is_empty() {
            writeln!(f, "\nThe runs have no cell in common.")?;
        } else {
            self.table(f)?;
        }
        if !self.left_out.is_empty() {
            writeln!(f, "\nnot in every run, so not compared")?;
            self.left_out.iter().try_for_each(|name| writeln!(f, "  {name}"))?;
        }
        self.outcome(f)
    }
}

impl Comparison {
    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads =
            ["strategy", "ring", "batch", "old µs", "new µs", "new/old", "95 % interval", "verdict", ""];
        let mut rows = vec![heads.map(str::to_owned)];
        rows.extend(self.cells.iter().map(row));
        let mut lines = align(&rows).into_iter();
        writeln!(f, "\n{}", lines.next().unwrap_or_default())?;
        let mut last = None;
        for (Compared { cell, .. }, line) in self.cells.iter().zip(lines) {
            if last.replace(cell.grid) != Some(cell.grid) {
                writeln!(f, "\ngrid {}", grid(cell.grid))?;
            }
            writeln!(f, "{line}")?;
        }
        let units = if self.runs.len() > 2 { "runs" } else { "rounds" };
        let percent = SAME_WITHIN * 100.0;
        writeln!(
            f,
            "\nold, new: mean frame time. new/old above 1 is slower; the interval is over {units} (Student's t on logs).\n\
             same: within {percent:.0} %, or no certain difference. noisy: the {units} lie too far apart, or are too few, to tell."
        )
    }

    fn outcome(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |&verdict: &CompareVerdict| {
            let count = self.cells.iter().filter(|cell| cell.verdict == verdict).count();
            format!("{count} {}", word(verdict))
        };
        let counts: Vec<_> = CompareVerdict::value_variants().iter().map(count).collect();
        write!(f, "\n{}", counts.join(", "))?;
        let Some(factor) = self.fail_above else { return Ok(()) };
        let failed = self.cells.iter().filter(|cell| cell.failed).count();
        let (judged, all) = (self.judged(), self.cells.len());
        match (failed, judged) {
            (_, 0) => write!(f, "\nFAILED: no cell could be checked against the factor {factor}"),
            (0, _) => write!(f, "\npassed: no cell certainly takes more than {factor} times as long"),
            _ => write!(
                f,
                "\nFAILED: {failed} of {judged} cells certainly take more than {factor} times as long"
            ),
        }?;
        if judged < all {
            write!(f, " ({} of {all} cells have too few valid rounds to judge)", all - judged)?;
        }
        Ok(())
    }
}

fn row(compared: &Compared) -> [String; 9] {
    let Compared { cell, old_us, new_us, ratio, verdict, failed } = compared;
    let (value, interval) = match ratio {
        Some(Ratio { value, low, high }) => {
            (factor(*value), format!("{} to {}", factor(*low), factor(*high)))
        }
        None => (NOTHING.into(), NOTHING.into()),
    };
    [
        short(&cell.strategy, 24),
        cell.ring.to_string(),
        cell.batch.to_string(),
        figure(*old_us),
        figure(*new_us),
        value,
        interval,
        word(*verdict),
        if *failed { "FAILED".into() } else { String::new() },
    ]
}

fn factor(value: f64) -> String {
    if value < 1000.0 { format!("{value:.3}") } else { figure(value) }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::super::{sample, stats};
    use super::{compare as compare_runs, *};

    /// One run on each side.
    fn compare(old: &Report, new: &Report, force: bool, fail_above: Option<f64>) -> Result<Comparison> {
        compare_runs(from_ref(old), from_ref(new), force, fail_above)
    }

    /// The sample with quiet rounds.
    fn quiet() -> Report {
        let mut report = sample::report();
        for cell in &mut report.cells {
            rounds(cell, &[1.0, 1.004, 0.996, 1.002, 0.998]);
        }
        report
    }

    fn rounds(cell: &mut Cell, factors: &[f64]) {
        let mean = cell.frame_us.mean;
        cell.round_means_us = factors.iter().map(|factor| mean * factor).collect();
        cell.spread = stats::spread(&cell.round_means_us);
        cell.noisy = stats::is_noisy(&cell.round_means_us);
    }

    fn slow_down(cell: &mut Cell, factor: f64) {
        cell.frame_us.mean *= factor;
        cell.round_means_us.iter_mut().for_each(|mean| *mean *= factor);
    }

    #[test]
    fn a_run_is_the_same_as_itself() {
        let report = quiet();
        let found = compare(&report, &report, false, Some(1.0)).unwrap();
        assert_eq!(found.cells.len(), report.cells.len());
        assert!(found.cells.iter().all(|cell| cell.verdict == CompareVerdict::Same && !cell.failed));
        assert!(found.left_out.is_empty() && found.notes.is_empty());
        assert!(!found.failed() && found.to_string().contains("passed"), "{found}");
    }

    #[test]
    fn one_slower_and_one_faster_cell_are_found_and_the_gate_knows_its_factor() {
        let (old, mut new) = (quiet(), quiet());
        slow_down(&mut new.cells[5], 1.2);
        slow_down(&mut new.cells[9], 0.8);
        let found = compare(&old, &new, false, Some(1.1)).unwrap();
        let of = |at: usize| found.cells.iter().find(|found| found.cell == new.cells[at]).unwrap();
        assert_eq!((of(5).verdict, of(9).verdict), (CompareVerdict::Slower, CompareVerdict::Faster));
        let ratio = of(5).ratio.unwrap();
        assert!((ratio.value - 1.2).abs() < 1e-9 && ratio.low > 1.19 && ratio.high < 1.21, "{ratio:?}");
        assert!(of(5).failed && !of(9).failed && found.failed());
        let text = found.to_string();
        assert!(text.contains("1 slower, 1 faster") && text.contains("FAILED: 1 of"), "{text}");
        assert!(!compare(&old, &new, false, Some(1.21)).unwrap().failed());
        assert!(!compare(&old, &new, false, None).unwrap().failed());
    }

    #[test]
    fn a_sure_but_small_difference_is_the_same() {
        let (old, mut new) = (quiet(), quiet());
        slow_down(&mut new.cells[0], 1.015);
        let found = compare(&old, &new, false, None).unwrap();
        assert!(found.cells[0].ratio.unwrap().low > 1.0);
        assert_eq!(found.cells[0].verdict, CompareVerdict::Same);
    }

    #[test]
    fn a_noisy_cell_says_so_and_does_not_fail() {
        let (old, mut new) = (quiet(), quiet());
        rounds(&mut new.cells[3], &[0.9, 1.4, 1.0, 1.3, 0.95]);
        let found = compare(&old, &new, false, Some(1.05)).unwrap();
        assert_eq!(found.cells[3].verdict, CompareVerdict::Noisy);
        assert!(!found.failed());
        // Three times slower is more than noise.
        slow_down(&mut new.cells[3], 3.0);
        let found = compare(&old, &new, false, Some(1.05)).unwrap();
        assert_eq!(found.cells[3].verdict, CompareVerdict::Slower);
        assert!(found.failed());
    }

    #[test]
    fn cells_without_an_interval_are_noisy_and_a_gate_with_nothing_to_judge_fails() {
        let mut report = sample::small();
        for (cell, broken) in report.cells.iter_mut().zip([
            vec![],
            vec![5.0],
            vec![0.0, 0.0],
            vec![-1.0, 3.0],
            vec![f64::NAN, 1.0],
        ]) {
            cell.round_means_us = broken;
        }
        report.cells.truncate(5);
        let found = compare(&report, &report, false, Some(1.1)).unwrap();
        assert!(found.cells.iter().all(|cell| cell.verdict == CompareVerdict::Noisy && cell.ratio.is_none()));
        assert!(found.failed() && found.to_string().contains("no cell could be checked"), "{found}");
    }

    #[test]
    fn other_hardware_is_refused_by_name_unless_forced() {
        let (old, mut new) = (quiet(), quiet());
        new.machine.gpu = "Other GPU".into();
        new.machine.driver = "Other 1.0".into();
        let error = compare(&old, &new, false, None).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Unsupported(_)));
        for part in
            ["GPU was Toy RTX 9000, is Other GPU", "driver was Toy 570.86.15, is Other 1.0", "--force"]
        {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
        let found = compare(&old, &new, true, None).unwrap();
        assert!(found.to_string().contains("by force") && found.cells.len() == old.cells.len());
    }

    #[test]
    fn a_debug_build_or_another_picture_is_refused_and_lesser_things_are_noted() {
        let (old, mut new) = (quiet(), quiet());
        new.machine.build = "debug".into();
        assert!(compare(&old, &new, false, None).unwrap_err().to_string().contains("build was release"));
        new = quiet();
        new.settings.size = [640, 360];
        assert!(compare(&old, &new, false, None).unwrap_err().to_string().contains("is 640x360"));
        new = quiet();
        new.machine.cuda = None;
        new.complete = false;
        let text = compare(&old, &new, false, None).unwrap().to_string();
        assert!(text.contains("CUDA was 12.8, is none") && text.contains("new run is INCOMPLETE"), "{text}");
    }

    #[test]
    fn a_gate_without_a_common_cell_fails() {
        let (mut old, mut new) = (quiet(), quiet());
        old.cells.retain(|cell| cell.ring != 16);
        new.cells.retain(|cell| cell.ring == 16);
        let found = compare(&old, &new, false, Some(1.1)).unwrap();
        assert!(found.cells.is_empty() && found.failed() && found.to_string().contains("no cell in common"));
    }

    #[test]
    fn nonsense_is_a_usage_error() {
        let report = quiet();
        let mut twice = quiet();
        twice.cells.push(twice.cells[0].clone());
        let text = compare(&twice, &report, false, None).unwrap_err().to_string();
        assert!(text.contains("old run has a cell twice: timeline, ring 1"), "{text}");
    }

    #[test]
    fn the_table_fits_160_columns() {
        let (old, mut new) = (quiet(), quiet());
        new.cells[0].round_means_us = vec![1e-290, 1e290];
        slow_down(&mut new.cells[1], 1e9);
        new.machine.cpu = "x".repeat(500);
        let text = compare(&old, &new, false, Some(1.1)).unwrap().to_string();
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 160, "{widest}:\n{text}");
    }

    /// Two runs on each side, measured in turns. Each run has its own start time, and its own factor on all
    /// frame times.
    fn in_turns(moved: [f64; 4]) -> ([Report; 2], [Report; 2]) {
        let [first, second, third, fourth] = std::array::from_fn(|at| {
            let mut run = quiet();
            run.started += at as u64;
            run.cells.iter_mut().for_each(|cell| slow_down(cell, moved[at]));
            run
        });
        ([first, third], [second, fourth])
    }

    #[test]
    fn what_moves_whole_runs_is_no_difference_between_the_sides() {
        // The new runs are faster by luck, by 3 %. Each pair of runs alone would find a certain difference.
        let (old, new) = in_turns([1.03, 1.0, 1.02, 0.99]);
        let pair = compare(&old[0], &new[0], false, None).unwrap();
        assert!(pair.cells.iter().all(|cell| cell.verdict == CompareVerdict::Faster));
        let found = compare_runs(&old, &new, false, None).unwrap();
        assert!(found.cells.len() == quiet().cells.len());
        for cell in &found.cells {
            let ratio = cell.ratio.unwrap();
            assert!(cell.verdict == CompareVerdict::Same && ratio.high > 1.0, "{cell:?}");
            assert!((ratio.value - (0.99f64 / (1.03 * 1.02)).sqrt()).abs() < 1e-9, "{cell:?}");
            assert!((cell.old_us / cell.new_us - 2.05 / 1.99).abs() < 1e-9, "{cell:?}");
        }
        let text = found.to_string();
        assert!(text.matches("\nold    ").count() + text.matches("\nnew    ").count() == 3, "{text}");
        assert!(text.contains("over runs") && pair.to_string().contains("over rounds"), "{text}");

        // A difference larger than that luck is found, even with a single run on one side.
        let (old, new) = in_turns([1.0, 1.2, 1.002, 1.198]);
        for old in [&old[..], &old[..1]] {
            let found = compare_runs(old, &new, false, Some(1.1)).unwrap();
            assert!(found.cells.iter().all(|cell| cell.verdict == CompareVerdict::Slower && cell.failed));
        }
    }

    #[test]
    fn one_noisy_run_marks_the_cell() {
        let (mut old, new) = in_turns([1.0, 1.05, 1.0, 1.05]);
        assert_eq!(compare_runs(&old, &new, false, None).unwrap().cells[2].verdict, CompareVerdict::Slower);
        old[1].cells[2].noisy = true;
        assert_eq!(compare_runs(&old, &new, false, None).unwrap().cells[2].verdict, CompareVerdict::Noisy);
    }

    #[test]
    fn runs_of_one_side_must_be_alike_too() {
        let (mut old, new) = in_turns([1.0; 4]);
        old[1].machine.gpu = "Other GPU".into();
        let text = compare_runs(&old, &new, false, None).unwrap_err().to_string();
        assert!(text.contains("GPU was Other GPU or Toy RTX 9000, is Toy RTX 9000"), "{text}");
        // Each side differs within itself, and both in the same way.
        let both = compare_runs(&old, &old, false, None).unwrap_err().to_string();
        assert!(both.contains("is Other GPU or Toy RTX 9000"), "{both}");
        assert!(compare_runs(&old, &new, true, None).is_ok());

        let (old, mut new) = in_turns([1.0; 4]);
        new[1].machine.cuda = None;
        new[1].complete = false;
        let text = compare_runs(&old, &new, false, None).unwrap().to_string();
        assert!(text.contains("CUDA was 12.8, is 12.8 or none"), "{text}");
        assert!(text.contains("new run 2 is INCOMPLETE") && !text.contains("run 1 is"), "{text}");
    }

    #[test]
    fn a_cell_that_a_run_lacks_is_left_out_and_listed() {
        let (mut old, mut new) = in_turns([1.0; 4]);
        old[1].cells.retain(|cell| cell.ring != 16);
        new.iter_mut().for_each(|run| run.cells.retain(|cell| cell.ring != 1));
        new[0].cells.retain(|cell| cell.ring != 8);
        let found = compare_runs(&old, &new, false, None).unwrap();
        assert_eq!((found.cells.len(), found.left_out.len()), (72, 72));
        let rings =
            |ring| found.left_out.iter().filter(|name| name.contains(&format!("ring {ring},"))).count();
        assert_eq!((rings(1), rings(8), rings(16)), (24, 24, 24));
        let text = found.to_string();
        let listed = "\nnot in every run, so not compared\n  binary, ring 1, grid 1024x1024";
        assert!(text.contains(listed), "{text}");
    }

    #[test]
    fn a_side_without_runs_or_with_one_run_twice_is_a_usage_error() {
        let (old, new) = in_turns([1.0; 4]);
        let twice = [old[0].clone(), old[1].clone(), old[0].clone()];
        for (old, new, part) in [
            (&twice[..], &new[..], "old run 1 and old run 3 are the same run"),
            (&old, &twice, "new run 1 and new run 3 are the same run"),
            (&old, &[], "no new run"),
            (&[], &new, "no old run"),
        ] {
            let error = compare_runs(old, new, false, None).unwrap_err();
            assert!(error.exit_code() == 2 && error.to_string().contains(part), "{error}");
        }
    }
}
