//! One clock for both sides: the GPU's, as Vulkan's timestamps and CUDA's `%globaltimer` show it, tied to the CPU's.

use std::ffi::c_void;
use std::time::{Duration, Instant};

use ash::vk;

use crate::cuda::{Cuda, DeviceMemory, Event, Kernel, KernelSource, Stream};
use crate::vulkan::{Queue, Timestamps, one_shot};
use crate::{Error, Result};

/// How often a tie is tried; the tightest try is kept.
const TRIES: usize = 12;

/// A moment that was read on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct GpuClock {
    host: Instant,
    gpu_ns: f64,
    error: Duration,
    calibrated: bool,
}

impl GpuClock {
    /// Reads both clocks, by `VK_EXT_calibrated_timestamps` where the device has it (microseconds apart), else around an
    /// empty submission, which may be off by as long as that takes. Waits for the queue.
    ///
    /// # Errors
    /// A queue that keeps no time.
    pub fn tie(queue: &mut Queue) -> Result<Self> {
        let device = queue.device().clone();
        let Some(timestamps) = Timestamps::<1>::new(&device, 1)? else {
            return Err(Error::Unsupported(format!("{} keeps no timestamps", device.info().name)));
        };
        let mut best: Option<Self> = None;
        for _ in 0..TRIES {
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
            // The GPU's time was read somewhere between the two: half of that is how far off the middle may be.
            let error = before.elapsed() / 2;
            if best.is_none_or(|best| error < best.error) {
                best = Some(Self { host: before + error, gpu_ns, error, calibrated });
            }
        }
        best.ok_or_else(|| Error::Unsupported("no clock was read".into()))
    }

    /// A GPU time as microseconds since `epoch` on the CPU's clock.
    pub fn to_host_us(&self, gpu_ns: f64, epoch: Instant) -> f64 {
        let tied = self.host.saturating_duration_since(epoch).as_secs_f64() * 1e6;
        tied + (gpu_ns - self.gpu_ns) * 1e-3
    }

    /// For tests: at `host` the GPU's clock was at `gpu_ns`.
    #[cfg(test)]
    pub(crate) fn made_up(host: Instant, gpu_ns: f64) -> Self {
        Self { host, gpu_ns, error: Duration::ZERO, calibrated: false }
    }

    /// A moment of the CPU's clock in nanoseconds of the GPU's.
    pub fn at(&self, host: Instant) -> f64 {
        let since = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1e9;
        self.gpu_ns + since(self.host, host) - since(host, self.host)
    }

    /// How far off it may be.
    pub fn error(&self) -> Duration {
        self.error
    }

    /// Whether `VK_EXT_calibrated_timestamps` was used.
    pub fn calibrated(&self) -> bool {
        self.calibrated
    }
}

/// Ties the times of CUDA events, which are known only between each other, to `%globaltimer`.
pub struct CudaClock {
    base: Event,
    base_ns: f64,
    error_ns: f64,
    /// What the base will be, once the stream has passed it.
    next: Option<Event>,
}

impl CudaClock {
    /// Lets the stream note `%globaltimer` between two events. Waits for the stream.
    pub fn tie(context: &Cuda, stream: &Stream) -> Result<Self> {
        let kernel = Kernel::load(context, &KernelSource::clock())?;
        let memory = DeviceMemory::new(context, size_of::<u64>() as u64)?;
        let mut best: Option<Self> = None;
        for _ in 0..TRIES {
            let (base, after) = (Event::new(context)?, Event::new(context)?);
            let mut out = memory.pointer();
            let mut arguments: [*mut c_void; 1] = [(&raw mut out).cast()];
            base.record(stream)?;
            // SAFETY: the kernel takes one pointer, to 8 bytes, which `memory` has.
            unsafe { kernel.launch_with(stream, 1, 1, &mut arguments) }?;
            after.record(stream)?;
            let mut bytes = [0; size_of::<u64>()];
            memory.read(stream, &mut bytes)?;
            // The stamp lies between the two events: half of their distance is how far off the middle may be.
            let error_ns = f64::from(base.elapsed_ms(&after)?.unwrap_or(0.0)) * 1e6 / 2.0;
            let base_ns = u64::from_ne_bytes(bytes) as f64 - error_ns;
            if best.as_ref().is_none_or(|best| error_ns < best.error_ns) {
                best = Some(Self { base, base_ns, error_ns, next: None });
            }
        }
        best.ok_or_else(|| Error::Unsupported("no clock was read".into()))
    }

    /// When a finished event was, in nanoseconds of the GPU's clock; `None` while it is not reached.
    pub fn time_of(&self, event: &Event) -> Result<Option<f64>> {
        let elapsed = self.base.elapsed_ms(event)?;
        Ok(elapsed.map(|milliseconds| self.base_ns + f64::from(milliseconds) * 1e6))
    }

    /// Moves its base on, since CUDA gives times in single precision: a microsecond is lost after ten seconds. Waits for nobody, so it
    /// takes two calls.
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

    /// How far off it may be, in nanoseconds; CUDA gives event times to about half a microsecond besides.
    pub fn error_ns(&self) -> f64 {
        self.error_ns
    }
}

impl crate::vulkan::Device {
    /// The device's clock in nanoseconds, where `VK_EXT_calibrated_timestamps` reads it.
    fn calibrated_time(&self) -> Result<Option<f64>> {
        let (Some(functions), Some(period)) = (self.calibrated_timestamps(), self.info().timestamp_period)
        else {
            return Ok(None);
        };
        let domain = [vk::CalibratedTimestampInfoEXT::default().time_domain(vk::TimeDomainEXT::DEVICE)];
        // SAFETY: the extension is enabled, and the device's own domain is one that it always has.
        let (times, _deviation) = unsafe { functions.get_calibrated_timestamps(&domain) }
            .map_err(self.failed("vkGetCalibratedTimestampsEXT"))?;
        Ok(times.first().map(|&ticks| ticks as f64 * period))
    }
}
