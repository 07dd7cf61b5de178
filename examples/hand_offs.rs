//! Six ways to hand frames from CUDA to Vulkan, in the order of understanding. Each is one function, numbered below.
//!
//! In each frame, a kernel of CUDA writes every word of a buffer, and a compute shader of Vulkan compares every word with what it
//! should be. So each way is checked and timed. `--without` leaves out one of the two waits, and frames are wrong.
//!
//! ```sh
//! cargo run --release --example hand_offs                        # all six, in one table
//! cargo run --release --example hand_offs -- 5                   # one of them
//! cargo run --release --example hand_offs -- 4 --without ready   # what that wait is good for
//! ```

use std::error::Error;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ash::vk::{self, AccessFlags2 as Access, PipelineStageFlags2 as Stage};
use clap::{Parser, ValueEnum};
use cudarc::driver::{CudaFunction, CudaStream, DevicePtr, LaunchConfig, PushKernelArg, result, sys};
use cudarc::nvrtc::Ptx;
use vulkan_cuda::ownership::{self, Owner};
use vulkan_cuda::{Ring, SharedBinary, SharedBuffer, SharedTimeline};

#[allow(dead_code)] // Of the library's first example, only `open` is used here.
#[path = "../crates/vulkan-cuda/examples/01_match.rs"]
mod match_devices;
#[path = "hand_offs/reader.rs"]
mod reader;

use match_devices::Gpu;
use reader::{Host, Reader, groups};

type Result<T> = std::result::Result<T, Box<dyn Error>>;
type Semaphore = vk::SemaphoreSubmitInfo<'static>;

/// The number of slots of a ring, K, and of frames in a batch.
const SLOTS: u64 = 8;
/// How many frames may be in flight: more than there are slots, so that this protects no slot.
const FLIGHTS: u64 = 32;

