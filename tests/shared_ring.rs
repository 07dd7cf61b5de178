//! The library's ring when things go wrong: writes and reads are dropped, CUDA never signals, the ring is dropped while the GPU
//! uses it. Runs on this machine's GPU, and on the stand-in.

// The tests use the example's code, but do not run the example.
#![allow(dead_code, clippy::duplicate_mod)]
#![cfg(target_os = "linux")]

mod common;
#[path = "../crates/vulkan-cuda/examples/01_match.rs"]
mod match_devices;
#[path = "../crates/vulkan-cuda/examples/readback/mod.rs"]
mod readback;
#[path = "common/stand_in.rs"]
mod stand_in;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ash::vk;
use cudarc::driver::{CudaStream, sys};
use match_devices::Gpu;
use stand_in::{ALL, StandIn, run};
use vulkan_cuda::{BinarySignal, Read, Reads, SharedBinary, SharedBuffer, SharedRing, SharedTimeline};

const WORDS: usize = 256;
const BYTES: u64 = 4 * WORDS as u64;

/// Lets only one test run at a time: see `examples.rs`.
static ALONE: Mutex<()> = Mutex::new(());

/// A ring, and the memory to which Vulkan copies each frame.
struct Bench {
    ring: SharedRing<SharedBuffer>,
    seen: readback::Target,
    stream: Arc<CudaStream>,
    gpu: Gpu,
    alone: MutexGuard<'static, ()>,
}

