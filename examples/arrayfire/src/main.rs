//! The seven steps of <https://arrayfire.org/docs/interop_cuda.htm> with ArrayFire itself: type-checked, never run.
//!
//! `crates/vulkan-cuda/examples/04_another_library.rs` has the same steps with a small library of its own, which works
//! in place. ArrayFire does not, and its wrapper takes ownership of the memory by default.
//!
//! ```sh
//! AF_PATH=/opt/arrayfire cargo run --manifest-path examples/arrayfire/Cargo.toml
//! ```

use std::any::Any;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use af_cuda_interop::set_device_native_id;
use arrayfire as af;
use ash::vk;
use cudarc::driver::sys;
use vulkan_cuda::SharedBuffer;
use vulkan_cuda::ownership::{Access, Owner};

#[path = "../../../crates/vulkan-cuda/examples/01_match.rs"]
#[allow(dead_code)]
mod match_devices;
#[path = "../../../crates/vulkan-cuda/examples/readback/mod.rs"]
mod readback;

const WORDS: usize = 1024;
const BYTES: u64 = 4 * WORDS as u64;
const OURS: u32 = 0x0505_0505;

fn main() -> Result<(), Box<dyn Error>> {
    // The crate's functions return no errors. They call a handler and, if it returns, continue with a null
    // handle. So this handler does not return. `resume_unwind` prints nothing, unlike a panic.
    af::register_error_handler(af::Callback::new(|code| {
        if code != af::AfError::SUCCESS {
            resume_unwind(Box::new(format!("{code}: {}", af::get_last_error())));
        }
    }));
    // Values that are dropped during the unwind are never used again, so nothing can see a broken invariant.
    let lent = catch_unwind(AssertUnwindSafe(lend)).unwrap_or_else(|words| Err(failed(words.as_ref())));
    match_devices::report(lent)
}

/// Lends a slot to ArrayFire, and checks the result.
fn lend() -> Result<(), Box<dyn Error>> {
    let gpu = match_devices::open()?;
    let slot = SharedBuffer::new(&gpu.pair, BYTES, vk::BufferUsageFlags::TRANSFER_SRC)?;
    let stream = gpu.cuda.new_stream()?;
    // ArrayFire numbers devices in its own order. Select Vulkan's device by CUDA's number.
    af::set_backend(af::Backend::CUDA);
    set_device_native_id(gpu.pair.cuda().info().ordinal);
    let device = af::get_device();

    // SAFETY: the slot has this many words, and nothing else uses it yet.
    unsafe { sys::cuMemsetD32Async(slot.cuda(), OURS, WORDS, stream.cu_stream()) }.result()?;
    // 1. Finish pending work: ArrayFire's stream does not wait for ours.
    stream.synchronize()?;
    // 2. Wrap the pointer. ArrayFire would now free the memory some day; the lock, which is never released, prevents that.
    let array =
        af::Array::new_from_device_ptr(slot.cuda() as *mut u32, af::Dim4::new(&[WORDS as u64, 1, 1, 1]));
    array.lock();
    // 3. Work. The sum is only an expression so far; ArrayFire will allocate memory for it.
    let sum = af::add(&array, &1_u32, false);
    // 4. Evaluate, and synchronize its stream.
    sum.eval();
    af::sync(device);
    // 5. Obtain the pointer. This locks the memory too, so that ArrayFire does not reuse it meanwhile.
    // SAFETY: the array is evaluated, so it has memory, which lives until it is unlocked below.
    let from = unsafe { sum.device_ptr() } as u64;
    // 6. Continue on our stream.
    // SAFETY: both memories have that many bytes, and ArrayFire no longer uses them.
    let copied =
        unsafe { sys::cuMemcpyDtoDAsync_v2(slot.cuda(), from, BYTES as usize, stream.cu_stream()) }.result();
    let done = copied.and_then(|()| stream.synchronize());
    // 7. Release the memory. The sum's memory returns to ArrayFire. The slot is ours: drop its wrapper, still locked,
    //    before it.
    sum.unlock();
    drop((sum, array));
    done?;

    let target = readback::Target::new(&gpu, BYTES)?;
    let copies = vk::PipelineStageFlags2::ALL_TRANSFER;
    let access = Access { stage: copies, access: vk::AccessFlags2::TRANSFER_READ };
    let acquire = [Owner::External.acquire(slot.vulkan(), gpu.family, access)];
    target.run(&gpu, |device, commands| {
        let barriers = vk::DependencyInfo::default().buffer_memory_barriers(&acquire);
        let copy = [vk::BufferCopy::default().size(BYTES)];
        // SAFETY: the commands are being recorded, and both buffers have this many bytes.
        unsafe {
            device.cmd_pipeline_barrier2(commands, &barriers);
            device.cmd_copy_buffer(commands, slot.vulkan(), target.buffer, &copy);
        }
    })?;
    if let Some(wrong) = target.words()?.into_iter().position(|word| word != OURS + 1) {
        return Err(format!("word {wrong} is wrong").into());
    }
    println!("ArrayFire added 1 to {WORDS} words, and Vulkan read them");
    Ok(())
}

/// The message of the handler, or of a panic in the crate.
fn failed(words: &(dyn Any + Send)) -> Box<dyn Error> {
    let text = words.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| words.downcast_ref::<&str>().copied()).unwrap_or("no words");
    format!("ArrayFire: {text}").into()
}
