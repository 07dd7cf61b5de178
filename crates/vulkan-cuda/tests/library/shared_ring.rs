//! The library's ring when things go wrong: twelve ways to use it wrongly, and what a program needs when CUDA
//! or Vulkan fails. Runs on this machine's GPU, and on the stand-in.
//!
//! Two of the twelve do not compile: one buffer as two slots ([`vulkan_cuda::Slot`]), and a turn that is
//! submitted twice ([`vulkan_cuda::VulkanTurn::submit`]). A third has no words in this interface: no turn
//! takes a ring, so none can be given to another one.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use ash::vk;
use cudarc::driver::{CudaStream, sys};
use vulkan_cuda::image::picture;
use vulkan_cuda::shared_ring::Resource;
use vulkan_cuda::{
    Error, ExportedAllocation, QueueUse, SharedBinary, SharedBuffer, SharedImage, SharedRing, SharedTimeline,
    Slot, VulkanTurn,
};
use wavefield_test_support as common;
use wavefield_test_support::stand_in::{ALL, StandIn, run};

use crate::match_devices::Gpu;
use crate::{cleanup_errors, match_devices, open, readback};

const WORDS: usize = 256;
const BYTES: u64 = 4 * WORDS as u64;

type Problem = Box<dyn std::error::Error>;

/// No test waits this long unless it fails.
const LIMIT: Duration = Duration::from_secs(8);

/// A ring, and the memory to which Vulkan copies each frame.
struct Bench {
    ring: SharedRing<SharedBuffer>,
    seen: readback::Target,
    stream: Arc<CudaStream>,
    gpu: Gpu,
    alone: MutexGuard<'static, ()>,
}

fn reader(family: u32) -> QueueUse {
    QueueUse { family, stage: vk::PipelineStageFlags::TRANSFER, access: vk::AccessFlags::TRANSFER_READ }
}

fn slots(gpu: &Gpu, count: usize) -> Vec<SharedBuffer> {
    let slot = |_| SharedBuffer::new(&gpu.pair, BYTES, vk::BufferUsageFlags::TRANSFER_SRC).unwrap();
    (0..count).map(slot).collect()
}

impl Bench {
    /// Returns `None` and reports a skip if there is no GPU.
    fn new(count: usize) -> Option<Self> {
        let (alone, gpu) = open()?;
        let stream = gpu.cuda.new_stream().unwrap();
        let ring =
            SharedRing::new(&gpu.pair, stream.clone(), slots(&gpu, count), reader(gpu.family)).unwrap();
        let seen = readback::Target::new(&gpu, 64 * BYTES).unwrap();
        Some(Self { ring, seen, stream, gpu, alone })
    }

    /// Makes CUDA write `value` to every word of the next frame's slot.
    fn write(&mut self, value: u32) -> VulkanTurn<SharedBuffer> {
        let write = self.ring.write().unwrap().expect("the slot is not held");
        fill(write.slot(), &self.stream, value);
        write.finish().unwrap()
    }

    /// Makes Vulkan copy the frame to `place`.
    fn read(&self, read: VulkanTurn<SharedBuffer>, place: u64) {
        read_as(&self.seen, &self.gpu, read, place);
    }

    /// The same by `vkQueueSubmit`, which also waits for `gate`. The waits are at `stage`.
    fn read_by_submit(
        &self,
        read: VulkanTurn<SharedBuffer>,
        place: u64,
        gate: &SharedBinary,
        stage: vk::PipelineStageFlags,
    ) {
        let opened = gate.vulkan_wait().unwrap();
        let (stages, commands) =
            ([stage, vk::PipelineStageFlags::ALL_COMMANDS], [recorded(&self.seen, &read, place)]);
        let submit = |ready: vk::SemaphoreSubmitInfo<'_>, free: vk::SemaphoreSubmitInfo<'_>| {
            let (waits, signals) = ([ready.semaphore, opened.semaphore], [free.semaphore]);
            let (wait_values, signal_values) = ([ready.value, 0], [free.value]);
            let mut values = vk::TimelineSemaphoreSubmitInfo::default()
                .wait_semaphore_values(&wait_values)
                .signal_semaphore_values(&signal_values);
            let batch = [vk::SubmitInfo::default()
                .wait_semaphores(&waits)
                .wait_dst_stage_mask(&stages)
                .command_buffers(&commands)
                .signal_semaphores(&signals)
                .push_next(&mut values)];
            // SAFETY: as in `read_as`.
            Ok::<_, Problem>(unsafe {
                self.gpu.device.queue_submit(self.gpu.queue, &batch, vk::Fence::null())
            }?)
        };
        // SAFETY: one submission.
        unsafe { read.submit(submit) }.unwrap();
        gate.submitted();
    }

