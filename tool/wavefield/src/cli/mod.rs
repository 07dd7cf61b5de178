//! The command line: one file for each command, and the code that the commands share.

mod args;
#[cfg(feature = "bench")]
mod bench;
mod connect;
mod devices;
mod encode_gif;
mod help;
mod outcome;
mod run;
#[cfg(all(feature = "serve", target_os = "linux"))]
mod serve;
#[cfg(test)]
mod tests;
#[cfg(target_os = "linux")]
mod try_import;
#[cfg(target_os = "linux")]
mod try_kernel;
mod verify;
#[cfg(all(feature = "web", target_os = "linux"))]
mod web;

use clap::{ArgMatches, Parser, Subcommand};
use wavefield_gpu::Result;
use wavefield_run::Stop;

/// CUDA fills a field of vertices, Vulkan draws it, and nothing is copied.
///
/// In the window: drag to turn, wheel to zoom, F1 lists the keys.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true, after_help = help::end(run::EXAMPLES))]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: run::PlainArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Draw the field (the default command).
    #[command(after_help = help::end(run::EXAMPLES))]
    Run(run::PlainArgs),
    /// List the devices of both APIs, and which one would be used.
    Devices(devices::DevicesArgs),
    /// Draw what another process writes: the Python package, or any client of docs/protocol.md.
    #[cfg(all(feature = "serve", target_os = "linux"))]
    Serve(serve::ServeArgs),
    /// Run the PTX on standard input once. A renderer starts this for each kernel that is reloaded: see `try_kernel.rs`.
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    TryKernel(try_kernel::TryKernelArgs),
    /// Import memory once. A renderer starts this for each import that a client asks for: see `try_import.rs`.
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    TryImport(try_import::TryImportArgs),
    /// Write a GIF of the pictures on standard input. The Python package starts this: see `encode_gif.rs`.
    #[command(hide = true)]
    EncodeGif(encode_gif::EncodeGifArgs),
    /// Measure what each hand-off costs.
    #[cfg(feature = "bench")]
    Bench(Box<bench::BenchArgs>),
    /// Check every vertex of every frame, or every texel of every level: is any stale, torn or missing?
    Verify(verify::VerifyArgs),
}

impl Cli {
    /// Returns false for trials: a signal must always end them.
    pub(crate) fn handles_signals(&self) -> bool {
        #[cfg(target_os = "linux")]
        return !matches!(self.command, Some(Command::TryKernel(_) | Command::TryImport(_)));
        #[cfg(not(target_os = "linux"))]
        true
    }

    /// `matches` are clap's, of the whole command line.
    pub(crate) fn execute(self, matches: &ArgMatches, stop: &Stop) -> Result<()> {
        let matches = matches.subcommand().map_or(matches, |(_, matches)| matches);
        match self.command {
            None => run::execute(self.run, matches, stop),
            Some(Command::Run(args)) => run::execute(args, matches, stop),
            Some(Command::Devices(args)) => devices::execute(args),
            #[cfg(all(feature = "serve", target_os = "linux"))]
            Some(Command::Serve(args)) => serve::execute(args, matches, stop),
            #[cfg(target_os = "linux")]
            Some(Command::TryKernel(args)) => try_kernel::execute(args),
            #[cfg(target_os = "linux")]
            Some(Command::TryImport(args)) => try_import::execute(args),
            Some(Command::EncodeGif(args)) => encode_gif::execute(args),
            #[cfg(feature = "bench")]
            Some(Command::Bench(args)) => bench::execute(*args, stop),
            Some(Command::Verify(args)) => verify::execute(args, matches, stop),
        }
    }
}
