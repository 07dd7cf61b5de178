//! `--plain`: CUDA writes the same data as for `--check`, and plain Vulkan runs the same shader on it, without wgpu.
//! The difference in time is the cost of wgpu. [`pass`] is Vulkan's part.

mod pass;

// The library's examples have the code that opens the device and the code that reads a buffer on the CPU.
#[allow(dead_code)]
#[path = "../../../crates/vulkan-cuda/examples/01_match.rs"]
mod match_devices;
#[path = "../../../crates/vulkan-cuda/examples/readback/mod.rs"]
mod readback;

use std::collections::VecDeque;
use std::ffi::CStr;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use ash::vk;
use vulkan_cuda::cuda::Surface;
use vulkan_cuda::shared_ring::{QueueUse, Resource, SharedRing, Slot};
use vulkan_cuda::{SharedBuffer, SharedImage, image};

use crate::check::{Counts, Job};
use crate::kernels::{Kernel, PATTERN, PATTERN_TEXELS};
use match_devices::Gpu;
use pass::Pass;

/// The number of frames in flight, as in `crate::check`.
const IN_FLIGHT: usize = 6;

/// A slot: an image, and the surface object through which kernels write it.
struct Canvas {
    surface: Surface,
    image: Arc<SharedImage>,
}

// SAFETY: it owns the image.
unsafe impl Slot for Canvas {
    fn resource(&self) -> Resource {
        self.image.resource()
    }
}

/// The inner `Err` says why this machine cannot run the check.
pub fn check(job: &Job) -> Result<Result<Counts, String>> {
    let gpu = match match_devices::open() {
        Ok(gpu) => gpu,
        Err(error) if match_devices::is_unsupported(&*error) => return Ok(Err(error.to_string())),
        Err(error) => return Err(anyhow!("{error}")),
    };
    let (cols, rows) = job.size;
    let stream = gpu.cuda.new_stream()?;
    let reader = QueueUse {
        family: gpu.family,
        stage: vk::PipelineStageFlags::COMPUTE_SHADER,
        access: vk::AccessFlags::SHADER_READ,
    };
    let counts = if job.texture {
        let kernel = Kernel::load(&stream, PATTERN_TEXELS, job.size)?;
        // ANCHOR: image
        let request = image::picture(pass::TEXELS, cols, rows, 1)?;
        let canvas = |_| {
            let image = SharedImage::new(&gpu.pair, &request)?;
            Ok(Canvas { surface: image.level(0)?.surface()?, image })
        };
        let slots = (0..3).map(canvas).collect::<Result<_>>()?;
        let ring = SharedRing::new(&gpu.pair, stream, slots, reader)?;
        // ANCHOR_END: image
        run(&gpu, job, ring, c"check_texture", |canvas, frame| {
            // SAFETY: the image has this size, and the ring keeps it for the stream alone until the kernel is
            // done.
            unsafe { kernel.launch(canvas.surface.raw(), frame, 0.0) }
        })
    } else {
        let kernel = Kernel::load(&stream, PATTERN, job.size)?;
        let (size, usage) = (u64::from(cols) * u64::from(rows) * 16, vk::BufferUsageFlags::STORAGE_BUFFER);
        let slots = (0..3).map(|_| SharedBuffer::new(&gpu.pair, size, usage)).collect::<Result<_, _>>()?;
        let ring = SharedRing::new(&gpu.pair, stream, slots, reader)?;
        // SAFETY: as above.
        run(&gpu, job, ring, c"check_buffer", |buffer, frame| unsafe {
            kernel.launch(buffer.cuda(), frame, 0.0)
        })
    };
    counts.map(Ok)
}

fn run<S: Slot>(
    gpu: &Gpu,
    job: &Job,
    mut ring: SharedRing<S>,
    entry: &CStr,
    write: impl Fn(&S, u64) -> Result<()>,
) -> Result<Counts> {
    let pass = Pass::new(gpu, job, entry, ring.slots())?;
    let counts = count(gpu, job, &mut ring, &pass, write);
    match counts {
        // SAFETY: all frames were waited for.
        Ok(_) => unsafe { pass.destroy() },
        Err(_) => gpu.pair.vk().abandon(), // Leaks everything that the GPU may still use.
    }
    counts
}

/// Runs all frames, a few of them in flight at once, and reads the counters.
fn count<S: Slot>(
    gpu: &Gpu,
    job: &Job,
    ring: &mut SharedRing<S>,
    pass: &Pass,
    write: impl Fn(&S, u64) -> Result<()>,
) -> Result<Counts> {
    // SAFETY: (also below) the commands are being recorded, for a queue of the ring's family.
    readback::Target::new(gpu, 16)?.run(gpu, |_, commands| unsafe {
        ring.record_first_release(commands);
        pass.record_zero(commands);
    })?;
    let mut in_flight = VecDeque::new();
    let begin = Instant::now();
    for frame in 0..job.frames {
        // CUDA waits, on the GPU, until Vulkan has read the slot.
        let turn = ring.write()?.context("each frame is submitted before the next one begins")?;
        write(turn.slot(), turn.frame())?;
        let read = turn.finish_after_kernels()?; // CUDA signals.

        let commands = pass.begin(frame)?;
        unsafe {
            read.record(commands, |_| pass.record(read.index(), commands));
            gpu.device.end_command_buffer(commands)?;
        }
        let submit = |wait, signal: vk::SemaphoreSubmitInfo<'static>| {
            let (waits, signals) = (job.broken.is_none().then_some(wait), [signal]);
            let buffers = [vk::CommandBufferSubmitInfo::default().command_buffer(commands)];
            let batch = [vk::SubmitInfo2::default()
                .wait_semaphore_infos(waits.as_slice())
                .command_buffer_infos(&buffers)
                .signal_semaphore_infos(&signals)];
            // SAFETY: recorded above; everything lives until the GPU is done, or is leaked.
            unsafe { gpu.device.queue_submit2(gpu.queue, &batch, vk::Fence::null()) }?;
            anyhow::Ok((signal.semaphore, signal.value))
        };
        // SAFETY: makes one submission, and an error means that there was none.
        in_flight.push_back(unsafe { read.submit(submit) }?);
        if in_flight.len() > IN_FLIGHT {
            wait(gpu, in_flight.pop_front())?;
        }
    }
    wait(gpu, in_flight.pop_back())?;
    let seconds = begin.elapsed().as_secs_f64();

    let target = readback::Target::new(gpu, 16)?;
    target.run(gpu, |_, commands| unsafe { pass.record_copy(target.buffer, commands) })?;
    Counts::new(job, Counts::joined(target.words()?.into_iter()), seconds)
}

/// Waits until Vulkan has signalled that it is done with a frame.
fn wait(gpu: &Gpu, signal: Option<(vk::Semaphore, u64)>) -> Result<()> {
    let (semaphores, values): (Vec<_>, Vec<_>) = signal.into_iter().unzip();
    let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
    // SAFETY: the semaphore is the ring's, which is alive.
    unsafe { gpu.device.wait_semaphores(&info, 10_000_000_000) }.context("the GPU did not finish a frame")
}