    fn reads_by_submit(&mut self, stage: vk::PipelineStageFlags) {
        let gate = SharedBinary::new(&self.gpu.pair).unwrap();
        for frame in 0..6 {
            let read = self.write(frame as u32);
            // SAFETY: the gate lives until both sides are idle.
            unsafe { gate.cuda_signal(&self.stream) }.unwrap();
            self.read_by_submit(read, frame, &gate, stage);
        }
        self.check(&[0, 1, 2, 3, 4, 5]);
    }

    /// Waits for both sides, and compares the words of each place.
    fn check(&mut self, expected: &[u32]) {
        self.ring.wait_idle(LIMIT).unwrap();
        compare(&self.seen, expected);
    }
}

/// Makes CUDA write `value` to every word.
fn fill(slot: &SharedBuffer, stream: &CudaStream, value: u32) {
    // SAFETY: the slot has this many words, and CUDA owns it until `finish`.
    unsafe { sys::cuMemsetD32Async(slot.cuda(), value, WORDS, stream.cu_stream()) }.result().unwrap();
}

/// Records a copy of the slot to `place`.
fn copy(
    seen: &readback::Target,
    device: &ash::Device,
    commands: vk::CommandBuffer,
    from: vk::Buffer,
    place: u64,
) {
    let copy = [vk::BufferCopy::default().dst_offset(place * BYTES).size(BYTES)];
    // SAFETY: the commands are being recorded, and the copy lies within both buffers.
    unsafe { device.cmd_copy_buffer(commands, from, seen.buffer, &copy) };
}

/// The commands that take the slot, copy it to `place`, and give it back.
fn recorded(seen: &readback::Target, read: &VulkanTurn<SharedBuffer>, place: u64) -> vk::CommandBuffer {
    let commands = seen.record(|device, commands| {
        // SAFETY: the commands are being recorded for this family.
        unsafe { read.record(commands, |slot| copy(seen, device, commands, slot.vulkan(), place)) };
    });
    commands.unwrap()
}

fn read_as(seen: &readback::Target, gpu: &Gpu, read: VulkanTurn<SharedBuffer>, place: u64) {
    let commands = recorded(seen, &read, place);
    // SAFETY: the commands were recorded above, and everything lives until both sides are idle.
    unsafe { read.submit(|wait, signal| seen.submit(gpu, commands, &[wait], &[signal])) }.unwrap();
}

fn compare(seen: &readback::Target, expected: &[u32]) {
    let words = seen.words().unwrap();
    for (place, (words, &expected)) in words.chunks(WORDS).zip(expected).enumerate() {
        assert!(words.iter().all(|&word| word == expected), "place {place}: {:#x}", words[0]);
    }
}

/// A write that is dropped, forgotten or unwound signals nothing and does not use up its number. The next
/// write has the same slot. (A turn has no `Drop`, so the three are one.)
#[test]
#[allow(clippy::drop_non_drop, clippy::forget_non_drop)]
fn a_write_that_does_not_finish_never_was() {
    let Some(mut bench) = Bench::new(2) else { return };
    for frame in 0..6 {
        drop(bench.ring.write().unwrap());
        std::mem::forget(bench.ring.write().unwrap());
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _write = bench.ring.write().unwrap();
            std::panic::resume_unwind(Box::new("a kernel's launch"));
        }));
        assert!(unwound.is_err());
        assert_eq!(bench.ring.write().unwrap().unwrap().frame(), frame);
        let read = bench.write(frame as u32);
        assert_eq!((read.frame(), read.index()), (frame, frame as usize % 2));
        bench.read(read, frame);
    }
    bench.check(&[0, 1, 2, 3, 4, 5]);
}

