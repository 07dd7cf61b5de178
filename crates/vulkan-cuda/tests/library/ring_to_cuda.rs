//! The ring from Vulkan to CUDA: every word of every frame, the ways to use it wrongly, and what a program
//! needs when it drops a turn, or CUDA or Vulkan fails. Runs on this machine's GPU, and on the stand-in,
//! where each call fails in turn.
//!
//! Two misuses do not compile, as for `SharedRing`: one buffer as two slots, and a turn that is submitted or
//! finished twice. Several turns at once do not compile either, because each borrows the ring: so none is out
//! of order.

mod contexts;
mod paint;
#[allow(dead_code)]
#[path = "../../examples/read_back/triangle.rs"]
mod triangle;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use ash::vk;
use cudarc::driver::{CudaStream, DevicePtr, sys};
use paint::Paint;
use triangle::Triangle;
use vulkan_cuda::image::picture;
use vulkan_cuda::shared_ring::Resource;
use vulkan_cuda::{
    Error, ImageRequest, QueueUse, RingToCuda, SharedBuffer, SharedImage, SharedTimeline, Slot, Stream,
    WriteTurn,
};
use wavefield_test_support as common;
use wavefield_test_support::stand_in::{ALL, Report, Run, StandIn, each, run, say};

use crate::match_devices::Gpu;
use crate::{cleanup_errors, match_devices, open, readback};

/// The side of an image, whose texels have one word each.
const SIDE: u32 = 16;
const WORDS: usize = (SIDE * SIDE) as usize;
const BYTES: u64 = 4 * WORDS as u64;
/// No test waits this long unless it fails.
const LIMIT: Duration = Duration::from_secs(8);

type Problem = Box<dyn std::error::Error>;

/// What Vulkan and CUDA do with a slot of [`WORDS`] words.
trait Kind: Slot + Sized {
    fn new(gpu: &Gpu) -> Result<Self, Error>;

    /// Records that Vulkan writes `value` to every word.
    ///
    /// # Safety
    /// The commands are being recorded, and the slot is Vulkan's.
    unsafe fn fill(&self, device: &ash::Device, commands: vk::CommandBuffer, value: u32);

    /// Makes CUDA copy the words to `to`.
    ///
    /// # Safety
    /// The memory is this large, and lives until the stream is idle.
    unsafe fn copy(&self, stream: &CudaStream, to: sys::CUdeviceptr) -> Result<(), Problem>;
}

// ANCHOR: buffer
impl Kind for SharedBuffer {
    fn new(gpu: &Gpu) -> Result<Self, Error> {
        Self::new(&gpu.pair, BYTES, vk::BufferUsageFlags::TRANSFER_DST)
    }

    unsafe fn fill(&self, device: &ash::Device, commands: vk::CommandBuffer, value: u32) {
        // SAFETY: the slot has this many bytes.
        unsafe { device.cmd_fill_buffer(commands, self.vulkan(), 0, BYTES, value) };
    }

    unsafe fn copy(&self, stream: &CudaStream, to: sys::CUdeviceptr) -> Result<(), Problem> {
        // SAFETY: both have this many bytes.
        let code = unsafe { sys::cuMemcpyDtoDAsync_v2(to, self.cuda(), BYTES as usize, stream.cu_stream()) };
        Ok(code.result()?)
    }
}
// ANCHOR_END: buffer

/// An image, and what Vulkan writes it through, if that is not a clear.
struct Picture {
    framebuffer: vk::Framebuffer,
    set: vk::DescriptorSet,
    view: vk::ImageView,
    device: ash::Device,
    image: Arc<SharedImage>,
}

// SAFETY: the slot's only image, which it owns alone.
unsafe impl Slot for Picture {
    fn resource(&self) -> Resource {
        self.image.resource()
    }
}

impl Picture {
    fn of(gpu: &Gpu, request: &ImageRequest) -> Result<Self, Error> {
        let (image, device) = (SharedImage::new(&gpu.pair, request)?, gpu.device.clone());
        let (framebuffer, set, view) = Default::default();
        Ok(Self { framebuffer, set, view, device, image })
    }

    /// The same with a view.
    fn viewed(gpu: &Gpu, request: &ImageRequest) -> Result<Self, Problem> {
        let mut picture = Self::of(gpu, request)?;
        let info = vk::ImageViewCreateInfo::default()
            .image(picture.image.exported().raw())
            .view_type(vk::ImageViewType::TYPE_2D)
            .format(request.format)
            .subresource_range(vulkan_cuda::ownership::whole_image());
        // SAFETY: a live image of this format.
        picture.view = unsafe { gpu.device.create_image_view(&info, None) }?;
        Ok(picture)
    }

