//! Compares old and new runs: which cells became slower, and how certain that is.

use std::collections::BTreeSet;
use std::fmt;

use super::figures::{NOTHING, align, figure, grid, moment, plain, short, vertices};
use super::record::{Cell, Report};
use super::stats::{NOISY_SPREAD, Ratio, ratio_of_runs};
use crate::{Error, Result};

/// A change this small counts as the same even if the interval excludes 1. Two runs of one program on one machine differ by
/// as much: each has its own clocks, memory layout and neighbours, which no interval within a run sees.
pub const SAME_WITHIN: f64 = 0.02;

/// How to compare.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Compare even if the runs are from different machines or measured different things.
    pub force: bool,
    /// Fail if a cell's frame time certainly grew by more than this factor: the interval's lower end is above it.
    pub fail_above: Option<f64>,
}

/// How a cell changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Frames take longer.
    Slower,
    /// Frames take less time.
    Faster,
    /// There is no difference that matters.
    Same,
    /// The rounds lie too far apart, or are too few, to tell.
    Noisy,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Slower => "slower",
            Verdict::Faster => "faster",
            Verdict::Same => "same",
            Verdict::Noisy => "noisy",
        })
    }
}

/// What identifies a cell within its run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Columns and rows of vertices.
    pub grid: [u32; 2],
    /// The strategy's name.
    pub strategy: String,
    /// Slots in the ring.
    pub ring: u32,
    /// Frames that CUDA fills for each wait.
    pub batch: u32,
}

impl Key {
    fn of(cell: &Cell) -> Key {
        Key { grid: cell.grid, strategy: cell.strategy.clone(), ring: cell.ring, batch: cell.batch }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Key { strategy, ring, batch, .. } = self;
        write!(f, "{}, ring {ring}, batch {batch}, grid {}", plain(strategy), grid(self.grid))
    }
}

/// A cell that is in every run.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// Which cell.
    pub key: Key,
    /// Its mean frame time in the old runs, in microseconds.
    pub old_us: f64,
    /// Its mean frame time in the new runs.
    pub new_us: f64,
    /// new / old with its interval; absent if the rounds, or the runs, do not give one.
    pub ratio: Option<Ratio>,
    /// How it changed.
    pub verdict: Verdict,
    /// Whether it is above [`Options::fail_above`].
    pub failed: bool,
}

/// Old and new runs, cell by cell. Displayed as a table of at most 160 columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// When the old runs started: seconds since 1970.
    pub old: Vec<u64>,
    /// When the new runs started.
    pub new: Vec<u64>,
    /// What else differs between the runs and may explain a difference.
    pub notes: Vec<String>,
    /// The cells that are in every run, in the order of the first new run, grid by grid.
    pub cells: Vec<Compared>,
    /// Cells that are in no new run.
    pub only_old: Vec<Key>,
    /// Cells that are in no old run.
    pub only_new: Vec<Key>,
    /// Cells that are in some runs of both sides, but not in all. They are left out, so that every row is from the same runs.
    /// With fewer runs, a cell would look more certain than it is, and runs that took turns would no longer do so.
    pub not_in_all: Vec<Key>,
    /// [`Options::fail_above`].
    pub fail_above: Option<f64>,
}

impl Comparison {
    /// Whether the new runs fail: a factor was given, and a cell is above it or no cell could be judged. A check that had
    /// nothing to check has not passed.
    pub fn failed(&self) -> bool {
        self.fail_above.is_some() && (self.cells.iter().any(|cell| cell.failed) || self.judged() == 0)
    }

    fn judged(&self) -> usize {
        self.cells.iter().filter(|cell| cell.ratio.is_some()).count()
    }
}

