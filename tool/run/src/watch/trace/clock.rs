//! Ties the GPU's clock, which Vulkan's timestamps and CUDA's `%globaltimer` share, to the CPU's clock.

use std::ffi::c_void;
use std::time::{Duration, Instant};

use wavefield_gpu::cuda::{Cuda, DeviceMemory, Event, Kernel, Stream};
use wavefield_gpu::vulkan::{Queue, Timestamps, one_shot};
use wavefield_gpu::{Error, Result};

/// Reads a clock several times, and returns the reading with the smallest error.
fn best_of<T>(mut read: impl FnMut() -> Result<T>, error: impl Fn(&T) -> f64) -> Result<T> {
    let mut best = read()?;
    for _ in 1..12 {
        let next = read()?;
        if error(&next) < error(&best) {
            best = next;
        }
    }
    Ok(best)
}

/// One moment, read on both the GPU's clock and the CPU's.
#[derive(Clone, Copy, Debug)]
pub struct GpuClock {
    pub host: Instant,
    pub gpu_ns: f64,
    pub error: Duration,
    /// Whether `VK_EXT_calibrated_timestamps` was used.
    pub calibrated: bool,
}

impl GpuClock {
    /// Reads both clocks. With `VK_EXT_calibrated_timestamps` the error is a few microseconds. Otherwise this
    /// waits for an empty submission that reads the GPU's clock, and the error is half of the time it takes.
    pub fn tie(queue: &mut Queue) -> Result<Self> {
        let device = queue.device().clone();
        let Some(timestamps) = Timestamps::<1>::new(&device, 1)? else {
            return Err(Error::Unsupported(format!("{} keeps no timestamps", device.info().name)));
        };
        let read = || {
            let before = Instant::now();
            let (gpu_ns, calibrated) = match device.calibrated_time()? {
                Some(nanoseconds) => (nanoseconds, true),
                None => {
                    one_shot(queue, |commands| {
                        timestamps.reset(commands, 0);
                        timestamps.mark(commands, 0, 0);
                    })?;
                    (timestamps.read(0)?.map_or(0.0, |[mark]| mark), false)
                }
            };
            // The GPU's clock was read in between, so the midpoint is off by at most half of the interval.
            let error = before.elapsed() / 2;
            Ok(Self { host: before + error, gpu_ns, error, calibrated })
        };
        best_of(read, |clock| clock.error.as_secs_f64())
    }

    /// Converts a time of the CPU's clock to nanoseconds of the GPU's clock.
    pub fn at(&self, host: Instant) -> f64 {
        let since = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1e9;
        self.gpu_ns + since(self.host, host) - since(host, self.host)
    }
}

/// Ties CUDA's events, whose times are only relative, to `%globaltimer`.
pub struct CudaClock {
    base: Event,
    base_ns: f64,
    /// The largest possible error of the tie. Event times also have a resolution of about half a microsecond.
    pub error_ns: f64,
    /// The event that becomes the base once the stream has reached it.
    next: Option<Event>,
}

impl CudaClock {
    /// Reads `%globaltimer` between two events. Waits for the stream.
    pub fn tie(context: &Cuda, stream: &Stream) -> Result<Self> {
        let kernel = Kernel::load(context, &wavefield_handoff::contents::built_in::clock())?;
        let memory = DeviceMemory::new(context, size_of::<u64>() as u64)?;
        let read = || {
            let (base, after) = (Event::new(context)?, Event::new(context)?);
            let mut out = memory.pointer();
            let mut arguments: [*mut c_void; 1] = [(&raw mut out).cast()];
            base.record(stream)?;
            // SAFETY: the kernel takes one pointer, to 8 bytes, which `memory` has.
            unsafe { kernel.launch_with(stream, 1, 1, &mut arguments) }?;
            after.record(stream)?;
            let mut bytes = [0; size_of::<u64>()];
            memory.read(stream, &mut bytes)?;
            // `%globaltimer` was read in between, so the midpoint is off by at most half of the interval.
            let error_ns = f64::from(base.elapsed_ms(&after)?.unwrap_or(0.0)) * 1e6 / 2.0;
            let base_ns = u64::from_ne_bytes(bytes) as f64 - error_ns;
            Ok(Self { base, base_ns, error_ns, next: None })
        };
        best_of(read, |clock| clock.error_ns)
    }

    /// Returns an event's time in nanoseconds of the GPU's clock; `None` until the stream has reached it.
    pub fn time_of(&self, event: &Event) -> Result<Option<f64>> {
        let elapsed = self.base.elapsed_ms(event)?;
        Ok(elapsed.map(|milliseconds| self.base_ns + f64::from(milliseconds) * 1e6))
    }

    /// Moves the base to a later event: ten seconds after the base, CUDA's single-precision times resolve
    /// only a microsecond. Never waits. The first call records the new base, and a later call adopts it.
    pub fn move_on(&mut self, stream: &Stream) -> Result<()> {
        if let Some(next) = self.next.take() {
            match self.time_of(&next)? {
                Some(time) => (self.base, self.base_ns) = (next, time),
                None => self.next = Some(next),
            }
        } else {
            let next = Event::new(stream.context())?;
            next.record(stream)?;
            self.next = Some(next);
        }
        Ok(())
    }
}
