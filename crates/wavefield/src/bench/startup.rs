//! The time from the start of the process to its first frame, by stages.
//!
//! Nothing is simulated: the program starts itself again for each round, and the child records its stages with the spans that
//! `--trace` also shows. The first child has an empty cache for compiled PTX (`CUDA_CACHE_PATH`); the later ones use what it
//! stored. The operating system's file cache is not emptied.

use std::fmt;
use std::fs::File;
use std::io::{Read, Seek};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::record::{Distribution, Machine};
use crate::app::{Config, Headless, ProducerKind, Stop, retire};
use crate::progress::Progress;
use crate::report::Failures;
use crate::trace::{CpuSpan, CpuSpans};
use crate::{Error, Result};

/// The schema's name and version.
pub const STARTUP_SCHEMA: &str = "wavefield-startup/1";

/// The result. `docs/bench-schema.md` describes the fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Startup {
    /// [`STARTUP_SCHEMA`].
    pub schema: String,
    pub complete: bool,
    pub command: String,
    pub machine: Machine,
    pub grid: [u32; 2],
    pub producer: String,
    /// The first start, which found no compiled PTX.
    pub cold: Start,
    pub warm: Vec<Start>,
    /// The totals of the later starts; absent without them.
    pub warm_us: Option<Distribution>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// From the start of the process to the first finished frame.
    pub total_us: f64,
    /// The stages in the order in which they began. The rest of the total lies between the stages of the main thread.
    pub stages: Vec<Stage>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    pub name: String,
    /// Without the stages within it.
    pub us: f64,
    /// Whether another thread did it at the same time. Then it is not part of the total; the main thread's wait for it is a
    /// stage of its own. Absent if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub beside: bool,
}

/// A child's report: one line of JSON on its standard output.
#[derive(Serialize, Deserialize)]
struct ChildReport {
    start: Start,
    machine: Machine,
    producer: String,
}

/// The names of the spans that are stages.
const STAGES: [&str; 11] = [
    "CUDA driver",
    "Vulkan instance",
    "devices",
    "wait for CUDA driver",
    "CUDA context",
    "Vulkan device",
    "wait for CUDA context",
    "PTX",
    "memory",
    "pipelines",
    "first frame",
];
/// The stage before `main`, in which the system loads the program.
const BEFORE_MAIN: &str = "process";
/// The variable that tells the child when the parent started it, in nanoseconds since 1970.
const STARTED: &str = "WAVEFIELD_STARTED_NS";

/// Starts this program `rounds` times after a first cold start. With `arguments`, it calls [`startup_child`].
///
/// After a stop, or a later start that fails, the result has what was measured before it and is marked incomplete.
pub fn measure_startup(
    rounds: u32,
    arguments: &[String],
    command: String,
    config: &Config,
    stop: &Stop,
    failures: &mut Failures,
) -> Result<Startup> {
    let failed = |problem: String| Error::Unsupported(format!("a start could not be measured: {problem}"));
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let cache = tempfile::tempdir().map_err(|error| failed(error.to_string()))?;
    // `None` if a stop came first.
    let start = || -> Result<Option<ChildReport>> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let mut command = Command::new(&program);
        command.args(arguments).env(STARTED, now.to_string()).env("CUDA_CACHE_PATH", cache.path());
        let Some(child) = output_unless(command, stop).map_err(|error| failed(error.to_string()))? else {
            return Ok(None);
        };
        if !child.status.success() {
            // A terminal sends Ctrl-C to the child too.
            if stop.requested() {
                return Ok(None);
            }
            let said = String::from_utf8_lossy(&child.stderr).trim().to_owned();
            return Err(failed(if said.is_empty() { child.status.to_string() } else { said }));
        }
        serde_json::from_slice(&child.stdout)
            .map(Some)
            .map_err(|error| failed(format!("the child's answer is not a report ({error})")))
    };
    let progress = Progress::new("starting");
    progress.at(0, u64::from(rounds) + 1);
    let stopped = || Error::Stopped("stopped before the first start was done: nothing was measured".into());
    let first = start()?.ok_or_else(stopped)?;
    let mut warm = Vec::new();
    while warm.len() < rounds as usize {
        progress.at(warm.len() as u64 + 1, u64::from(rounds) + 1);
        let Some(report) = failures.catch(start()).flatten() else { break };
        warm.push(report.start);
    }
    let warm_us = Distribution::of_any(&mut warm.iter().map(|start| start.total_us).collect::<Vec<_>>());
    Ok(Startup {
        schema: STARTUP_SCHEMA.to_owned(),
        complete: warm.len() == rounds as usize,
        command,
        machine: first.machine,
        grid: [config.grid.cols, config.grid.rows],
        producer: first.producer,
        cold: first.start,
        warm,
        warm_us,
    })
}

