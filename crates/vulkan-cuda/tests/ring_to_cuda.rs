//! The ring from Vulkan to CUDA: whole frames, and what a program needs when it drops a turn, or CUDA or Vulkan fails. Runs
//! on this machine's GPU, and on the stand-in.

// The tests use the example's code, but do not run the example.
#![allow(dead_code, clippy::duplicate_mod)]
#![cfg(target_os = "linux")]

#[path = "../examples/01_match.rs"]
mod match_devices;
#[path = "../examples/readback/mod.rs"]
mod readback;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ash::vk;
use cudarc::driver::CudaStream;
use match_devices::Gpu;
use vulkan_cuda::image::picture;
use vulkan_cuda::shared_ring::Resource;
use vulkan_cuda::{Error, QueueUse, RingToCuda, SharedBuffer, SharedImage, SharedTimeline, Slot, WriteTurn};
use wavefield_test_support as common;
use wavefield_test_support::stand_in::{ALL, StandIn, run};

const WORDS: usize = 256;
const BYTES: u64 = 4 * WORDS as u64;
/// No test waits this long unless it fails.
const LIMIT: Duration = Duration::from_secs(8);

/// Lets only one test run at a time: see `examples.rs`.
static ALONE: Mutex<()> = Mutex::new(());

struct Bench {
    ring: RingToCuda<SharedBuffer>,
    commands: readback::Target,
    stream: Arc<CudaStream>,
    gpu: Gpu,
    alone: MutexGuard<'static, ()>,
}

fn writer(family: u32) -> QueueUse {
    QueueUse { family, stage: vk::PipelineStageFlags::TRANSFER, access: vk::AccessFlags::TRANSFER_WRITE }
}

fn slots(gpu: &Gpu, count: usize) -> Vec<SharedBuffer> {
    let slot = |_| SharedBuffer::new(&gpu.pair, BYTES, vk::BufferUsageFlags::TRANSFER_DST).unwrap();
    (0..count).map(slot).collect()
}

/// Returns `None` and reports a skip if there is no GPU.
fn open() -> Option<(Gpu, MutexGuard<'static, ()>)> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    common::opened(match_devices::open(), match_devices::is_unsupported).map(|gpu| (gpu, alone))
}

impl Bench {
    fn new(count: usize) -> Option<Self> {
        let (gpu, alone) = open()?;
        let stream = gpu.cuda.new_stream().unwrap();
        let ring =
            RingToCuda::new(&gpu.pair, stream.clone(), slots(&gpu, count), writer(gpu.family)).unwrap();
        let commands = readback::Target::new(&gpu, BYTES).unwrap();
        Some(Self { ring, commands, stream, gpu, alone })
    }

    /// Makes Vulkan write `value` to every word of the next frame's slot.
    fn write(&mut self, value: u32) {
        let Self { ring, commands, gpu, .. } = self;
        fill(ring.write().expect("CUDA has read the slot"), commands, gpu, value).unwrap();
    }

    /// Makes CUDA read the next frame. Returns its number and its words.
    fn read(&mut self) -> (u64, Vec<u32>) {
        let read = self.ring.next_read().unwrap().expect("a frame was written");
        let words = self.stream.clone_dtoh(&read.view::<u32>().unwrap()).unwrap();
        let frame = read.frame();
        read.finish().unwrap();
        self.stream.synchronize().unwrap();
        (frame, words)
    }

    fn check(&mut self, frame: u64, value: u32) {
        assert_eq!(self.read(), (frame, vec![value; WORDS]));
    }
}

/// Submits the frame: every word of its slot is `value`.
fn fill(
    write: WriteTurn<'_, SharedBuffer>,
    target: &readback::Target,
    gpu: &Gpu,
    value: u32,
) -> Result<(), Error> {
    let commands = target.record(|device, commands| {
        // SAFETY: being recorded for this family; the slot has this many bytes.
        unsafe {
            write.record(commands, |slot| device.cmd_fill_buffer(commands, slot.vulkan(), 0, BYTES, value));
        }
    });
    let commands = commands.unwrap();
    // SAFETY: recorded above, and submitted once; everything lives until both sides are idle.
    unsafe { write.submit(|wait, signal| target.submit(gpu, commands, &[wait], &[signal])) }?.unwrap();
    Ok(())
}