/// An engine that submits by `vkQueueSubmit` shares timelines and binary semaphores too. With one slot,
/// because CUDA must not signal the binary semaphore again before Vulkan has waited for it.
#[test]
fn the_older_submission_reads_as_well() {
    let Some(mut bench) = Bench::new(1) else { return };
    bench.reads_by_submit(vk::PipelineStageFlags::ALL_COMMANDS);
}

/// Only the stand-in names the mistake.
#[test]
#[ignore = "breaks the rule on purpose"]
fn the_older_submission_at_one_stage() {
    let Some(mut bench) = Bench::new(1) else { return };
    bench.reads_by_submit(vk::PipelineStageFlags::TRANSFER);
}

/// Nobody waits for a frame that was given up, and its slot is CUDA's again at once.
#[test]
fn dropped_reads_strand_nobody() {
    let Some(mut bench) = Bench::new(2) else { return };
    for value in 0..7 {
        drop(bench.write(value));
    }
    bench.ring.wait_idle(LIMIT).unwrap();
    let read = bench.write(7);
    bench.read(read, 0);
    bench.check(&[7]);
}

/// Some frames are drawn, others given up, and `write` never waits.
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
    let held: Vec<_> = (0..3).map(|value| bench.write(100 + value)).collect();
    assert!(bench.ring.write().unwrap().is_none(), "the slot is held");
    drop(held);
    let more = bench.write(200);
    bench.read(more, expected.len() as u64);
    expected.push(200);
    bench.check(&expected);
}

/// Four frames are given up while Vulkan cannot read an earlier one, because CUDA has not written it. Neither
/// `write` nor a batch waits on the CPU, nothing breaks, and the drop is in order.
#[test]
fn a_slow_reader_stops_nobody() {
    let Some(mut bench) = Bench::new(4) else { return };
    let gate = SharedTimeline::new(&bench.gpu.pair).unwrap();
    // SAFETY: the gate lives until the stream is idle.
    unsafe { gate.cuda_wait(&bench.stream, 1) }.unwrap();
    let slow = bench.write(1);
    bench.read(slow, 0);
    for value in 2..6 {
        drop(bench.write(value));
    }
    let stream = bench.stream.clone();
    let written = bench.ring.write_batch(3, |write| {
        fill(write.slot(), &stream, 7);
        write.finish()
    });
    assert!(written.unwrap());
    // The frame before is in the last slot of the batch, so this one is still free.
    assert!(bench.ring.write().unwrap().is_some());
    let text = bench.ring.wait_idle(Duration::ZERO).unwrap_err().to_string();
    assert!(text.contains("CUDA did not signal") && text.contains("given up: [5, 6, 7]"), "{text}");
    // SAFETY: nobody else signals the gate.
    unsafe { gate.signal_from_host(1) }.unwrap();
    while let Some(read) = bench.ring.next_read() {
        let place = read.frame() - 4;
        bench.read(read, place);
    }
    bench.check(&[1, 7, 7, 7]);
}

/// A signal in a graph would come when the graph is launched, once or often. So the frame is refused, and the
/// ring goes on.
#[test]
fn a_captured_stream_is_refused() {
    let Some(mut bench) = Bench::new(2) else { return };
    let write = bench.ring.write().unwrap().unwrap();
    bench.stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).unwrap();
    let text = write.finish().err().expect("it is captured").to_string();
    assert!(text.contains("is being captured"), "{text}");
    let mut graph = std::ptr::null_mut();
    // SAFETY: the stream is being captured.
    unsafe { sys::cuStreamEndCapture(bench.stream.cu_stream(), &mut graph) }.result().unwrap();
    for value in 1..4 {
        let read = bench.write(value);
        assert_eq!(read.frame(), u64::from(value) - 1, "the refused frame never began");
        bench.read(read, u64::from(value) - 1);
    }
    bench.check(&[1, 2, 3]);
}

