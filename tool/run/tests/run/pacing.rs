//! Waits for frames whose ends the test itself decides.

use std::sync::mpsc::channel;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use ash::vk;
use wavefield_gpu::vulkan::{DeviceDesc, Pacer, Queue, Validation};
use wavefield_run::{DeviceTable, ProducerKind};

const FRAMES: u64 = 60;
const INTERVAL: Duration = Duration::from_millis(8);

fn queue() -> Queue {
    // The validation layer 1.3.239 can miss a signal of a timeline by the host, and then waits for 10 s.
    let choice = DeviceTable::headless(Validation::Off).unwrap().choose(None, ProducerKind::Compute).unwrap();
    choice.adapter.request_device(&DeviceDesc::default()).unwrap().1
}

/// How long after each frame's end the pacer noticed it.
fn lateness() -> Vec<Duration> {
    let mut queue = queue();
    let mut pacer = Pacer::new(&queue, 1).unwrap();
    let device = queue.device().raw().clone();
    let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
    let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
    // SAFETY: the device is alive, with timeline semaphores enabled.
    let gate = unsafe { device.create_semaphore(&info, None) }.unwrap();
    let (tell, hear) = channel();
    let late = scope(|threads| {
        threads.spawn(|| {
            let begun = Instant::now();
            for frame in 1..=FRAMES {
                sleep((begun + INTERVAL * frame as u32).saturating_duration_since(Instant::now()));
                tell.send(Instant::now()).unwrap();
                let info = vk::SemaphoreSignalInfo::default().semaphore(gate).value(frame);
                // SAFETY: the timeline semaphore of this device is alive, and its value grows.
                unsafe { device.signal_semaphore(&info) }.unwrap();
            }
        });
        let frame = |frame| {
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
            pacer.begin(|_| Ok(())).unwrap();
            let noticed = Instant::now();
            assert_eq!(pacer.finished().unwrap(), frame);
            noticed - hear.recv().unwrap()
        };
        (1..=FRAMES).map(frame).collect()
    });
    assert!(pacer.blocking_waits() > FRAMES / 2, "{} waits", pacer.blocking_waits());
    // SAFETY: every frame that waits for it is done.
    unsafe { device.destroy_semaphore(gate, None) };
    late
}

/// The CPU goes on when the frame is done, and not before.
#[test]
fn a_wait_notices_a_frame_s_end() {
    let mut late = lateness();
    late.sort_unstable();
    let (median, worst) = (late[late.len() / 2], late[late.len() - 1]);
    println!("{median:?} late at the median, {worst:?} at worst");
    // A wait may not end half a frame too late. (On a busy machine, single frames may be later.)
    assert!(median < INTERVAL / 2, "{late:?}");
}