type Way = fn(&mut Run<'_>) -> Result<()>;

const WAYS: [(&str, Way); 6] = [
    ("a copy through the host", copy_through_host),
    ("the CPU waits", cpu_waits),
    ("binary semaphores", binary_semaphores),
    ("timelines, one buffer", timelines),
    ("a ring of 8 slots", ring),
    ("a ring of 8, batches of 8", batches),
];

/// 1. Nothing is shared: CUDA's memory is copied to the CPU's, and from there to Vulkan's. The CPU waits for both.
fn copy_through_host(run: &mut Run<'_>) -> Result<()> {
    let stream = run.stream.clone();
    let own = stream.alloc_zeros::<u32>(run.words)?;
    let (own, _record) = own.device_ptr(&stream);
    let mut host = PageLocked::new(run.words)?;
    for n in 0..run.frames {
        run.cuda_writes(own, n)?;
        // SAFETY: as many words on both sides. Freeing either waits for CUDA.
        unsafe { result::memcpy_dtoh_async(host.words(), own, stream.cu_stream()) }?;
        if run.has(Wait::Ready) {
            run.wait_for_cuda()?; // CUDA has written and copied frame n.
        }
        if run.has(Wait::Free) {
            run.wait_for_vulkan(n)?; // Vulkan has read frame n-1.
        }
        run.staging.words().copy_from_slice(host.words());
        run.vulkan_reads(0, n, Owner::Queue, None, None)?; // Copies `staging` first.
    }
    Ok(())
}

// ANCHOR: cpu
/// 2. Both have the same memory, so nothing is copied. The CPU still waits for both.
fn cpu_waits(run: &mut Run<'_>) -> Result<()> {
    for n in 0..run.frames {
        if run.has(Wait::Free) {
            run.wait_for_vulkan(n)?; // Vulkan has read frame n-1.
        }
        run.cuda_writes(run.slots[0].cuda(), n)?;
        if run.has(Wait::Ready) {
            run.wait_for_cuda()?; // CUDA has written frame n.
        }
        run.vulkan_reads(0, n, Owner::External, None, None)?;
    }
    Ok(())
}
// ANCHOR_END: cpu

/// 3. The GPU waits, so the CPU goes on at once. A binary semaphore has no number: each signal has one wait, enqueued after it.
fn binary_semaphores(run: &mut Run<'_>) -> Result<()> {
    for n in 0..run.frames {
        if run.has(Wait::Free) && n > 0 {
            // SAFETY: the semaphores live until both sides are idle.
            unsafe { run.binary_free.cuda_wait(&run.stream) }?; // Vulkan has read frame n-1.
        }
        run.cuda_writes(run.slots[0].cuda(), n)?;
        if !run.has(Wait::Free) && n > 0 {
            // A signal needs its wait. So one that is left out comes after the work, where nothing waits for it in vain.
            // SAFETY: as above.
            unsafe { run.binary_free.cuda_wait(&run.stream) }?;
        }
        // SAFETY: as above. Vulkan has waited for the signal before.
        unsafe { run.binary_ready.cuda_signal_after_kernels(&run.stream) }?;
        let wait = Some(run.binary_ready.vulkan_wait()?); // CUDA has written frame n.
        let signal = Some(run.binary_free.vulkan_signal()?);
        if run.has(Wait::Ready) {
            run.vulkan_reads(0, n, Owner::External, wait, signal)?;
        } else {
            run.vulkan_reads(0, n, Owner::External, None, None)?;
            run.submit(None, wait, signal.as_slice())?;
        }
        run.binary_ready.submitted();
        run.binary_free.submitted();
    }
    Ok(())
}

// ANCHOR: timelines
/// 4. A timeline is a counter. Frame n signals n+1 on both, so a wait says which frame it is for.
fn timelines(run: &mut Run<'_>) -> Result<()> {
    for n in 0..run.frames {
        if run.has(Wait::Free) && n > 0 {
            // SAFETY: the timelines live until both sides are idle.
            unsafe { run.free.cuda_wait(&run.stream, n) }?; // Vulkan has read frame n-1.
        }
        run.cuda_writes(run.slots[0].cuda(), n)?;
        // SAFETY: as above. One stream signals, in order.
        unsafe { run.ready.cuda_signal_after_kernels(&run.stream, n + 1) }?;

        let wait = run.has(Wait::Ready).then(|| run.ready.vulkan_wait(n + 1)); // CUDA has written frame n.
        let signal = run.free.vulkan_signal(n + 1)?;
        run.vulkan_reads(0, n, Owner::External, wait, Some(signal))?;
    }
    Ok(())
}
// ANCHOR_END: timelines

/// 5. K slots in turn. Only two things change: frame n has slot n mod K, and CUDA waits for frame n-K instead of n-1.
fn ring(run: &mut Run<'_>) -> Result<()> {
    for n in 0..run.frames {
        let slot = (n % SLOTS) as usize;
        if run.has(Wait::Free) && n >= SLOTS {
            // SAFETY: the timelines live until both sides are idle.
            unsafe { run.free.cuda_wait(&run.stream, n + 1 - SLOTS) }?; // Vulkan has read frame n-K.
        }
        run.cuda_writes(run.slots[slot].cuda(), n)?;
        // SAFETY: as above. One stream signals, in order.
        unsafe { run.ready.cuda_signal_after_kernels(&run.stream, n + 1) }?;

        let wait = run.has(Wait::Ready).then(|| run.ready.vulkan_wait(n + 1)); // CUDA has written frame n.
        let signal = run.free.vulkan_signal(n + 1)?;
        run.vulkan_reads(slot, n, Owner::External, wait, Some(signal))?;
    }
    Ok(())
}

/// 6. CUDA waits once for the slots of B frames, and writes them in a row. Vulkan reads them one by one.
fn batches(run: &mut Run<'_>) -> Result<()> {
    let (ring, batch) = (Ring::new(SLOTS as u32).ok_or("a ring has 1 to 32 slots")?, SLOTS);
    for first in (0..run.frames).step_by(batch as usize) {
        let frames = first..(first + batch).min(run.frames);
        // The library has the numbers of way 5. The last frame's is the largest, so it frees the slots of all.
        if let (true, Some(value)) = (run.has(Wait::Free), ring.turn(frames.end - 1).wait_free) {
            // SAFETY: the timelines live until both sides are idle.
            unsafe { run.free.cuda_wait(&run.stream, value) }?; // Vulkan has read the last batch.
        }
        for n in frames.clone() {
            run.cuda_writes(run.slots[ring.turn(n).slot].cuda(), n)?;
            // SAFETY: as above. One stream signals, in order.
            unsafe { run.ready.cuda_signal_after_kernels(&run.stream, ring.turn(n).signal_ready) }?;
        }
        for n in frames {
            let turn = ring.turn(n);
            let wait = run.has(Wait::Ready).then(|| run.ready.vulkan_wait(turn.wait_ready));
            let signal = run.free.vulkan_signal(turn.signal_free)?;
            run.vulkan_reads(turn.slot, n, Owner::External, wait, Some(signal))?;
        }
    }
    Ok(())
}

/// One of the two waits of a hand-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Wait {
    /// Vulkan reads a frame after CUDA has written it
    Ready,
    /// CUDA writes a buffer after Vulkan has read what was in it
    Free,
}

