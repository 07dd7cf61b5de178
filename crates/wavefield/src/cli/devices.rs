//! `wavefield devices`: all devices, the one to use, and with `--formats` what it can share with CUDA.

use clap::Args;
use wavefield_base::{Result, say};
use wavefield_engine::{DeviceTable, ProducerKind, Stop};
use wavefield_gpu::vulkan::Validation;

use super::{help, parse};

const EXAMPLES: &str = if cfg!(feature = "formats") {
    "  wavefield devices                              all devices, and which one would be used
  wavefield devices --formats --check            what it can share with CUDA, and whether that works"
} else {
    "  wavefield devices                              all devices, and which one would be used"
};

#[derive(Args)]
#[command(after_help = help::end(EXAMPLES))]
pub struct DevicesArgs {
    /// Use this device: its number in `wavefield devices`, part of its name, or its UUID.
    #[arg(long, value_name = "DEVICE", value_parser = parse::name, help_heading = help::HOW)]
    device: Option<String>,
    /// Who fills the field.
    #[arg(long, value_enum, default_value_t, help_heading = help::HOW)]
    producer: ProducerKind,
    #[cfg(feature = "formats")]
    #[command(flatten)]
    formats: super::formats::FormatsArgs,
}

#[cfg_attr(not(feature = "formats"), expect(unused_variables))]
pub fn execute(args: DevicesArgs, stop: &Stop) -> Result<()> {
    let wish = args.device.as_deref();
    #[cfg(feature = "formats")]
    if args.formats.formats {
        return super::formats::execute(args.formats, wish, args.producer, stop);
    }
    // A pipe or a file gets the table in full width.
    let width = terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| usize::from(width.0));
    say!("{}", DeviceTable::headless(Validation::Off)?.describe(wish, args.producer, width));
    Ok(())
}
