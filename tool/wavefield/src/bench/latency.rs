//! How long a signal takes from one API to the other, and from each API to the CPU.
//!
//! Measures a ping-pong of two timelines without work in between. CUDA records the time and signals. A Vulkan
//! submission waits for that signal, records the time and signals. CUDA waits for Vulkan's signal and records
//! the time again. CUDA reads `%globaltimer`, and Vulkan writes timestamps. [`Latency::same_clock`] tells
//! whether both read one clock.

use std::ffi::c_void;
use std::fmt;
use std::time::{Duration, Instant};

use ash::vk;
use serde::{Deserialize, Serialize};
use vulkan_cuda::SharedTimeline;

use super::record::{Distribution, Machine};
use super::runner::choose;
use wavefield_gpu::cuda::{Cuda, DeviceMemory, Kernel, Stream};
use wavefield_gpu::report::{Failures, command_line};
use wavefield_gpu::vulkan::{CommandPool, Device, DeviceDesc, Queue, Timestamps, begin, end};
use wavefield_gpu::{Error, Result, stuck_gpu};
use wavefield_run::{Config, ProducerKind, Stop};

const LATENCY_SCHEMA: &str = "wavefield-latency/1";

/// The result of [`measure_latency`]. `docs/bench-schema.md` describes the fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    pub schema: String,
    pub complete: bool,
    pub command: String,
    pub machine: Machine,
    pub rounds: u64,
    pub round_trip_us: Distribution,
    /// Whether every Vulkan time is between the two CUDA times around it. If so, the error of comparing the
    /// clocks is at most the shortest one-way time. If not, the one-way times are `None`.
    pub same_clock: bool,
    pub clock_violation_us: f64,
    pub cuda_to_vulkan_us: Option<Distribution>,
    pub vulkan_to_cuda_us: Option<Distribution>,
    pub cuda_enqueue_us: Option<Distribution>,
    pub host_vulkan_us: Option<Distribution>,
    pub host_cuda_us: Option<Distribution>,
    pub host_stream_us: Option<Distribution>,
}

/// The number of ping-pongs that are enqueued before a wait for the GPU.
const CHUNK: usize = 250;
/// The number of CPU round trips of each kind. It is small because some take 10 ms.
const HOST_ROUNDS: usize = 300;

/// Measures `rounds` ping-pongs, rounded up to whole chunks. After a stop or a failure, the result contains
/// what was measured before and is marked incomplete. Fails if nothing was measured.
pub fn measure_latency(
    rounds: usize,
    base: &Config,
    stop: &Stop,
    failures: &mut Failures,
) -> Result<Latency> {
    let choice = choose(base, ProducerKind::Cuda)?;
    let Some((driver, info)) = &choice.cuda else {
        return Err(Error::Unsupported("no CUDA device to measure".into()));
    };
    let context = Cuda::primary(*driver, info)?;
    let desc = DeviceDesc { interop: true, ..DeviceDesc::default() };
    let (device, queue) = choice.adapter.request_device(&desc)?;
    let stream = Stream::new(&context)?;
    let kernel = Kernel::load(&context, &wavefield_handoff::contents::built_in::clock())?;
    let stamps = DeviceMemory::new(&context, (CHUNK * 2 * size_of::<u64>()) as u64)?;
    let pair = device.pair(&context)?;
    let (ping, pong) = (SharedTimeline::new(&pair)?, SharedTimeline::new(&pair)?);
    let Some(timestamps) = Timestamps::<1>::new(&device, CHUNK)? else {
        return Err(Error::Unsupported(format!("{} keeps no timestamps", device.info().name)));
    };
    let pool = CommandPool::of_queue(&queue, vk::CommandPoolCreateFlags::TRANSIENT)?;
    let commands = record(&device, &pool, &timestamps)?;
    let mut bench = LatencyBench {
        queue,
        stream,
        kernel,
        stamps,
        ping,
        pong,
        timestamps,
        commands,
        _pool: pool,
        value: 0,
    };
    let mut found = LatencySamples::default();
    let measured = bench.measure(rounds, stop, &mut found);
    let measured = measured.inspect_err(|_| {
        // CUDA may wait for a signal that Vulkan never sends, or the reverse.
        stuck_gpu::leak(bench);
    });
    let LatencySamples { trips, enqueue_us, host_us } = found;
    if trips.is_empty() {
        measured?;
        let words = "stopped before the first ping-pongs were done: nothing was measured";
        return Err(Error::Stopped(words.into()));
    }
    failures.catch(measured);

    let whole = |times: &Vec<f64>| times.len() == HOST_ROUNDS;
    let complete = trips.len() >= rounds && host_us.iter().all(whole);
    let any = |mut times: Vec<f64>| (!times.is_empty()).then(|| Distribution::of(&mut times));
    let [host_vulkan_us, host_cuda_us, host_stream_us] = host_us.map(any);
    let of = |way: &dyn Fn(&Trip) -> f64| Distribution::of(&mut trips.iter().map(way).collect::<Vec<_>>());
    // How far Vulkan's time is outside CUDA's two times; 0 or less if it is between them.
    let violation = |trip: &Trip| (trip.out - trip.there).max(trip.there - trip.back);
    let violation = trips.iter().map(violation).fold(0.0, f64::max);
    let same_clock = violation <= 0.0;
    Ok(Latency {
        schema: LATENCY_SCHEMA.to_owned(),
        complete,
        command: command_line(),
        machine: choice.machine(),
        rounds: trips.len() as u64,
        round_trip_us: of(&|trip| (trip.back - trip.out) * 1e-3),
        same_clock,
        clock_violation_us: violation * 1e-3,
        cuda_to_vulkan_us: same_clock.then(|| of(&|trip| (trip.there - trip.out) * 1e-3)),
        vulkan_to_cuda_us: same_clock.then(|| of(&|trip| (trip.back - trip.there) * 1e-3)),
        cuda_enqueue_us: any(enqueue_us),
        host_vulkan_us,
        host_cuda_us,
        host_stream_us,
    })
}

