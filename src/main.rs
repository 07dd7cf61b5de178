//! The command line program: parse, run, turn the outcome into an exit code.

mod cli;

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use wavefield::app::Stop;
use wavefield::note;

fn main() -> ExitCode {
    // On nonsense clap says so and exits with 2.
    let cli = cli::Cli::parse();
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note!("error: {error:#}");
            ExitCode::from(error.downcast_ref().map_or(1, wavefield::Error::exit_code))
        }
    }
}

fn run(cli: cli::Cli) -> anyhow::Result<()> {
    let stop = Stop::default();
    let asked = stop.clone();
    // Ctrl-C, SIGTERM and SIGHUP: end after the frame at hand.
    ctrlc::set_handler(move || asked.request()).context("cannot listen for Ctrl-C")?;
    cli.execute(&stop)?;
    Ok(())
}
