//! Another CUDA library, with its own stream, works on a shared slot and gives it back. The seven steps are those of ArrayFire's
//! guide to interoperability with CUDA (<https://arrayfire.org/docs/interop_cuda.htm>). They hold for any such library. The
//! repository's `examples/arrayfire` takes them with ArrayFire itself.
//!
//! ```sh
//! cargo run -p vulkan-cuda --example 04_another_library
//! ```

use std::error::Error;
use std::sync::Arc;

use ash::vk;
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, DriverError};
use vulkan_cuda::ownership::{Access, Owner};
use vulkan_cuda::{SharedBuffer, SharedTimeline};

#[path = "fill/mod.rs"]
mod fill;
#[path = "01_match.rs"]
mod match_devices;
#[path = "readback/mod.rs"]
mod readback;

const WORDS: usize = 1024;
const BYTES: u64 = 4 * WORDS as u64;
const OURS: u64 = 1;
const THEIRS: u64 = 2;

pub fn run() -> Result<(), Box<dyn Error>> {
    let gpu = match_devices::open()?;
    let slot = SharedBuffer::new(&gpu.pair, BYTES, vk::BufferUsageFlags::TRANSFER_SRC)?;
    // Tells each stream on the GPU whose turn it is. 1: we have written. 2: the library has written.
    let turn = SharedTimeline::new(&gpu.pair)?;
    let (kernel, stream) = (fill::load(&gpu.cuda)?, gpu.cuda.new_stream()?);
    let library = Library::new(&gpu.cuda)?;

    // SAFETY: the slot has this many words, and nothing else uses it yet.
    unsafe { fill::launch(&kernel, &stream, slot.cuda(), WORDS, OURS) }?;
    // 1. Finish pending work. Our stream signals, and the library's stream waits for the signal, so the CPU need not wait. If a
    //    library hides its stream, call `stream.synchronize()` here instead.
    // SAFETY: (also for steps 4 and 6) the timeline lives until both streams are idle, below.
    unsafe {
        turn.cuda_signal(&stream, 1)?;
        turn.cuda_wait(&library.stream, 1)?;
    }
    // 2. Wrap the pointer. The borrow means that the slot stays ours: the library's memory manager must not free it.
    //    (ArrayFire: `Array::new_from_device_ptr`, then `lock`.)
    let array = Array { pointer: slot.cuda(), words: WORDS, _owner: &slot };
    // 3. Work.
    library.fill_second_half(&array)?;
    // 4. Evaluate, and synchronize the library's stream. Our stream does not wait for it unless told to. (ArrayFire: `eval`,
    //    then `sync`.)
    unsafe { turn.cuda_signal(&library.stream, 2) }?;
    library.stream.synchronize()?;
    // 5. Hand back. The wrapper is not used after step 3, so its borrow ends there. The memory stays ours.
    // 6. Go on, after the library's work.
    unsafe { turn.cuda_wait(&stream, 2) }?;
    stream.synchronize()?;

    let target = readback::Target::new(&gpu, BYTES)?;
    let copies = vk::PipelineStageFlags2::ALL_TRANSFER;
    let access = Access { stage: copies, access: vk::AccessFlags2::TRANSFER_READ };
    let acquire = [Owner::External.acquire(slot.vulkan(), gpu.family, access)];
    target.run(&gpu, |device, commands| {
        let barriers = vk::DependencyInfo::default().buffer_memory_barriers(&acquire);
        let copy = [vk::BufferCopy::default().size(BYTES)];
        // SAFETY: being recorded; both buffers have this many bytes.
        unsafe {
            device.cmd_pipeline_barrier2(commands, &barriers);
            device.cmd_copy_buffer(commands, slot.vulkan(), target.buffer, &copy);
        }
    })?;
    let words = target.words()?;
    let (ours, theirs) = words.split_at(WORDS / 2);
    for (whose, half, frame) in [("our", ours, OURS), ("the library's", theirs, THEIRS)] {
        if let Some(wrong) = fill::wrong(half, frame) {
            return Err(format!("{whose} half is wrong at word {wrong}").into());
        }
    }
    println!("another library wrote half of {WORDS} words in place, and Vulkan read them");
    // 7. Each side frees what it owns: the library its stream, we the slot and the timeline. The GPU is done with all of them.
    Ok(())
}

/// Memory that the library works on, but does not own.
struct Array<'a> {
    pointer: u64,
    words: usize,
    _owner: &'a SharedBuffer,
}

/// The library, with its own stream.
struct Library {
    kernel: CudaFunction,
    stream: Arc<CudaStream>,
}

impl Library {
    fn new(context: &Arc<CudaContext>) -> Result<Self, DriverError> {
        Ok(Self { kernel: fill::load(context)?, stream: context.new_stream()? })
    }

    /// Returns before the work is done, as such libraries do.
    fn fill_second_half(&self, array: &Array<'_>) -> Result<(), DriverError> {
        let half = array.words / 2;
        let pointer = array.pointer + 4 * half as u64;
        // SAFETY: the words are the array's, and its creator uses them only after the stream is done.
        unsafe { fill::launch(&self.kernel, &self.stream, pointer, array.words - half, THEIRS) }
    }
}

#[allow(dead_code)]
fn main() -> Result<(), Box<dyn Error>> {
    match_devices::report(run())
}
