//! `wavefield encode-gif`: the encoder of the Python package's films. Hidden from `--help`.
//!
//! Standard input has pictures of this size, one behind the other: RGBA, opaque, rows from the top. The file is written whole
//! at their end, or not at all.

use std::path::PathBuf;

use ash::vk;
use clap::Args;
use wavefield_gpu::Result;
use wavefield_run::{parse, watch::recording::encode_gif};

#[derive(Args)]
pub(super) struct EncodeGifArgs {
    /// Columns and rows of pixels.
    #[arg(long, value_name = "WIDTHxHEIGHT", value_parser = parse::size)]
    size: vk::Extent2D,
    /// Pictures per second, at most 50.
    #[arg(long, value_name = "N", value_parser = rate)]
    rate: f64,
    /// The GIF to write.
    path: PathBuf,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (1e-3..=50.0).contains(rate));
    rate.ok_or_else(|| format!("{text} is not a number from 0.001 to 50"))
}

pub(super) fn execute(args: EncodeGifArgs) -> Result<()> {
    encode_gif(std::io::stdin().lock(), &args.path, args.size, args.rate)
}
