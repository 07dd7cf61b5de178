//! `wavefield devices`: all devices, the one to use, and with `--formats` what that one can share with CUDA.

use std::path::PathBuf;

use clap::Args;
use wavefield::app::{DeviceTable, ProducerKind, Stop};
use wavefield::formats;
use wavefield::report::{Failures, command_line};
use wavefield::vulkan::Validation;
use wavefield::{Error, Result, check_outputs, say, write_json};

use super::outcome::write;
use super::{help, parse};

const EXAMPLES: &str =
    "  wavefield devices                              all devices, and which one would be used
  wavefield devices --formats --check            what it can share with CUDA, and whether that works";

#[derive(Args)]
#[command(after_help = help::end(EXAMPLES))]
pub struct DevicesArgs {
    /// Use this device: its number in `wavefield devices`, part of its name, or its UUID.
    #[arg(long, value_name = "DEVICE", value_parser = parse::name, help_heading = help::HOW)]
    device: Option<String>,
    /// Who fills the field.
    #[arg(long, value_enum, default_value_t, help_heading = help::HOW)]
    producer: ProducerKind,
    /// List which image formats, view types, buffers and semaphores the device exports, and with which handle.
    #[arg(long, help_heading = help::HOW)]
    formats: bool,
    /// With --formats: write and read each listed object from both sides, level by level; needs CUDA.
    #[arg(long, requires = "formats", help_heading = help::HOW)]
    check: bool,
    /// Write the results as JSON (docs/bench-schema.md).
    #[arg(long, value_name = "FILE", requires = "formats", help_heading = help::OUTPUT)]
    json: Option<PathBuf>,
    /// With --check: use the Khronos validation layer with synchronization validation; any error gives
    /// exit code 1.
    #[arg(long, requires = "check", help_heading = help::DIAGNOSIS)]
    validation: bool,
}

pub fn execute(args: DevicesArgs, stop: &Stop) -> Result<()> {
    check_outputs(&args.json)?;
    let producer = args.producer;
    if args.check && !producer.may_use_cuda() {
        return Err(Error::Usage(
            "--check uses CUDA, and --producer asks for something else: leave one of them out".into(),
        ));
    }
    let validation = if args.validation { Validation::Required } else { Validation::Off };
    let table = DeviceTable::headless(validation)?;
    let wish = args.device.as_deref();
    if !args.formats {
        // A pipe or a file gets the table in full width.
        let width = terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| usize::from(width.0));
        say!("{}", table.describe(wish, producer, width));
        return Ok(());
    }
    let choice = table.choose(wish, producer)?;
    let log = choice.adapter.instance().validation_log().clone();
    let mut failures = Failures::default();
    let report = if args.check {
        formats::check(&choice, command_line(), stop, &mut failures)?
    } else {
        formats::list(&choice, command_line())
    };
    drop((choice, table));
    say!("{report}");
    write(&mut failures, &args.json, |path| write_json(path, &report));
    failures.catch(log.verdict());
    let count = report.failed.len();
    if count > 0 {
        failures.add(Error::Unsupported(format!("{count} round trips changed the data: see above")));
    }
    failures.outcome()
}