impl Bench {
    /// Returns `None` and reports a skip if there is no GPU.
    fn new(slots: usize) -> Option<Self> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let gpu = match match_devices::open() {
            Ok(gpu) => gpu,
            Err(error) if match_devices::is_unsupported(&*error) => {
                common::skip_without_gpu(&error.to_string());
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let reads = Reads {
            family: gpu.family,
            stage: vk::PipelineStageFlags::TRANSFER,
            access: vk::AccessFlags::TRANSFER_READ,
        };
        let slot = |_| SharedBuffer::new(&gpu.pair, BYTES, vk::BufferUsageFlags::TRANSFER_SRC).unwrap();
        let stream = gpu.cuda.new_stream().unwrap();
        let slots = (0..slots).map(slot).collect();
        let ring = SharedRing::new(&gpu.pair, stream.clone(), slots, reads).unwrap();
        let seen = readback::Target::new(&gpu, 64 * BYTES).unwrap();
        Some(Self { ring, seen, stream, gpu, alone })
    }

    /// Makes CUDA write `value` to every word of the next frame's slot.
    fn write(&mut self, value: u32) -> Read {
        let write = self.ring.write().unwrap();
        let (address, stream) = (write.slot().cuda(), self.stream.cu_stream());
        // SAFETY: the slot has this many words, and CUDA owns it until `finish`.
        unsafe { sys::cuMemsetD32Async(address, value, WORDS, stream) }.result().unwrap();
        write.finish().unwrap()
    }

    /// The commands that copy the frame to `place`.
    fn copy(&self, read: &Read, place: u64) -> vk::CommandBuffer {
        let buffer = self.ring.slots()[read.slot()].vulkan();
        let commands = self.seen.record(|device, commands| {
            let copy = [vk::BufferCopy::default().dst_offset(place * BYTES).size(BYTES)];
            // SAFETY: the commands are being recorded for this family, and the copy lies within both buffers.
            unsafe {
                self.ring.record_acquire(read, commands);
                device.cmd_copy_buffer(commands, buffer, self.seen.buffer, &copy);
                self.ring.record_release(read, commands);
            }
        });
        commands.unwrap()
    }

    /// Makes Vulkan copy the frame to `place`.
    fn read(&self, read: Read, place: u64) {
        let (commands, wait, signal) = (self.copy(&read, place), read.wait_info(), read.signal_info());
        // SAFETY: the commands were recorded above, and everything lives until both sides are idle.
        unsafe { self.seen.submit(&self.gpu, commands, &[wait], &[signal]) }.unwrap();
        read.submitted();
    }

    /// The same by `vkQueueSubmit`, which also waits for `gate`. The waits are at `stage`.
    fn read_by_submit(&self, read: Read, place: u64, gate: BinarySignal, stage: vk::PipelineStageFlags) {
        let (gate, waited) = gate.vulkan_wait();
        let ((ready, written), (free, done)) = (read.wait(), read.signal());
        let (waits, signals) = ([ready, gate.semaphore], [free]);
        let (wait_values, signal_values) = ([written, 0], [done]);
        let mut values = vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(&wait_values)
            .signal_semaphore_values(&signal_values);
        let (stages, commands) = ([stage, vk::PipelineStageFlags::ALL_COMMANDS], [self.copy(&read, place)]);
        let batch = [vk::SubmitInfo::default()
            .wait_semaphores(&waits)
            .wait_dst_stage_mask(&stages)
            .command_buffers(&commands)
            .signal_semaphores(&signals)
            .push_next(&mut values)];
        // SAFETY: as in `read`.
        unsafe { self.gpu.device.queue_submit(self.gpu.queue, &batch, vk::Fence::null()) }.unwrap();
        read.submitted();
        waited.submitted();
    }

    fn reads_by_submit(&mut self, stage: vk::PipelineStageFlags) {
        let gate = SharedBinary::new(&self.gpu.pair).unwrap();
        for frame in 0..6 {
            let read = self.write(frame as u32);
            // SAFETY: the gate lives until both sides are idle.
            let open = unsafe { gate.cuda_signal(&self.stream) }.unwrap();
            self.read_by_submit(read, frame, open, stage);
        }
        self.check(&[0, 1, 2, 3, 4, 5]);
    }

    /// Waits for both sides, and compares the words of each place.
    fn check(&self, expected: &[u32]) {
        self.stream.synchronize().unwrap();
        // SAFETY: nobody else uses the queue.
        unsafe { self.gpu.device.queue_wait_idle(self.gpu.queue) }.unwrap();
        let words = self.seen.words().unwrap();
        for (place, (words, &expected)) in words.chunks(WORDS).zip(expected).enumerate() {
            assert!(words.iter().all(|&word| word == expected), "place {place}: {:#x}", words[0]);
        }
    }
}

/// A dropped write signals nothing and does not use up its number. The next write has the same slot.
#[test]
fn a_dropped_write_never_was() {
    let Some(mut bench) = Bench::new(2) else { return };
    for frame in 0..6 {
        drop(bench.ring.write().unwrap());
        assert_eq!(bench.ring.write().unwrap().frame(), frame);
        let read = bench.write(frame as u32);
        assert_eq!((read.frame(), read.slot()), (frame, frame as usize % 2));
        assert_eq!((read.wait().1, read.signal().1), (frame + 1, frame + 1));
        bench.read(read, frame);
    }
    bench.check(&[0, 1, 2, 3, 4, 5]);
}

/// An engine that submits by `vkQueueSubmit` shares timelines and binary semaphores too.
#[test]
fn the_older_submission_reads_as_well() {
    let Some(mut bench) = Bench::new(2) else { return };
    bench.reads_by_submit(vk::PipelineStageFlags::ALL_COMMANDS);
}

/// Only the stand-in notices: on a GPU it may go well.
#[test]
fn the_older_submission_at_one_stage() {
    let Some(mut bench) = Bench::new(2) else { return };
    bench.reads_by_submit(vk::PipelineStageFlags::TRANSFER);
}

/// CUDA waits for Vulkan to read each slot, but Vulkan never does. Nobody may wait for ever.
#[test]
fn dropped_reads_strand_nobody() {
    let Some(mut bench) = Bench::new(2) else { return };
    for value in 0..7 {
        drop(bench.write(value));
    }
    bench.stream.synchronize().unwrap();
    // The ring still works.
    let read = bench.write(7);
    bench.read(read, 0);
    bench.check(&[7]);
}

/// Some frames are skipped, and some reads are dropped only after CUDA waits for them.
#[test]
fn frames_may_be_given_up_in_between() {
    let Some(mut bench) = Bench::new(3) else { return };
    let mut expected = Vec::new();
    for frame in 0..20 {
        let read = bench.write(frame);
        if frame % 3 != 1 {
            bench.read(read, expected.len() as u64);
            expected.push(frame);
        }
    }
    // The ring is full of open reads, and CUDA waits for the first one.
    let open: Vec<_> = (0..3).map(|value| bench.write(100 + value)).collect();
    let more = bench.write(200);
    drop(open);
    bench.read(more, expected.len() as u64);
    expected.push(200);
    bench.check(&expected);
}

/// The CPU does not signal in place of a read that may still be submitted, and signals no greater value before that.
#[test]
fn a_read_that_is_open_is_waited_for() {
    let Some(mut bench) = Bench::new(2) else { return };
    let (first, second) = (bench.write(1), bench.write(2));
    drop(second);
    // CUDA waits for both slots, and gets none before the first frame was read.
    bench.ring.reserve(2).unwrap();
    bench.read(first, 0);
    let (third, fourth) = (bench.write(3), bench.write(4));
    drop(third);
    bench.read(fourth, 1);
    bench.check(&[1, 4]);
}

/// A batch waits once, for the slots of all its frames.
#[test]
fn a_batch_waits_once() {
    let Some(mut bench) = Bench::new(4) else { return };
    for batch in 0..3 {
        bench.ring.reserve(4).unwrap();
        let reads: Vec<_> = (0..4).map(|index| bench.write(batch * 4 + index)).collect();
        for read in reads {
            let place = read.frame();
            bench.read(read, place);
        }
    }
    bench.check(&(0..12).collect::<Vec<_>>());
    for count in [0, 5] {
        let text = bench.ring.reserve(count).unwrap_err().to_string();
        assert!(text.contains("1 to 4 frames"), "{text}");
    }
}

/// CUDA does not wait again for reserved slots, and a smaller reservation takes none back.
#[test]
fn a_reservation_may_be_repeated() {
    let Some(mut bench) = Bench::new(3) else { return };
    for round in 0..4 {
        bench.ring.reserve(3).unwrap();
        bench.ring.reserve(1).unwrap();
        for index in 0..3 {
            let read = bench.write(round * 3 + index);
            let place = read.frame();
            bench.read(read, place);
        }
    }
    bench.check(&(0..12).collect::<Vec<_>>());
}

#[test]
fn a_ring_needs_slots() {
    let Some(bench) = Bench::new(1) else { return };
    let reads =
        Reads { family: 0, stage: vk::PipelineStageFlags::TRANSFER, access: vk::AccessFlags::TRANSFER_READ };
    let none = SharedRing::<SharedBuffer>::new(&bench.gpu.pair, bench.stream.clone(), Vec::new(), reads);
    let text = none.err().expect("no ring").to_string();
    assert!(text.contains("1 to 32 slots, and 0 were given"), "{text}");
}

/// CUDA never signals, because its stream is blocked. `abort` releases Vulkan. This runs on the stand-in only, where the process
/// can end while a stream waits.
#[test]
fn an_abort_lets_vulkan_go() {
    if std::env::var_os("STAND_IN_PRETEND").is_none() {
        return common::skip("a real driver might wait for the stream at the end of the process");
    }
    let Some(mut bench) = Bench::new(2) else { return };
    let gate = SharedTimeline::new(&bench.gpu.pair).unwrap();
    // SAFETY: the gate is never dropped.
    unsafe { gate.cuda_wait(&bench.stream, 1) }.unwrap();
    let read = bench.write(1);
    bench.read(read, 0);
    // SAFETY: the stream is blocked for ever.
    unsafe { bench.ring.abort() }.unwrap();
    // SAFETY: nobody else uses the queue.
    unsafe { bench.gpu.device.queue_wait_idle(bench.gpu.queue) }.unwrap();
    // The stream still waits for the gate.
    std::mem::forget((bench, gate));
}

static LEAKED: AtomicBool = AtomicBool::new(false);

/// The drop leaks what the GPU may still use, and does not wait for ever.
#[test]
fn a_ring_in_use_is_leaked() {
    let Some(bench) = Bench::new(2) else { return };
    vulkan_cuda::on_cleanup_error(|error| {
        assert!(error.to_string().contains("was leaked"), "{error}");
        LEAKED.store(true, Ordering::SeqCst);
    });
    let Bench { mut ring, stream, gpu, seen, alone } = bench;
    let gate = SharedTimeline::new(&gpu.pair).unwrap();
    // SAFETY: the gate lives until the stream is idle, below.
    unsafe { gate.cuda_wait(&stream, 1) }.unwrap();
    drop(ring.write().unwrap().finish().unwrap());
    drop(ring);
    assert!(LEAKED.load(Ordering::SeqCst));
    // Let the stream end. It uses what was leaked.
    // SAFETY: nobody else signals the gate.
    unsafe { gate.signal_from_host(1) }.unwrap();
    stream.synchronize().unwrap();
    drop((gate, stream, gpu, seen, alone));
}

/// Runs the tests above on the stand-in. Those that end in order give everything back.
#[test]
fn all_of_them_on_the_stand_in() {
    let Some(stand_in) = StandIn::new() else { return };
    let (sound, broken) = (
        [
            "a_dropped_write_never_was",
            "dropped_reads_strand_nobody",
            "frames_may_be_given_up_in_between",
            "a_read_that_is_open_is_waited_for",
            "a_batch_waits_once",
            "a_reservation_may_be_repeated",
            "a_ring_needs_slots",
            "the_older_submission_reads_as_well",
        ],
        ["an_abort_lets_vulkan_go", "a_ring_in_use_is_leaked"],
    );
    for name in sound.into_iter().chain(broken) {
        let mut test = std::process::Command::new(std::env::current_exe().unwrap());
        test.args(["--exact", name, "--nocapture"]).env("WAVEFIELD_REQUIRE_GPU", "1");
        let done = run(&mut stand_in.beneath(test, &ALL)).unwrap();
        let report = if sound.contains(&name) { done.check_clean(0) } else { done.check_end(0) };
        let report = report.unwrap_or_else(|problem| panic!("{name}: {problem}"));
        assert!(common::stdout(&done.output).contains("1 passed"), "{name}");
        if name == "a_batch_waits_once" {
            assert_eq!(report.count("cuWaitExternalSemaphoresAsync"), 2, "the first batch waits for nothing");
        }
    }
    // The stand-in knows a wait that is too narrow, however it is submitted.
    let mut test = std::process::Command::new(std::env::current_exe().unwrap());
    test.args(["--exact", "the_older_submission_at_one_stage"]).env("WAVEFIELD_REQUIRE_GPU", "1");
    let done = run(&mut stand_in.beneath(test, &ALL)).unwrap();
    let problem = done.check_end(0).unwrap_err();
    assert!(problem.contains("a shared semaphore at ALL_TRANSFER, not ALL_COMMANDS"), "{problem}");
}
