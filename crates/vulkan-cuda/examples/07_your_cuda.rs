//! Your CUDA program has its own context, stream and kernel, made with cudarc. The kernel writes frames that
//! Vulkan reads.
//!
//! ```sh
//! cargo run -p vulkan-cuda --example 07_your_cuda
//! ```
//!
//! The steps are those of ArrayFire's guide, "Adding custom CUDA kernels to an existing ArrayFire application"
//! (<https://arrayfire.org/docs/interop_cuda.htm>). They hold for every library that owns memory and lends it to your kernel. Here
//! the ring owns the slots.
//!
//! | | ArrayFire | here |
//! |---|---|---|
//! | 1 | `#include <arrayfire.h>`, `<af/cuda.h>` | `use vulkan_cuda::…`, and cudarc with the feature `nvrtc`, for `load_module` |
//! | 2 | use it as normal; `af::setDevice`, `afcu::getNativeId` | the context of the GPU that Vulkan uses, matched by UUID |
//! | 3 | `af::eval`: runs pending work | `ring.write()`: the stream waits, on the GPU, until Vulkan has read the slot |
//! | 4 | `array::device()`: the pointer; the array is locked | `write.view::<u32>()`: the slot is yours while `write` lives |
//! | 5 | `afcu::getStream()` | `write.stream()`: the stream that you gave to the ring |
//! | 6 | run your kernel on that stream | `write.stream().launch_builder(&kernel)…launch(…)` |
//! | 7 | `array::unlock()` | `write.finish_after_kernels()`: the stream signals, and the slot is Vulkan's |
//!
//! [`04_another_library`](04_another_library.rs) is the other half of that guide: a library with its own stream.

use std::error::Error;
use std::time::Duration;

use ash::vk;
use cudarc::driver::{LaunchConfig, PushKernelArg};
// 1. The feature `nvrtc` provides this type. Nothing is compiled at run time, and no library is opened.
use cudarc::nvrtc::Ptx;
use vulkan_cuda::shared_ring::QueueUse;
use vulkan_cuda::{SharedBuffer, SharedRing};

#[path = "fill/mod.rs"]
mod fill;
#[path = "01_match.rs"]
mod match_devices;
#[path = "readback/mod.rs"]
mod readback;

const SLOTS: usize = 3;
const FRAMES: u64 = 12;
const WORDS: usize = 1000;
const BYTES: u64 = 4 * WORDS as u64;

pub fn run() -> Result<(), Box<dyn Error>> {
    // 2. Either side may choose the GPU. A program that creates its context first finds the Vulkan device with `find_twin`.
    let gpu = match_devices::open()?;
    let kernel = gpu.cuda.load_module(Ptx::from_src(fill::KERNEL))?.load_function("fill")?;
    let seen = readback::Target::new(&gpu, FRAMES * BYTES)?;

    // 5. One stream for the ring's whole life.
    let stream = gpu.cuda.new_stream()?;
    let reader = QueueUse {
        family: gpu.family,
        stage: vk::PipelineStageFlags::TRANSFER,
        access: vk::AccessFlags::TRANSFER_READ,
    };
    let slot = |_| SharedBuffer::new(&gpu.pair, BYTES, vk::BufferUsageFlags::TRANSFER_SRC);
    let slots = (0..SLOTS).map(slot).collect::<vulkan_cuda::Result<_>>()?;
    let mut ring = SharedRing::new(&gpu.pair, stream, slots, reader)?;

    for frame in 0..FRAMES {
        // 3. The stream waits. The CPU does not.
        let write = ring.write()?.ok_or("every frame was submitted, so a slot is never held")?;
        // 4. The elements; the borrow of `write` is the lock.
        let (mut out, words, number) = (write.view::<u32>()?, WORDS as u32, frame as u32);
        // 6. Pass each argument by reference, with exactly the type that the kernel declares. Nothing checks the type.
        let mut launch = write.stream().launch_builder(&kernel);
        launch.arg(&mut out).arg(&words).arg(&number);
        // SAFETY: these are the kernel's three parameters; it writes only the slot's words; the slot is
        // CUDA's until `finish`.
        unsafe { launch.launch(LaunchConfig::for_num_elems(words)) }?;
        // 7. Signals after the kernel, on the same stream. If the launch fails, `write` is dropped, and the slot stays as it was.
        let read = write.finish_after_kernels()?;

        // Vulkan's side, as in 03_hand_over.
        let commands = seen.record(|device, commands| {
            let copy = [vk::BufferCopy::default().dst_offset(frame * BYTES).size(BYTES)];
            // SAFETY: being recorded for this family; the copy lies within both buffers.
            unsafe {
                read.record(commands, |slot| {
                    device.cmd_copy_buffer(commands, slot.vulkan(), seen.buffer, &copy)
                });
            }
        })?;
        // SAFETY: recorded above, and submitted once; everything lives until both sides are idle.
        unsafe { read.submit(|wait, signal| seen.submit(&gpu, commands, &[wait], &[signal])) }?;
    }

    ring.wait_idle(Duration::from_secs(10))?;
    for (frame, words) in (0..FRAMES).zip(seen.words()?.chunks(WORDS)) {
        if let Some(wrong) = fill::wrong(words, frame) {
            return Err(format!("frame {frame} is wrong at word {wrong}").into());
        }
    }
    println!("a kernel launched by cudarc wrote {FRAMES} frames, and Vulkan read each of them whole");
    Ok(())
}

#[allow(dead_code)]
fn main() -> Result<(), Box<dyn Error>> {
    match_devices::report(run())
}
