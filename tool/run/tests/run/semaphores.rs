//! Semaphores between CUDA and Vulkan, binary ones and timelines. In every frame, each side reads what the
//! other wrote, and the test checks it. Other tests break the rules.

#![allow(clippy::undocumented_unsafe_blocks)] // A comment often stands for several.

use std::ffi::c_void;
use std::sync::Arc;

use ash::vk;
use gpu_allocator::MemoryLocation;
use vulkan_cuda::handle::{BorrowedHandle, Fd, Operand, SemaphoreHandle};
use vulkan_cuda::ownership::{Access, Owner};
use vulkan_cuda::{ImportedSemaphore, Pair, SharedBinary, SharedBuffer, SharedTimeline, Vk};
use wavefield_gpu::cuda::{Cuda, DeviceMemory, Kernel, KernelSource, Stream};
use wavefield_gpu::vulkan::{
    Buffer, BufferDesc, Device, DeviceDesc, Instance, Queue, Validation, buffer_barrier,
};
use wavefield_gpu::{Error, Result};
use wavefield_run::{DeviceTable, DriverThread, ProducerKind};

use crate::common;

/// The number of words that each side writes in a frame.
const WORDS: u32 = 1024;
const BYTES: u64 = WORDS as u64 * 4;
/// The number of frames that are enqueued before the test looks at anything.
const CHUNK: usize = 250;

const TRANSFER: Access = Access {
    stage: vk::PipelineStageFlags2::ALL_TRANSFER,
    access: vk::AccessFlags2::from_raw(
        vk::AccessFlags2::TRANSFER_READ.as_raw() | vk::AccessFlags2::TRANSFER_WRITE.as_raw(),
    ),
};

/// The value that CUDA writes to word `index` in a frame, as in `handoff/kernels/test/answer.ptx`.
fn cuda_word(frame: u32, index: u32) -> u32 {
    frame.wrapping_mul(2_654_435_761).wrapping_add(index)
}

/// The value that Vulkan writes to each of its words in a frame.
fn vulkan_word(frame: u32) -> u32 {
    frame.wrapping_mul(2_246_822_519) ^ 0x5555_5555
}

/// Both APIs on one GPU, under the validation layer if it is installed.
struct Gpu {
    stream: Stream,
    context: Cuda,
    queue: Queue,
    device: Device,
    instance: Instance,
}

impl Gpu {
    /// Returns `None` and reports a skip if there is no such GPU.
    fn open() -> Option<Self> {
        if !common::has_gpu() {
            return None;
        }
        let open = || -> Result<Self> {
            let instance = Instance::new(Validation::IfInstalled, None)?;
            let choice = DeviceTable::query(&instance, None, DriverThread::begin())?
                .choose(None, ProducerKind::Cuda)?;
            let Some((driver, info)) = &choice.cuda else {
                return Err(Error::Unsupported("no CUDA device".into()));
            };
            let context = Cuda::primary(*driver, info)?;
            let desc = DeviceDesc { interop: true, ..DeviceDesc::default() };
            let (device, queue) = choice.adapter.request_device(&desc)?;
            Ok(Self { stream: Stream::new(&context)?, context, queue, device, instance })
        };
        Some(open().unwrap())
    }

    fn pair(&self) -> Pair {
        self.device.pair(&self.context).unwrap()
    }

    /// Waits for both sides, and asserts that the validation layer has reported nothing.
    fn finish(mut self) {
        self.queue.wait_idle().unwrap();
        self.stream.synchronize().unwrap();
        let log = self.instance.validation_log();
        assert_eq!(
            (log.errors(), log.warnings()),
            (0, 0),
            "the validation layer reported something, see above"
        );
    }
}

/// The semaphores that order the two sides of a frame.
trait Link {
    /// Makes CUDA wait for Vulkan's half of the previous frame.
    fn cuda_waits(&mut self, stream: &Stream, frame: u64) -> Result<()>;
    /// Makes CUDA signal the end of its half of the frame.
    fn cuda_signals(&mut self, stream: &Stream, frame: u64) -> Result<()>;
    /// The wait for CUDA's half, and the signal of Vulkan's half.
    fn submission(&mut self, frame: u64) -> Result<[vk::SemaphoreSubmitInfo<'static>; 2]>;
    fn submitted(&mut self);
}

struct BinaryLink {
    there: SharedBinary,
    back: SharedBinary,
}

impl Link for BinaryLink {
    fn cuda_waits(&mut self, stream: &Stream, frame: u64) -> Result<()> {
        // SAFETY: the test waits for the stream before it drops the semaphores. (This applies below too.)
        if frame > 0 { Ok(unsafe { self.back.cuda_wait(stream) }?) } else { Ok(()) }
    }