/// The times of a ping-pong, in nanoseconds of the GPU's clock.
struct Trip {
    out: f64,
    there: f64,
    back: f64,
}

fn record(device: &Device, pool: &CommandPool, timestamps: &Timestamps<1>) -> Result<Vec<vk::CommandBuffer>> {
    let commands = pool.allocate(CHUNK as u32)?;
    for (index, &commands) in commands.iter().enumerate() {
        begin(device, commands, vk::CommandBufferUsageFlags::empty())?;
        timestamps.reset(commands, index);
        timestamps.mark(commands, index, 0);
        end(device, commands)?;
    }
    Ok(commands)
}

struct LatencyBench {
    queue: Queue,
    stream: Stream,
    kernel: Kernel,
    stamps: DeviceMemory,
    ping: SharedTimeline,
    pong: SharedTimeline,
    timestamps: Timestamps<1>,
    commands: Vec<vk::CommandBuffer>,
    _pool: CommandPool,
    value: u64,
}

#[derive(Default)]
struct LatencySamples {
    trips: Vec<Trip>,
    /// The CPU time to enqueue CUDA's half of each ping-pong.
    enqueue_us: Vec<f64>,
    /// The times of CPU round trips: through Vulkan, through CUDA, and with `cuStreamSynchronize`.
    host_us: [Vec<f64>; 3],
}

impl LatencyBench {
    /// Measures into `found`. After an error, the GPU may have work that never ends.
    fn measure(&mut self, rounds: usize, stop: &Stop, found: &mut LatencySamples) -> Result<()> {
        self.chunk()?; // The warm-up.
        while found.trips.len() < rounds && !stop.requested() {
            let (trips, enqueue_us) = self.chunk()?;
            found.trips.extend(trips);
            found.enqueue_us.extend(enqueue_us);
        }
        let ways: [fn(&mut Self) -> Result<bool>; 3] =
            [Self::through_vulkan, Self::through_cuda, Self::through_stream];
        for (way, times) in ways.into_iter().zip(&mut found.host_us) {
            while times.len() < HOST_ROUNDS && !stop.requested() {
                self.value += 1;
                let began = Instant::now();
                if !way(self)? {
                    return Err(Error::Unsupported("a host wait did not end within a second".into()));
                }
                times.push(began.elapsed().as_secs_f64() * 1e6);
            }
        }
        self.queue.wait_idle()?;
        self.stream.synchronize()
    }

