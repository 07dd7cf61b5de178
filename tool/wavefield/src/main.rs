//! The program: parses the command line, runs the command, and turns the outcome into an exit code.

#![warn(unreachable_pub)]

mod cli;
mod signals;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::anyhow;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use wavefield_gpu::note;
use wavefield_run::Stop;

use self::cli::Cli;

fn main() -> ExitCode {
    one_cuda_connection();
    let is_of_linux = |(place, word): &(usize, OsString)| {
        *place == 1 && word == "serve" || word.as_encoded_bytes().starts_with(b"--web")
    };
    if !cfg!(target_os = "linux")
        && let Some((_, word)) = std::env::args_os().enumerate().find(is_of_linux)
    {
        note!("error: `{}` exists on Linux only", word.display());
        return ExitCode::from(2);
    }
    // If arguments are wrong, clap prints an error and exits with code 2.
    let matches = Cli::command().get_matches();
    let cli =
        Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut Cli::command()).exit());
    let code = match run(cli, &matches) {
        Ok(()) => u8::from(wavefield_gpu::report::failed()),
        Err(error) => {
            note!("error: {error}");
            error.downcast_ref().map_or(1, wavefield_gpu::Error::exit_code)
        }
    };
    if wavefield_gpu::stuck_gpu::leaked() {
        signals::leave_at_once(1);
    }
    ExitCode::from(code)
}

/// Asks CUDA for one hardware queue of each kind instead of eight: this program has one stream, and each
/// queue slows the startup. Keeps variables that the user has set.
fn one_cuda_connection() {
    for name in ["CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DEVICE_MAX_COPY_CONNECTIONS"] {
        if std::env::var_os(name).is_none() {
            // SAFETY: no other thread is running yet.
            unsafe { std::env::set_var(name, "1") };
        }
    }
}

fn run(cli: Cli, matches: &ArgMatches) -> anyhow::Result<()> {
    // Makes a write beyond the limit on file sizes (`ulimit -f`) fail like a write to a full disk. By default
    // SIGXFSZ would end the process without a message.
    #[cfg(unix)]
    // SAFETY: SIGXFSZ is ignored; the handler of SIGBUS has the right type and is async-signal-safe.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        libc::signal(libc::SIGBUS, signals::no_memory as extern "C" fn(libc::c_int) as libc::sighandler_t);
    };
    let stop = Stop::default();
    if cli.handles_signals() {
        signals::listen(&stop).map_err(|error| anyhow!("cannot listen for Ctrl-C: {error}"))?;
    }
    Ok(cli.execute(matches, &stop)?)
}
