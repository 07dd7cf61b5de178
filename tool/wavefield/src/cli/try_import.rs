//! `wavefield try-import`: tries to import a client's memory, in a child process of the renderer. Hidden from
//! `--help`.
//!
//! Standard input is a socket with one packet of descriptors. The child writes to standard output once both
//! devices are open, and reports errors on standard error. Exit codes: 0 the memory can be imported, 1 it
//! cannot, 2 wrong usage.

use clap::Args;
use vulkan_cuda::DeviceUuid;
use wavefield_gpu::Result;
use wavefield_run::parse;

#[derive(Args)]
pub(super) struct TryImportArgs {
    /// The UUID of the device, as `wavefield devices` prints it.
    #[arg(long, value_name = "UUID", value_parser = parse::uuid)]
    device: DeviceUuid,
    /// The UUID of its Vulkan driver.
    #[arg(long, value_name = "UUID", value_parser = parse::uuid)]
    driver: DeviceUuid,
    /// The usage of the memory: VkBufferUsageFlags.
    #[arg(long, value_name = "FLAGS")]
    usage: u32,
    /// The size of each chunk in bytes.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', required = true)]
    chunks: Vec<u64>,
    /// End when this process ends; it must be the parent.
    #[arg(long, value_name = "PID", value_parser = parse::whole(1, i32::MAX as u64))]
    parent: Option<u64>,
}

pub(super) fn execute(args: TryImportArgs) -> Result<()> {
    if let Some(parent) = args.parent {
        wavefield_run::child_process::end_with_parent(parent as u32)?;
    }
    wavefield_run::child_process::try_import(args.device, args.driver, args.usage, &args.chunks)
}
