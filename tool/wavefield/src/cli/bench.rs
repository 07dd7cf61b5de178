use std::path::PathBuf;
use std::time::Duration;

use ash::vk;
use clap::{Args, Subcommand, ValueEnum};
use wavefield::bench::{self as bench, Plan, Strategy, Table, record::Report};
use wavefield_draw::{Raster, Samples};
use wavefield_gpu::report::Failures;
use wavefield_gpu::vulkan::AdapterInfo;
use wavefield_gpu::{Error, Result, note, output_file::check_outputs, output_file::write_json, say};
use wavefield_handoff::contents::wave::Grid;
use wavefield_run::{Config, ProducerKind, RISK, Scene, Stop, parse};

use super::args::KernelArgs;
use super::help;
use super::outcome::write;

const EXAMPLES: &str =
    "  wavefield bench --quick                                 under 30 seconds, and what to use
  wavefield bench --json new.json --report new.html       everything, and a page with a chart
  wavefield bench --strategies timeline,inline --rings 3  these cells only
  wavefield bench --compare old.json new.json --fail-above 1.1
  wavefield bench --compare old1.json,old2.json new1.json,new2.json   several runs a side";

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, after_help = help::end(EXAMPLES))]
pub(super) struct BenchArgs {
    #[command(subcommand)]
    command: Option<BenchCommand>,
    /// What to show: vertices are handed over in buffers, textures in images.
    #[arg(long, value_enum, default_value_t, help_heading = help::WHAT)]
    scene: Scene,
    #[command(flatten)]
    kernel: KernelArgs,
    #[command(flatten)]
    common: Common,
    /// Fewer cells and shorter rounds: under 30 seconds.
    #[arg(long, help_heading = help::HOW)]
    quick: bool,
    /// Strategies to measure [default: all; no inline for a texture, nor for a kernel of your own without --risk-the-gpu].
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,…", help_heading = help::HOW)]
    strategies: Vec<Strategy>,
    /// Fields to measure [default: 256x256,1024x1024,4096x4096; on a software device 64x64,128x128,256x256; quick: the first
    /// two].
    #[arg(long, value_delimiter = ',', value_name = "COLSxROWS,…", value_parser = parse::grid, allow_hyphen_values = true, help_heading = help::HOW)]
    grids: Vec<Grid>,
    /// Ring depths to measure [default: 1,2,3,4,8,16; quick: 1,3,8].
    #[arg(long, value_delimiter = ',', value_name = "K,…", value_parser = parse::batch, allow_hyphen_values = true, help_heading = help::HOW)]
    rings: Vec<u32>,
    /// Batches to measure, in each ring with enough slots [default: 1,3,8; quick: 1,8].
    #[arg(long, value_delimiter = ',', value_name = "B,…", value_parser = parse::batch, allow_hyphen_values = true, help_heading = help::HOW)]
    batches: Vec<u32>,
    /// How often to measure each cell [default: 7; quick: 3].
    #[arg(long, value_name = "N", value_parser = parse::whole(1, 1000), allow_hyphen_values = true, help_heading = help::HOW)]
    rounds: Option<u64>,
    /// Milliseconds to measure each cell in each round [default: 300; quick: 80].
    #[arg(long, value_name = "MS", value_parser = parse::whole(1, 600_000), allow_hyphen_values = true, help_heading = help::HOW)]
    round_ms: Option<u64>,
    /// The picture's size.
    #[arg(long, value_name = "WxH", default_value = "1280x720", value_parser = parse::size, allow_hyphen_values = true, help_heading = help::OUTPUT)]
    size: vk::Extent2D,
    /// Samples per pixel: 4 for smooth edges, 1 for speed.
    #[arg(long, value_enum, default_value_t, help_heading = help::OUTPUT)]
    samples: Samples,
    /// What draws. A cell's draw says which of the two it was.
    #[arg(long, value_enum, default_value_t, help_heading = help::HOW)]
    raster: Raster,
    /// Write a self-contained page with a chart. With a file name that ends in .svg, write the chart alone.
    #[arg(long, value_name = "FILE.html|FILE.svg", value_parser = parse::named(&["html", "htm", "svg"]), help_heading = help::OUTPUT)]
    report: Option<PathBuf>,
    /// Measure nothing: show a file that --json wrote, as a table; --report works too.
    #[arg(long, value_name = "FILE.json", conflicts_with_all = ["compare", "quick", "json", "size", "samples", "raster", "scene", "strategies", "grids", "rings", "batches", "rounds", "round_ms", "device", "kernel", "param", "risk_the_gpu"], help_heading = "A saved run")]
    from: Option<PathBuf>,
    /// Measure nothing: compare JSON files. Commas separate several runs on one side, so a file name cannot
    /// contain a comma.
    #[arg(long, num_args = 2, value_names = ["OLD.json,…", "NEW.json,…"], value_parser = parse::files(), conflicts_with_all = ["quick", "json", "report", "samples", "raster", "scene", "size", "strategies", "grids", "rings", "batches", "rounds", "round_ms", "device", "kernel", "param", "risk_the_gpu"], help_heading = "A saved run")]
    compare: Option<Vec<Vec<PathBuf>>>,
    /// With --compare: exit with code 1 if a cell's frame time certainly grew by more than this factor.
    #[arg(long, value_name = "FACTOR", value_parser = parse::factor, allow_hyphen_values = true, help_heading = "A saved run")]
    fail_above: Option<f64>,
    /// With --compare: compare even if the hardware differs.
    #[arg(long, help_heading = "A saved run")]
    force: bool,
}

