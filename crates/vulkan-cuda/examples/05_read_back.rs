//! Frames go from Vulkan to CUDA: Vulkan draws a triangle into a colour attachment, and CUDA inverts what it
//! sees. Two timelines order both on the GPU; the CPU enqueues everything and waits only at the end.
//!
//! ```sh
//! cargo run -p vulkan-cuda --example 05_read_back
//! ```

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use ash::vk;
use cudarc::driver::{DevicePtr, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use vulkan_cuda::shared_ring::Resource;
use vulkan_cuda::{ImageRequest, QueueUse, RingToCuda, SharedImage, Slot, image::picture};

#[path = "01_match.rs"]
mod match_devices;
#[path = "readback/mod.rs"]
mod readback;
#[path = "read_back/triangle.rs"]
mod triangle;

use match_devices::Gpu;
use triangle::Triangle;

const SLOTS: usize = 3;
const FRAMES: usize = 12;
const SIDE: u32 = 64;
const WORDS: usize = (SIDE * SIDE) as usize;
const BYTES: u64 = 4 * WORDS as u64;

/// A picture that Vulkan draws on.
struct Attachment {
    framebuffer: vk::Framebuffer,
    view: vk::ImageView,
    device: ash::Device,
    image: Arc<SharedImage>,
}

// SAFETY: the slot's only image, which it owns alone.
unsafe impl Slot for Attachment {
    fn resource(&self) -> Resource {
        self.image.resource()
    }
}

impl Attachment {
    fn new(gpu: &Gpu, triangle: &Triangle, request: &ImageRequest) -> Result<Self, Box<dyn Error>> {
        let (image, device) = (SharedImage::new(&gpu.pair, request)?, gpu.device.clone());
        let info = vk::ImageViewCreateInfo::default()
            .image(image.exported().raw())
            .view_type(vk::ImageViewType::TYPE_2D)
            .format(request.format)
            .subresource_range(vulkan_cuda::ownership::whole_image());
        // SAFETY: a live image of this format.
        let view = unsafe { device.create_image_view(&info, None) }?;
        Ok(Self { framebuffer: triangle.framebuffer(view)?, view, device, image })
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // SAFETY: the ring drops its slots once the GPU is done with them.
        unsafe {
            self.device.destroy_framebuffer(self.framebuffer, None);
            self.device.destroy_image_view(self.view, None);
        }
    }
}

pub fn run() -> Result<(), Box<dyn Error>> {
    let gpu = match_devices::open()?;
    // Receives every frame as Vulkan drew it.
    let seen = readback::Target::new(&gpu, FRAMES as u64 * BYTES)?;
    let format = vk::Format::R8G8B8A8_UNORM;
    let triangle = Triangle::new(&gpu.device, format, SIDE)?;

    // ANCHOR: ring
    // Copies what was drawn, too. A renderer that only draws would name COLOR_ATTACHMENT_OUTPUT.
    let stage = vk::PipelineStageFlags::COLOR_ATTACHMENT_OUTPUT | vk::PipelineStageFlags::TRANSFER;
    let access = vk::AccessFlags::COLOR_ATTACHMENT_WRITE | vk::AccessFlags::TRANSFER_READ;
    let writer = QueueUse { family: gpu.family, stage, access };
    let usage = vk::ImageUsageFlags::COLOR_ATTACHMENT | vk::ImageUsageFlags::TRANSFER_SRC;
    let request = ImageRequest { usage, surface: false, ..picture(format, SIDE, SIDE, 1)? };
    let slots = (0..SLOTS).map(|_| Attachment::new(&gpu, &triangle, &request)).collect::<Result<_, _>>()?;
    // ANCHOR_END: ring
    let stream = gpu.cuda.new_stream()?;
    let kernel = gpu.cuda.load_module(Ptx::from_src(include_str!("read_back/invert.ptx")))?;
    let kernel = kernel.load_function("invert")?;
    // CUDA's copies of all frames, one after another.
    let inverted = stream.alloc_zeros::<u32>(FRAMES * WORDS)?;
    let mut ring = RingToCuda::new(&gpu.pair, stream.clone(), slots, writer)?;

    for frame in 0..FRAMES {
        let red = 20 * frame as u8;
        // ANCHOR: frame
        // Vulkan: wait, on the GPU, until CUDA has read what was in the slot; draw; signal.
        let write = ring.write().ok_or("every frame was read, so there is a slot")?;
        let commands = seen.record(|_, commands| {
            // SAFETY: being recorded for this family.
            unsafe {
                write.record(commands, |slot| {
                    triangle.draw(commands, slot.framebuffer, red);
                    seen.copy_image(commands, slot.image.exported().raw(), [SIDE; 2], frame as u64 * BYTES);
                });
            }
        })?;
        // SAFETY: recorded above, and submitted once; everything lives until both sides are idle.
        unsafe { write.submit(|wait, signal| seen.submit(&gpu, commands, &[wait], &[signal])) }?;

        // CUDA: wait, on the GPU; copy the picture, and invert the copy; signal.
        let read = ring.next_read()?.ok_or("a frame was submitted")?;
        let level = read.slot().image.level(0)?;
        let (first, _record) = inverted.device_ptr(&stream);
        let (target, words) = (first + (frame as u64 * BYTES), WORDS as u32);
        // SAFETY: the copy has this many rows in `inverted`, which lives until the stream is idle.
        unsafe { level.copy_to(&stream, target, 4 * SIDE as usize, [4 * SIDE as usize, SIDE as usize]) }?;
        let mut launch = stream.launch_builder(&kernel);
        launch.arg(&target).arg(&words);
        // SAFETY: these are the kernel's two parameters; it writes only these words.
        unsafe { launch.launch(LaunchConfig::for_num_elems(words)) }?;
        read.finish()?;
        // ANCHOR_END: frame
    }

    let inverted = stream.clone_dtoh(&inverted)?;
    stream.synchronize()?;
    ring.wait_idle(Duration::from_secs(10))?;
    let drawn = seen.words()?;
    for (frame, (drawn, inverted)) in drawn.chunks(WORDS).zip(inverted.chunks(WORDS)).enumerate() {
        triangle.check(drawn, 20 * frame as u8).map_err(|what| format!("frame {frame}: {what}"))?;
        if let Some(place) = drawn.iter().zip(inverted).position(|(drawn, inverted)| !drawn != *inverted) {
            return Err(format!("frame {frame}: CUDA did not invert word {place}").into());
        }
    }
    println!("{FRAMES} triangles went through {SLOTS} slots, and CUDA inverted each of them");
    Ok(())
}

#[allow(dead_code)]
fn main() -> Result<(), Box<dyn Error>> {
    match_devices::report(run())
}
