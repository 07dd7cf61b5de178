//! `wavefield run`, and `wavefield` without a command.

use clap::{ArgMatches, Args};
use wavefield_gpu::{Result, note, output_file::check_outputs, say};
use wavefield_handoff::contents::gallery;
use wavefield_run::{Config, Stop, run_headless};
use wavefield_window::run_windowed;
#[cfg(all(feature = "web", target_os = "linux"))]
use wavefield_window::web::run_remote;

use super::args::RunArgs;
use super::connect::connect;
use super::outcome::show;
#[cfg(all(feature = "web", target_os = "linux"))]
use super::web::WebArgs;

pub(super) const EXAMPLES: &str =
    "  wavefield                                              a window; with CUDA if available
  wavefield --web                                        the window in a browser (on Linux)
  wavefield --headless --output wave.png                 the last frame as a picture
  wavefield --headless --grid 4096x4096 --ring 8         a larger field, a deeper ring
  wavefield --kernel ocean                               another kernel than the wave
  wavefield --headless --frames 300 --record wave.gif    five seconds as a film
  wavefield --headless --frames 60 --trace frames.svg    what ran when, as a picture";

#[derive(Args)]
pub(super) struct PlainArgs {
    #[command(flatten)]
    pub run: RunArgs,
    #[cfg(all(feature = "web", target_os = "linux"))]
    #[command(flatten)]
    web: WebArgs,
}

pub(super) fn execute(args: PlainArgs, matches: &ArgMatches, stop: &Stop) -> Result<()> {
    let headless = args.run.headless;
    args.run.check_ring()?;
    let kernel = args.run.kernel.kernel.clone();
    let reload = kernel.filter(|argument| matches!(gallery::named(argument), Ok(None)));
    let mut config = Config { reload, ..args.run.config(headless, matches)? };
    check_outputs(config.output.iter().chain(&config.record).chain(&config.trace))?;
    #[cfg(all(feature = "web", target_os = "linux"))]
    if let Some(web) = args.web.open(headless)? {
        return show(run_remote(web, &config, stop, None)?);
    }
    if !headless {
        match connect(&config, stop) {
            Ok(mut event_loop) => return show(run_windowed(&mut event_loop, &config, stop, None)?),
            Err(error) => {
                note!("note: {error}; running headless, the last frame goes to wavefield.png");
                #[cfg(all(feature = "web", target_os = "linux"))]
                super::web::advise("wavefield --web");
                config.output = Some("wavefield.png".into());
            }
        }
    }
    show(run_headless(&config, stop)?)?;
    match &config.output {
        Some(path) => say!("picture       {}", path.display()),
        None if config.record.is_some() => {}
        None => say!("picture       none; --output FILE.png writes the last frame"),
    }
    Ok(())
}