    fn cuda_signals(&mut self, stream: &Stream, _frame: u64) -> Result<()> {
        // SAFETY: as above.
        Ok(unsafe { self.there.cuda_signal(stream) }?)
    }

    fn submission(&mut self, _frame: u64) -> Result<[vk::SemaphoreSubmitInfo<'static>; 2]> {
        Ok([self.there.vulkan_wait()?, self.back.vulkan_signal()?])
    }

    fn submitted(&mut self) {
        self.there.submitted();
        self.back.submitted();
    }
}

struct TimelineLink {
    there: SharedTimeline,
    back: SharedTimeline,
}

impl Link for TimelineLink {
    fn cuda_waits(&mut self, stream: &Stream, frame: u64) -> Result<()> {
        // A wait for 0 would have no effect.
        // SAFETY: as above.
        if frame > 0 { Ok(unsafe { self.back.cuda_wait(stream, frame) }?) } else { Ok(()) }
    }

    fn cuda_signals(&mut self, stream: &Stream, frame: u64) -> Result<()> {
        // SAFETY: as above.
        Ok(unsafe { self.there.cuda_signal(stream, frame + 1) }?)
    }

    fn submission(&mut self, frame: u64) -> Result<[vk::SemaphoreSubmitInfo<'static>; 2]> {
        Ok([self.there.vulkan_wait(frame + 1), self.back.vulkan_signal(frame + 1)?])
    }