/// Compares runs, one or more on each side, by the mean frame time of each cell.
///
/// The ratio and its interval come from [`ratio_of_runs`]: over the rounds with one run on each side, otherwise over the runs.
/// A cell is slower or faster if the interval excludes 1 and the ratio is more than [`SAME_WITHIN`] from 1, or more than
/// [`NOISY_SPREAD`] if a run marked the cell as noisy. Otherwise the cell is noisy if a run marked it so or the interval is
/// wider than [`NOISY_SPREAD`], and else it is the same.
///
/// # Errors
/// [`Error::Unsupported`] without `force` if GPU, driver, build, scene or picture differ between any two runs; it names the
/// differences. [`Error::Usage`] for a factor that is not above 0, a side without runs, a run that is given twice on one side,
/// or a run that has a cell twice.
pub fn compare(old: &[Report], new: &[Report], options: &Options) -> Result<Comparison> {
    if let Some(factor) = options.fail_above
        && !(factor.is_finite() && factor > 0.0)
    {
        return Err(Error::Usage(format!(
            "the factor of --fail-above must be a number above 0, not {factor}"
        )));
    }
    check("old", old)?;
    check("new", new)?;

    let mut notes = Vec::new();
    let apart = apart(old, new);
    if !apart.is_empty() {
        let apart = apart.join("; ");
        if !options.force {
            return Err(Error::Unsupported(format!(
                "these runs cannot be compared: {apart}; compare runs that were measured alike, or use --force"
            )));
        }
        notes.push(format!("compared by force: {apart}"));
    }
    notes.extend(side_notes(old, new));

    let in_all = |key: &Key| old.iter().chain(new).all(|run| find(run, key).is_some());
    let mut cells: Vec<Compared> = (new[0].cells.iter())
        .map(Key::of)
        .filter(in_all)
        .map(|key| compare_cell(key, old, new, options.fail_above))
        .collect();
    cells.sort_by_key(|cell| (vertices(cell.key.grid), cell.key.grid));
    let (old_any, new_any) = (keys(old), keys(new));
    Ok(Comparison {
        old: old.iter().map(|run| run.started).collect(),
        new: new.iter().map(|run| run.started).collect(),
        notes,
        cells,
        only_old: old_any.difference(&new_any).cloned().collect(),
        only_new: new_any.difference(&old_any).cloned().collect(),
        not_in_all: old_any.intersection(&new_any).filter(|key| !in_all(key)).cloned().collect(),
        fail_above: options.fail_above,
    })
}
/// The cells of all runs.
fn keys(runs: &[Report]) -> BTreeSet<Key> {
    runs.iter().flat_map(|run| &run.cells).map(Key::of).collect()
}

fn find<'a>(run: &'a Report, key: &Key) -> Option<&'a Cell> {
    run.cells.iter().find(|cell| Key::of(cell) == *key)
}

/// The name of a run among the runs of its side.
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
        if let Some(twin) = runs[..at].iter().position(|earlier| earlier == run) {
            let (first, second) = (called(twin), called(at));
            return Err(Error::Usage(format!(
                "{first} and {second} are the same run: name each run once on its side"
            )));
        }
        let mut keys = BTreeSet::new();
        for key in run.cells.iter().map(Key::of) {
            if keys.contains(&key) {
                return Err(Error::Usage(format!(
                    "{} has a cell twice: {key}; measure it again",
                    called(at)
                )));
            }
            keys.insert(key);
        }
    }
    Ok(())
}