/// How many frames to check; `WAVEFIELD_FRAMES` asks for more.
fn frames() -> u32 {
    std::env::var("WAVEFIELD_FRAMES").map_or(200, |frames| frames.parse().unwrap())
}

#[test]
fn every_frame_arrives_whole() {
    let Some(mut bench) = Bench::new(3) else { return };
    for frame in 0..frames() {
        bench.write(frame * 7);
        bench.check(u64::from(frame), frame * 7);
    }
    bench.ring.wait_idle(LIMIT).unwrap();
    assert_eq!(
        bench.ring.progress().unwrap().to_string(),
        format!(
            "both sides have signalled: CUDA's `free` is at {0} of {0}, Vulkan's `ready` at {0} of {0}",
            frames()
        )
    );
}

/// Vulkan may be as many frames ahead as there are slots, and then must wait for CUDA's turn.
#[test]
fn a_full_ring_says_not_yet() {
    let Some(mut bench) = Bench::new(2) else { return };
    bench.write(1);
    bench.write(2);
    assert!(bench.ring.write().is_none());
    assert_eq!(bench.ring.unread(), 2);
    bench.check(0, 1);
    bench.write(3);
    assert!(bench.ring.write().is_none());
    bench.check(1, 2);
    bench.check(2, 3);
    assert!(bench.ring.next_read().unwrap().is_none());
}

/// A write that is not submitted never was; a submission that fails neither.
#[test]
fn a_write_that_is_not_submitted_never_was() {
    let Some(mut bench) = Bench::new(2) else { return };
    bench.write(1);
    let dropped = bench.ring.write().unwrap();
    assert_eq!((dropped.frame(), dropped.index()), (1, 1));
    drop(dropped);
    let failing = bench.ring.write().unwrap();
    // SAFETY: the closure submits nothing, and returns an error.
    let outcome = unsafe { failing.submit(|_, _| Err::<(), _>("no")) };
    assert_eq!(outcome.unwrap(), Err("no"));
    bench.write(5);
    bench.check(0, 1);
    bench.check(1, 5);
}

/// A read that is dropped gives the slot back, in order.
#[test]
fn a_dropped_read_strands_nobody() {
    let Some(mut bench) = Bench::new(2) else { return };
    for value in 0..6 {
        bench.write(value);
        drop(bench.ring.next_read().unwrap());
    }
    bench.write(9);
    bench.check(6, 9);
    bench.ring.wait_idle(LIMIT).unwrap();
}

/// Vulkan's next frame waits, on the GPU, until CUDA has read the slot.
#[test]
fn a_slow_reader_is_not_overtaken() {
    let Some(mut bench) = Bench::new(1) else { return };
    let (gate, mut linear) =
        (SharedTimeline::new(&bench.gpu.pair).unwrap(), bench.stream.alloc_zeros::<u32>(WORDS).unwrap());
    bench.write(1);
    // SAFETY: the gate lives until the stream is idle.
    unsafe { gate.cuda_wait(&bench.stream, 1) }.unwrap();
    let read = bench.ring.next_read().unwrap().unwrap();
    bench.stream.memcpy_dtod(&read.view::<u32>().unwrap(), &mut linear).unwrap();
    read.finish().unwrap();
    bench.write(2);
    // Without the wait, Vulkan would be done by then.
    std::thread::sleep(Duration::from_millis(100));
    // SAFETY: nobody else signals the gate.
    unsafe { gate.signal_from_host(1) }.unwrap();
    let words = bench.stream.clone_dtoh(&linear).unwrap();
    bench.stream.synchronize().unwrap();
    assert_eq!(words, [1; WORDS]);
    bench.check(1, 2);
}

/// In a batch CUDA waits once, for its last frame, and Vulkan once, for its last slot.
#[test]
fn a_batch_waits_once() {
    let Some(mut bench) = Bench::new(4) else { return };
    for batch in 0..3u32 {
        let Bench { ring, commands, gpu, .. } = &mut bench;
        let mut value = 4 * batch;
        let written = ring.write_batch(4, |write| {
            value += 1;
            fill(write, commands, gpu, value - 1)
        });
        assert!(written.unwrap());
        let again = bench.ring.write_batch(1, |_| Err(Error::Rule("never called".into())));
        assert!(!again.unwrap(), "CUDA has not read");
        for value in 4 * batch..4 * batch + 4 {
            bench.check(u64::from(value), value);
        }
    }
}

