//! Two runs side by side: what became slower, and how sure that is.

use std::collections::BTreeSet;
use std::fmt;

use super::figures::{NOTHING, align, figure, grid, moment, plain, short, vertices};
use super::record::{Cell, Report};
use super::stats::{NOISY_SPREAD, Ratio, ratio};
use crate::{Error, Result};

/// A change this small is called the same even where the interval leaves 1 out: two runs of one program on one machine
/// differ by as much, as each has its own clocks, memory layout and neighbours, which no interval within a run sees.
pub const SAME_WITHIN: f64 = 0.02;

/// How to compare.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Compare even where the runs are from different machines or measured different things.
    pub force: bool,
    /// Fail where a cell's frame time grew by more than this factor for sure: the interval's lower end is above it.
    pub fail_above: Option<f64>,
}

/// What became of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Frames take longer.
    Slower,
    /// Frames take less time.
    Faster,
    /// No difference that matters.
    Same,
    /// The rounds lie too far apart, or are too few, to say.
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

/// What tells a cell from the others of its run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Vertices across and along.
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

/// A cell that both runs have.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// Which.
    pub key: Key,
    /// Its mean frame time in the old run, in microseconds.
    pub old_us: f64,
    /// Its mean frame time in the new run.
    pub new_us: f64,
    /// new / old with its interval; absent where the rounds give none.
    pub ratio: Option<Ratio>,
    /// What became of it.
    pub verdict: Verdict,
    /// Whether it is above [`Options::fail_above`].
    pub failed: bool,
}

/// Two runs, cell by cell. Its text is a table of at most 160 columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// When the two runs started, the old one first: seconds since 1970.
    pub started: [u64; 2],
    /// What else differs between the runs and may be the reason for a difference.
    pub notes: Vec<String>,
    /// The cells that both have, in the order of the new run, grid by grid.
    pub cells: Vec<Compared>,
    /// Cells of the old run only.
    pub only_old: Vec<Key>,
    /// Cells of the new run only.
    pub only_new: Vec<Key>,
    /// The factor that was asked for.
    pub fail_above: Option<f64>,
}

impl Comparison {
    /// Whether the new run is to be turned down: a cell failed, or a factor was asked for and no cell could be judged by
    /// it. A check that had nothing to check has not passed.
    pub fn failed(&self) -> bool {
        self.fail_above.is_some() && (self.cells.iter().any(|cell| cell.failed) || self.judged() == 0)
    }

    fn judged(&self) -> usize {
        self.cells.iter().filter(|cell| cell.ratio.is_some()).count()
    }
}

/// Compares two runs by the mean frame time of each cell.
///
/// The ratio and its interval are [`ratio`]'s. A cell is slower or faster where the interval leaves 1 out and the ratio
/// is more than [`SAME_WITHIN`] from 1; where a run marked the cell as noisy it takes more than [`NOISY_SPREAD`]. What
/// is left is the same, or noisy where it is marked so or the interval is wider than [`NOISY_SPREAD`].
///
/// # Errors
/// [`Error::Unsupported`] without `force` where GPU, driver, build or picture differ, which it names.
/// [`Error::Usage`] for a factor that is not above 0, and for a run that has a cell twice.
pub fn compare(old: &Report, new: &Report, options: &Options) -> Result<Comparison> {
    if let Some(factor) = options.fail_above
        && !(factor.is_finite() && factor > 0.0)
    {
        return Err(Error::Usage(format!("a factor to fail above must be a number above 0, not {factor}")));
    }
    let (old_keys, new_keys) = (keys(old, "old")?, keys(new, "new")?);

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

    let find = |key: &Key| old.cells.iter().find(|cell| Key::of(cell) == *key);
    let mut cells: Vec<Compared> = (new.cells.iter())
        .filter_map(|cell| Some(compare_cell(find(&Key::of(cell))?, cell, options.fail_above)))
        .collect();
    cells.sort_by_key(|cell| (vertices(cell.key.grid), cell.key.grid));
    Ok(Comparison {
        started: [old.started, new.started],
        notes,
        cells,
        only_old: old_keys.difference(&new_keys).cloned().collect(),
        only_new: new_keys.difference(&old_keys).cloned().collect(),
        fail_above: options.fail_above,
    })
}

