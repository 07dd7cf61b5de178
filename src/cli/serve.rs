//! `wavefield serve`: the arguments.

use std::path::PathBuf;

use clap::Args;
use wavefield::app::{EventLoop, Stop};
use wavefield::serve::{Options, serve_headless, serve_windowed};
use wavefield::{Error, Result, check_outputs, note, say};

#[derive(Args)]
pub struct ServeArgs {
    #[command(flatten)]
    run: super::RunArgs,
    /// Listen here [default: $XDG_RUNTIME_DIR/wavefield.sock, or /tmp/wavefield-UID/wavefield.sock].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Let the GPU wait for a client's signals without looking first: only to measure what looking costs. A client that
    /// stops then stops the picture.
    #[arg(long)]
    trust: bool,
    /// Check every vertex of every frame: w must carry the frame's number, as docs/protocol.md says. Ends with exit code 1
    /// if any does not.
    #[arg(long)]
    verify: bool,
    /// Headless, draws a second while there is nothing new to draw; 0 draws without a pause.
    #[arg(long, value_name = "HZ", default_value = "60", value_parser = parse_pace)]
    pace: f64,
    /// Write what was measured of each client, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs until it is ended, or `--frames` are drawn.
pub fn execute(args: ServeArgs, stop: &Stop) -> Result<()> {
    let options = Options {
        socket: args.socket,
        trust: args.trust,
        pace: args.pace,
        json: args.json,
        // This very program, wherever its file is by now.
        try_with: Some("/proc/self/exe".into()),
    };
    let headless = args.run.headless;
    let mut config = args.run.config()?;
    config.verify = args.verify;
    if config.trace.is_some() {
        return Err(Error::Usage(
            "--trace follows one producer, and here they change: trace a plain run".into(),
        ));
    }
    check_outputs(config.output.iter().chain(&options.json))?;
    if !headless {
        match EventLoop::new() {
            Ok(mut event_loop) => {
                let ended = serve_windowed(&mut event_loop, &config, &options, stop)?;
                return super::show(ended);
            }
            Err(error) => note!("note: {error}; running headless"),
        }
    }
    super::show(serve_headless(&config, &options, stop)?)?;
    if let Some(path) = &config.output {
        say!("picture       {}", path.display());
    }
    Ok(())
}

fn parse_pace(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(pace) if pace == 0.0 || (1.0..=10_000.0).contains(&pace) => Ok(pace),
        _ => Err(format!("`{text}` is neither 0 nor a number from 1 to 10000")),
    }
}
