//! The other direction: CUDA allocates and exports, Vulkan imports. This is for memory that is where it is, a tensor for instance.
//!
//! ```sh
//! cargo run -p vulkan-cuda --example 08_cuda_memory
//! ```
//!
//! Who owns what, and who must outlive whom, is in the table of [`vulkan_cuda::cuda_memory`]. The example has three parts: memory in
//! one chunk, memory that spans two, and a descriptor from a stranger (in [`cuda_memory/stranger.rs`](cuda_memory/stranger.rs)).

use std::error::Error;
use std::process::Command;

use ash::vk;
use cudarc::driver::sys;
use vulkan_cuda::Error::Unsupported;
use vulkan_cuda::layout::Range;
use vulkan_cuda::ownership::{Access, Owner};
use vulkan_cuda::{CudaAllocation, ImportedBuffer};

use match_devices::Gpu;

#[path = "01_match.rs"]
mod match_devices;
#[path = "readback/mod.rs"]
mod readback;
#[cfg(unix)]
#[path = "cuda_memory/stranger.rs"]
pub mod stranger;

const USAGE: vk::BufferUsageFlags = vk::BufferUsageFlags::TRANSFER_SRC;

/// `child` starts this program once more: see [`stranger`].
pub fn run(child: Command) -> Result<(), Box<dyn Error>> {
    let gpu = open()?;
    one_chunk(&gpu)?;
    two_chunks(&gpu)?;
    #[cfg(unix)]
    stranger::show(&gpu, child)?;
    // There the first part has said that it cannot be done.
    #[cfg(not(unix))]
    drop(child);
    Ok(())
}

/// With `sparseBinding`, where the device has it: only memory that spans several chunks needs that.
fn open() -> Result<Gpu, Box<dyn Error>> {
    match_devices::open_with(|has| {
        vk::PhysicalDeviceFeatures::default().sparse_binding(has.sparse_binding == vk::TRUE)
    })
}

/// A tensor somewhere in memory that CUDA allocated.
fn one_chunk(gpu: &Gpu) -> Result<(), Box<dyn Error>> {
    let allocation = CudaAllocation::new(gpu.pair.cuda(), 1 << 20)?;
    let tensor = Range { offset: 4096, size: 4000 };
    let view = ImportedBuffer::new(&gpu.pair, &allocation, tensor, USAGE)?;
    // The view keeps CUDA's address alive, so the allocation may go out of sight.
    drop(allocation);
    fill(gpu, view.cuda().ok_or("no address")?, tensor.size, 0xC0DA_0001)?;
    check(gpu, view.vulkan(), tensor.size, 0xC0DA_0001)?;
    println!("CUDA allocated, and Vulkan read {tensor}");
    Ok(())
}

/// A tensor over the seam of two allocations, which only CUDA's address space puts side by side.
fn two_chunks(gpu: &Gpu) -> Result<(), Box<dyn Error>> {
    let allocation = CudaAllocation::in_chunks(gpu.pair.cuda(), &[1, 1])?;
    let half = 64 << 10;
    let tensor = Range { offset: allocation.chunks()[0] - half, size: 2 * half };
    fill(gpu, allocation.pointer() + tensor.offset, tensor.size, 0xC0DA_0002)?;

    // One buffer is bound to one allocation.
    let Err(refused) = ImportedBuffer::new(&gpu.pair, &allocation, tensor, USAGE) else {
        return Err("a buffer was bound to two allocations".into());
    };
    println!("refused: {refused}");
    // A sparse one is bound piece by piece.
    // SAFETY: `open` enabled `sparseBinding` where the device has it; the queue is idle, and nobody else's.
    match unsafe { ImportedBuffer::spanning(&gpu.pair, &allocation, tensor, USAGE, (gpu.queue, gpu.family)) }
    {
        Ok(view) => {
            check(gpu, view.vulkan(), tensor.size, 0xC0DA_0002)?;
            println!("bound sparsely, Vulkan read {tensor} of two allocations");
        }
        Err(Unsupported(why)) => println!("refused: {why}"),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// CUDA writes `value` to every word, and is done.
fn fill(gpu: &Gpu, address: sys::CUdeviceptr, bytes: u64, value: u32) -> Result<(), Box<dyn Error>> {
    let stream = gpu.cuda.new_stream()?;
    // SAFETY: so many bytes are mapped there, and nobody else uses them.
    unsafe { sys::cuMemsetD32Async(address, value, bytes as usize / 4, stream.cu_stream()) }.result()?;
    // The CPU waits, as in 02_share. A `SharedRing` of such buffers does without.
    Ok(stream.synchronize()?)
}

/// Vulkan reads. Whoever allocated: CUDA has written, so Vulkan acquires the buffer from `VK_QUEUE_FAMILY_EXTERNAL`.
fn check(gpu: &Gpu, buffer: vk::Buffer, bytes: u64, value: u32) -> Result<(), Box<dyn Error>> {
    let target = readback::Target::new(gpu, bytes)?;
    let copies = vk::PipelineStageFlags2::ALL_TRANSFER;
    let access = Access { stage: copies, access: vk::AccessFlags2::TRANSFER_READ };
    let acquire = [Owner::External.acquire(buffer, gpu.family, access)];
    target.run(gpu, |device, commands| {
        let barriers = vk::DependencyInfo::default().buffer_memory_barriers(&acquire);
        let copy = [vk::BufferCopy::default().size(bytes)];
        // SAFETY: being recorded; both buffers have so many bytes.
        unsafe {
            device.cmd_pipeline_barrier2(commands, &barriers);
            device.cmd_copy_buffer(commands, buffer, target.buffer, &copy);
        }
    })?;
    match target.words()?.iter().position(|&word| word != value) {
        None => Ok(()),
        Some(wrong) => Err(format!("Vulkan did not read what CUDA wrote, at word {wrong}").into()),
    }
}

#[allow(dead_code)]
fn main() -> Result<(), Box<dyn Error>> {
    #[cfg(unix)]
    if stranger::is_child() {
        stranger::be_child();
    }
    match_devices::report(run(Command::new(std::env::current_exe()?)))
}
