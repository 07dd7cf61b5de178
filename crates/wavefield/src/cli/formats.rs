use std::path::PathBuf;

use clap::Args;
use wavefield_base::report::{Failures, command_line};
use wavefield_base::{Error, Result, output_file::check_outputs, output_file::write_json, say};
use wavefield_engine::{DeviceTable, ProducerKind, Stop};
use wavefield_formats as formats;
use wavefield_gpu::vulkan::Validation;

use super::help;
use super::outcome::write;

#[derive(Args)]
pub struct FormatsArgs {
    /// List which image formats, view types, buffers and semaphores the device exports, and with which handle.
    #[arg(long, help_heading = help::HOW)]
    pub formats: bool,
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

pub fn execute(args: FormatsArgs, device: Option<&str>, producer: ProducerKind, stop: &Stop) -> Result<()> {
    check_outputs(&args.json)?;
    if args.check && !producer.may_use_cuda() {
        return Err(Error::Usage(
            "--check uses CUDA, and --producer asks for something else: leave one of them out".into(),
        ));
    }
    let validation = if args.validation { Validation::Required } else { Validation::Off };
    let table = DeviceTable::headless(validation)?;
    let choice = table.choose(device, producer)?;
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