/// Hands frames from CUDA to Vulkan in six ways, checks every word, and prints what each way costs
#[derive(Parser, Debug)]
#[command(name = "hand_offs")]
struct Options {
    /// Only this way, 1 to 6
    #[arg(value_parser = clap::value_parser!(u8).range(1..=6))]
    way: Option<u8>,
    /// Leaves out this wait, and slows the other side down, to show what it is good for
    #[arg(long, value_name = "WAIT")]
    without: Option<Wait>,
    /// Words of a frame, 4 bytes each [default: 4194304, on a software device 16384]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 27))]
    words: Option<u32>,
    /// Frames of each way [default: 1000, with --without or on a software device 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    frames: Option<u64>,
}

/// Both halves of a frame, and what the six ways use. Each run of a way has its own.
struct Run<'a> {
    words: usize,
    frames: u64,
    without: Option<Wait>,
    stream: Arc<CudaStream>,
    kernel: CudaFunction,
    slots: Vec<SharedBuffer>,
    ready: SharedTimeline,
    free: SharedTimeline,
    binary_ready: SharedBinary,
    binary_free: SharedBinary,
    reader: Reader,
    /// What Vulkan copies into slot 0 before it reads, in way 1.
    staging: Host,
    /// For each workgroup of each frame, how many words were right.
    counts: Host,
    /// How long the CPU has waited for the GPU.
    waited: Duration,
    gpu: &'a Gpu,
}

impl<'a> Run<'a> {
    fn new(gpu: &'a Gpu, words: usize, frames: u64, without: Option<Wait>) -> Result<Self> {
        let (pair, usage) = (&gpu.pair, vk::BufferUsageFlags::STORAGE_BUFFER);
        let slot = |_| SharedBuffer::new(pair, 4 * words as u64, usage | vk::BufferUsageFlags::TRANSFER_DST);
        let slots = (0..SLOTS).map(slot).collect::<vulkan_cuda::Result<Vec<_>>>()?;
        let counts = Host::new(gpu, frames as usize * groups(words) as usize, usage)?;
        let module = gpu.cuda.load_module(Ptx::from_src(include_str!("hand_offs.ptx")))?;
        Ok(Self {
            words,
            frames,
            without,
            stream: gpu.cuda.new_stream()?,
            kernel: module.load_function("write_words")?,
            ready: SharedTimeline::new(pair)?,
            free: SharedTimeline::new(pair)?,
            binary_ready: SharedBinary::new(pair)?,
            binary_free: SharedBinary::new(pair)?,
            reader: Reader::new(gpu, FLIGHTS, &slots, &counts)?,
            slots,
            staging: Host::new(gpu, words, vk::BufferUsageFlags::TRANSFER_SRC)?,
            counts,
            waited: Duration::ZERO,
            gpu,
        })
    }

    /// Returns whether a side waits for the other.
    fn has(&self, wait: Wait) -> bool {
        self.without != Some(wait)
    }

    /// Returns how often the shader looks at each word. Without the wait for `free`, so often that CUDA's next frame comes meanwhile.
    fn looks(&self) -> u32 {
        if self.has(Wait::Free) { 1 } else { 400 }
    }

    /// Enqueues the kernel that writes frame `n`.
    fn cuda_writes(&self, out: sys::CUdeviceptr, n: u64) -> Result<()> {
        let launch = |words: u32, late: u64| {
            let (stamp, blocks) = (n as u32 + 1, words.div_ceil(256).max(1));
            let mut launch = self.stream.launch_builder(&self.kernel);
            launch.arg(&out).arg(&words).arg(&stamp).arg(&late);
            let (grid_dim, block_dim) = ((blocks, 1, 1), (256, 1, 1));
            // SAFETY: these are the kernel's parameters. It writes only the words, which live until it is done.
            unsafe { launch.launch(LaunchConfig { grid_dim, block_dim, shared_mem_bytes: 0 }) }.map(drop)
        };
        if !self.has(Wait::Ready) {
            // These write nothing, and take half a millisecond each. So the kernel below is late.
            (0..20).try_for_each(|_| launch(0, 1_000_000))?;
        }
        Ok(launch(self.words as u32, 0)?)
    }

