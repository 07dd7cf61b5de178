//! Your engine has its own instance, device, allocator, queue and frames in flight. It reads what CUDA
//! writes, and stays in charge.
//!
//! ```sh
//! cargo run -p vulkan-cuda --example 06_your_device
//! ```
//!
//! The engine changes in four places. The source marks each with its number.
//!
//! 1. The device is created with the extensions of [`VkInfo::extensions`](vulkan_cuda::VkInfo::extensions) and the feature
//!    `timelineSemaphore`: [`your_device/device.rs`](your_device/device.rs).
//! 2. [`Vk::from_raw`] adopts it, with a token that keeps it alive. Only the engine destroys its objects.
//! 3. A submission that reads a slot has one more wait and one more signal than the engine needs itself:
//!    [`your_device/engine.rs`](your_device/engine.rs).
//! 4. If the engine does not draw a frame, it gives the frame up by dropping its `VulkanTurn`.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use ash::vk;
use cudarc::driver::{CudaContext, CudaFunction};
use vulkan_cuda::Error::SystemLacks;
use vulkan_cuda::shared_ring::QueueUse;
use vulkan_cuda::{Cuda, Driver, Pair, SharedBuffer, SharedRing, Vk};

use device::Device;
use engine::Engine;

#[path = "your_device/device.rs"]
mod device;
#[path = "your_device/engine.rs"]
mod engine;
#[path = "fill/mod.rs"]
mod fill;
#[allow(dead_code)] // Only `report` is used.
#[path = "01_match.rs"]
mod match_devices;

const SLOTS: usize = 3;
const FRAMES: u64 = 12;
/// The window is minimised in these frames.
const HIDDEN: [u64; 3] = [4, 5, 9];
const WORDS: usize = 1024;
const BYTES: u64 = 4 * WORDS as u64;

pub fn run() -> Result<(), Box<dyn Error>> {
    let driver = Driver::load().map_err(|error| SystemLacks(error.to_string()))?;
    let (device, ordinal) = Device::new(driver)?;
    let device = Arc::new(device);

    // ANCHOR: adopt
    // 2. The token is the engine's own `Arc`. The device is destroyed after the engine and all shared objects have dropped it.
    let (instance, raw) = (device.instance.raw.clone(), device.raw.clone());
    // SAFETY: the three belong together and live as long as `device`; it was created with
    // `timelineSemaphore`.
    let vk = unsafe { Vk::from_raw(instance, device.physical, raw, device.clone()) }?;
    let context = CudaContext::new(ordinal as usize)?;
    let pair = Pair::new(vk, Cuda::from_cudarc(&context)?)?;
    // ANCHOR_END: adopt

    let mut engine = Engine::new(device)?;
    // ANCHOR: ring
    let reader = QueueUse {
        family: engine.device.family,
        stage: vk::PipelineStageFlags::TRANSFER,
        access: vk::AccessFlags::TRANSFER_READ,
    };
    let slot = |_| SharedBuffer::new(&pair, BYTES, vk::BufferUsageFlags::TRANSFER_SRC);
    let slots = (0..SLOTS).map(slot).collect::<vulkan_cuda::Result<_>>()?;
    let stream = context.new_stream()?;
    let mut ring = SharedRing::new(&pair, stream, slots, reader)?;
    // ANCHOR_END: ring

    let kernel = fill::load(&context)?;
    let drawn = draw_all(&mut engine, &mut ring, &kernel);
    // After a fault CUDA signals nothing more, and the engine's queue would wait forever, even in `Drop`.
    // This lets it end.
    let idle = ring.wait_idle(Duration::from_secs(10));
    drawn?;
    idle?;
    let seen = engine.finish()?;
    if seen != FRAMES - HIDDEN.len() as u64 {
        return Err(format!("the engine saw {seen} frames").into());
    }
    println!("the engine drew {seen} of {FRAMES} frames by its own queue, and gave up {}", HIDDEN.len());

    // Teardown. The engine's own objects are destroyed here. The token keeps its device until the slots and
    // timelines are gone. The reverse order works too.
    drop(engine);
    drop(ring);
    Ok(())
}

fn draw_all(
    engine: &mut Engine,
    ring: &mut SharedRing<SharedBuffer>,
    kernel: &CudaFunction,
) -> Result<(), Box<dyn Error>> {
    for frame in 0..FRAMES {
        let write = ring.write()?.ok_or("every frame was submitted or given up, so a slot is never held")?;
        // SAFETY: the slot has this many words, and is CUDA's until `finish`.
        unsafe { fill::launch(kernel, write.stream(), write.slot().cuda(), WORDS, frame) }?;
        let read = write.finish_after_kernels()?;
        if HIDDEN.contains(&frame) {
            // 4. Nothing was submitted for this frame. The ring gives its slot back to CUDA all the same.
            drop(read);
        } else {
            engine.draw(read)?;
        }
    }
    Ok(())
}

#[allow(dead_code)]
fn main() -> Result<(), Box<dyn Error>> {
    match_devices::report(run())
}