fn keys(report: &Report, which: &str) -> Result<BTreeSet<Key>> {
    let mut keys = BTreeSet::new();
    for key in report.cells.iter().map(Key::of) {
        if keys.contains(&key) {
            return Err(Error::Usage(format!("the {which} run has a cell twice: {key}; measure it again")));
        }
        keys.insert(key);
    }
    Ok(keys)
}

/// What makes the figures of two runs different things.
fn apart(old: &Report, new: &Report) -> Vec<String> {
    let size = |report: &Report| {
        let settings = &report.settings;
        format!("{}, samples a pixel: {}", grid(settings.size), settings.samples)
    };
    differences(&[
        ("GPU", &old.machine.gpu, &new.machine.gpu),
        ("driver", &old.machine.driver, &new.machine.driver),
        ("build", &old.machine.build, &new.machine.build),
        ("scene", &old.settings.scene, &new.settings.scene),
        ("picture", &size(old), &size(new)),
    ])
}

/// What may explain a difference, and does not forbid the comparison.
fn side_notes(old: &Report, new: &Report) -> Vec<String> {
    let cuda = |report: &Report| report.machine.cuda.clone().unwrap_or_else(|| "none".into());
    let rounds = |report: &Report| format!("{} of {} ms", report.settings.rounds, report.settings.round_ms);
    let mut notes = differences(&[
        ("CUDA", &cuda(old), &cuda(new)),
        ("Vulkan", &old.machine.vulkan, &new.machine.vulkan),
        ("processor", &old.machine.cpu, &new.machine.cpu),
        ("threads", &old.machine.threads.to_string(), &new.machine.threads.to_string()),
        ("system", &old.machine.os, &new.machine.os),
        ("wavefield", &old.machine.wavefield, &new.machine.wavefield),
        ("rounds", &rounds(old), &rounds(new)),
    ]);
    for (which, report) in [("old", old), ("new", new)] {
        if !report.complete {
            notes.push(format!("the {which} run is INCOMPLETE: it was stopped before its last round"));
        }
    }
    notes
}

fn differences(pairs: &[(&str, &str, &str)]) -> Vec<String> {
    let differ = pairs.iter().filter(|(_, old, new)| old != new);
    differ.map(|(what, old, new)| format!("{what} was {}, is {}", short(old, 60), short(new, 60))).collect()
}

fn compare_cell(old: &Cell, new: &Cell, fail_above: Option<f64>) -> Compared {
    let ratio = ratio(&old.round_means_us, &new.round_means_us);
    Compared {
        key: Key::of(new),
        old_us: old.frame_us.mean,
        new_us: new.frame_us.mean,
        ratio,
        verdict: ratio.map_or(Verdict::Noisy, |ratio| verdict(&ratio, old.noisy || new.noisy)),
        failed: ratio.zip(fail_above).is_some_and(|(ratio, factor)| ratio.low > factor),
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
        writeln!(f, "old       {}", moment(self.started[0]))?;
        writeln!(f, "new       {}", moment(self.started[1]))?;
        for note in &self.notes {
            writeln!(f, "note      {note}")?;
        }
        if self.cells.is_empty() {
            writeln!(f, "\nThe runs have no cell in common.")?;
        } else {
            self.table(f)?;
        }
        for (which, keys) in [("old", &self.only_old), ("new", &self.only_new)] {
            if !keys.is_empty() {
                writeln!(f, "\nonly in the {which} run")?;
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

        writeln!(
            f,
            "\nold, new: mean frame time. new/old above 1 is slower; the interval is over rounds (Welch's t on logs)."
        )?;
        writeln!(
            f,
            "same: within {:.0} %, or not told apart. noisy: the rounds lie too far apart, or are too few, to say.",
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
            (true, 0) => write!(f, "\nFAILED: no cell could be held to the factor {factor}"),
            (true, _) => {
                write!(f, "\nFAILED: {failed} of {judged} cells surely take more than {factor} times as long")
            }
            (false, _) => write!(f, "\npassed: no cell surely takes more than {factor} times as long"),
        }?;
        if judged < all {
            write!(f, " ({} of {all} cells have too few sound rounds to judge)", all - judged)?;
        }
        Ok(())
    }
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

/// A ratio near 1 with three places.
fn factor(value: f64) -> String {
    if value < 1000.0 { format!("{value:.3}") } else { figure(value) }
}

#[cfg(test)]
mod tests {
    use super::super::{read_json, sample, stats, write_json};
    use super::*;

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
        // Three times slower is no matter of noise.
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
        assert!(found.failed() && found.to_string().contains("no cell could be held"), "{found}");
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