/// A turn that is kept holds its slot. The ring says "not yet", and does not wait.
#[test]
fn a_read_that_is_never_submitted_stops_only_its_slot() {
    let Some(mut bench) = Bench::new(2) else { return };
    let (first, second) = (bench.write(1), bench.write(2));
    for _ in 0..3 {
        assert!(bench.ring.write().unwrap().is_none());
    }
    assert_eq!(bench.ring.progress().unwrap().held, [0, 1]);
    bench.ring.wait_idle(LIMIT).unwrap();
    bench.read(first, 0);
    let third = bench.write(3);
    bench.read(second, 1);
    bench.read(third, 2);
    bench.check(&[1, 2, 3]);
}

/// The slots and timelines outlive the ring, as long as a turn needs them.
#[test]
fn a_read_may_outlive_its_ring() {
    let Some(mut bench) = Bench::new(3) else { return };
    let (first, dropped, last) = (bench.write(1), bench.write(2), bench.write(3));
    let Bench { ring, seen, stream, gpu, alone } = bench;
    drop(ring);
    read_as(&seen, &gpu, first, 0);
    drop(dropped);
    // The last turn waits for the GPU, and destroys the slots.
    read_as(&seen, &gpu, last, 1);
    compare(&seen, &[1, 3]);
    drop((seen, stream, gpu, alone));
}

/// A submission out of order is refused before the driver is called, and its frame is given up. The same
/// holds for one that fails.
#[test]
fn reads_are_submitted_in_order() {
    let Some(mut bench) = Bench::new(3) else { return };
    let (first, second) = (bench.write(1), bench.write(2));
    bench.read(second, 0);
    // SAFETY: it is refused.
    let refused =
        unsafe { first.submit(|_, _| -> Result<(), Error> { panic!("a pending value is greater") }) };
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("frame 0 of a ring was submitted after frame 1"), "{text}");
    let failed = bench.write(3);
    // SAFETY: nothing is submitted.
    let lost = unsafe { failed.submit(|_, _| Err::<(), _>(Error::Rule("lost".into()))) };
    assert_eq!(lost.unwrap_err().to_string(), "lost");
    assert_eq!(bench.ring.progress().unwrap().held, [0_u64; 0]);
    let last = bench.write(4);
    bench.read(last, 1);
    bench.check(&[2, 4]);
}

/// A turn keeps its slot over several submissions, while the ring goes on.
#[test]
fn a_slot_may_be_drawn_again() {
    let Some(mut bench) = Bench::new(3) else { return };
    let kept = bench.write(1);
    let index = kept.index();
    let Bench { ring, seen, gpu, .. } = &bench;
    for place in 0..3 {
        let commands = seen.record(|device, commands| {
            // SAFETY: recording, for this family; the release comes after the acquire.
            unsafe {
                if place == 0 {
                    ring.record_acquire(index, commands).unwrap();
                }
                copy(seen, device, commands, kept.slot().vulkan(), place);
                if place == 2 {
                    ring.record_release(index, commands).unwrap();
                }
            }
        });
        let commands = commands.unwrap();
        if place < 2 {
            // SAFETY: waits for the frame, and comes before the last submission.
            unsafe { seen.submit(gpu, commands, &[kept.wait_info()], &[]) }.unwrap();
        } else {
            // SAFETY: one submission to the ring's queue.
            unsafe { kept.submit(|wait, signal| seen.submit(gpu, commands, &[wait], &[signal])) }.unwrap();
            break;
        }
    }
    // SAFETY: it is refused.
    let none = unsafe { ring.record_acquire(3, vk::CommandBuffer::null()) };
    assert!(none.unwrap_err().to_string().contains("no slot 3"));
    let more = bench.write(2);
    bench.read(more, 3);
    bench.check(&[1, 1, 1, 2]);
}

