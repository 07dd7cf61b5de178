//! `wavefield try-kernel`: tries a new kernel in a child process. Hidden from `--help`.
//!
//! The child reads the PTX from standard input, writes to standard output once the kernel is launched, and
//! reports errors on standard error. Exit codes: 0 the kernel ran to its end, 1 it did not, 2 wrong usage.
//! An example:
//!
//! ```sh
//! wavefield try-kernel --device UUID --grid 64x64 --entry wave < kernels/wave.ptx
//! ```

use std::io::Read;

use clap::Args;
use vulkan_cuda::DeviceUuid;
use wavefield_gpu::cuda::MAX_PTX;
use wavefield_gpu::{Error, Result};
use wavefield_handoff::contents::wave::Grid;
use wavefield_run::parse;

#[derive(Args)]
pub(super) struct TryKernelArgs {
    /// The UUID of the CUDA device, as `wavefield devices` prints it.
    #[arg(long, value_name = "UUID", value_parser = parse::uuid)]
    device: DeviceUuid,
    /// Columns and rows of vertices.
    #[arg(long, value_name = "COLSxROWS", value_parser = parse::grid)]
    grid: Grid,
    /// The `.entry` to run.
    #[arg(long, value_name = "NAME", value_parser = parse::name)]
    entry: String,
    /// End when this process ends; it must be the parent.
    #[arg(long, value_name = "PID", value_parser = parse::whole(1, i32::MAX as u64))]
    parent: Option<u64>,
}

pub(super) fn execute(args: TryKernelArgs) -> Result<()> {
    if let Some(parent) = args.parent {
        wavefield_run::child_process::end_with_parent(parent as u32)?;
    }
    let mut ptx = Vec::new();
    let read = std::io::stdin().take(MAX_PTX + 1).read_to_end(&mut ptx);
    let unusable =
        |problem: String| Error::Unsupported(format!("cannot use standard input as PTX: {problem}"));
    read.map_err(|error| unusable(error.to_string()))?;
    if ptx.len() as u64 > MAX_PTX {
        return Err(unusable(format!("more than {MAX_PTX} bytes")));
    }
    let ptx = String::from_utf8(ptx).map_err(|_| unusable("it is not text".into()))?;
    wavefield_run::child_process::try_kernel(args.device, ptx, args.entry, args.grid)
}
