//! One memory, two addresses: Vulkan allocates and exports, CUDA imports and writes, Vulkan reads. Here the
//! CPU waits between the two. In the next example it does not.
//!
//! ```sh
//! cargo run -p vulkan-cuda --example 02_share
//! ```

use std::error::Error;

use ash::vk;
use vulkan_cuda::SharedBuffer;
use vulkan_cuda::ownership::{Access, Owner};

#[path = "fill/mod.rs"]
mod fill;
#[path = "01_match.rs"]
mod match_devices;
#[path = "readback/mod.rs"]
mod readback;

const WORDS: usize = 1024;
const BYTES: u64 = 4 * WORDS as u64;

pub fn run() -> Result<(), Box<dyn Error>> {
    let gpu = match_devices::open()?;
    let shared = SharedBuffer::new(&gpu.pair, BYTES, vk::BufferUsageFlags::TRANSFER_SRC)?;

    // CUDA writes. A kernel takes the address as it takes any other.
    let (kernel, stream) = (fill::load(&gpu.cuda)?, gpu.cuda.new_stream()?);
    // SAFETY: the buffer has this many words, and nothing else uses it yet.
    unsafe { fill::launch(&kernel, &stream, shared.cuda(), WORDS, 1) }?;
    stream.synchronize()?;

    // Vulkan reads. CUDA owns the buffer, so Vulkan acquires it from `VK_QUEUE_FAMILY_EXTERNAL` first.
    let target = readback::Target::new(&gpu, BYTES)?;
    let copies = vk::PipelineStageFlags2::ALL_TRANSFER;
    let access = Access { stage: copies, access: vk::AccessFlags2::TRANSFER_READ };
    let acquire = [Owner::External.acquire(shared.vulkan(), gpu.family, access)];
    target.run(&gpu, |device, commands| {
        let barriers = vk::DependencyInfo::default().buffer_memory_barriers(&acquire);
        let copy = [vk::BufferCopy::default().size(BYTES)];
        // SAFETY: being recorded; both buffers have this many bytes.
        unsafe {
            device.cmd_pipeline_barrier2(commands, &barriers);
            device.cmd_copy_buffer(commands, shared.vulkan(), target.buffer, &copy);
        }
    })?;
    if let Some(wrong) = fill::wrong(&target.words()?, 1) {
        return Err(format!("Vulkan did not read what CUDA wrote, at word {wrong}").into());
    }
    println!("CUDA wrote {BYTES} bytes at {:#x}, and Vulkan read the same", shared.cuda());
    Ok(())
}

#[allow(dead_code)]
fn main() -> Result<(), Box<dyn Error>> {
    match_devices::report(run())
}