/// A batch waits once, for the slots of all its frames. The ring keeps its turns. Batches differ.
#[test]
fn a_batch_waits_once() {
    let Some(mut bench) = Bench::new(4) else { return };
    let stream = bench.stream.clone();
    let mut frame = 0;
    for count in [4, 4, 1, 3, 2, 2] {
        let end = frame + count as u64;
        let written = bench.ring.write_batch(count, |write| {
            // The frame that was last in the batch's last slot.
            assert_eq!(write.waits_for(), (end - 1).checked_sub(4), "frame {}", write.frame());
            fill(write.slot(), &stream, write.frame() as u32);
            write.finish()
        });
        assert!(written.unwrap());
        if count == 4 {
            let not_yet = bench.ring.write_batch(1, |_| -> Result<_, Error> { panic!("all slots are held") });
            assert!(!not_yet.unwrap());
        }
        while let Some(read) = bench.ring.next_read() {
            assert_eq!(read.frame(), frame);
            bench.read(read, frame);
            frame += 1;
        }
    }
    bench.check(&(0..16).collect::<Vec<_>>());
    for count in [0, 5] {
        let refused = bench.ring.write_batch(count, |_| -> Result<_, Error> { panic!("refused") });
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("1 to 4 frames"), "{text}");
    }
}

/// The frames before a failed one are kept.
#[test]
fn a_batch_may_fail() {
    let Some(mut bench) = Bench::new(3) else { return };
    let stream = bench.stream.clone();
    let failed = bench.ring.write_batch(3, |write| {
        fill(write.slot(), &stream, 5);
        if write.frame() == 1 { Err(Error::Rule("no kernel".into())) } else { write.finish() }
    });
    assert!(failed.unwrap_err().to_string().contains("no kernel"));
    let read = bench.ring.next_read().unwrap();
    assert_eq!((read.frame(), bench.ring.next_read().is_none()), (0, true));
    bench.read(read, 0);
    let read = bench.write(6);
    assert_eq!(read.frame(), 1);
    bench.read(read, 1);
    bench.check(&[5, 6]);
}

/// Another frame's turn and another ring's are refused, and given up.
#[test]
fn a_batch_takes_only_its_own_turns() {
    let Some(mut bench) = Bench::new(3) else { return };
    let (stream, family) = (bench.stream.clone(), bench.gpu.family);
    let mut other = SharedRing::new(&bench.gpu.pair, stream, slots(&bench.gpu, 2), reader(family)).unwrap();
    let mut foreign = || other.write().unwrap().unwrap().finish().unwrap();
    drop(foreign());
    // Frame 0 of this ring, and frame 1 of the other one.
    for wrong in [bench.write(1), foreign()] {
        let mut wrong = Some(wrong);
        let written = bench.ring.write_batch(2, |_| -> Result<_, Error> { Ok(wrong.take().unwrap()) });
        let text = written.expect_err("it is not its own").to_string();
        assert!(text.contains("frame 1 of a batch") && text.contains("another turn"), "{text}");
        assert!(bench.ring.next_read().is_none());
    }
    for ring in [&bench.ring, &other] {
        assert_eq!(ring.progress().unwrap().held, [0_u64; 0]);
    }
    let read = bench.write(2);
    assert_eq!(read.frame(), 1);
    bench.read(read, 0);
    bench.check(&[2]);
}

/// What the wait is for: without it CUDA overwrites a slot before Vulkan has read it.
#[test]
fn without_free_a_frame_is_overwritten() {
    let Some(mut bench) = Bench::new(1) else { return };
    let gate = SharedTimeline::new(&bench.gpu.pair).unwrap();
    // SAFETY: this test is about the content.
    unsafe { bench.ring.leave_out_free() };
    let first = bench.write(1);
    let commands = recorded(&bench.seen, &first, 0);
    // SAFETY: waits for the gate too, which is opened below.
    unsafe {
        first.submit(|wait, signal| {
            bench.seen.submit(&bench.gpu, commands, &[wait, gate.vulkan_wait(1)], &[signal])
        })
    }
    .unwrap();
    drop(bench.write(2));
    bench.stream.synchronize().unwrap();
    // SAFETY: nobody else signals the gate.
    unsafe { gate.signal_from_host(1) }.unwrap();
    bench.check(&[2]);
}

