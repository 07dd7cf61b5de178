//! `wavefield try-import`: the child process in which memory that a client allocated is imported first, hidden from `--help`.
//!
//! The descriptors come by a packet over the socket that standard input is. It says on standard output when both devices are open, and on
//! standard error what went wrong. Exit codes as everywhere: 0 it can be imported, 1 it cannot, 2 wrong usage.

use clap::Args;
use vulkan_cuda::DeviceUuid;
use wavefield::Result;

use super::parse;

#[derive(Args)]
pub struct TryImportArgs {
    /// The UUID of the device, as `wavefield devices` has it.
    #[arg(long, value_name = "UUID", value_parser = parse::uuid)]
    device: DeviceUuid,
    /// What the memory is used for: VkBufferUsageFlags.
    #[arg(long, value_name = "FLAGS")]
    usage: u32,
    /// The bytes of each chunk.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', required = true)]
    chunks: Vec<u64>,
    /// End as soon as this process, which must be the parent, has ended.
    #[arg(long, value_name = "PID", value_parser = parse::Whole(1, i32::MAX as u64))]
    parent: Option<u64>,
}

pub fn execute(args: TryImportArgs) -> Result<()> {
    if let Some(parent) = args.parent {
        wavefield::trial::end_with_parent(parent as u32)?;
    }
    wavefield::trial::try_import(args.device, args.usage, &args.chunks)
}