#[derive(Subcommand)]
enum BenchCommand {
    /// Measure how long a signal takes from CUDA to Vulkan and back, and to the CPU.
    Latency(LatencyArgs),
}

/// The options that all measurements share.
#[derive(Args)]
struct Common {
    /// Use this device: its number in `wavefield devices`, part of its name, or its UUID.
    #[arg(long, value_name = "DEVICE", value_parser = parse::name, help_heading = help::HOW)]
    device: Option<String>,
    /// Write the results as JSON (docs/bench-schema.md).
    #[arg(long, value_name = "FILE", help_heading = help::OUTPUT)]
    json: Option<PathBuf>,
}

#[derive(Args)]
struct LatencyArgs {
    #[command(flatten)]
    common: Common,
    /// The number of ping-pongs.
    #[arg(long, value_name = "N", default_value = "10000", value_parser = parse::whole(1, 10_000_000), allow_hyphen_values = true, help_heading = help::HOW)]
    rounds: u64,
}

fn latency(args: LatencyArgs, stop: &Stop) -> Result<()> {
    let Common { device, json } = args.common;
    check_outputs(&json)?;
    let config = Config { device, ..Config::default() };
    let mut failures = Failures::default();
    let found = bench::measure_latency(args.rounds as usize, &config, stop, &mut failures)?;
    say!("{found}");
    write(&mut failures, &json, |path| write_json(path, &found));
    ended(failures, found.complete, "round trip")
}

/// Returns the first failure, or an error if the measurement is incomplete. `last` names the measurement's
/// last step.
fn ended(mut failures: Failures, complete: bool, last: &str) -> Result<()> {
    if !complete {
        failures.add(Error::Stopped(format!(
            "stopped before the last {last}: what was measured so far is shown, marked incomplete"
        )));
    }
    failures.outcome()
}

pub(super) fn execute(mut args: BenchArgs, stop: &Stop) -> Result<()> {
    if let Some(BenchCommand::Latency(args)) = args.command.take() {
        return latency(args, stop);
    }
    if let Some(files) = &args.compare {
        return compare(&files[0], &files[1], args.force, args.fail_above);
    }
    // Checked here because clap accepts a missing --compare if --quick conflicts with it.
    if args.force || args.fail_above.is_some() {
        return Err(Error::Usage("--force and --fail-above need --compare".into()));
    }
    args.check()?;
    if let Some(path) = &args.from {
        let report = bench::read_json(path)?;
        check_outputs(&args.report)?;
        let mut failures = Failures::default();
        show(&report, &args, &mut failures);
        return failures.outcome();
    }
    let Common { device, json } = &args.common;
    check_outputs([json, &args.report].into_iter().flatten())?;
    if args.strategies.contains(&Strategy::INLINE) {
        args.kernel.check_inline()?;
    }
    let mut config = Config {
        device: device.clone(),
        scene: args.scene,
        samples: args.samples,
        raster: args.raster,
        ..Config::default()
    };
    args.kernel.apply(&mut config)?;
    if args.strategies.is_empty() && args.kernel.check_inline().is_err() {
        note!("note: inline is left out: {RISK}");
    }
    if args.plan(&[config.grid]).cells.is_empty() {
        return Err(Error::Usage("no ring of --rings holds a batch of --batches: nothing to measure".into()));
    }
    let choice = bench::choose(&config, ProducerKind::Auto)?;
    let plan = args.plan(&args.grids_for(choice.adapter.info()));
    let mut failures = Failures::default();
    let report = bench::run(&plan, &config, &choice, stop, &mut failures)?;
    if failures.first().is_some() && report.cells.is_empty() {
        return failures.outcome();
    }
    write(&mut failures, json, |path| write_json(path, &report));
    show(&report, &args, &mut failures);
    if report.cells.is_empty() && report.complete {
        let words = "nothing could be measured here; the reasons are above";
        failures.add(Error::Unsupported(words.into()));
    }
    ended(failures, report.complete, "round")
}