/// The name of a property, and how to get its value from a run.
type Property = (&'static str, fn(&Report) -> String);

/// The differences that make runs incomparable.
fn apart(old: &[Report], new: &[Report]) -> Vec<String> {
    let size = |run: &Report| {
        let settings = &run.settings;
        format!("{}, samples a pixel: {}", grid(settings.size), settings.samples)
    };
    let properties: [Property; 5] = [
        ("GPU", |run| run.machine.gpu.clone()),
        ("driver", |run| run.machine.driver.clone()),
        ("build", |run| run.machine.build.clone()),
        ("scene", |run| run.settings.scene.clone()),
        ("picture", size),
    ];
    differences(&properties, old, new)
}

/// The differences that may explain a result but do not forbid the comparison.
fn side_notes(old: &[Report], new: &[Report]) -> Vec<String> {
    let properties: [Property; 8] = [
        ("CUDA", |run| run.machine.cuda.clone().unwrap_or_else(|| "none".into())),
        ("Vulkan", |run| run.machine.vulkan.clone()),
        ("processor", |run| run.machine.cpu.clone()),
        ("threads", |run| run.machine.threads.to_string()),
        ("system", |run| run.machine.os.clone()),
        ("wavefield", |run| run.machine.wavefield.clone()),
        ("wait", |run| run.settings.wait.clone()),
        ("rounds", |run| format!("{} of {} ms", run.settings.rounds, run.settings.round_ms)),
    ];
    let mut notes = differences(&properties, old, new);
    for (which, runs) in [("old", old), ("new", new)] {
        for (at, _) in runs.iter().enumerate().filter(|(_, run)| !run.complete) {
            let called = called(which, at, runs);
            notes.push(format!("{called} is INCOMPLETE: it was stopped before its last round"));
        }
    }
    notes
}

/// The properties that are not the same in all runs, within one side or between the sides.
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

/// Compares a cell that is in every run.
fn compare_cell(key: Key, old: &[Report], new: &[Report], fail_above: Option<f64>) -> Compared {
    let [old, new] =
        [old, new].map(|runs| runs.iter().filter_map(|run| find(run, &key)).collect::<Vec<&Cell>>());
    let mean =
        |cells: &[&Cell]| cells.iter().map(|cell| cell.frame_us.mean).sum::<f64>() / cells.len() as f64;
    let [old_rounds, new_rounds] =
        [&old, &new].map(|cells| cells.iter().map(|cell| cell.round_means_us.as_slice()).collect::<Vec<_>>());
    let ratio = ratio_of_runs(&old_rounds, &new_rounds);
    let noisy = old.iter().chain(&new).any(|cell| cell.noisy);
    Compared {
        old_us: mean(&old),
        new_us: mean(&new),
        ratio,
        verdict: ratio.map_or(Verdict::Noisy, |ratio| verdict(&ratio, noisy)),
        failed: ratio.zip(fail_above).is_some_and(|(ratio, factor)| ratio.low > factor),
        key,
    }
}

fn verdict(ratio: &Ratio, noisy: bool) -> Verdict {
    let margin = 1.0 + if noisy { NOISY_SPREAD } else { SAME_WITHIN };
    if ratio.low > 1.0 && ratio.value > margin {
        Verdict::Slower
    } else if ratio.high < 1.0 && ratio.value < 1.0 / margin {
        Verdict::Faster
    } else if noisy || ratio.high > ratio.low * (1.0 + NOISY_SPREAD) {
        Verdict::Noisy
    } else {
        Verdict::Same
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (which, runs) in [("old", &self.old), ("new", &self.new)] {
            runs.iter().try_for_each(|&started| writeln!(f, "{which:<9} {}", moment(started)))?;
        }
        for note in &self.notes {
            writeln!(f, "note      {note}")?;
        }
        if self.cells.is_empty() {
            writeln!(f, "\nThe runs have no cell in common.")?;
        } else {
            self.table(f)?;
        }
        let (old, new) = (plural(&self.old), plural(&self.new));
        for (which, keys) in [
            (format!("only in the old run{old}"), &self.only_old),
            (format!("only in the new run{new}"), &self.only_new),
            ("not in every run, so not compared".to_owned(), &self.not_in_all),
        ] {
            if !keys.is_empty() {
                writeln!(f, "\n{which}")?;
                keys.iter().try_for_each(|key| writeln!(f, "  {key}"))?;
            }
        }
        self.outcome(f)
    }
}

impl Comparison {
    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |entries: [&str; 9]| entries.map(str::to_owned).to_vec();
        let mut rows = vec![
            row(["strategy", "ring", "batch", "old", "new", "new/old", "95 % interval", "verdict", ""]),
            row(["", "", "", "µs", "µs", "", "", "", ""]),
        ];
        rows.extend(self.cells.iter().map(compared_row));
        let mut lines = align(&rows).into_iter();

        writeln!(f)?;
        lines.by_ref().take(2).try_for_each(|line| writeln!(f, "{line}"))?;
        let mut last = None;
        for (cell, line) in self.cells.iter().zip(lines) {
            if last.replace(cell.key.grid) != Some(cell.key.grid) {
                writeln!(f, "\ngrid {}", grid(cell.key.grid))?;
            }
            writeln!(f, "{line}")?;
        }

        let several = self.old.len() + self.new.len() > 2;
        let over = if several { "runs (Student's t on logs)" } else { "rounds (Welch's t on logs)" };
        let units = if several { "rounds or runs" } else { "rounds" };
        writeln!(f, "\nold, new: mean frame time. new/old above 1 is slower; the interval is over {over}.")?;
        writeln!(
            f,
            "same: within {:.0} %, or no certain difference. noisy: the {units} lie too far apart, or are too few, to tell.",
            SAME_WITHIN * 100.0
        )
    }

    fn outcome(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |verdict| self.cells.iter().filter(|cell| cell.verdict == verdict).count();
        let counts = [Verdict::Slower, Verdict::Faster, Verdict::Same, Verdict::Noisy]
            .map(|verdict| format!("{} {verdict}", count(verdict)));
        write!(f, "\n{}", counts.join(", "))?;
        let Some(factor) = self.fail_above else { return Ok(()) };
        let failed = self.cells.iter().filter(|cell| cell.failed).count();
        let (judged, all) = (self.judged(), self.cells.len());
        match (self.failed(), judged) {
            (true, 0) => write!(f, "\nFAILED: no cell could be checked against the factor {factor}"),
            (true, _) => {
                write!(
                    f,
                    "\nFAILED: {failed} of {judged} cells certainly take more than {factor} times as long"
                )
            }
            (false, _) => write!(f, "\npassed: no cell certainly takes more than {factor} times as long"),
        }?;
        if judged < all {
            write!(f, " ({} of {all} cells have too few valid rounds to judge)", all - judged)?;
        }
        Ok(())
    }
}