    /// Runs a chunk of ping-pongs. Returns their times, and the CPU times to enqueue CUDA's halves.
    fn chunk(&mut self) -> Result<(Vec<Trip>, Vec<f64>)> {
        let mut enqueue_us = Vec::with_capacity(CHUNK);
        for index in 0..CHUNK {
            self.value += 1;
            let began = Instant::now();
            self.stamp(index * 2)?;
            // SAFETY: the stream is idle before the timelines are dropped: after an error, they are leaked.
            unsafe {
                self.ping.cuda_signal_after_kernels(&self.stream, self.value)?;
                self.pong.cuda_wait(&self.stream, self.value)?;
            }
            self.stamp(index * 2 + 1)?;
            enqueue_us.push(began.elapsed().as_secs_f64() * 1e6);
            // CUDA's signal is always enqueued before the submission that waits for it.
            self.submit(Some(self.commands[index]))?;
        }
        self.queue.wait_idle()?;
        let mut stamps = vec![[0u64; 2]; CHUNK];
        self.stamps.read(&self.stream, bytemuck::cast_slice_mut(&mut stamps))?;
        let mut trips = Vec::with_capacity(CHUNK);
        for (index, [out, back]) in stamps.into_iter().enumerate() {
            let there = self.timestamps.read(index)?;
            trips.extend(there.map(|[there]| Trip { out: out as f64, there, back: back as f64 }));
        }
        Ok((trips, enqueue_us))
    }

    fn stamp(&self, index: usize) -> Result<()> {
        let mut out = self.stamps.pointer() + (index * size_of::<u64>()) as u64;
        let mut arguments: [*mut c_void; 1] = [(&raw mut out).cast()];
        // SAFETY: the kernel takes one pointer, and its 8 bytes lie within the memory.
        unsafe { self.kernel.launch_with(&self.stream, 1, 1, &mut arguments) }
    }

    /// Submits commands that wait for `ping` and signal `pong`. Without commands, only signals `pong`.
    fn submit(&mut self, commands: Option<vk::CommandBuffer>) -> Result<()> {
        let waits = [self.ping.vulkan_wait(self.value)];
        let signals = [self.pong.vulkan_signal(self.value)?];
        let buffers =
            commands.map(|commands| vk::CommandBufferSubmitInfo::default().command_buffer(commands));
        let batch = vk::SubmitInfo2::default()
            .wait_semaphore_infos(&waits[..buffers.iter().len()])
            .command_buffer_infos(buffers.as_slice())
            .signal_semaphore_infos(&signals);
        // SAFETY: the commands are recorded and not pending. All objects live until the queue is idle, or are
        // leaked.
        unsafe { self.queue.submit(&[batch]) }
    }

    fn through_vulkan(&mut self) -> Result<bool> {
        self.submit(None)?;
        Ok(self.pong.wait_from_host(self.value, Duration::from_secs(1))?)
    }

    fn through_cuda(&mut self) -> Result<bool> {
        self.signal()?;
        Ok(self.ping.wait_from_host(self.value, Duration::from_secs(1))?)
    }

    fn through_stream(&mut self) -> Result<bool> {
        self.signal()?;
        self.stream.synchronize().map(|()| true)
    }

    /// Makes CUDA signal `ping` after a kernel, so that a wait cannot return at once.
    fn signal(&self) -> Result<()> {
        self.stamp(0)?;
        // SAFETY: as in `chunk`.
        Ok(unsafe { self.ping.cuda_signal_after_kernels(&self.stream, self.value) }?)
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        writeln!(f, "{} ({}), CUDA {}", machine.gpu, machine.driver, machine.cuda.as_deref().unwrap_or("-"))?;
        writeln!(f, "{} ping-pongs without work in between", self.rounds)?;
        if !self.complete {
            writeln!(f, "INCOMPLETE: the run was stopped before its last round trip")?;
        }
        writeln!(f)?;
        writeln!(f, "{:44} {:>9} {:>9} {:>9} {:>9}", "µs", "p50", "p95", "p99", "max")?;
        for (name, times) in [
            ("CUDA -> Vulkan -> CUDA, on the GPU", Some(self.round_trip_us)),
            ("CUDA -> Vulkan", self.cuda_to_vulkan_us),
            ("Vulkan -> CUDA", self.vulkan_to_cuda_us),
            ("CPU: to enqueue CUDA's half", self.cuda_enqueue_us),
            ("CPU -> Vulkan -> host wait on Vulkan's value", self.host_vulkan_us),
            ("CPU -> CUDA -> host wait on CUDA's value", self.host_cuda_us),
            ("CPU -> CUDA -> cuStreamSynchronize", self.host_stream_us),
        ] {
            let Some(Distribution { p50, p95, p99, max, .. }) = times else { continue };
            writeln!(f, "{name:44} {p50:9.1} {p95:9.1} {p99:9.1} {max:9.1}")?;
        }
        match self.same_clock {
            true => write!(
                f,
                "\n%globaltimer and Vulkan's timestamps are one clock here: no Vulkan time lay outside its CUDA times"
            ),
            false => write!(
                f,
                "\n%globaltimer and Vulkan's timestamps are not one clock here (off by up to {:.1} µs), so there is no one-way time",
                self.clock_violation_us
            ),
        }
    }
}