#[test]
fn a_batch_may_fail() {
    let Some(mut bench) = Bench::new(3) else { return };
    let Bench { ring, commands, gpu, .. } = &mut bench;
    let mut count = 0;
    let failed = ring.write_batch(3, |write| {
        count += 1;
        if count == 2 { Err(Error::Rule("mine".into())) } else { fill(write, commands, gpu, 7) }
    });
    assert_eq!(failed.unwrap_err().to_string(), "mine");
    let unsubmitted = ring.write_batch::<Error>(1, |_| Ok(())).unwrap_err();
    assert_eq!(unsubmitted.to_string(), "frame 1 of a batch was not submitted");
    let wrong = ring.write_batch::<Error>(4, |_| Ok(())).unwrap_err();
    assert_eq!(wrong.to_string(), "a batch of a ring of 3 has 1 to 3 frames, not 4");
    bench.check(0, 7);
    bench.write(8);
    bench.check(1, 8);
}

/// What is drawn on an image comes to CUDA, which copies it to linear memory; and a ring takes its slots anew.
#[test]
fn an_image_arrives_and_slots_are_used_again() {
    struct Picture(Arc<SharedImage>);
    // SAFETY: the slot's only image, which it owns alone.
    unsafe impl Slot for Picture {
        fn resource(&self) -> Resource {
            self.0.resource()
        }
    }
    let Some((gpu, _alone)) = open() else { return };
    let request = picture(vk::Format::R8G8B8A8_UNORM, 16, 8, 1).unwrap();
    let mut slots: Vec<_> = (0..2).map(|_| Picture(SharedImage::new(&gpu.pair, &request).unwrap())).collect();
    let (stream, target) = (gpu.cuda.new_stream().unwrap(), readback::Target::new(&gpu, 4).unwrap());
    let linear = stream.alloc_zeros::<u32>(16 * 8).unwrap();
    let (address, _record) = cudarc::driver::DevicePtr::device_ptr(&linear, &stream);
    for _ in 0..2 {
        let mut ring = RingToCuda::new(&gpu.pair, stream.clone(), slots, writer(gpu.family)).unwrap();
        for frame in (0..frames()).map(|frame| frame as u8) {
            let write = ring.write().unwrap();
            let commands = target.record(|device, commands| {
                let colour = vk::ClearColorValue { float32: [f32::from(frame) / 255.0, 0.0, 1.0, 1.0] };
                let whole = [vulkan_cuda::ownership::whole_image()];
                // SAFETY: being recorded; the slot is in this layout meanwhile.
                unsafe {
                    write.record(commands, |slot| {
                        let (raw, layout) = (slot.0.exported().raw(), vk::ImageLayout::GENERAL);
                        device.cmd_clear_color_image(commands, raw, layout, &colour, &whole);
                    });
                }
            });
            let commands = commands.unwrap();
            // SAFETY: recorded above, and submitted once.
            unsafe { write.submit(|wait, signal| target.submit(&gpu, commands, &[wait], &[signal])) }
                .unwrap()
                .unwrap();
            let read = ring.next_read().unwrap().unwrap();
            let level = read.slot().0.level(0).unwrap();
            // SAFETY: the memory has 8 rows of 64 bytes; both live until the stream is idle.
            unsafe { level.copy_to(&stream, address, 64, [64, 8]) }.unwrap();
            read.finish().unwrap();
            let words = stream.clone_dtoh(&linear).unwrap();
            stream.synchronize().unwrap();
            assert_eq!(words, [0xffff_0000 | u32::from(frame); 16 * 8]);
        }
        slots = ring.into_slots(LIMIT).unwrap();
    }
}

#[test]
fn what_is_no_ring_is_refused() {
    let Some((gpu, _alone)) = open() else { return };
    let stream = gpu.cuda.new_stream().unwrap();
    let none = RingToCuda::<SharedBuffer>::new(&gpu.pair, stream, Vec::new(), writer(gpu.family));
    assert!(none.err().unwrap().to_string().contains("1 to"));
}

/// After a fault CUDA signals nothing more. `check` signals in its place, so that Vulkan's queue ends.
#[test]
#[ignore = "needs a fault"]
fn a_fault_lets_vulkan_go() {
    let Some(mut bench) = Bench::new(1) else { return };
    bench.write(1);
    bench.check(0, 1);
    bench.write(2);
    let read = bench.ring.next_read().unwrap().unwrap();
    let error = read.finish().unwrap_err();
    assert!(matches!(error, Error::Cuda { code: 719, .. }), "{error}");
    assert!(bench.ring.check().is_err());
    // SAFETY: nobody else uses the queue.
    unsafe { bench.gpu.device.queue_wait_idle(bench.gpu.queue) }.unwrap();
}