    /// # Safety
    /// As for [`Kind::fill`].
    unsafe fn clear(&self, commands: vk::CommandBuffer, colour: vk::ClearColorValue) {
        let (raw, layout) = (self.image.exported().raw(), vk::ImageLayout::GENERAL);
        let whole = [vulkan_cuda::ownership::whole_image()];
        // SAFETY: the caller's promise; the slot is in this layout meanwhile.
        unsafe { self.device.cmd_clear_color_image(commands, raw, layout, &colour, &whole) };
    }
}

impl Drop for Picture {
    fn drop(&mut self) {
        // SAFETY: the ring drops its slots once the GPU is done with them. Either may be null.
        unsafe {
            self.device.destroy_framebuffer(self.framebuffer, None);
            self.device.destroy_image_view(self.view, None);
        }
    }
}

impl Kind for Picture {
    fn new(gpu: &Gpu) -> Result<Self, Error> {
        Self::of(gpu, &picture(vk::Format::R32_UINT, SIDE, SIDE, 1)?)
    }

    unsafe fn fill(&self, _device: &ash::Device, commands: vk::CommandBuffer, value: u32) {
        // SAFETY: the caller's promise.
        unsafe { self.clear(commands, vk::ClearColorValue { uint32: [value, 0, 0, 0] }) };
    }

    unsafe fn copy(&self, stream: &CudaStream, to: sys::CUdeviceptr) -> Result<(), Problem> {
        let row = 4 * SIDE as usize;
        // SAFETY: both have this many rows.
        Ok(unsafe { self.image.level(0)?.copy_to(stream, to, row, [row, SIDE as usize]) }?)
    }
}

struct BenchOf<K: Kind> {
    ring: RingToCuda<K>,
    commands: readback::Target,
    stream: Arc<CudaStream>,
    gpu: Gpu,
    alone: MutexGuard<'static, ()>,
}

type Bench = BenchOf<SharedBuffer>;

fn writer(family: u32) -> QueueUse {
    QueueUse { family, stage: vk::PipelineStageFlags::TRANSFER, access: vk::AccessFlags::TRANSFER_WRITE }
}

fn slots<K: Kind>(gpu: &Gpu, count: usize) -> Vec<K> {
    (0..count).map(|_| K::new(gpu).unwrap()).collect()
}

impl<K: Kind> BenchOf<K> {
    fn new(count: usize) -> Option<Self> {
        let (alone, gpu) = open()?;
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
        let linear = self.stream.alloc_zeros::<u32>(WORDS).unwrap();
        let read = self.ring.next_read().unwrap().expect("a frame was written");
        let frame = read.frame();
        let (to, record) = linear.device_ptr(&self.stream);
        // SAFETY: this many bytes, which live until the stream is idle.
        unsafe { read.slot().copy(&self.stream, to) }.unwrap();
        drop(record);
        read.finish().unwrap();
        let words = self.stream.clone_dtoh(&linear).unwrap();
        self.stream.synchronize().unwrap();
        (frame, words)
    }

    fn check(&mut self, frame: u64, value: u32) {
        assert_eq!(self.read(), (frame, vec![value; WORDS]));
    }
}

/// Submits the frame: every word of its slot is `value`.
fn fill<K: Kind>(
    write: WriteTurn<'_, K>,
    target: &readback::Target,
    gpu: &Gpu,
    value: u32,
) -> Result<(), Problem> {
    let commands = recorded(&write, target, value)?;
    // SAFETY: recorded above, and submitted once; everything lives until both sides are idle.
    unsafe { write.submit(|wait, signal| target.submit(gpu, commands, &[wait], &[signal])) }
}