    /// Submits the shader that reads frame `n`: first waits for `wait`, at last signals `signal`. `from` had the slot before.
    fn vulkan_reads(
        &mut self,
        slot: usize,
        n: u64,
        from: Owner,
        wait: Option<Semaphore>,
        signal: Option<Semaphore>,
    ) -> Result<()> {
        // The GPU must be done with the frame that last used this command buffer.
        self.wait_for_vulkan((n + 1).saturating_sub(FLIGHTS))?;
        let looks = self.looks();
        let Self { gpu: Gpu { device, family, .. }, reader, words, .. } = self;
        let (commands, buffer) = (reader.commands[(n % FLIGHTS) as usize], self.slots[slot].vulkan());
        let info = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        let access = Access::SHADER_STORAGE_READ;
        let shader = ownership::Access { stage: Stage::COMPUTE_SHADER, access };
        let (acquire, release) =
            ([from.acquire(buffer, *family, shader)], [from.release(buffer, *family, shader)]);
        // SAFETY: the GPU is done with the commands, and all that they use lives until it is idle.
        unsafe {
            device.begin_command_buffer(commands, &info)?;
            if from == Owner::Queue {
                let copy = [vk::BufferCopy::default().size(4 * *words as u64)];
                device.cmd_copy_buffer(commands, self.staging.buffer, buffer, &copy);
            }
            let barriers = vk::DependencyInfo::default();
            device.cmd_pipeline_barrier2(commands, &barriers.buffer_memory_barriers(&acquire));
            reader.record(commands, slot, *words, n, looks);
            device.cmd_pipeline_barrier2(commands, &barriers.buffer_memory_barriers(&release));
            device.end_command_buffer(commands)?;
        }
        let done = vk::SemaphoreSubmitInfo::default().semaphore(reader.done).value(n + 1);
        let signals: Vec<_> = signal.into_iter().chain([done.stage_mask(Stage::ALL_COMMANDS)]).collect();
        self.submit(Some(commands), wait, &signals)
    }

    fn submit(
        &self,
        commands: Option<vk::CommandBuffer>,
        wait: Option<Semaphore>,
        signals: &[Semaphore],
    ) -> Result<()> {
        let commands =
            commands.map(|commands| vk::CommandBufferSubmitInfo::default().command_buffer(commands));
        let batch = vk::SubmitInfo2::default().command_buffer_infos(commands.as_slice());
        let batch = [batch.wait_semaphore_infos(wait.as_slice()).signal_semaphore_infos(signals)];
        // SAFETY: the commands are recorded, and only this thread uses the queue.
        Ok(unsafe { self.gpu.device.queue_submit2(self.gpu.queue, &batch, vk::Fence::null()) }?)
    }

    /// Blocks the CPU until CUDA has done all that was enqueued.
    fn wait_for_cuda(&mut self) -> Result<()> {
        let began = Instant::now();
        self.stream.synchronize()?;
        self.waited += began.elapsed();
        Ok(())
    }

    /// Blocks the CPU until Vulkan has read the first `frames` frames.
    fn wait_for_vulkan(&mut self, frames: u64) -> Result<()> {
        let (began, done, values) = (Instant::now(), [self.reader.done], [frames]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&done).values(&values);
        // SAFETY: a live timeline of this device. After a fault CUDA signals nothing more, so the wait has a limit.
        let waited = unsafe { self.gpu.device.wait_semaphores(&info, 20_000_000_000) };
        waited.map_err(|result| format!("Vulkan has not read {frames} frames in 20 s: {result}"))?;
        self.waited += began.elapsed();
        Ok(())
    }

    /// Returns how many frames had a wrong word. Both sides must be idle.
    fn wrong_frames(&mut self) -> usize {
        let right = u64::from(self.looks()) * self.words as u64;
        let frames = self.counts.words().chunks(groups(self.words) as usize);
        frames.filter(|counts| counts.iter().map(|&count| u64::from(count)).sum::<u64>() != right).count()
    }
}