/// cudarc's own copies take a slot.
#[test]
fn a_slot_is_viewed_as_elements() {
    let Some(mut bench) = Bench::new(1) else { return };
    let write = bench.ring.write().unwrap().unwrap();
    let mut words = write.view::<u32>().unwrap();
    assert_eq!((words.len(), words.address()), (WORDS, write.slot().cuda()));
    write.stream().memcpy_htod(&[9_u32; WORDS], &mut words).unwrap();
    if std::env::var_os("STAND_IN_PRETEND").is_none() {
        // From another stream, which the stand-in cannot order: after the ring's stream, and done before it
        // goes on.
        bench.gpu.cuda.new_stream().unwrap().memcpy_htod(&[10_u32; WORDS], &mut words).unwrap();
        write.stream().memcpy_htod(&[9_u32; WORDS], &mut words).unwrap();
    }
    let text = write.view::<[f32; 3]>().err().unwrap().to_string();
    assert!(text.contains("1024 bytes at") && text.contains("12 bytes"), "{text}");
    let read = write.finish().unwrap();
    bench.read(read, 0);
    bench.check(&[9]);
}

/// The slots come back, and a ring of another size takes them.
#[test]
fn a_ring_gives_its_slots_back() {
    let Some(mut bench) = Bench::new(2) else { return };
    let read = bench.write(1);
    bench.read(read, 0);
    let Bench { ring, seen, stream, gpu, alone } = bench;
    let mut kept = ring.into_slots(LIMIT).unwrap();
    kept.extend(slots(&gpu, 1));
    let ring = SharedRing::new(&gpu.pair, stream.clone(), kept, reader(gpu.family)).unwrap();
    let mut bench = Bench { ring, seen, stream, gpu, alone };
    for value in 1..8 {
        let read = bench.write(value);
        bench.read(read, u64::from(value));
    }
    bench.check(&[1, 1, 2, 3, 4, 5, 6, 7]);
    let held = bench.write(9);
    let text = bench.ring.into_slots(LIMIT).err().unwrap().to_string();
    assert!(text.contains("frames [7]"), "{text}");
    drop(held);
}

fn several(gpu: &Gpu, count: usize) -> vulkan_cuda::Result<Vec<SharedBuffer>> {
    let usage = vk::BufferUsageFlags::TRANSFER_SRC;
    ExportedAllocation::new(gpu.pair.vk(), &vec![BYTES; count], usage)?.share(&gpu.pair)
}

/// Several slots in one allocation. All are written before the first is read, so that an overlap would show.
#[test]
fn parts_of_an_allocation_are_slots() {
    let Some(Bench { ring, seen, stream, gpu, alone }) = Bench::new(1) else { return };
    drop(ring);
    let slots = several(&gpu, 3).unwrap();
    let ring = SharedRing::new(&gpu.pair, stream.clone(), slots, reader(gpu.family)).unwrap();
    let mut bench = Bench { ring, seen, stream, gpu, alone };
    let reads: Vec<_> = (1..4).map(|value| bench.write(value)).collect();
    for (place, read) in (0..).zip(reads) {
        bench.read(read, place);
    }
    bench.check(&[1, 2, 3]);
    // The allocation lives as long as one of them.
    let mut slots = bench.ring.into_slots(LIMIT).unwrap();
    slots.truncate(1);
    fill(&slots[0], &bench.stream, 4);
    bench.stream.synchronize().unwrap();
}

/// What was mapped before is unmapped, and the import ends before Vulkan's memory.
#[test]
#[ignore = "needs a driver that fails"]
fn a_part_that_cannot_be_mapped_takes_the_others_with_it() {
    let Some(bench) = Bench::new(1) else { return };
    let text = several(&bench.gpu, 3).err().unwrap().to_string();
    assert!(text.contains("cuExternalMemoryGetMappedBuffer failed"), "{text}");
}

/// An image that Vulkan has not released has no layout yet.
struct Image(Arc<SharedImage>);