/// As [`Command::output`]. `None` if a stop was requested first; then the child was killed.
fn output_unless(mut command: Command, stop: &Stop) -> std::io::Result<Option<Output>> {
    // Files instead of pipes: a pipe that nobody reads could block the child.
    let (mut out, mut err) = (tempfile::tempfile()?, tempfile::tempfile()?);
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(err.try_clone()?);
    let mut child = command.spawn()?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if stop.requested() {
            // Safe to kill: it writes no files.
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let read = |file: &mut File| {
        let mut bytes = Vec::new();
        file.rewind().and_then(|()| file.read_to_end(&mut bytes)).map(|_| bytes)
    };
    Ok(Some(Output { status, stdout: read(&mut out)?, stderr: read(&mut err)? }))
}

/// Runs as the child: draws one frame and returns the report as a line of JSON. Must be called first in the process.
pub fn startup_child(config: &Config) -> Result<String> {
    let main = Instant::now();
    let started = std::env::var(STARTED).ok().and_then(|text| text.parse().ok()).map(Duration::from_nanos);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // The wall clock is the simplest clock that two processes share. It is wrong only if it is set at this very moment.
    let before_main = started.and_then(|started| now.checked_sub(started)).unwrap_or_default();
    let spans = CpuSpans::new(10_000);
    spans.install()?;

    let choice = super::choose(config, ProducerKind::Auto)?;
    let mut run = Headless::quietly(&choice, config)?;
    let drawn = tracing::trace_span!("first frame").in_scope(|| {
        run.frame(1.0 / 60.0)?;
        run.engine().finish()
    });
    let total = before_main + main.elapsed();
    let producer = run.engine().producer().profile().name.to_owned();
    retire(run);
    drawn?;
    let mut stages = vec![Stage::main(BEFORE_MAIN, microseconds(before_main))];
    stages.extend(stages_of(&spans.take()));
    let start = Start { total_us: microseconds(total), stages };
    let report = ChildReport { start, machine: choice.machine(), producer };
    serde_json::to_string(&report).map_err(|error| Error::Unsupported(format!("no report: {error}")))
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// The time of each stage, without the stages within it.
fn stages_of(spans: &[CpuSpan]) -> Vec<Stage> {
    let stages: Vec<_> = spans
        .iter()
        .filter(|span| STAGES.contains(&span.name))
        .filter_map(|span| Some((span.name, span.other_thread, span.begin, span.end?)))
        .collect();
    let mut found: Vec<Stage> = Vec::new();
    for (index, &(name, beside, begin, end)) in stages.iter().enumerate() {
        // Spans directly within this one: each later span that begins within it and in none of those found before.
        let mut within = Duration::ZERO;
        let mut until = begin;
        for &(_, inner_beside, inner_begin, inner_end) in &stages[index + 1..] {
            if inner_beside == beside && inner_begin >= until && inner_end <= end {
                within += inner_end - inner_begin;
                until = inner_end;
            }
        }
        let us = microseconds((end - begin).saturating_sub(within));
        match found.iter_mut().find(|stage| stage.name == name && stage.beside == beside) {
            Some(stage) => stage.us += us,
            None => found.push(Stage { beside, ..Stage::main(name, us) }),
        }
    }
    found
}

impl Stage {
    fn main(name: &str, us: f64) -> Self {
        Self { name: name.to_owned(), us, beside: false }
    }
}

impl Startup {
    /// The median of a stage over the warm starts; 0 if none of them has the stage.
    fn warm_stage(&self, name: &str) -> f64 {
        let of = |start: &Start| start.stages.iter().find(|stage| stage.name == name).map(|stage| stage.us);
        Distribution::of(&mut self.warm.iter().filter_map(of).collect::<Vec<_>>()).p50
    }
}

impl fmt::Display for Startup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        writeln!(f, "{} ({}), CUDA {}", machine.gpu, machine.driver, machine.cuda.as_deref().unwrap_or("-"))?;
        writeln!(
            f,
            "from the start of the process to the first frame of {}x{} by {}\n",
            self.grid[0], self.grid[1], self.producer
        )?;
        if !self.complete {
            writeln!(f, "INCOMPLETE: the run was stopped before its last start.\n")?;
        }
        let warm = format!("median of {}", self.warm.len());
        writeln!(f, "{:22} {:>14} {warm:>14}", "ms", "no PTX cached")?;
        let mut row = |name: &str, cold: f64, warm: f64| {
            let warm = self.warm_us.map_or("-".into(), |_| format!("{:.1}", warm * 1e-3));
            writeln!(f, "{name:22} {:14.1} {warm:>14}", cold * 1e-3)
        };
        let (beside, main): (Vec<_>, Vec<_>) = self.cold.stages.iter().partition(|stage| stage.beside);
        for stage in &main {
            row(&stage.name, stage.us, self.warm_stage(&stage.name))?;
        }
        let warm_us = self.warm_us.unwrap_or_default();
        let cold: f64 = main.iter().map(|stage| stage.us).sum();
        let warm: f64 = main.iter().map(|stage| self.warm_stage(&stage.name)).sum();
        row("between them", (self.cold.total_us - cold).max(0.0), (warm_us.p50 - warm).max(0.0))?;
        row("all", self.cold.total_us, warm_us.p50)?;
        for stage in &beside {
            row(&format!("beside: {}", stage.name), stage.us, self.warm_stage(&stage.name))?;
        }
        match self.warm.is_empty() {
            true => write!(f, "no later start was done"),
            false => write!(f, "slowest of the later starts: {:.1} ms", warm_us.max * 1e-3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run that was stopped after its first start.
    fn stopped() -> Startup {
        let stages =
            vec![Stage::main(BEFORE_MAIN, 1000.0), Stage { beside: true, ..Stage::main("CUDA driver", 5e4) }];
        Startup {
            schema: STARTUP_SCHEMA.into(),
            complete: false,
            command: "wavefield bench startup".into(),
            machine: crate::bench::sample_machine(),
            grid: [8, 8],
            producer: "compute".into(),
            cold: Start { total_us: 3000.0, stages },
            warm: Vec::new(),
            warm_us: None,
        }
    }

    #[test]
    fn the_first_start_alone_is_shown_without_figures_of_the_later_ones() {
        let text = stopped().to_string();
        let row =
            |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().split_whitespace().last();
        assert!(text.contains("INCOMPLETE") && text.ends_with("no later start was done"), "{text}");
        assert_eq!([row(BEFORE_MAIN), row("between them"), row("all")], [Some("-"); 3], "{text}");
    }

    #[test]
    fn what_another_thread_did_is_no_part_of_the_total() {
        let text = stopped().to_string();
        let cold = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().rev().nth(1).unwrap().to_owned()
        };
        let rows = [BEFORE_MAIN, "between them", "all", "beside: CUDA driver"].map(cold);
        assert_eq!(rows, ["1.0", "2.0", "3.0", "50.0"], "{text}");
    }

    #[test]
    fn a_stage_is_without_what_lies_within_it() {
        let epoch = Instant::now();
        let at = |ms| epoch + Duration::from_millis(ms);
        let span = |name, begin, end| CpuSpan {
            name,
            frame: None,
            other_thread: name == "CUDA driver",
            begin: at(begin),
            end: Some(at(end)),
        };
        let spans = [
            span("devices", 0, 100),
            // On another thread, so not part of the stage above.
            span("CUDA driver", 5, 39),
            span("wait for CUDA driver", 10, 40),
            span("something else", 41, 99),
            span("memory", 120, 130),
            span("memory", 130, 135),
        ];
        let found = stages_of(&spans);
        let of = |name: &str| found.iter().find(|stage| stage.name == name).unwrap().us.round();
        assert_eq!((of("devices"), of("wait for CUDA driver"), of("memory")), (70_000.0, 30_000.0, 15_000.0));
        assert_eq!(of("CUDA driver"), 34_000.0);
        let beside: Vec<_> =
            found.iter().filter(|stage| stage.beside).map(|stage| stage.name.as_str()).collect();
        assert_eq!((beside, found.len()), (vec!["CUDA driver"], 4));
    }
}
