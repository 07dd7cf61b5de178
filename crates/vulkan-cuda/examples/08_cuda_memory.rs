//! The other direction: CUDA allocates and exports, Vulkan imports. This is for memory that another library
//! has placed, such as a tensor.
//!
//! ```sh
//! cargo run -p vulkan-cuda --example 08_cuda_memory
//! ```
//!
//! The table in [`vulkan_cuda::cuda_memory`] tells who owns what, and for how long. The example has three
//! parts: memory in one chunk, memory that spans two, and a descriptor from a stranger (in
//! [`cuda_memory/stranger.rs`](cuda_memory/stranger.rs)).

use std::error::Error;
use std::process::Command;

use ash::vk;
use cudarc::driver::sys;
use vulkan_cuda::Error::DeviceLacks;
use vulkan_cuda::layout::Range;
use vulkan_cuda::ownership::{Access, Owner};
use vulkan_cuda::{CudaAllocation, CudaBuffer};

use match_devices::Gpu;

#[path = "fill/mod.rs"]
mod fill;
#[path = "01_match.rs"]
mod match_devices;
#[path = "readback/mod.rs"]
mod readback;
#[cfg(unix)]
#[path = "cuda_memory/stranger.rs"]
pub mod stranger;

const USAGE: vk::BufferUsageFlags = vk::BufferUsageFlags::TRANSFER_SRC;

/// `child` is a command that starts this program again: see [`stranger`].
pub fn run(child: Command) -> Result<(), Box<dyn Error>> {
    let gpu = open()?;
    one_chunk(&gpu)?;
    two_chunks(&gpu)?;
    #[cfg(unix)]
    stranger::show(&gpu, child)?;
    // On other systems the first part has already failed.
    #[cfg(not(unix))]
    drop(child);
    Ok(())
}

/// Opens a device with `sparseBinding`, if it has that feature. Only memory that spans several chunks needs
/// it.
fn open() -> Result<Gpu, Box<dyn Error>> {
    match_devices::open_with(|has| {
        vk::PhysicalDeviceFeatures::default().sparse_binding(has.sparse_binding == vk::TRUE)
    })
}

/// A tensor that lies anywhere in memory that CUDA allocated.
fn one_chunk(gpu: &Gpu) -> Result<(), Box<dyn Error>> {
    let allocation = CudaAllocation::new(gpu.pair.cuda(), 1 << 20)?;
    let tensor = Range { offset: 4096, size: 4000 };
    let view = CudaBuffer::new(&gpu.pair, &allocation, tensor, USAGE)?;
    // The view keeps the allocation alive, and with it CUDA's address.
    drop(allocation);
    write(gpu, view.cuda().ok_or("no address")?, tensor.size, 1)?;
    check(gpu, view.vulkan(), tensor.size, 1)?;
    println!("CUDA allocated, and Vulkan read {tensor}");
    Ok(())
}

/// A tensor that spans two allocations. They are neighbours only in CUDA's address space.
fn two_chunks(gpu: &Gpu) -> Result<(), Box<dyn Error>> {
    let allocation = CudaAllocation::in_chunks(gpu.pair.cuda(), &[1, 1])?;
    let half = 64 << 10;
    let tensor = Range { offset: allocation.chunks()[0] - half, size: 2 * half };
    write(gpu, allocation.pointer() + tensor.offset, tensor.size, 2)?;

    // An ordinary buffer is bound to one allocation.
    let Err(refused) = CudaBuffer::new(&gpu.pair, &allocation, tensor, USAGE) else {
        return Err("a buffer was bound to two allocations".into());
    };
    println!("refused: {refused}");
    // A sparse buffer is bound piece by piece. SAFETY: `open` enabled `sparseBinding` if the device has it;
    // the queue is idle, and nothing else uses it.
    match unsafe { CudaBuffer::spanning(&gpu.pair, &allocation, tensor, USAGE, (gpu.queue, gpu.family)) } {
        Ok(view) => {
            check(gpu, view.vulkan(), tensor.size, 2)?;
            println!("bound sparsely, Vulkan read {tensor} of two allocations");
        }
        Err(DeviceLacks(why)) => println!("refused: {why}"),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// CUDA writes every word. Returns when it is done.
fn write(gpu: &Gpu, address: sys::CUdeviceptr, bytes: u64, frame: u64) -> Result<(), Box<dyn Error>> {
    let (kernel, stream) = (fill::load(&gpu.cuda)?, gpu.cuda.new_stream()?);
    // SAFETY: this many bytes are mapped there, and nothing else uses them.
    unsafe { fill::launch(&kernel, &stream, address, bytes as usize / 4, frame) }?;
    // The CPU waits, as in 02_share. With a `SharedRing` of such buffers it would not.
    Ok(stream.synchronize()?)
}

/// Vulkan reads. CUDA wrote last, so Vulkan acquires the buffer from `VK_QUEUE_FAMILY_EXTERNAL`, whichever
/// API allocated it.
fn check(gpu: &Gpu, buffer: vk::Buffer, bytes: u64, frame: u64) -> Result<(), Box<dyn Error>> {
    let target = readback::Target::new(gpu, bytes)?;
    let copies = vk::PipelineStageFlags2::ALL_TRANSFER;
    let access = Access { stage: copies, access: vk::AccessFlags2::TRANSFER_READ };
    let acquire = [Owner::External.acquire(buffer, gpu.family, access)];
    target.run(gpu, |device, commands| {
        let barriers = vk::DependencyInfo::default().buffer_memory_barriers(&acquire);
        let copy = [vk::BufferCopy::default().size(bytes)];
        // SAFETY: being recorded; both buffers have this many bytes.
        unsafe {
            device.cmd_pipeline_barrier2(commands, &barriers);
            device.cmd_copy_buffer(commands, buffer, target.buffer, &copy);
        }
    })?;
    match fill::wrong(&target.words()?, frame) {
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