/// Page-locked memory of the CPU, which CUDA copies to without help.
struct PageLocked(*mut u32, usize);

impl PageLocked {
    fn new(words: usize) -> Result<Self> {
        // SAFETY: a context is current. The memory is filled before it is read.
        unsafe {
            let made = result::malloc_host(4 * words, 0)?.cast::<u32>();
            made.write_bytes(0, words);
            Ok(Self(made, words))
        }
    }

    fn words(&mut self) -> &mut [u32] {
        // SAFETY: as many words were allocated. If CUDA still writes them, see `Host::words`.
        unsafe { std::slice::from_raw_parts_mut(self.0, self.1) }
    }
}

impl Drop for PageLocked {
    fn drop(&mut self) {
        // SAFETY: from `malloc_host`, and freed once. Waits for CUDA.
        let _ = unsafe { result::free_host(self.0.cast()) };
    }
}

/// Runs a way, and prints its row. Returns whether it has as many wrong frames as it should.
fn measure(gpu: &Gpu, way: usize, words: usize, frames: u64, without: Option<Wait>) -> Result<bool> {
    let (name, hand_over) = WAYS[way];
    let once = |frames| -> Result<_> {
        let mut run = Run::new(gpu, words, frames, without)?;
        let began = Instant::now();
        let done = hand_over(&mut run).and_then(|()| run.wait_for_vulkan(frames));
        match done.and_then(|()| run.wait_for_cuda()) {
            Ok(()) => Ok((began.elapsed(), run.waited, run.wrong_frames())),
            Err(error) => {
                std::mem::forget(run); // The GPU may still use it.
                std::thread::spawn(|| {
                    // The end of a process waits for CUDA's work, which may never be done.
                    std::thread::sleep(Duration::from_secs(5));
                    // SAFETY: what else the process had to do is done.
                    unsafe { libc::_exit(1) }
                });
                Err(error)
            }
        }
    };
    // The first frames of a process are slow, so a short run comes before the one that is timed.
    once(if without.is_none() { frames.min(FLIGHTS) } else { 1 })?;
    let (all, waited, wrong) = once(frames)?;
    let [all_us, cpu_us] =
        [all, all.saturating_sub(waited)].map(|time| 1e6 * time.as_secs_f64() / frames as f64);
    println!("{}  {name:26} {all_us:12.1} {cpu_us:10.1} {wrong:8} of {frames}", way + 1);
    Ok((wrong > 0) == without.is_some())
}

fn run(options: &Options) -> Result<bool> {
    let gpu = match_devices::open()?;
    let (instance, physical) = (gpu.pair.vk().instance(), gpu.pair.vk().physical());
    // SAFETY: both belong together, and live as long as the pair.
    let kind = unsafe { instance.get_physical_device_properties(physical) }.device_type;
    let is_software = kind == vk::PhysicalDeviceType::CPU;
    let words = options.words.unwrap_or(if is_software { 1 << 14 } else { 1 << 22 }) as usize;
    let is_slow = is_software || options.without.is_some();
    let frames = options.frames.unwrap_or(if is_slow { 100 } else { 1000 });
    println!(
        "{words} words a frame\n\n   {:26} {:>12} {:>10} {:>15}",
        "way", "µs a frame", "CPU µs", "wrong frames"
    );
    let mut as_it_should = true;
    for way in options.way.map_or(0..WAYS.len(), |way| usize::from(way) - 1..way.into()) {
        as_it_should &= measure(&gpu, way, words, frames, options.without)?;
    }
    Ok(as_it_should)
}

pub fn start(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let options = match Options::try_parse_from(["hand_offs".into()].into_iter().chain(arguments)) {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            return error.exit_code() as u8;
        }
    };
    match run(&options) {
        Ok(true) => 0,
        Ok(false) => {
            let why = "each way must have no wrong frame, and without a wait at least one: run it again";
            eprintln!("error: {why}");
            1
        }
        Err(error) => {
            let skipped = match_devices::is_unsupported(&*error);
            eprintln!("{}: {error}", if skipped { "skipped" } else { "error" });
            u8::from(!skipped || std::env::var("WAVEFIELD_REQUIRE_GPU").as_deref() == Ok("1"))
        }
    }
}

#[allow(dead_code)] // The tests call `start`.
fn main() -> ExitCode {
    start(std::env::args_os().skip(1)).into()
}