    fn submitted(&mut self) {}
}

/// The command buffers of one chunk, and their pool.
struct Commands {
    pool: vk::CommandPool,
    buffers: Vec<vk::CommandBuffer>,
    device: Device,
}

impl Commands {
    fn new(device: &Device, family: u32) -> Self {
        let info = vk::CommandPoolCreateInfo::default()
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
            .queue_family_index(family);
        // SAFETY: the device is alive, and `family` is that of its queue.
        let pool = unsafe { device.raw().create_command_pool(&info, None) }.unwrap();
        let info =
            vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(CHUNK as u32);
        // SAFETY: the pool was made just now.
        let buffers = unsafe { device.raw().allocate_command_buffers(&info) }.unwrap();
        Self { pool, buffers, device: device.clone() }
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        // SAFETY: the owner has waited for the queue before it drops this.
        unsafe { self.device.raw().destroy_command_pool(self.pool, None) };
    }
}

/// Runs `frames` frames. In each, CUDA saves what Vulkan wrote and writes its own words. Vulkan then copies
/// these words to memory that the CPU can read, and writes its own. Only the GPU waits, except between
/// chunks. Every word is compared.
fn converse(gpu: &mut Gpu, link: &mut dyn Link, frames: usize) -> Result<()> {
    let source = KernelSource {
        name: "answer.ptx".into(),
        ptx: include_str!("../../../handoff/kernels/test/answer.ptx").into(),
        entry: "answer".into(),
        cubin: None,
        built_in: None,
    };
    let kernel = Kernel::load(&gpu.context, &source)?;
    let usage = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
    let shared = SharedBuffer::new(&gpu.pair(), 2 * BYTES, usage)?;
    let seen_by_cuda = DeviceMemory::new(&gpu.context, CHUNK as u64 * BYTES)?;
    let seen_by_vulkan = Buffer::new(
        &gpu.device,
        &BufferDesc {
            label: "what Vulkan saw",
            size: CHUNK as u64 * BYTES,
            usage: vk::BufferUsageFlags::TRANSFER_DST,
            location: MemoryLocation::GpuToCpu,
        },
    )?;
    let commands = Commands::new(&gpu.device, gpu.queue.family());

    for first in (0..frames).step_by(CHUNK) {
        let chunk = CHUNK.min(frames - first);
        for place in 0..chunk {
            let frame = (first + place) as u64;
            record(gpu, commands.buffers[place], &shared, &seen_by_vulkan, place as u64, frame as u32);

            link.cuda_waits(&gpu.stream, frame)?;
            let mut arguments =
                (shared.cuda(), seen_by_cuda.pointer() + place as u64 * BYTES, WORDS, frame as u32);
            let mut pointers: [*mut c_void; 4] = [
                (&raw mut arguments.0).cast(),
                (&raw mut arguments.1).cast(),
                (&raw mut arguments.2).cast(),
                (&raw mut arguments.3).cast(),
            ];
            // SAFETY: these are the kernel's parameters; both memories have the words, and the link keeps
            // Vulkan out meanwhile.
            unsafe { kernel.launch_with(&gpu.stream, WORDS / 256, 256, &mut pointers) }?;
            link.cuda_signals(&gpu.stream, frame)?;

            let [wait, signal] = link.submission(frame)?;
            let buffers = [vk::CommandBufferSubmitInfo::default().command_buffer(commands.buffers[place])];
            let (waits, signals) = ([wait], [signal]);
            let batch = vk::SubmitInfo2::default()
                .wait_semaphore_infos(&waits)
                .command_buffer_infos(&buffers)
                .signal_semaphore_infos(&signals);
            // SAFETY: the commands are recorded and not pending; everything lives until the queue is idle,
            // below.
            unsafe { gpu.queue.submit(&[batch]) }?;
            link.submitted();
        }
        gpu.queue.wait_idle()?;
        let mut bytes = vec![0; chunk * BYTES as usize];
        seen_by_cuda.read(&gpu.stream, &mut bytes)?;
        check(first, "CUDA", &bytes, |frame, _| (frame > 0).then(|| vulkan_word(frame - 1)));
        let bytes = &seen_by_vulkan.bytes().expect("read-back memory is mapped")[..chunk * BYTES as usize];
        check(first, "Vulkan", bytes, |frame, index| Some(cuda_word(frame, index)));
    }
    Ok(())
}

/// Compares every word of a chunk's frames. `expected` returns `None` for a word that nobody has written yet.
fn check(first: usize, who: &str, bytes: &[u8], expected: impl Fn(u32, u32) -> Option<u32>) {
    let words: Vec<u32> = bytemuck::allocation::pod_collect_to_vec(bytes);
    for (place, row) in words.chunks_exact(WORDS as usize).enumerate() {
        let frame = (first + place) as u32;
        for (index, &word) in row.iter().enumerate() {
            let expected = expected(frame, index as u32);
            assert!(
                expected.is_none_or(|expected| word == expected),
                "in frame {frame} {who} saw {word:#x} in word {index}, not {expected:#x?}"
            );
        }
    }
}

fn record(
    gpu: &Gpu,
    commands: vk::CommandBuffer,
    shared: &SharedBuffer,
    seen: &Buffer,
    place: u64,
    frame: u32,
) {
    let (vk, family) = (gpu.device.raw(), gpu.queue.family());
    let acquire = [Owner::External.acquire(shared.vulkan(), family, TRANSFER)];
    let to_host = buffer_barrier(
        seen.raw(),
        (vk::PipelineStageFlags2::ALL_TRANSFER, vk::AccessFlags2::TRANSFER_WRITE),
        (vk::PipelineStageFlags2::HOST, vk::AccessFlags2::HOST_READ),
    );
    let release = [Owner::External.release(shared.vulkan(), family, TRANSFER), to_host];
    let copy = [vk::BufferCopy::default().dst_offset(place * BYTES).size(BYTES)];
    let begin = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
    // SAFETY: the command buffer is not pending, because the queue is idle between chunks. The ranges lie in
    // the buffers.
    unsafe {
        vk.reset_command_buffer(commands, vk::CommandBufferResetFlags::empty()).unwrap();
        vk.begin_command_buffer(commands, &begin).unwrap();
        vk.cmd_pipeline_barrier2(commands, &vk::DependencyInfo::default().buffer_memory_barriers(&acquire));
        vk.cmd_copy_buffer(commands, shared.vulkan(), seen.raw(), &copy);
        vk.cmd_fill_buffer(commands, shared.vulkan(), BYTES, BYTES, vulkan_word(frame));
        vk.cmd_pipeline_barrier2(commands, &vk::DependencyInfo::default().buffer_memory_barriers(&release));
        vk.end_command_buffer(commands).unwrap();
    }
}

#[test]
fn ten_thousand_frames_by_binary_semaphores() {
    let Some(mut gpu) = Gpu::open() else { return };
    let mut link = BinaryLink {
        there: SharedBinary::new(&gpu.pair()).unwrap(),
        back: SharedBinary::new(&gpu.pair()).unwrap(),
    };
    converse(&mut gpu, &mut link, 10_000).unwrap();
    drop(link);
    gpu.finish();
}

#[test]
fn ten_thousand_frames_by_timelines() {
    let Some(mut gpu) = Gpu::open() else { return };
    let mut link = TimelineLink {
        there: SharedTimeline::new(&gpu.pair()).unwrap(),
        back: SharedTimeline::new(&gpu.pair()).unwrap(),
    };
    converse(&mut gpu, &mut link, 10_000).unwrap();
    assert_eq!((link.there.value().unwrap(), link.back.value().unwrap()), (10_000, 10_000));
    drop(link);
    gpu.finish();
}

/// Each side may enqueue its half first: the GPU waits even for a value whose signal is not enqueued yet.
#[test]
fn a_wait_may_come_before_its_signal() {
    let Some(mut gpu) = Gpu::open() else { return };
    let there = SharedTimeline::new(&gpu.pair()).unwrap();
    let back = SharedTimeline::new(&gpu.pair()).unwrap();
    let submit = |queue: &mut Queue, waits: &[_], signals: &[_]| {
        let batch = vk::SubmitInfo2::default().wait_semaphore_infos(waits).signal_semaphore_infos(signals);
        // SAFETY: the batch has only semaphores, which live until the queue is idle, below.
        unsafe { queue.submit(&[batch]) }.unwrap();
    };
    // CUDA's wait is enqueued first, then Vulkan's signal.
    unsafe { back.cuda_wait(&gpu.stream, 7) }.unwrap();
    assert!(!gpu.stream.is_idle().unwrap(), "nobody has signalled");
    submit(&mut gpu.queue, &[], &[back.vulkan_signal(7).unwrap()]);
    gpu.stream.synchronize().unwrap();
    assert_eq!(back.value().unwrap(), 7);
    // Vulkan's wait is enqueued first, then CUDA's signal.
    submit(&mut gpu.queue, &[there.vulkan_wait(1)], &[back.vulkan_signal(8).unwrap()]);
    assert_eq!(back.value().unwrap(), 7, "nobody has signalled");
    unsafe { there.cuda_signal(&gpu.stream, 1) }.unwrap();
    gpu.queue.wait_idle().unwrap();
    gpu.stream.synchronize().unwrap();
    assert_eq!((there.value().unwrap(), back.value().unwrap()), (1, 8));
    drop((there, back));
    gpu.finish();
}

/// A broken rule is an error before any driver is called. The timeline still works afterwards.
#[test]
fn a_timeline_goes_nowhere_but_up() {
    let Some(gpu) = Gpu::open() else { return };
    let timeline = SharedTimeline::new(&gpu.pair()).unwrap();
    unsafe { timeline.cuda_signal(&gpu.stream, 5) }.unwrap();
    for value in [5, 4, 0] {
        let by_cuda = unsafe { timeline.cuda_signal(&gpu.stream, value) }.unwrap_err().to_string();
        let by_vulkan = timeline.vulkan_signal(value).unwrap_err().to_string();
        for text in [by_cuda, by_vulkan] {
            assert!(text.contains(&format!("{value} cannot be signalled after 5")), "{text}");
        }
    }
    gpu.stream.synchronize().unwrap();
    assert_eq!((timeline.value().unwrap(), timeline.promised()), (5, 5));
    unsafe { timeline.cuda_signal(&gpu.stream, 6) }.unwrap();
    gpu.stream.synchronize().unwrap();
    assert_eq!(timeline.value().unwrap(), 6);
    drop(timeline);
    gpu.finish();
}

#[test]
fn a_binary_signal_has_one_wait() {
    let Some(gpu) = Gpu::open() else { return };
    let binary = SharedBinary::new(&gpu.pair()).unwrap();
    for _ in 0..3 {
        unsafe { binary.cuda_signal(&gpu.stream) }.unwrap();
        for again in [unsafe { binary.cuda_signal(&gpu.stream) }, binary.vulkan_signal().map(drop)] {
            let text = again.expect_err("signalled already").to_string();
            assert!(text.contains("before its wait is submitted"), "{text}");
        }
        unsafe { binary.cuda_wait(&gpu.stream) }.unwrap();
        // This wait would never end.
        for again in [unsafe { binary.cuda_wait(&gpu.stream) }, binary.vulkan_wait().map(drop)] {
            let text = again.expect_err("nothing was signalled").to_string();
            assert!(text.contains("no such signal now"), "{text}");
        }
        gpu.stream.synchronize().unwrap();
    }
    drop(binary);
    gpu.finish();
}

/// Handles that are not semaphores of the stated kind.
#[test]
fn wrong_handles_are_clear_errors() {
    let Some(gpu) = Gpu::open() else { return };
    // A kind of handle of another system never reaches the driver.
    // SAFETY: nobody uses the handle.
    let kmt = unsafe { BorrowedHandle::from_raw(std::ptr::without_provenance_mut(64)) }.unwrap();
    let foreign = ImportedSemaphore::import(&gpu.context, SemaphoreHandle::KeyedMutexKmt(kmt));
    let text = foreign.err().expect("no such handles here").to_string();
    for part in ["D3D11_KEYED_MUTEX_KMT", "KMT handle", "file descriptors"] {
        assert!(text.contains(part), "{part} is missing in: {text}");
    }

    // A descriptor of something else. The import fails, so we still own it and it is closed.
    for make in [SemaphoreHandle::OpaqueFd, SemaphoreHandle::TimelineFd] {
        let file = tempfile::NamedTempFile::new().unwrap();
        let before = common::descriptors_of(file.path());
        let fd = std::os::fd::OwnedFd::from(file.reopen().unwrap());
        let attempt = ImportedSemaphore::import(&gpu.context, make(Fd::from(fd)));
        let text = attempt.err().expect("a file is not a semaphore").to_string();
        println!("a file as a semaphore: {text}");
        for part in ["cuImportExternalSemaphore failed on", "not one that Vulkan exported on this GPU"] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
        assert_eq!(
            common::descriptors_of(file.path()),
            before,
            "the descriptor of a failed import was left open"
        );
    }
    gpu.finish();
}

/// A wait of the wrong kind would make the driver read an unwritten field.
#[test]
fn wrong_operands_are_clear_errors() {
    let Some(gpu) = Gpu::open() else { return };
    let raw = raw_timeline(&gpu);
    for (wait, given) in [(Operand::Binary, "no value"), (Operand::Key { key: 1, timeout_ms: 1 }, "a key")] {
        let text = unsafe { raw.imported.wait(&gpu.stream, wait) }.unwrap_err().to_string();
        for part in ["TIMELINE_SEMAPHORE_FD", "a fence value", given] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
    }
    // A right operand works: a wait for the initial value.
    unsafe { raw.imported.wait(&gpu.stream, Operand::Value(0)) }.unwrap();
    gpu.stream.synchronize().unwrap();
    drop(raw);
    gpu.finish();
}

/// A timeline that is made with plain Vulkan and imported by its descriptor, as another program would do it.
struct RawTimeline {
    imported: ImportedSemaphore,
    raw: vk::Semaphore,
    device: Device,
}

fn raw_timeline(gpu: &Gpu) -> RawTimeline {
    let types = vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD;
    let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
    let mut export = vk::ExportSemaphoreCreateInfo::default().handle_types(types);
    let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind).push_next(&mut export);
    let fns = ash::khr::external_semaphore_fd::Device::new(gpu.instance.raw(), gpu.device.raw());
    // SAFETY: the device is alive and has timelines and the extension; the descriptor is new, and nobody else
    // uses it.
    let (raw, fd) = unsafe {
        let raw = gpu.device.raw().create_semaphore(&info, None).unwrap();
        let info = vk::SemaphoreGetFdInfoKHR::default().semaphore(raw).handle_type(types);
        (raw, Fd::from_raw(fns.get_semaphore_fd(&info).unwrap()))
    };
    let imported = ImportedSemaphore::import(&gpu.context, SemaphoreHandle::TimelineFd(fd)).unwrap();
    RawTimeline { imported, raw, device: gpu.device.clone() }
}

impl Drop for RawTimeline {
    fn drop(&mut self) {
        // SAFETY: no submission used it. (CUDA's import keeps the payload alive by itself.)
        unsafe { self.device.raw().destroy_semaphore(self.raw, None) };
    }
}

/// A device without `interop` returns a clear error.
#[test]
fn a_device_without_interop_is_a_clear_error() {
    let Some(gpu) = Gpu::open() else { return };
    let (plain, _queue) = gpu.device.adapter().request_device(&DeviceDesc::default()).unwrap();
    // SAFETY: the three belong together, `plain` keeps them alive, and both features are enabled.
    let vk = unsafe {
        let (instance, physical) = (gpu.instance.raw().clone(), plain.adapter().raw());
        Vk::from_raw(instance, physical, plain.raw().clone(), Arc::new(plain.clone()))
    };
    let pair = Pair::new(vk.unwrap(), gpu.context.clone()).unwrap();
    for text in [
        SharedTimeline::new(&pair).err().expect("not exportable").to_string(),
        SharedBinary::new(&pair).err().expect("not exportable").to_string(),
    ] {
        assert!(text.contains("made without VK_KHR_external_semaphore_fd"), "{text}");
    }
    gpu.finish();
}
