//! `wavefield devices`: what there is, what is used, and with `--formats` what it shares with CUDA.

use std::path::PathBuf;

use clap::Args;
use wavefield::app::{DeviceTable, Stop};
use wavefield::formats::{self, Table};
use wavefield::progress::Progress;
use wavefield::report::{Failures, command_line};
use wavefield::vulkan::{Instance, InstanceDesc, Validation};
use wavefield::{Error, Result, check_outputs, note, say};

use super::DeviceArgs;

#[derive(Args)]
pub struct DevicesArgs {
    #[command(flatten)]
    device: DeviceArgs,
    /// List which image formats, view types, buffers and semaphores the device exports, and with which handle.
    #[arg(long)]
    formats: bool,
    /// Take each of them through CUDA and back, level by level; needs CUDA.
    #[arg(long, requires = "formats")]
    check: bool,
    /// Write what was found, as JSON (docs/formats-schema.md).
    #[arg(long, value_name = "FILE", requires = "formats")]
    json: Option<PathBuf>,
    /// With --check: the Khronos validation layer with synchronization validation; any error ends it with exit code 1.
    #[arg(long, requires = "check")]
    validation: bool,
}

pub fn execute(args: DevicesArgs, stop: &Stop) -> Result<()> {
    check_outputs(&args.json)?;
    let validation = if args.validation { Validation::Required } else { Validation::Off };
    let instance = Instance::new(&InstanceDesc { validation, display: None })?;
    let log = instance.validation_log().clone();
    let table = DeviceTable::query(&instance, None)?;
    let (wish, producer) = (args.device.device.as_deref(), args.device.producer);
    if !args.formats {
        say!("{}", table.describe(wish, producer));
        return Ok(());
    }
    let choice = table.choose(wish, producer)?;
    let mut failures = Failures::default();
    let report = if args.check {
        let bar = Progress::new("checking");
        let count = &mut |done: usize, total: usize| bar.at(done as u64, total as u64);
        formats::check(&choice, command_line(), stop, count, &mut failures)?
    } else {
        formats::list(&choice, command_line())
    };
    drop((choice, table, instance));
    say!("{}", Table(&report));
    if let Some(path) = &args.json
        && failures.catch(formats::write_json(path, &report)).is_some()
    {
        note!("wrote {}", path.display());
    }
    failures.catch(log.verdict());
    let count = report.failures().len();
    if count > 0 {
        failures
            .add(Error::Unsupported(format!("{count} of the round trips came back different: see above")));
    }
    failures.outcome()
}