/// Neither side comes to its signals. `abort` ends the waits of both.
#[test]
#[ignore = "the process must end while a stream waits"]
fn an_abort_lets_both_go() {
    let Some(mut bench) = Bench::new(1) else { return };
    let gate = SharedTimeline::new(&bench.gpu.pair).unwrap();
    bench.write(1);
    // SAFETY: the gate is never dropped.
    unsafe { gate.cuda_wait(&bench.stream, 1) }.unwrap();
    bench.ring.next_read().unwrap().unwrap().finish().unwrap();
    bench.write(2); // waits for CUDA
    // SAFETY: the stream is blocked for ever, and the queue's signal has no greater value.
    unsafe { bench.ring.abort() }.unwrap();
    let text = bench.ring.wait_idle(LIMIT).unwrap_err().to_string();
    assert!(text.contains("was given up"), "{text}");
    std::mem::forget((bench, gate));
}

static LEAKED: AtomicBool = AtomicBool::new(false);

/// The drop leaks what the GPU may still use, and does not wait for ever.
#[test]
fn a_ring_in_use_is_leaked() {
    let Some(mut bench) = Bench::new(1) else { return };
    vulkan_cuda::on_cleanup_error(|error| {
        let text = error.to_string();
        assert!(text.contains("was leaked") && text.contains("CUDA did not signal"), "{text}");
        LEAKED.store(true, Ordering::SeqCst);
    });
    let gate = SharedTimeline::new(&bench.gpu.pair).unwrap();
    bench.write(1);
    // SAFETY: nobody else uses the queue.
    unsafe { bench.gpu.device.queue_wait_idle(bench.gpu.queue) }.unwrap();
    // SAFETY: the gate lives until the stream is idle, below.
    unsafe { gate.cuda_wait(&bench.stream, 1) }.unwrap();
    bench.ring.next_read().unwrap().unwrap().finish().unwrap();
    bench.ring.set_patience(Duration::ZERO);
    let Bench { ring, commands, stream, gpu, alone } = bench;
    drop(ring);
    assert!(LEAKED.load(Ordering::SeqCst));
    // SAFETY: nobody else signals the gate.
    unsafe { gate.signal_from_host(1) }.unwrap();
    stream.synchronize().unwrap();
    drop((gate, commands, stream, gpu, alone));
}

/// Runs the tests above on the stand-in. Those that end in order give everything back.
#[test]
fn all_of_them_on_the_stand_in() {
    let Some(stand_in) = StandIn::new() else { return };
    let sound = [
        "every_frame_arrives_whole",
        "a_full_ring_says_not_yet",
        "a_write_that_is_not_submitted_never_was",
        "a_dropped_read_strands_nobody",
        "a_slow_reader_is_not_overtaken",
        "a_batch_waits_once",
        "a_batch_may_fail",
        "an_image_arrives_and_slots_are_used_again",
        "what_is_no_ring_is_refused",
    ]
    .map(|name| (name, ""));
    let broken = [
        ("a_fault_lets_vulkan_go", "cuSignalExternalSemaphoresAsync:719:2"),
        ("an_abort_lets_both_go", ""),
        ("a_ring_in_use_is_leaked", ""),
    ];
    for (index, (name, fail)) in sound.into_iter().chain(broken).enumerate() {
        let mut test = std::process::Command::new(std::env::current_exe().unwrap());
        test.args(["--exact", name, "--include-ignored", "--nocapture"]).env("WAVEFIELD_REQUIRE_GPU", "1");
        let done = run(stand_in.beneath(test, &ALL).env("STAND_IN_FAIL", fail)).unwrap();
        let report = if index < sound.len() { done.check_clean(0) } else { done.check_end(0) };
        let report = report.unwrap_or_else(|problem| panic!("{name}: {problem}"));
        assert!(common::stdout(&done.output).contains("1 passed"), "{name}");
        if name == "a_batch_waits_once" {
            assert_eq!(report.count("cuWaitExternalSemaphoresAsync"), 3);
        }
    }
}
