//! The command line program: parse, run, turn the outcome into an exit code.

#![deny(clippy::undocumented_unsafe_blocks)]

mod cli;
mod signals;

use std::process::ExitCode;

use anyhow::anyhow;
use clap::Parser;
use wavefield::app::Stop;
use wavefield::note;

fn main() -> ExitCode {
    one_cuda_connection();
    // On nonsense clap says so and exits with 2.
    let cli = cli::Cli::parse();
    let code = match run(cli) {
        // What failed beside it was said already.
        Ok(()) => u8::from(wavefield::report::failed()),
        Err(error) => {
            note!("error: {error}");
            error.downcast_ref().map_or(1, wavefield::Error::exit_code)
        }
    };
    if wavefield::left_running() {
        leave_at_once(1);
    }
    ExitCode::from(code)
}

/// Asks CUDA for one hardware queue of each kind instead of eight: this program has one stream, and each queue that CUDA makes takes
/// part of the start (`docs/performance.md`, "Start-up"). Whoever has set the variables knows better.
fn one_cuda_connection() {
    for name in ["CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DEVICE_MAX_COPY_CONNECTIONS"] {
        if std::env::var_os(name).is_none() {
            // SAFETY: this is the only thread yet.
            unsafe { std::env::set_var(name, "1") };
        }
    }
}

/// Ends the process without the drivers' exit handlers: they would wait for a kernel that never ends.
fn leave_at_once(code: u8) -> ! {
    #[cfg(unix)]
    // SAFETY: ends the process; nothing of it runs afterwards, and every file was written whole before.
    unsafe {
        libc::_exit(code.into())
    }
    #[cfg(windows)]
    // SAFETY: as above; the handle stands for this very process and needs no closing.
    unsafe {
        use windows_sys::Win32::System::Threading::{GetCurrentProcess, TerminateProcess};
        TerminateProcess(GetCurrentProcess(), code.into());
    }
    #[cfg(not(unix))]
    std::process::abort()
}

/// A limit on the size of files (`ulimit -f`) becomes an error of the write that meets it, as a full disk does; by itself it
/// would end the process without a word.
#[cfg(unix)]
fn survive_file_limits() {
    // SAFETY: no handler is installed, so nothing runs when the signal comes.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

fn run(cli: cli::Cli) -> anyhow::Result<()> {
    #[cfg(unix)]
    survive_file_limits();
    let stop = Stop::default();
    if cli.handles_signals() {
        signals::listen(&stop).map_err(|error| anyhow!("cannot listen for Ctrl-C: {error}"))?;
    }
    cli.execute(&stop)?;
    Ok(())
}
