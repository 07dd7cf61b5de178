//! The baseline of the CUDA side: the kernel alone, into a ring of shared buffers that nobody draws.

use std::time::Instant;

use vulkan_cuda::SharedBuffer;

use super::runner::{Plan, Samples};
use crate::app::{Choice, Config, Scene, Stop};
use crate::cuda::{Cuda, KernelSource};
use crate::handoff::{Painter, SharedPicture};
use crate::left_running::leave_running;
use crate::producer::Fill;
use crate::producer::{DRAW_READS, Frame, check_grid, check_texture, each_slot, shared_slot};
use crate::vulkan::{Device, DeviceDesc};
use crate::{Error, Result};

/// Launches between two waits of the CPU: enough to keep the GPU busy, fewer than [`Fill`] keeps times of.
const CHUNK: u64 = 64;

/// The ring's slots, whichever the scene has.
enum Slots {
    Buffers(Vec<SharedBuffer>),
    Textures(Vec<SharedPicture>, Painter),
}

impl Slots {
    fn new(device: &Device, context: &Cuda, config: &Config) -> Result<Self> {
        let (size, depth) = (config.grid, config.ring.depth());
        match config.scene {
            Scene::Field => {
                check_grid(device, size)?;
                let pair = device.pair(context)?;
                let slot = || shared_slot(&pair, size);
                Ok(Self::Buffers(each_slot(device, Some(context), size, depth, slot)?))
            }
            Scene::Texture => {
                check_texture(device, size)?;
                let painter = Painter::new(context)?;
                let slot = |_| SharedPicture::new(device, context, size);
                Ok(Self::Textures((0..depth).map(slot).collect::<Result<_>>()?, painter))
            }
        }
    }

    /// Enqueues a frame's kernels.
    fn fill(&self, fill: &Fill, config: &Config, frame: &Frame) -> Result<()> {
        let slot = config.ring.turn(frame.index).slot;
        match self {
            // SAFETY: the slot has 16 bytes a vertex, and nobody but this stream touches it.
            Self::Buffers(shared) => unsafe { fill.enqueue(shared[slot].cuda(), frame) },
            // SAFETY: nobody but this stream touches the image, whose contents nobody looks at.
            Self::Textures(pictures, painter) => unsafe { pictures[slot].paint(painter, fill, frame) },
        }
    }
}

pub(super) fn measure(
    plan: &Plan,
    config: &Config,
    samples: &mut Samples,
    choice: &Choice,
    context: &Cuda,
    stop: &Stop,
) -> Result<()> {
    let (device, _queue) =
        choice.adapter.request_device(&DeviceDesc { interop: true, ..DeviceDesc::default() })?;
    let slots = Slots::new(&device, context, config)?;
    let built_in = match config.scene {
        Scene::Field => KernelSource::built_in(),
        Scene::Texture => KernelSource::built_in_texture(),
    };
    let kernel = config.kernel.as_ref().unwrap_or(&built_in);
    let fill = Fill::new(context, kernel, config.scene.signature(), config.grid)?;
    let measured = measure_with(plan, config, samples, &fill, &slots, stop);
    // After an error some of it is still enqueued and uses the slots.
    if let Err(Error::Stuck { .. }) = fill.wait_idle(config.timeout) {
        leave_running((fill, slots));
    }
    measured
}

fn measure_with(
    plan: &Plan,
    config: &Config,
    samples: &mut Samples,
    fill: &Fill,
    slots: &Slots,
    stop: &Stop,
) -> Result<()> {
    let mut index = 0;
    let mut began = None;
    loop {
        let chunk = index..index + CHUNK;
        for index in chunk.clone() {
            let frame = Frame { index, time: index as f64 / 60.0, step: 0.0, reads: DRAW_READS };
            let enqueued = Instant::now();
            slots.fill(fill, config, &frame).map_err(|error| fill.blame(error))?;
            if began.is_some() {
                samples.cpu_us.push(enqueued.elapsed().as_secs_f64() * 1e6);
            }
        }
        fill.wait_idle(config.timeout)?;
        index = chunk.end;
        // The first chunk is the warm-up.
        let Some(began) = began else {
            began = Some(Instant::now());
            continue;
        };
        samples.waits += 1;
        for index in chunk {
            let kernel = fill.time(index)?.map(|time| time.as_secs_f64() * 1e6);
            samples.kernel_us.extend(kernel);
            samples.frame_us.extend(fill.period(index)?.map(|time| time.as_secs_f64() * 1e6));
        }
        if began.elapsed() >= plan.round || stop.requested() {
            break;
        }
    }
    // The yardstick, on the same memory and right behind: what `cuMemsetD32Async` takes.
    let Slots::Buffers(shared) = slots else { return Ok(()) };
    for repeat in 0..2 {
        for index in 0..CHUNK {
            let slot = &shared[config.ring.turn(index).slot];
            let frame = Frame { index, time: 0.0, step: 0.0, reads: DRAW_READS };
            // SAFETY: as above.
            unsafe { fill.enqueue_memset(slot.cuda(), &frame) }?;
        }
        fill.wait_idle(config.timeout)?;
        // The first is the warm-up.
        if repeat > 0 {
            for index in 0..CHUNK {
                samples.memset_us.extend(fill.time(index)?.map(|time| time.as_secs_f64() * 1e6));
            }
        }
    }
    Ok(())
}
