//! `wavefield devices`: lists all devices, and says which one a run would use.

use clap::Args;
use wavefield_gpu::vulkan::Validation;
use wavefield_gpu::{Result, say};
use wavefield_run::{DeviceTable, ProducerKind, parse};

use super::help;

const EXAMPLES: &str =
    "  wavefield devices                              all devices, and which one would be used";

#[derive(Args)]
#[command(after_help = help::end(EXAMPLES))]
pub(super) struct DevicesArgs {
    /// Use this device: its number in `wavefield devices`, part of its name, or its UUID.
    #[arg(long, value_name = "DEVICE", value_parser = parse::name, help_heading = help::HOW)]
    device: Option<String>,
    /// Who fills the field.
    #[arg(long, value_enum, default_value_t, help_heading = help::HOW)]
    producer: ProducerKind,
}

pub(super) fn execute(args: DevicesArgs) -> Result<()> {
    let wish = args.device.as_deref();
    // A pipe or a file gets the table at full width.
    let width = terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| usize::from(width.0));
    say!("{}", DeviceTable::headless(Validation::Off)?.describe(wish, args.producer, width));
    Ok(())
}
