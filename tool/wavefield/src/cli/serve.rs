use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use clap::{ArgMatches, Args};
use rustix::fs::FileType;
use rustix::io::FdFlags;
use wavefield_gpu::{Error, Result, note, output_file::check_outputs, say};
use wavefield_run::{Batching, Stop};
use wavefield_serve::{ServeOptions, end_when_closed, serve_headless, serve_windowed};
use wavefield_window::run_windowed;
#[cfg(feature = "web")]
use wavefield_window::web::{Web, run_remote};

use super::args::RunArgs;
use super::connect::connect;
use super::help;
use super::outcome::show;

const EXAMPLES: &str = "  wavefield serve                                a window for one client at a time
  wavefield serve --web                          the window in a browser
  wavefield serve --headless --socket /tmp/w.sock
  wavefield serve --verify --json clients.json   checks every frame, and writes what each client cost";

#[derive(Args)]
#[command(after_help = help::end(EXAMPLES))]
pub(super) struct ServeArgs {
    #[command(flatten)]
    run: RunArgs,
    #[cfg(feature = "web")]
    #[command(flatten)]
    web: super::web::WebArgs,
    /// Show the window to the program at the other end of a socket pair, as the Python package's widget does.
    #[cfg(feature = "web")]
    #[arg(long, value_name = "FD", hide = true, conflicts_with_all = ["web", "headless"])]
    viewer: Option<u32>,
    #[command(flatten)]
    options: ServeOptions,
    /// Check every stamp of every frame: it must be the frame's number (docs/protocol.md). If any is
    /// wrong, the exit code is 1.
    #[arg(long, help_heading = help::DIAGNOSIS)]
    verify: bool,
}

/// Runs until `stop` is requested or `--frames` frames are drawn.
pub(super) fn execute(args: ServeArgs, matches: &ArgMatches, stop: &Stop) -> Result<()> {
    let options = args.options;
    if let Some(number) = options.until_closed {
        let parent =
            inherited(number as RawFd).map_err(|reason| Error::Usage(format!("--until-closed: {reason}")))?;
        // Every wait for the GPU ends after --timeout, so only a driver call that never returns takes longer.
        end_when_closed(parent, stop, args.run.config.timeout + Duration::from_secs(10))?;
    }
    let headless = args.run.headless;
    let has_batch = args.run.has_batch();
    let mut config = args.run.config(headless, matches)?;
    config.verify = args.verify;
    if !has_batch {
        // A client may change parameters at any time, and frames filled ahead would show the change late.
        config.batch = Batching::Fixed(1);
    }
    if config.record.is_some() {
        return Err(Error::Usage("--record is for a plain run: `serve` has snapshots instead".into()));
    }
    if config.trace.is_some() {
        return Err(Error::Usage(
            "--trace follows one producer, and `serve` changes producers: trace a plain run".into(),
        ));
    }
    check_outputs(config.output.iter().chain(&options.json))?;
    #[cfg(feature = "web")]
    let viewer = args.viewer.map(|number| {
        let stream =
            inherited(number as RawFd).map_err(|reason| Error::Usage(format!("--viewer: {reason}")))?;
        Web::through(stream)
    });
    #[cfg(feature = "web")]
    if let Some(web) = viewer.or_else(|| args.web.open(headless).transpose()).transpose()? {
        return show(run_remote(web, &config, stop, Some(serve_windowed(&config, &options, stop)?))?);
    }
    if !headless {
        match connect(&config, stop) {
            Ok(mut event_loop) => {
                let hook = serve_windowed(&config, &options, stop)?;
                return show(run_windowed(&mut event_loop, &config, stop, Some(hook))?);
            }
            Err(error) => {
                note!("note: {error}; running headless");
                #[cfg(feature = "web")]
                super::web::advise("wavefield serve --web");
            }
        }
    }
    show(serve_headless(&config, &options, stop)?)?;
    if let Some(path) = &config.output {
        say!("picture       {}", path.display());
    }
    Ok(())
}

/// Returns the descriptor with this number, if this process inherited it from its parent.
fn inherited(number: RawFd) -> Result<OwnedFd, String> {
    if number < 3 {
        return Err("0, 1 and 2 are the standard streams: give a descriptor from 3 on".into());
    }
    // SAFETY: the descriptor is passed only to `fcntl` and `fstat`, which fail if it is not open.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    // This process opens all of its own descriptors with `CLOEXEC`. An inherited descriptor lacks this flag.
    let flags = rustix::io::fcntl_getfd(descriptor);
    if flags.map_or(true, |flags| flags.contains(FdFlags::CLOEXEC)) {
        return Err(format!("descriptor {number} was not passed to this program"));
    }
    let kind = rustix::fs::fstat(descriptor).map(|found| FileType::from_raw_mode(found.st_mode));
    if !matches!(kind, Ok(FileType::Fifo | FileType::Socket)) {
        return Err(format!("descriptor {number} is neither a pipe nor a socket"));
    }
    // Child processes must not inherit the descriptor.
    rustix::io::fcntl_setfd(descriptor, FdFlags::CLOEXEC)
        .map_err(|error| format!("descriptor {number}: {error}"))?;
    // SAFETY: the descriptor is open, and it was inherited, so nothing else in this process owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
