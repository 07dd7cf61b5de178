//! The baseline of the CUDA side: the kernel alone, into a ring of shared buffers that nobody draws.

use std::sync::Arc;
use std::time::Instant;

use super::runner::{Plan, Samples};
use crate::Result;
use crate::app::{Choice, Config, Stop};
use crate::cuda::{Context, KernelSource};
use crate::handoff::Fill;
use crate::interop::SharedBuffer;
use crate::producer::{DRAW_READS, Frame, SLOT_USAGE, check_grid};
use crate::vulkan::DeviceDesc;

/// Launches between two waits of the CPU: enough to keep the GPU busy, fewer than [`Fill`] keeps times of.
const CHUNK: u64 = 64;

pub(super) fn measure(
    plan: &Plan,
    config: &Config,
    samples: &mut Samples,
    choice: &Choice,
    context: &Arc<Context>,
    stop: &Stop,
) -> Result<()> {
    let (device, _queue) =
        choice.adapter.request_device(&DeviceDesc { interop: true, ..DeviceDesc::default() })?;
    check_grid(&device, config.grid)?;
    let shared = (0..config.ring.depth())
        .map(|_| SharedBuffer::new(&device, context, config.grid.bytes(), SLOT_USAGE))
        .collect::<Result<Vec<_>>>()?;
    let built_in = KernelSource::built_in();
    let fill = Fill::new(context, config.kernel.as_ref().unwrap_or(&built_in), config.grid)?;
    let mut index = 0;
    let mut began = None;
    loop {
        let chunk = index..index + CHUNK;
        for index in chunk.clone() {
            let slot = &shared[config.ring.turn(index).slot];
            let frame = Frame { index, time: index as f64 / 60.0, step: 0.0, reads: DRAW_READS };
            let enqueued = Instant::now();
            // SAFETY: the slot has 16 bytes a vertex, and nobody but this stream touches it.
            unsafe { fill.enqueue(slot.cuda(), &frame) }.map_err(|error| fill.blame(error))?;
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
            let kernel = fill.time(index).map(|time| time.as_secs_f64() * 1e6);
            samples.kernel_us.extend(kernel);
            samples.frame_us.extend(fill.period(index).map(|time| time.as_secs_f64() * 1e6));
        }
        if began.elapsed() >= plan.round || stop.requested() {
            break;
        }
    }
    // The yardstick, on the same memory and right behind: what `cuMemsetD32Async` takes.
    for repeat in 0..2 {
        for index in 0..CHUNK {
            let slot = &shared[config.ring.turn(index).slot];
            // SAFETY: as above.
            unsafe { fill.enqueue_memset(slot.cuda(), index) }?;
        }
        fill.wait_idle(config.timeout)?;
        // The first is the warm-up.
        if repeat > 0 {
            let times = (0..CHUNK).filter_map(|index| fill.time(index));
            samples.memset_us.extend(times.map(|time| time.as_secs_f64() * 1e6));
        }
    }
    Ok(())
}
