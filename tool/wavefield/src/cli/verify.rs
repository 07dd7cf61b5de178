use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{ArgMatches, Args};
use wavefield_gpu::output_file::{check_outputs, write_json};
use wavefield_gpu::report::{Failures, command_line, word};
use wavefield_gpu::{Error, Result, say};
use wavefield_handoff::Handoff;
use wavefield_run::watch::verify::Broken;
use wavefield_run::{Ended, ProducerKind, Stop, Verification, run_headless};
use wavefield_window::run_windowed;

use super::args::RunArgs;
use super::connect::connect;
use super::help;
use super::outcome::write;

const EXAMPLES: &str =
    "  wavefield verify                               headless, every vertex of every frame
  wavefield verify --scene texture --json found.json
  wavefield verify --break ready --ring 1        without one of the waits: it must find wrong data";

#[derive(Args)]
#[command(after_help = help::end(EXAMPLES))]
pub(super) struct VerifyArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Draw in a window; the default is headless.
    #[arg(long, conflicts_with = "headless", help_heading = help::HOW)]
    window: bool,
    /// Write the results as JSON (docs/reliability.md).
    #[arg(long, value_name = "FILE", help_heading = help::OUTPUT)]
    json: Option<PathBuf>,
    /// Leave out a part of the hand-off, to test the check. With ready and free the command succeeds only
    /// if it finds wrong data; with barrier it succeeds either way. Needs CUDA and --handoff timeline.
    #[arg(long = "break", value_enum, value_name = "PART", help_heading = help::DIAGNOSIS)]
    broken: Option<Broken>,
}

pub(super) fn execute(args: VerifyArgs, matches: &ArgMatches, stop: &Stop) -> Result<()> {
    args.run.check_ring()?;
    let mut config = args.run.config(!args.window, matches)?;
    config.verify = true;
    config.broken = args.broken;
    if let Some(broken) = args.broken {
        if !config.producer.may_use_cuda() || config.handoff != Handoff::Timeline {
            return Err(Error::Usage(format!("--break {} {}", word(broken), Broken::NEEDS)));
        }
        // Only CUDA has a hand-off to break, so this must not fall back to another producer.
        config.producer = ProducerKind::Cuda;
    }
    check_outputs(config.output.iter().chain(&config.record).chain(&config.trace).chain(&args.json))?;
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let Ended { summary, failure } = match args.window {
        true => run_windowed(&mut connect(&config, stop)?, &config, stop, None)?,
        false => run_headless(&config, stop)?,
    };
    // Without --frames, a run in a window is complete when the window is closed.
    let complete = match config.frames {
        _ if failure.is_some() => false,
        Some(frames) => summary.frames >= frames,
        None => args.window || !stop.requested(),
    };
    let Some(verification) =
        Verification::new(&summary, &config, command_line(), started, args.window, complete)
    else {
        return Err(Error::Check("nothing was checked".into()));
    };
    say!("{summary}\n{verification}");
    let mut failures = Failures::default();
    failure.into_iter().for_each(|error| failures.add(error));
    write(&mut failures, &args.json, |path| write_json(path, &verification));
    failures.catch(verification.outcome());
    failures.outcome()
}