// SAFETY: it owns the image, and shares it with nobody.
unsafe impl Slot for Image {
    fn resource(&self) -> Resource {
        self.0.resource()
    }
}

#[test]
fn what_is_no_ring_is_refused() {
    let Some(bench) = Bench::new(1) else { return };
    let (pair, stream, family) = (&bench.gpu.pair, bench.stream.clone(), bench.gpu.family);
    let none = SharedRing::<SharedBuffer>::new(pair, stream.clone(), Vec::new(), reader(family));
    let text = none.err().expect("no ring").to_string();
    assert!(text.contains("1 to 32 slots, and 0 were given"), "{text}");

    // The slots of another VkDevice.
    let other = match_devices::open().unwrap();
    let foreign = SharedRing::new(pair, stream.clone(), slots(&other, 1), reader(family));
    let text = foreign.err().expect("another device").to_string();
    assert!(text.contains("slot 0 of a ring is of another device"), "{text}");

    let request = picture(vk::Format::R16G16B16A16_SFLOAT, 8, 8, 1).unwrap();
    let image = || Image(SharedImage::new(pair, &request).unwrap());
    let mut ring = SharedRing::new(pair, stream, vec![image(), image()], reader(family)).unwrap();
    let text = ring.write().err().expect("they were not released").to_string();
    assert!(text.contains("record_first_release"), "{text}");
    // SAFETY: recording, for this family; CUDA has not begun.
    bench.seen.run(&bench.gpu, |_, commands| unsafe { ring.record_first_release(commands) }).unwrap();
    let first = ring.write().unwrap().unwrap();
    assert!(first.view::<f32>().is_err());
    drop(first.finish().unwrap());
}

/// Vulkan's device is lost. Every later submission fails and gives its frame up, and nobody waits for ever.
#[test]
#[ignore = "needs a device that fails"]
fn a_dead_device_stops_nobody() {
    let Some(mut bench) = Bench::new(2) else { return };
    for value in 0..6 {
        let read = bench.write(value);
        let commands = bench.seen.record(|_, _| ()).unwrap();
        let submit = |wait, signal| unsafe { bench.seen.submit(&bench.gpu, commands, &[wait], &[signal]) };
        // SAFETY: one submission.
        let answer = unsafe { read.submit(submit) };
        assert_eq!(answer.is_err(), value >= 2, "{answer:?}");
    }
    let error = bench.ring.wait_idle(LIMIT).unwrap_err();
    assert!(matches!(error, Error::Vulkan { result: vk::Result::ERROR_DEVICE_LOST, .. }), "{error}");
}

/// A kernel faults. `check` tells it, and Vulkan's queue does not wait for ever.
#[test]
#[ignore = "spoils the context"]
fn a_fault_lets_vulkan_go() {
    let Some(mut bench) = Bench::new(2) else { return };
    bench.ring.check().unwrap();
    let read = bench.write(1);
    bench.read(read, 0);
    // The stand-in lets this call fail with a fault.
    let write = bench.ring.write().unwrap().unwrap();
    write.view::<u32>().unwrap();
    let read = write.finish();
    assert!(read.is_err());
    let error = bench.ring.check().unwrap_err();
    assert!(matches!(error, Error::Cuda { code: 719, .. }), "{error}");
    // SAFETY: nobody else uses the queue.
    unsafe { bench.gpu.device.queue_wait_idle(bench.gpu.queue) }.unwrap();
    let error = bench.ring.wait_idle(LIMIT).unwrap_err();
    assert!(matches!(error, Error::Cuda { code: 719, .. }), "{error}");
}

/// CUDA never signals, because its stream is blocked. `abort` releases Vulkan. This runs on the stand-in
/// only, where the process can end while a stream waits.
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
    // The stream still waits for the gate, so the ring leaks itself.
    let text = bench.ring.wait_idle(LIMIT).unwrap_err().to_string();
    assert!(text.contains("was given up"), "{text}");
    let Bench { ring, seen, stream, gpu, alone } = bench;
    drop(ring);
    std::mem::forget((seen, stream, gpu, alone, gate));
}

