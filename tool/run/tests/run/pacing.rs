//! Waits for frames whose ends the test itself decides.

use std::sync::mpsc::channel;
use std::thread::{scope, sleep};
use std::time::Duration;

use ash::vk;
use wavefield_gpu::vulkan::{DeviceDesc, Pacer, Queue, Validation};
use wavefield_run::{DeviceTable, ProducerKind};

const FRAMES: u64 = 60;
/// Long enough for the pacer to have begun its wait, on most machines and most of the time.
const PAUSE: Duration = Duration::from_millis(8);

fn queue() -> Queue {
    // The validation layer 1.3.239 can miss a signal of a timeline by the host, and then waits for 10 s.
    let choice = DeviceTable::headless(Validation::Off).unwrap().choose(None, ProducerKind::Compute).unwrap();
    choice.adapter.request_device(&DeviceDesc::default()).unwrap().1
}

/// The CPU goes on when the frame is done, and not before. It needs nothing that comes later: each frame ends only once
/// the CPU has gone on after the one before it.
#[test]
fn a_wait_notices_a_frame_s_end() {
    let mut queue = queue();
    let mut pacer = Pacer::new(&queue, 1).unwrap();
    let device = queue.device().raw().clone();
    let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
    let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
    // SAFETY: the device is alive, with timeline semaphores enabled.
    let gate = unsafe { device.create_semaphore(&info, None) }.unwrap();
    let (submitted, to_end) = channel();
    let (tell, ended) = channel();
    let mut looks = 0;
    scope(|threads| {
        threads.spawn(|| {
            for frame in to_end {
                sleep(PAUSE);
                tell.send(frame).unwrap();
                let info = vk::SemaphoreSignalInfo::default().semaphore(gate).value(frame);
                // SAFETY: the timeline semaphore of this device is alive, and its value grows.
                unsafe { device.signal_semaphore(&info) }.unwrap();
            }
        });
        for frame in 1..=FRAMES {
            let waits = [vk::SemaphoreSubmitInfo::default()
                .semaphore(gate)
                .value(frame)
                .stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)];
            let signals = [pacer.signal()];
            let batch =
                vk::SubmitInfo2::default().wait_semaphore_infos(&waits).signal_semaphore_infos(&signals);
            // SAFETY: the batch has no commands; both semaphores live until the wait for it, which comes
            // next.
            unsafe { queue.submit(&[batch]) }.unwrap();
            pacer.end();
            submitted.send(frame).unwrap();
            pacer
                .begin(|_| {
                    looks += 1;
                    Ok(())
                })
                .unwrap();
            assert_eq!(ended.try_recv(), Ok(frame), "the CPU went on before the end");
            assert_eq!(pacer.finished().unwrap(), frame);
        }
        drop(submitted);
    });
    assert!(pacer.blocking_waits > FRAMES / 2, "{} waits", pacer.blocking_waits);
    // It notices the end itself, not at its next look for a frame that may never be done. (On a busy machine, single frames
    // take that long.)
    assert!(looks < FRAMES / 2, "{looks} looks");
    // SAFETY: every frame that waits for it is done.
    unsafe { device.destroy_semaphore(gate, None) };
}
