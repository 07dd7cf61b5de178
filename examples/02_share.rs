//! One memory, two addresses: Vulkan allocates and exports, CUDA imports and writes, Vulkan reads. The CPU orders the two
//! by waiting; the next example does without.
//!
//! ```sh
//! cargo run --example 02_share
//! ```

pub mod common;

use ash::vk;
use common::{Gpu, Outcome};
use wavefield::Result;
use wavefield::interop::SharedBuffer;
use wavefield::interop::ownership::Owner;
use wavefield::vulkan::read_buffer;

fn main() -> std::process::ExitCode {
    common::exit(run())
}

/// Shares a buffer, and prints what came through it.
pub fn run() -> Result<Outcome> {
    let mut gpu = match Gpu::open()? {
        Ok(gpu) => gpu,
        Err(reason) => return Ok(Outcome::Skipped(reason)),
    };
    // 16 bytes a vertex, as every kernel of wavefield's signature writes.
    let (cols, rows, frame) = (64, 4, 7);
    let size = u64::from(cols * rows) * 16;
    let shared = SharedBuffer::new(&gpu.device, &gpu.context, size, vk::BufferUsageFlags::TRANSFER_SRC)?;

    let kernel = gpu.count()?;
    // SAFETY: `count` has the documented signature, the buffer has 16 bytes a vertex, and Vulkan does not touch it before
    // the stream is idle.
    unsafe { kernel.launch(&gpu.stream, shared.cuda(), cols, rows, frame, 0.0) }?;
    gpu.stream.synchronize()?;

    // CUDA owns the buffer, so Vulkan acquires it from `VK_QUEUE_FAMILY_EXTERNAL` before it copies.
    let bytes = read_buffer(&mut gpu.queue, shared.vulkan(), size, Owner::External)?;
    common::check("what Vulkan read", &bytes, |index| common::counted(frame, index))?;
    println!(
        "CUDA wrote {size} bytes at {:#x}, and Vulkan read the same: {:?} …",
        shared.cuda(),
        &bytes[..8]
    );
    Ok(Outcome::Done)
}