fn show(report: &Report, args: &BenchArgs, failures: &mut Failures) {
    say!("{}", Table(report));
    write(failures, &args.report, |path| bench::write_report(path, report));
}

fn compare(old: &[PathBuf], new: &[PathBuf], force: bool, fail_above: Option<f64>) -> Result<()> {
    let read =
        |files: &[PathBuf]| files.iter().map(|file| bench::read_json(file)).collect::<Result<Vec<_>>>();
    let comparison = bench::compare(&read(old)?, &read(new)?, force, fail_above)?;
    say!("{comparison}");
    match comparison.failed() {
        true => Err(Error::Unsupported(
            "a cell is slower than --fail-above allows, or no cell could be compared: see above".into(),
        )),
        false => Ok(()),
    }
}

impl BenchArgs {
    fn check(&self) -> Result<()> {
        self.strategies.iter().try_for_each(|strategy| strategy.handoff().check_scene(self.scene))?;
        let strategies = self.strategies();
        let none = |of: fn(Strategy) -> bool| !strategies.iter().copied().any(of);
        let ignored = [
            (
                self.kernel.kernel.is_some() && none(Strategy::uses_cuda),
                "--kernel: none of --strategies uses CUDA",
            ),
            (
                !self.rings.is_empty() && none(Strategy::has_ring),
                "--rings: none of --strategies has a ring to choose",
            ),
            (
                !self.batches.is_empty() && !strategies.contains(&Strategy::TIMELINE),
                "--batches: only the strategy timeline has them",
            ),
        ];
        match ignored.iter().find(|(ignored, _)| *ignored) {
            Some((_, why)) => Err(Error::Usage(format!("nothing to measure with {why}"))),
            None => Ok(()),
        }
    }

    fn strategies(&self) -> Vec<Strategy> {
        if self.strategies.is_empty() { Strategy::value_variants().to_vec() } else { self.strategies.clone() }
    }

    /// Returns the given grids, or defaults that this device draws in reasonable time.
    fn grids_for(&self, device: &AdapterInfo) -> Vec<Grid> {
        if !self.grids.is_empty() {
            return self.grids.clone();
        }
        let sides = match device.kind {
            vk::PhysicalDeviceType::CPU => {
                note!(
                    "note: {} draws in software, so the fields are small; --grids chooses others",
                    device.name
                );
                [64, 128, 256]
            }
            _ => [256, 1024, 4096],
        };
        let count = if self.quick { 2 } else { 3 };
        sides[..count].iter().map(|&side| Grid { cols: side, rows: side }).collect()
    }

    fn plan(&self, grids: &[Grid]) -> Plan {
        let or = |given: &[u32], full: &[u32], quick: &[u32]| match (given, self.quick) {
            ([], true) => quick.to_vec(),
            ([], false) => full.to_vec(),
            _ => given.to_vec(),
        };
        let mut strategies = self.strategies();
        // `check` has already refused strategies that the user named and that do not fit the scene.
        strategies.retain(|strategy| strategy.handoff().check_scene(self.scene).is_ok());
        strategies.retain(|&strategy| strategy != Strategy::INLINE || self.kernel.check_inline().is_ok());
        let rings = or(&self.rings, &[1, 2, 3, 4, 8, 16], &[1, 3, 8]);
        let batches = or(&self.batches, &[1, 3, 8], &[1, 8]);
        Plan {
            cells: bench::plan(self.scene, &strategies, grids, &rings, &batches),
            rounds: self.rounds.unwrap_or(if self.quick { 3 } else { 7 }) as u32,
            warmup_frames: if self.quick { 8 } else { 32 },
            round: Duration::from_millis(self.round_ms.unwrap_or(if self.quick { 80 } else { 300 })),
            size: self.size,
        }
    }
}
