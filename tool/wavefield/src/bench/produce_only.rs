//! The baseline of the CUDA side: the kernel alone, into a ring of shared slots that are never drawn.

use std::time::Instant;

use vulkan_cuda::shared_ring::{Resource, Slot};

use super::session::{BenchSession, Measurements};
use wavefield_gpu::cuda::{Cuda, memset};
use wavefield_gpu::vulkan::DeviceDesc;
use wavefield_gpu::{Error, Result, stuck_gpu};
use wavefield_handoff::producer::{CudaTimeline, Frame, reads};
use wavefield_handoff::{Destination, SceneKernels};
use wavefield_run::Config;

/// The number of launches between two waits: enough to keep the GPU busy, and fewer than the number of
/// times that [`CudaTimeline`] keeps.
const CHUNK: u64 = 64;

pub(super) fn measure<K: SceneKernels>(
    session: &BenchSession<'_>,
    context: &Cuda,
    config: &Config,
    samples: &mut Measurements,
) -> Result<()> {
    let (device, _queue) =
        session.choice.adapter.request_device(&DeviceDesc { interop: true, ..DeviceDesc::default() })?;
    let kernel = config.kernel();
    let desc = config.producer_desc();
    let kernels = K::new(&device, context, &kernel, &desc)?;
    let slots = kernels.slots(&device, context, desc.ring.depth())?;
    let timeline = CudaTimeline::new(context, &kernel.name)?;
    let measured = measure_with(session, config, samples, &timeline, (&kernels, &slots));
    // After an error, enqueued work may still use the slots. Leak them if it does not end in time.
    if let Err(Error::Stuck { .. }) = timeline.wait_idle(config.timeout) {
        stuck_gpu::leak((timeline, kernels, slots));
    }
    measured
}

fn measure_with<K: SceneKernels>(
    session: &BenchSession<'_>,
    config: &Config,
    samples: &mut Measurements,
    timeline: &CudaTimeline,
    (kernels, slots): (&K, &[K::Slot]),
) -> Result<()> {
    let slot_of = |frame: u64| &slots[(frame % slots.len() as u64) as usize];
    let mut index = 0;
    let mut began = None;
    loop {
        let chunk = index..index + CHUNK;
        for index in chunk.clone() {
            let reads = reads(config.scene, false);
            let (time, parameters) = (index as f64 / 60.0, config.parameters);
            let frame = Frame { index, time, step: 0.0, parameters, reads };
            let slot = Destination::Slot(slot_of(index));
            let enqueued = Instant::now();
            // SAFETY: only this stream touches the slot.
            unsafe { kernels.enqueue(timeline, &frame, slot) }.map_err(|error| timeline.blame(error))?;
            if began.is_some() {
                samples.cpu_us.push(enqueued.elapsed().as_secs_f64() * 1e6);
            }
        }
        timeline.wait_idle(config.timeout)?;
        index = chunk.end;
        // The first chunk is the warm-up.
        let Some(began) = began else {
            began = Some(Instant::now());
            continue;
        };
        samples.waits += 1;
        for index in chunk {
            let kernel = timeline.time(index)?.map(|time| time.as_secs_f64() * 1e6);
            samples.kernel_us.extend(kernel);
            samples.frame_us.extend(timeline.period(index)?.map(|time| time.as_secs_f64() * 1e6));
        }
        if began.elapsed() >= session.plan.round || session.stop.requested() {
            break;
        }
    }
    // For comparison, measure `cuMemsetD32Async` on the same memory, right after the kernels.
    for repeat in 0..2 {
        for index in 0..CHUNK {
            let Resource::Buffer { bytes: Some((address, _)), .. } = slot_of(index).resource() else {
                return Ok(());
            };
            // SAFETY: as above; the slot has the grid's bytes.
            timeline.timed(index, |stream| unsafe { memset(stream, address, config.grid.bytes()) })?;
        }
        timeline.wait_idle(config.timeout)?;
        // The first repeat is the warm-up.
        if repeat > 0 {
            for index in 0..CHUNK {
                samples.memset_us.extend(timeline.time(index)?.map(|time| time.as_secs_f64() * 1e6));
            }
        }
    }
    Ok(())
}