fn plural(runs: &[u64]) -> &'static str {
    if runs.len() == 1 { "" } else { "s" }
}

fn compared_row(cell: &Compared) -> Vec<String> {
    let (ratio, interval) = match cell.ratio {
        Some(Ratio { value, low, high }) => (factor(value), format!("{} to {}", factor(low), factor(high))),
        None => (NOTHING.into(), NOTHING.into()),
    };
    vec![
        short(&cell.key.strategy, 24),
        cell.key.ring.to_string(),
        cell.key.batch.to_string(),
        figure(cell.old_us),
        figure(cell.new_us),
        ratio,
        interval,
        cell.verdict.to_string(),
        if cell.failed { "FAILED".into() } else { String::new() },
    ]
}

/// A ratio near 1, with three decimals.
fn factor(value: f64) -> String {
    if value < 1000.0 { format!("{value:.3}") } else { figure(value) }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::super::{read_json, sample, stats, write_json};
    use super::{compare as compare_runs, *};

    /// One run on each side.
    fn compare(old: &Report, new: &Report, options: &Options) -> Result<Comparison> {
        compare_runs(from_ref(old), from_ref(new), options)
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

    fn gate(factor: f64) -> Options {
        Options { fail_above: Some(factor), ..Options::default() }
    }

    #[test]
    fn a_run_is_the_same_as_itself() {
        let report = quiet();
        let found = compare(&report, &report, &gate(1.0)).unwrap();
        assert_eq!(found.cells.len(), report.cells.len());
        assert!(found.cells.iter().all(|cell| cell.verdict == Verdict::Same && !cell.failed));
        assert!(found.only_old.is_empty() && found.only_new.is_empty() && found.notes.is_empty());
        assert!(!found.failed() && found.to_string().contains("passed"), "{found}");
    }

    #[test]
    fn one_slower_and_one_faster_cell_are_found_and_the_gate_knows_its_factor() {
        let (old, mut new) = (quiet(), quiet());
        slow_down(&mut new.cells[5], 1.2);
        slow_down(&mut new.cells[9], 0.8);
        let found = compare(&old, &new, &gate(1.1)).unwrap();
        let of = |at: usize| found.cells.iter().find(|cell| cell.key == Key::of(&new.cells[at])).unwrap();
        assert_eq!((of(5).verdict, of(9).verdict), (Verdict::Slower, Verdict::Faster));
        let ratio = of(5).ratio.unwrap();
        assert!((ratio.value - 1.2).abs() < 1e-9 && ratio.low > 1.19 && ratio.high < 1.21, "{ratio:?}");
        assert!(of(5).failed && !of(9).failed && found.failed());
        let text = found.to_string();
        assert!(text.contains("1 slower, 1 faster") && text.contains("FAILED: 1 of"), "{text}");
        assert!(!compare(&old, &new, &gate(1.21)).unwrap().failed());
        assert!(!compare(&old, &new, &Options::default()).unwrap().failed());
    }

    #[test]
    fn a_sure_but_small_difference_is_the_same() {
        let (old, mut new) = (quiet(), quiet());
        slow_down(&mut new.cells[0], 1.015);
        let found = compare(&old, &new, &Options::default()).unwrap();
        assert!(found.cells[0].ratio.unwrap().low > 1.0);
        assert_eq!(found.cells[0].verdict, Verdict::Same);
    }

    #[test]
    fn a_noisy_cell_says_so_and_does_not_fail() {
        let (old, mut new) = (quiet(), quiet());
        rounds(&mut new.cells[3], &[0.9, 1.4, 1.0, 1.3, 0.95]);
        let found = compare(&old, &new, &gate(1.05)).unwrap();
        assert_eq!(found.cells[3].verdict, Verdict::Noisy);
        assert!(!found.failed());
        // Three times slower is more than noise.
        slow_down(&mut new.cells[3], 3.0);
        let found = compare(&old, &new, &gate(1.05)).unwrap();
        assert_eq!(found.cells[3].verdict, Verdict::Slower);
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
        let found = compare(&report, &report, &gate(1.1)).unwrap();
        assert!(found.cells.iter().all(|cell| cell.verdict == Verdict::Noisy && cell.ratio.is_none()));
        assert!(found.failed() && found.to_string().contains("no cell could be checked"), "{found}");
    }

    #[test]
    fn other_hardware_is_refused_by_name_unless_forced() {
        let (old, mut new) = (quiet(), quiet());
        new.machine.gpu = "Other GPU".into();
        new.machine.driver = "Other 1.0".into();
        let error = compare(&old, &new, &Options::default()).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Unsupported(_)));
        for part in
            ["GPU was Toy RTX 9000, is Other GPU", "driver was Toy 570.86.15, is Other 1.0", "--force"]
        {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
        let found = compare(&old, &new, &Options { force: true, ..Options::default() }).unwrap();
        assert!(found.to_string().contains("by force") && found.cells.len() == old.cells.len());
    }

    #[test]
    fn a_debug_build_or_another_picture_is_refused_and_lesser_things_are_noted() {
        let (old, mut new) = (quiet(), quiet());
        new.machine.build = "debug".into();
        assert!(
            compare(&old, &new, &Options::default()).unwrap_err().to_string().contains("build was release")
        );
        new = quiet();
        new.settings.size = [640, 360];
        assert!(compare(&old, &new, &Options::default()).unwrap_err().to_string().contains("is 640x360"));
        new = quiet();
        new.machine.cuda = None;
        new.complete = false;
        let text = compare(&old, &new, &Options::default()).unwrap().to_string();
        assert!(text.contains("CUDA was 12.8, is none") && text.contains("new run is INCOMPLETE"), "{text}");
    }

    #[test]
    fn cells_of_one_run_only_are_listed() {
        let (mut old, mut new) = (quiet(), quiet());
        old.cells.retain(|cell| cell.ring != 16);
        new.cells.retain(|cell| cell.ring != 1);
        let found = compare(&old, &new, &Options::default()).unwrap();
        assert!(
            found.only_old.iter().all(|key| key.ring == 1) && found.only_new.iter().all(|key| key.ring == 16)
        );
        assert_eq!((found.only_old.len(), found.only_new.len(), found.cells.len()), (24, 24, 96));
        let text = found.to_string();
        assert!(text.contains("only in the old run\n  binary, ring 1, batch 1, grid 256x256"), "{text}");

        new.cells.retain(|cell| cell.ring == 16);
        let found = compare(&old, &new, &gate(1.1)).unwrap();
        assert!(found.cells.is_empty() && found.failed() && found.to_string().contains("no cell in common"));
    }

    #[test]
    fn nonsense_is_a_usage_error() {
        let report = quiet();
        for factor in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            assert_eq!(compare(&report, &report, &gate(factor)).unwrap_err().exit_code(), 2, "{factor}");
        }
        let mut twice = quiet();
        twice.cells.push(twice.cells[0].clone());
        let text = compare(&twice, &report, &Options::default()).unwrap_err().to_string();
        assert!(text.contains("old run has a cell twice: timeline, ring 1"), "{text}");
    }

    #[test]
    fn the_table_fits_160_columns() {
        let (old, mut new) = (quiet(), quiet());
        new.cells[0].round_means_us = vec![1e-290, 1e290];
        slow_down(&mut new.cells[1], 1e9);
        new.machine.cpu = "x".repeat(500);
        let text = compare(&old, &new, &gate(1.1)).unwrap().to_string();
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 160, "{widest}:\n{text}");
    }

    /// Two runs on each side, measured in turns. Each run has its own start time, and its own factor on all frame times.
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
        let pair = compare(&old[0], &new[0], &Options::default()).unwrap();
        assert!(pair.cells.iter().all(|cell| cell.verdict == Verdict::Faster));
        let found = compare_runs(&old, &new, &Options::default()).unwrap();
        assert!(found.cells.len() == quiet().cells.len());
        for cell in &found.cells {
            let ratio = cell.ratio.unwrap();
            assert!(cell.verdict == Verdict::Same && ratio.high > 1.0, "{cell:?}");
            assert!((ratio.value - (0.99f64 / (1.03 * 1.02)).sqrt()).abs() < 1e-9, "{cell:?}");
            assert!((cell.old_us / cell.new_us - 2.05 / 1.99).abs() < 1e-9, "{cell:?}");
        }
        let text = found.to_string();
        assert!(text.matches("\nold    ").count() + text.matches("\nnew    ").count() == 3, "{text}");
        assert!(text.contains("over runs") && !text.contains("Welch"), "{text}");

        // A difference larger than that luck is found, even with a single run on one side.
        let (old, new) = in_turns([1.0, 1.2, 1.002, 1.198]);
        for old in [&old[..], &old[..1]] {
            let found = compare_runs(old, &new, &gate(1.1)).unwrap();
            assert!(found.cells.iter().all(|cell| cell.verdict == Verdict::Slower && cell.failed));
        }
    }

    #[test]
    fn one_noisy_run_marks_the_cell() {
        let (mut old, new) = in_turns([1.0, 1.05, 1.0, 1.05]);
        assert_eq!(compare_runs(&old, &new, &Options::default()).unwrap().cells[2].verdict, Verdict::Slower);
        old[1].cells[2].noisy = true;
        assert_eq!(compare_runs(&old, &new, &Options::default()).unwrap().cells[2].verdict, Verdict::Noisy);
    }

    #[test]
    fn runs_of_one_side_must_be_alike_too() {
        let (mut old, new) = in_turns([1.0; 4]);
        old[1].machine.gpu = "Other GPU".into();
        let text = compare_runs(&old, &new, &Options::default()).unwrap_err().to_string();
        assert!(text.contains("GPU was Other GPU or Toy RTX 9000, is Toy RTX 9000"), "{text}");
        // Each side differs within itself, and both in the same way.
        let both = compare_runs(&old, &old, &Options::default()).unwrap_err().to_string();
        assert!(both.contains("is Other GPU or Toy RTX 9000"), "{both}");
        assert!(compare_runs(&old, &new, &Options { force: true, ..Options::default() }).is_ok());

        let (old, mut new) = in_turns([1.0; 4]);
        new[1].machine.cuda = None;
        new[1].complete = false;
        let text = compare_runs(&old, &new, &Options::default()).unwrap().to_string();
        assert!(text.contains("CUDA was 12.8, is 12.8 or none"), "{text}");
        assert!(text.contains("new run 2 is INCOMPLETE") && !text.contains("run 1 is"), "{text}");
    }

    #[test]
    fn a_cell_that_a_run_lacks_is_left_out_and_listed() {
        let (mut old, mut new) = in_turns([1.0; 4]);
        old[1].cells.retain(|cell| cell.ring != 16);
        new.iter_mut().for_each(|run| run.cells.retain(|cell| cell.ring != 1));
        new[0].cells.retain(|cell| cell.ring != 8);
        let found = compare_runs(&old, &new, &Options::default()).unwrap();
        assert_eq!((found.cells.len(), found.only_old.len(), found.only_new.len()), (72, 24, 0));
        assert_eq!(found.not_in_all.len(), 48);
        assert!(found.not_in_all.iter().all(|key| key.ring == 16 || key.ring == 8));
        let text = found.to_string();
        assert!(text.contains("\nnot in every run, so not compared\n  "), "{text}");
        assert!(text.contains("\nonly in the old runs\n  "), "{text}");
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
            let error = compare_runs(old, new, &Options::default()).unwrap_err();
            assert!(error.exit_code() == 2 && error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn a_truncated_file_never_reaches_the_comparison() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.json");
        write_json(&path, &quiet()).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let same = read_json(&path).unwrap();
        assert!(compare(&same, &quiet(), &Options::default()).unwrap().cells.iter().all(|cell| !cell.failed));
        std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        let text = read_json(&path).unwrap_err().to_string();
        assert!(text.contains("old.json") && text.contains("cut short"), "{text}");
    }
}