fn recorded<K: Kind>(
    write: &WriteTurn<'_, K>,
    target: &readback::Target,
    value: u32,
) -> Result<vk::CommandBuffer, vk::Result> {
    target.record(|device, commands| {
        // SAFETY: being recorded for this family.
        unsafe { write.record(commands, |slot| slot.fill(device, commands, value)) };
    })
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
    let outcome = unsafe { failing.submit(|_, _| Err::<(), _>(Error::Rule("no".into()))) };
    assert_eq!(outcome.unwrap_err().to_string(), "no");
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

/// A read that is forgotten signals nothing, and comes again.
#[test]
fn a_forgotten_read_comes_again() {
    let Some(mut bench) = Bench::new(2) else { return };
    for frame in 0..4 {
        bench.write(frame);
        std::mem::forget(bench.ring.next_read().unwrap().unwrap());
        bench.check(u64::from(frame), frame);
    }
}

/// Nobody has to read the last frames.
#[test]
fn unread_frames_are_given_up_with_the_ring() {
    let Some(mut bench) = Bench::new(3) else { return };
    (1..4).for_each(|value| bench.write(value));
    let Bench { ring, commands, stream, gpu, alone } = bench;
    let slots = ring.into_slots(LIMIT).unwrap();
    let ring = RingToCuda::new(&gpu.pair, stream.clone(), slots, writer(gpu.family)).unwrap();
    let mut bench = Bench { ring, commands, stream, gpu, alone };
    bench.write(4);
    bench.check(0, 4);
    bench.write(5);
}

/// A signal in a graph would come when the graph is launched, once or often. So it is refused, and the frame
/// stays.
#[test]
fn a_captured_stream_is_refused() {
    let Some(mut bench) = Bench::new(1) else { return };
    bench.write(1);
    let read = bench.ring.next_read().unwrap().unwrap();
    bench.stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).unwrap();
    let text = read.finish().unwrap_err().to_string();
    assert!(text.contains("is being captured"), "{text}");
    assert_eq!((bench.ring.unread(), bench.ring.write().is_none()), (1, true));
    let mut graph = std::ptr::null_mut();
    // SAFETY: the stream is being captured.
    unsafe { sys::cuStreamEndCapture(bench.stream.cu_stream(), &mut graph) }.result().unwrap();
    bench.check(0, 1);
    bench.write(2);
    bench.check(1, 2);
}

/// cudarc's own copies take a slot, if it is a buffer.
#[test]
fn a_slot_is_viewed_as_elements() {
    let Some(mut bench) = Bench::new(1) else { return };
    bench.write(7);
    let read = bench.ring.next_read().unwrap().unwrap();
    let view = read.view::<u32>().unwrap();
    assert_eq!((view.len(), view.address()), (WORDS, read.slot().cuda()));
    let words = read.stream().clone_dtoh(&view).unwrap();
    let text = read.view::<[f32; 3]>().err().unwrap().to_string();
    assert!(text.contains("1024 bytes at") && text.contains("12 bytes"), "{text}");
    read.finish().unwrap();
    bench.stream.synchronize().unwrap();
    assert_eq!(words, [7; WORDS]);
    drop(bench);
    let Some(mut bench) = BenchOf::<Picture>::new(1) else { return };
    bench.write(7);
    assert!(bench.ring.next_read().unwrap().unwrap().view::<u32>().is_err());
    bench.write(8);
    bench.check(1, 8);
}

/// Vulkan writes 2 over 1 while CUDA, which is slow, still has to read. CUDA sees `expected`.
fn slow_reader<K: Kind>(leave_out: bool, expected: u32) {
    let Some(mut bench) = BenchOf::<K>::new(1) else { return };
    let gate = SharedTimeline::new(&bench.gpu.pair).unwrap();
    let linear = bench.stream.alloc_zeros::<u32>(WORDS).unwrap();
    bench.write(1);
    // SAFETY: the gate lives until the stream is idle.
    unsafe { gate.cuda_wait(&bench.stream, 1) }.unwrap();
    let read = bench.ring.next_read().unwrap().unwrap();
    // SAFETY: this many bytes, which live until the stream is idle.
    unsafe { read.slot().copy(&bench.stream, linear.device_ptr(&bench.stream).0) }.unwrap();
    read.finish().unwrap();
    let BenchOf { ring, commands, gpu, .. } = &mut bench;
    let write = ring.write().unwrap();
    let recorded = recorded(&write, commands, 2).unwrap();
    let waits = |wait| if leave_out { vec![] } else { vec![wait] };
    // SAFETY: without the wait, this test is about the content.
    unsafe { write.submit(|wait, signal| commands.submit(gpu, recorded, &waits(wait), &[signal])) }.unwrap();
    if leave_out {
        // SAFETY: nobody else uses the queue.
        unsafe { gpu.device.queue_wait_idle(gpu.queue) }.unwrap();
    } else {
        // Without the wait, Vulkan would be done by then.
        std::thread::sleep(Duration::from_millis(100));
    }
    // SAFETY: nobody else signals the gate.
    unsafe { gate.signal_from_host(1) }.unwrap();
    let words = bench.stream.clone_dtoh(&linear).unwrap();
    bench.stream.synchronize().unwrap();
    compare(0, &words, |_| expected);
    bench.check(1, 2);
}