/// The drop leaks what the GPU may still use, and does not wait for ever.
#[test]
fn a_ring_in_use_is_leaked() {
    let Some(bench) = Bench::new(2) else { return };
    let Bench { mut ring, stream, gpu, seen, alone } = bench;
    let gate = SharedTimeline::new(&gpu.pair).unwrap();
    // SAFETY: the gate lives until the stream is idle, below.
    unsafe { gate.cuda_wait(&stream, 1) }.unwrap();
    ring.set_patience(Duration::ZERO);
    drop(ring.write().unwrap().unwrap().finish().unwrap());
    let leaked = cleanup_errors(|| drop(ring));
    assert!(!leaked.is_empty());
    // Let the stream end. It uses what was leaked.
    // SAFETY: nobody else signals the gate.
    unsafe { gate.signal_from_host(1) }.unwrap();
    stream.synchronize().unwrap();
    let later = cleanup_errors(|| drop((gate, stream, gpu, seen)));
    for text in leaked.into_iter().chain(later) {
        assert!(text.contains("was leaked") && text.contains("CUDA did not signal"), "{text}");
    }
    drop(alone);
}

/// Runs the tests above on the stand-in. Those that end in order give everything back.
#[test]
fn all_of_them_on_the_stand_in() {
    let Some(stand_in) = StandIn::new() else { return };
    // The call that fails, and how.
    let lost = format!("vkQueueSubmit2:{}:3", vk::Result::ERROR_DEVICE_LOST.as_raw());
    let sound = [
        ("a_write_that_does_not_finish_never_was", ""),
        ("dropped_reads_strand_nobody", ""),
        ("frames_may_be_given_up_in_between", ""),
        ("a_slow_reader_stops_nobody", ""),
        ("a_read_that_is_never_submitted_stops_only_its_slot", ""),
        ("a_read_may_outlive_its_ring", ""),
        ("reads_are_submitted_in_order", ""),
        ("a_slot_may_be_drawn_again", ""),
        ("a_batch_waits_once", ""),
        ("a_batch_may_fail", ""),
        ("a_batch_takes_only_its_own_turns", ""),
        ("a_captured_stream_is_refused", ""),
        ("without_free_a_frame_is_overwritten", ""),
        ("a_slot_is_viewed_as_elements", ""),
        ("a_ring_gives_its_slots_back", ""),
        ("what_is_no_ring_is_refused", ""),
        ("the_older_submission_reads_as_well", ""),
        ("parts_of_an_allocation_are_slots", ""),
        ("a_part_that_cannot_be_mapped_takes_the_others_with_it", "cuExternalMemoryGetMappedBuffer:2:3"),
    ];
    let broken = [
        ("a_dead_device_stops_nobody", &*lost),
        ("an_abort_lets_vulkan_go", ""),
        ("a_ring_in_use_is_leaked", ""),
        ("a_fault_lets_vulkan_go", "cuSignalExternalSemaphoresAsync:719:2"),
    ];
    for (index, (name, fail)) in sound.into_iter().chain(broken).enumerate() {
        let done = run(stand_in.test(module_path!(), name, &ALL).env("STAND_IN_FAIL", fail)).unwrap();
        let report = if index < sound.len() { done.check_clean(0) } else { done.check_end(0) };
        let report = report.unwrap_or_else(|problem| panic!("{name}: {problem}"));
        assert!(common::stdout(&done.output).contains("1 passed"), "{name}");
        if name == "a_batch_waits_once" {
            // Not before the first batch, nor before the second half of the fifth.
            assert_eq!(report.count("cuWaitExternalSemaphoresAsync"), 5);
        }
    }
    // The stand-in knows a wait that is too narrow, however it is submitted.
    let mut test = stand_in.test(module_path!(), "the_older_submission_at_one_stage", &ALL);
    let done = run(&mut test).unwrap();
    let problem = done.check_end(0).unwrap_err();
    assert!(problem.contains("a shared semaphore at ALL_TRANSFER, not ALL_COMMANDS"), "{problem}");
}
