//! Frames go from CUDA to Vulkan through a ring of slots. Two timelines order them on the GPU, in both
//! directions; the CPU enqueues everything and waits only at the end.
//!
//! ```sh
//! cargo run -p vulkan-cuda --example 03_hand_over
//! ```

use std::error::Error;
use std::time::Duration;

use ash::vk;
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
const WORDS: usize = 1024;
const BYTES: u64 = 4 * WORDS as u64;

pub fn run() -> Result<(), Box<dyn Error>> {
    let gpu = match_devices::open()?;
    // Receives every frame as Vulkan saw it.
    let seen = readback::Target::new(&gpu, FRAMES * BYTES)?;

    // Vulkan copies each slot. A renderer would name VERTEX_SHADER and SHADER_READ.
    let reader = QueueUse {
        family: gpu.family,
        stage: vk::PipelineStageFlags::TRANSFER,
        access: vk::AccessFlags::TRANSFER_READ,
    };
    let slot = |_| SharedBuffer::new(&gpu.pair, BYTES, vk::BufferUsageFlags::TRANSFER_SRC);
    let slots = (0..SLOTS).map(slot).collect::<vulkan_cuda::Result<_>>()?;
    let (kernel, stream) = (fill::load(&gpu.cuda)?, gpu.cuda.new_stream()?);
    let mut ring = SharedRing::new(&gpu.pair, stream.clone(), slots, reader)?;

    for frame in 0..FRAMES {
        // ANCHOR: frame
        // CUDA: wait, on the GPU, until Vulkan has read what was in the slot; write; signal.
        let write = ring.write()?.ok_or("every frame was submitted, so a slot is never held")?;
        let address = write.slot().cuda();
        // SAFETY: the slot has this many words, and is CUDA's until `finish`.
        unsafe { fill::launch(&kernel, &stream, address, WORDS, frame) }?;
        let read = write.finish_after_kernels()?; // Only a kernel wrote the slot.

        // Vulkan: take the slot, read it, give it back.
        let commands = seen.record(|device, commands| {
            let copy = [vk::BufferCopy::default().dst_offset(frame * BYTES).size(BYTES)];
            // SAFETY: being recorded for this family; the copy lies within both buffers.
            unsafe {
                read.record(commands, |slot| {
                    device.cmd_copy_buffer(commands, slot.vulkan(), seen.buffer, &copy)
                });
            }
        })?;
        // Before all commands, wait for CUDA's signal. After all of them, signal that the slot is free.
        // SAFETY: recorded above, and submitted once; everything lives until both sides are idle.
        unsafe { read.submit(|wait, signal| seen.submit(&gpu, commands, &[wait], &[signal])) }?;
        // ANCHOR_END: frame
    }

    // Waits for both sides. After a failed kernel, which signals nothing more, it lets Vulkan's queue end.
    ring.wait_idle(Duration::from_secs(10))?;
    for (frame, words) in (0..FRAMES).zip(seen.words()?.chunks(WORDS)) {
        if let Some(wrong) = fill::wrong(words, frame) {
            return Err(format!("frame {frame} is wrong at word {wrong}").into());
        }
    }
    println!("{FRAMES} frames went through {SLOTS} slots, each of them whole");
    Ok(())
}

#[allow(dead_code)]
fn main() -> Result<(), Box<dyn Error>> {
    match_devices::report(run())
}