/// CUDA reads while Vulkan, which is slow, still has to write 2 over 1. CUDA sees `expected`.
fn slow_writer<K: Kind>(leave_out: bool, expected: u32) {
    let Some(mut bench) = BenchOf::<K>::new(1) else { return };
    let gate = SharedTimeline::new(&bench.gpu.pair).unwrap();
    let linear = bench.stream.alloc_zeros::<u32>(WORDS).unwrap();
    bench.write(1);
    bench.check(0, 1);
    let BenchOf { ring, commands, gpu, stream, .. } = &mut bench;
    let write = ring.write().unwrap();
    let recorded = recorded(&write, commands, 2).unwrap();
    let submit =
        |wait, signal| unsafe { commands.submit(gpu, recorded, &[wait, gate.vulkan_wait(1)], &[signal]) };
    // SAFETY: one submission, which waits for the gate too.
    unsafe { write.submit(submit) }.unwrap();
    let (to, record) = linear.device_ptr(stream);
    // SAFETY: (both) this many bytes, which live until the stream is idle. Without the turn, this test is about the content.
    if leave_out {
        unsafe { ring.slots()[0].copy(stream, to) }.unwrap();
    } else {
        let read = ring.next_read().unwrap().unwrap();
        unsafe { read.slot().copy(stream, to) }.unwrap();
        read.finish().unwrap();
    }
    drop(record);
    if leave_out {
        stream.synchronize().unwrap();
    } else {
        // Without the wait, CUDA would be done by then.
        std::thread::sleep(Duration::from_millis(100));
    }
    // SAFETY: nobody else signals the gate.
    unsafe { gate.signal_from_host(1) }.unwrap();
    let words = stream.clone_dtoh(&linear).unwrap();
    stream.synchronize().unwrap();
    compare(1, &words, |_| expected);
    ring.wait_idle(LIMIT).unwrap();
}

/// Vulkan's next frame waits, on the GPU, until CUDA has read the slot.
#[test]
fn a_slow_reader_is_not_overtaken() {
    slow_reader::<SharedBuffer>(false, 1);
    slow_reader::<Picture>(false, 1);
}

/// CUDA waits, on the GPU, until Vulkan has written the slot.
#[test]
fn a_slow_writer_is_waited_for() {
    slow_writer::<SharedBuffer>(false, 2);
    slow_writer::<Picture>(false, 2);
}

/// What each wait is for.
#[test]
fn each_wait_that_is_left_out_is_found() {
    slow_reader::<SharedBuffer>(true, 2);
    slow_reader::<Picture>(true, 2);
    slow_writer::<SharedBuffer>(true, 1);
    slow_writer::<Picture>(true, 1);
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
        if count == 2 { Err("mine".into()) } else { fill(write, commands, gpu, 7) }
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

fn compare(frame: u32, words: &[u32], expected: impl Fn(usize) -> u32) {
    for (index, &word) in words.iter().enumerate() {
        assert_eq!(word, expected(index), "word {index} of frame {frame}");
    }
}

/// How many frames of images are on their way before their words are compared.
const CHUNK: u32 = 50;

/// Vulkan writes each frame by `draw`, and CUDA copies it to linear memory. `check` compares its words.
/// Returns the slots.
fn every_texel(
    gpu: &Gpu,
    queue: QueueUse,
    slots: Vec<Picture>,
    target: &readback::Target,
    draw: impl Fn(vk::CommandBuffer, &Picture, u32),
    check: impl Fn(u32, &[u32]),
) -> Vec<Picture> {
    let stream = gpu.cuda.new_stream().unwrap();
    let linear = stream.alloc_zeros::<u32>(CHUNK as usize * WORDS).unwrap();
    let mut ring = RingToCuda::new(&gpu.pair, stream.clone(), slots, queue).unwrap();
    for first in (0..frames()).step_by(CHUNK as usize) {
        let chunk = first..frames().min(first + CHUNK);
        for frame in chunk.clone() {
            let write = ring.write().unwrap();
            let commands = target.record(|_, commands| {
                // SAFETY: being recorded for this family.
                unsafe { write.record(commands, |slot| draw(commands, slot, frame)) };
            });
            let commands = commands.unwrap();
            // SAFETY: recorded above, and submitted once.
            unsafe { write.submit(|wait, signal| target.submit(gpu, commands, &[wait], &[signal])) }.unwrap();
            let read = ring.next_read().unwrap().unwrap();
            let (to, _record) = linear.device_ptr(&stream);
            // SAFETY: the memory has a place for each frame of the chunk; both live until the stream is idle.
            unsafe { read.slot().copy(&stream, to + u64::from(frame - first) * BYTES) }.unwrap();
            read.finish().unwrap();
        }
        let words = stream.clone_dtoh(&linear).unwrap();
        stream.synchronize().unwrap();
        chunk.zip(words.chunks(WORDS)).for_each(|(frame, words)| check(frame, words));
    }
    ring.into_slots(LIMIT).unwrap()
}

/// What is drawn on an image comes to CUDA, which copies it to linear memory; and a ring takes its slots
/// anew.
#[test]
fn an_image_arrives_and_slots_are_used_again() {
    let Some((_alone, gpu)) = open() else { return };
    let request = picture(vk::Format::R8G8B8A8_UNORM, SIDE, SIDE, 1).unwrap();
    let mut slots: Vec<_> = (0..2).map(|_| Picture::of(&gpu, &request).unwrap()).collect();
    let target = readback::Target::new(&gpu, 4).unwrap();
    for _ in 0..2 {
        let draw = |commands, slot: &Picture, frame| {
            let colour = [f32::from(frame as u8) / 255.0, 0.0, 1.0, 1.0];
            // SAFETY: being recorded.
            unsafe { slot.clear(commands, vk::ClearColorValue { float32: colour }) };
        };
        slots = every_texel(&gpu, writer(gpu.family), slots, &target, draw, |frame, words| {
            compare(frame, words, |_| 0xffff_0000 | frame & 0xff);
        });
    }
}

/// A compute shader writes a word of its own to every texel.
#[test]
fn a_storage_image_arrives() {
    let Some((_alone, gpu)) = open() else { return };
    let (stage, access) = (vk::PipelineStageFlags::COMPUTE_SHADER, vk::AccessFlags::SHADER_WRITE);
    let queue = QueueUse { family: gpu.family, stage, access };
    let request = picture(vk::Format::R32_UINT, SIDE, SIDE, 1).unwrap();
    let (paint, target) = (Paint::new(&gpu.device, 3).unwrap(), readback::Target::new(&gpu, 4).unwrap());
    let mut slots: Vec<_> = (0..3).map(|_| Picture::viewed(&gpu, &request).unwrap()).collect();
    slots.iter_mut().for_each(|slot| slot.set = paint.set(slot.view).unwrap());
    // SAFETY: being recorded.
    let draw = |commands, slot: &Picture, frame| unsafe { paint.draw(commands, slot.set, SIDE, frame) };
    let slots = every_texel(&gpu, queue, slots, &target, draw, |frame, words| {
        compare(frame, words, |index| paint::word(index as u32, frame));
    });
    drop(slots);
}

/// Vulkan draws a triangle, and copies it too. CUDA has the same words.
#[test]
fn a_colour_attachment_arrives() {
    let Some((_alone, gpu)) = open() else { return };
    let stage = vk::PipelineStageFlags::COLOR_ATTACHMENT_OUTPUT | vk::PipelineStageFlags::TRANSFER;
    let access = vk::AccessFlags::COLOR_ATTACHMENT_WRITE | vk::AccessFlags::TRANSFER_READ;
    let queue = QueueUse { family: gpu.family, stage, access };
    let format = vk::Format::R8G8B8A8_UNORM;
    let usage = vk::ImageUsageFlags::COLOR_ATTACHMENT | vk::ImageUsageFlags::TRANSFER_SRC;
    let request = ImageRequest { usage, surface: false, ..picture(format, SIDE, SIDE, 1).unwrap() };
    let triangle = Triangle::new(&gpu.device, format, SIDE).unwrap();
    let seen = readback::Target::new(&gpu, u64::from(CHUNK) * BYTES).unwrap();
    let mut slots: Vec<_> = (0..3).map(|_| Picture::viewed(&gpu, &request).unwrap()).collect();
    slots.iter_mut().for_each(|slot| slot.framebuffer = triangle.framebuffer(slot.view).unwrap());
    let draw = |commands, slot: &Picture, frame: u32| {
        let place = u64::from(frame % CHUNK) * BYTES;
        // SAFETY: being recorded.
        unsafe {
            triangle.draw(commands, slot.framebuffer, frame as u8);
            seen.copy_image(commands, slot.image.exported().raw(), [SIDE; 2], place);
        }
    };
    let slots = every_texel(&gpu, queue, slots, &seen, draw, |frame, words| {
        triangle.check(words, frame as u8).unwrap_or_else(|what| panic!("frame {frame}: {what}"));
        let (drawn, place) = (seen.words().unwrap(), (frame % CHUNK) as usize * WORDS);
        compare(frame, words, |index| drawn[place + index]);
    });
    drop(slots);
}

/// A stream that says it is of another context.
struct Foreign(Arc<CudaStream>);

// SAFETY: the ring refuses it before it calls CUDA.
unsafe impl Stream for Foreign {
    fn raw(&self) -> sys::CUstream {
        self.0.cu_stream()
    }

    fn context(&self) -> sys::CUcontext {
        std::ptr::without_provenance_mut(8 + self.0.context().addr())
    }
}

#[test]
fn what_is_no_ring_is_refused() {
    let Some((_alone, gpu)) = open() else { return };
    let stream = gpu.cuda.new_stream().unwrap();
    fn refused<C: Stream>(gpu: &Gpu, stream: C, slots: Vec<SharedBuffer>, says: &str) {
        let text = RingToCuda::new(&gpu.pair, stream, slots, writer(gpu.family)).err().unwrap().to_string();
        assert!(text.contains(says), "{text}");
    }
    refused(&gpu, stream.clone(), Vec::new(), "1 to 32 slots, and 0 were given");
    refused(&gpu, stream.clone(), slots(&gpu, 33), "1 to 32 slots, and 33 were given");
    let [per_thread, foreign] = ["the per-thread default stream", "objects of one CUDA context"]
        .map(|reason| (reason, slots(&gpu, 1)));
    refused(&gpu, gpu.cuda.per_thread_stream(), per_thread.1, per_thread.0);
    refused(&gpu, Foreign(stream.clone()), foreign.1, foreign.0);
    // The slots of another VkDevice.
    let other = match_devices::open().unwrap();
    refused(&gpu, stream, slots(&other, 1), "slot 0 of a ring is of another device");
}

/// A call of CUDA's that fails, without a fault, may be made again.
#[test]
#[ignore = "needs a driver that fails"]
fn a_read_that_fails_comes_again() {
    let Some(mut bench) = Bench::new(1) else { return };
    bench.write(1);
    let error = bench.ring.next_read().err().unwrap();
    assert!(matches!(error, Error::Cuda { call: "cuWaitExternalSemaphoresAsync", code: 999, .. }), "{error}");
    assert_eq!((bench.ring.unread(), bench.ring.write().is_none()), (1, true));
    let error = bench.ring.next_read().unwrap().unwrap().finish().unwrap_err();
    assert!(
        matches!(error, Error::Cuda { call: "cuSignalExternalSemaphoresAsync", code: 999, .. }),
        "{error}"
    );
    assert_eq!((bench.ring.unread(), bench.ring.write().is_none()), (1, true));
    bench.check(0, 1);
    bench.write(2);
    bench.check(1, 2);
    bench.ring.wait_idle(LIMIT).unwrap();
}

/// Vulkan's device is lost. Every later submission fails, its frame never was, and nobody waits for ever.
#[test]
#[ignore = "needs a device that fails"]
fn a_dead_device_stops_nobody() {
    let Some(mut bench) = Bench::new(2) else { return };
    for value in 0..6 {
        let Bench { ring, commands, gpu, .. } = &mut bench;
        let answer = fill(ring.write().unwrap(), commands, gpu, value);
        assert_eq!(answer.is_err(), value >= 2, "{answer:?}");
        if value < 2 {
            bench.check(value.into(), value);
        }
    }
    assert!(bench.ring.next_read().unwrap().is_none());
    let error = bench.ring.wait_idle(LIMIT).unwrap_err();
    assert!(matches!(error, Error::Vulkan { result: vk::Result::ERROR_DEVICE_LOST, .. }), "{error}");
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

/// The drop leaks what the GPU may still use, and does not wait for ever.
#[test]
fn a_ring_in_use_is_leaked() {
    let Some(mut bench) = Bench::new(1) else { return };
    let gate = SharedTimeline::new(&bench.gpu.pair).unwrap();
    bench.write(1);
    // SAFETY: nobody else uses the queue.
    unsafe { bench.gpu.device.queue_wait_idle(bench.gpu.queue) }.unwrap();
    // SAFETY: the gate lives until the stream is idle, below.
    unsafe { gate.cuda_wait(&bench.stream, 1) }.unwrap();
    bench.ring.next_read().unwrap().unwrap().finish().unwrap();
    bench.ring.set_patience(Duration::ZERO);
    let Bench { ring, commands, stream, gpu, alone } = bench;
    let leaked = cleanup_errors(|| drop(ring));
    assert!(!leaked.is_empty());
    // SAFETY: nobody else signals the gate.
    unsafe { gate.signal_from_host(1) }.unwrap();
    stream.synchronize().unwrap();
    let later = cleanup_errors(|| drop((gate, commands, stream, gpu)));
    for text in leaked.into_iter().chain(later) {
        assert!(text.contains("was leaked") && text.contains("CUDA did not signal"), "{text}");
    }
    drop(alone);
}

/// Runs the tests above on the stand-in. Those that end in order give everything back.
#[test]
fn all_of_them_on_the_stand_in() {
    let Some(stand_in) = StandIn::new() else { return };
    let lost = format!("vkQueueSubmit2:{}:3", vk::Result::ERROR_DEVICE_LOST.as_raw());
    let sound = [
        ("every_frame_arrives_whole", ""),
        ("a_full_ring_says_not_yet", ""),
        ("a_write_that_is_not_submitted_never_was", ""),
        ("a_dropped_read_strands_nobody", ""),
        ("a_forgotten_read_comes_again", ""),
        ("unread_frames_are_given_up_with_the_ring", ""),
        ("a_captured_stream_is_refused", ""),
        ("a_slot_is_viewed_as_elements", ""),
        ("a_slow_reader_is_not_overtaken", ""),
        ("a_slow_writer_is_waited_for", ""),
        ("each_wait_that_is_left_out_is_found", ""),
        ("a_batch_waits_once", ""),
        ("a_batch_may_fail", ""),
        ("an_image_arrives_and_slots_are_used_again", ""),
        ("a_storage_image_arrives", ""),
        ("a_colour_attachment_arrives", ""),
        ("what_is_no_ring_is_refused", ""),
        ("contexts::a_stream_of_another_context_cannot_copy_a_view", ""),
        ("contexts::a_stream_of_another_gpu_cannot_copy_a_view", ""),
        ("contexts::the_default_streams_of_two_contexts_are_two", ""),
        ("contexts::slots_of_another_context_are_refused", ""),
        ("contexts::a_use_of_nothing_is_refused", ""),
        ("contexts::no_code_makes_up_a_fault", ""),
        ("contexts::copies_from_host_memory_and_unknown_kernels", ""),
        ("contexts::a_captured_stream_gets_no_frame", ""),
        ("contexts::several_turns_go_in_one_submission", ""),
        ("contexts::a_stream_that_cannot_wait_is_refused", "cuStreamWaitEvent:999:1"),
        (
            "a_read_that_fails_comes_again",
            "cuWaitExternalSemaphoresAsync:999:1,cuSignalExternalSemaphoresAsync:999:1",
        ),
    ];
    let broken = [
        ("a_dead_device_stops_nobody", &*lost),
        ("a_fault_lets_vulkan_go", "cuSignalExternalSemaphoresAsync:719:2"),
        ("an_abort_lets_both_go", ""),
        ("contexts::two_threads_may_check_after_a_fault", "cuStreamQuery:719:1"),
        ("a_ring_in_use_is_leaked", ""),
    ];
    for (index, (name, fail)) in sound.into_iter().chain(broken).enumerate() {
        let mut test = stand_in.test(module_path!(), name, &ALL);
        let done = run(test.env("STAND_IN_FAIL", fail).env("STAND_IN_CUDA_DEVICES", "2")).unwrap();
        let report = if index < sound.len() { done.check_clean(0) } else { done.check_end(0) };
        let report = report.unwrap_or_else(|problem| panic!("{name}: {problem}"));
        assert!(common::stdout(&done.output).contains("1 passed"), "{name}");
        if name == "a_batch_waits_once" {
            assert_eq!(report.count("cuWaitExternalSemaphoresAsync"), 3);
        }
    }
}

/// Each way to use a ring: a frame after another, a batch, a turn that is dropped, and the slots given back.
fn whole_use<K: Kind>(
    gpu: &Gpu,
    target: &readback::Target,
    stream: &Arc<CudaStream>,
    linear: sys::CUdeviceptr,
) -> Result<(), Problem> {
    let slots = (0..2).map(|_| K::new(gpu)).collect::<Result<_, _>>()?;
    let mut ring = RingToCuda::new(&gpu.pair, stream.clone(), slots, writer(gpu.family))?;
    let read = |ring: &mut RingToCuda<K>| {
        let read = ring.next_read()?.ok_or("a frame was written")?;
        // SAFETY: the memory is large enough, and lives longer than the ring.
        unsafe { read.slot().copy(stream, linear) }?;
        Ok::<_, Problem>(read.finish()?)
    };
    for value in 0..4 {
        fill(ring.write().ok_or("every frame was read")?, target, gpu, value)?;
        read(&mut ring)?;
    }
    ring.write_batch(2, |write| fill(write, target, gpu, 4))?;
    read(&mut ring)?;
    read(&mut ring)?;
    fill(ring.write().ok_or("every frame was read")?, target, gpu, 5)?;
    drop(ring.next_read()?);
    drop(ring.into_slots(LIMIT)?);
    Ok(())
}

/// Opens a GPU, and uses it if `all`. Ends the process with exit code 1 after an error, even in a `Drop`.
fn one_use(all: bool) {
    static FAILED: AtomicBool = AtomicBool::new(false);
    fn failed(error: &dyn std::fmt::Debug, text: String) {
        FAILED.store(true, Ordering::SeqCst);
        eprintln!("{text} {error:?}");
    }
    vulkan_cuda::on_cleanup_error(|error| failed(error, error.to_string()));
    let run = || {
        let gpu = match_devices::open()?;
        let target = readback::Target::new(&gpu, BYTES)?;
        let stream = gpu.cuda.new_stream()?;
        let linear = stream.alloc_zeros::<u32>(WORDS)?;
        if all {
            let address = linear.device_ptr(&stream).0;
            whole_use::<SharedBuffer>(&gpu, &target, &stream, address)?;
            whole_use::<Picture>(&gpu, &target, &stream, address)?;
        }
        Ok::<_, Problem>(())
    };
    if let Err(error) = run() {
        failed(&error, error.to_string());
    }
    std::process::exit(FAILED.load(Ordering::SeqCst).into());
}

#[test]
#[ignore = "ends the process"]
fn the_opening() {
    one_use(false);
}

#[test]
#[ignore = "ends the process"]
fn a_whole_use() {
    one_use(true);
}

fn attempt(stand_in: &StandIn, name: &str, fail: &str) -> Result<Run, String> {
    run(stand_in.test(module_path!(), name, &ALL).env("STAND_IN_FAIL", fail))
}

/// One failure of one call.
struct Case {
    call: String,
    nth: u64,
    code: i32,
}

impl Case {
    fn check(&self, stand_in: &StandIn) -> Result<(), String> {
        let Self { ref call, nth, code } = *self;
        let problem = |what: String| format!("{call}:{code}:{nth}: {what}");
        let done = attempt(stand_in, "a_whole_use", &format!("{call}:{code}:{nth}")).map_err(problem)?;
        done.check_end(1).map_err(problem)?;
        let text = done.text();
        let name = call.strip_suffix("_v2").unwrap_or(call);
        // The test itself makes these calls, and passes their error on.
        let own =
            ["vkQueueSubmit2", "vkAllocateCommandBuffers", "vkBeginCommandBuffer", "vkEndCommandBuffer"];
        let named = own.contains(&name) || text.contains(&format!("{name} failed on "));
        let answer = match call.starts_with("vk") {
            true => format!("{:?}", vk::Result::from_raw(code)),
            false => format!(", {code})"),
        };
        if !named || !text.contains(&answer) {
            return Err(problem(format!("call or code is missing: {text}")));
        }
        // CUDA cannot take back what it refuses to, nor anything after a fault.
        let gives_back = ["Destroy", "Free", "cuCtxSetCurrent"].iter().any(|part| call.contains(part));
        // After the device is lost, the drop leaks a ring whose stream is busy, and reports it.
        if gives_back || code == 719 || code == -4 && text.contains("was leaked") {
            return Ok(());
        }
        done.check_clean(1).map(drop).map_err(problem)
    }
}

/// Makes every call that a use makes fail in turn: the first, one in the middle, and the last.
#[test]
fn every_call_fails_in_turn() {
    let Some(stand_in) = StandIn::new() else { return };
    let report = |name| -> Report { attempt(&stand_in, name, "").unwrap().check_clean(0).unwrap().clone() };
    let (opening, whole) = (report("the_opening"), report("a_whole_use"));
    let (mut cases, mut table) = (Vec::new(), String::new());
    for (call, &count) in &whole.calls {
        let before = opening.count(call);
        let silent = ["vkDestroy", "vkFree", "vkCmd", "vkUnmap"].iter().any(|start| call.starts_with(start));
        // Only cudarc makes these, and the test the last one.
        let others = ["cuCtxGetCurrent", "cuEventRecord", "cuStreamWaitEvent", "cuMemcpyDtoDAsync_v2"];
        if count == before || silent || others.contains(&&**call) {
            continue;
        }
        let codes = match &**call {
            "vkQueueSubmit2" | "vkWaitSemaphores" => [-1, -2, -4],
            call if call.starts_with("vk") => [-1, -2, -1],
            _ => [2, 999, 719],
        };
        let (first, middle) = (before + 1, before + 1 + (count - before) / 2);
        let places = match &**call {
            // The second one asks whether CUDA has failed; the first, whether the ring may end.
            "cuStreamQuery" => [2; 3],
            // A slow machine may make more of them.
            "vkWaitSemaphores" => [1; 3],
            // The slots. What was made before them is freed after them, by cudarc too.
            "cuMemFree_v2" => [1, 2, 1],
            // The last ones are those of the end.
            _ if before > 0 => [first, middle.min(count), first],
            _ => [first, middle.min(count), count],
        };
        cases.extend(places.into_iter().zip(codes).map(|(nth, code)| Case { call: call.clone(), nth, code }));
        table += &format!("{call:40} {:4} calls\n", count - before);
    }
    let problems = each(&cases, |case| case.check(&stand_in));
    say(&format!("{table}{} failures of {} calls", cases.len(), table.lines().count()));
    assert!(problems.is_empty(), "{} of {}:\n{}", problems.len(), cases.len(), problems.join("\n"));
}
