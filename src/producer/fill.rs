//! CUDA's stream and its clock, which every hand-off from CUDA uses.

use std::time::{Duration, Instant};

use tracing::trace_span;

use crate::cuda::{Cuda, Event, Stream, is_sticky};
use crate::{Error, Result};

/// CUDA's stream, and two events for each frame that time the kernel.
pub struct Fill {
    // Field order is drop order: the stream goes before the events that it uses.
    stream: Stream,
    marks: Vec<(Event, Event)>,
    /// The kernel's name, for errors.
    name: String,
}

/// How many frames' times are kept: more than can be in flight, batches included.
const KEPT: u64 = 128;

impl Fill {
    /// Makes a stream. `name` is the kernel's, for errors.
    pub fn new(context: &Cuda, name: &str) -> Result<Self> {
        let mark = |_| Ok((Event::new(context)?, Event::new(context)?));
        let marks = (0..KEPT).map(mark).collect::<Result<_>>()?;
        Ok(Self { stream: Stream::new(context)?, marks, name: name.to_owned() })
    }

    /// The stream that runs the kernel.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Enqueues `work` between the frame's two events.
    pub(crate) fn timed(&self, frame: u64, work: impl FnOnce(&Stream) -> Result<()>) -> Result<()> {
        let _span = trace_span!("launch", frame).entered();
        let (before, after) = self.events(frame);
        before.record(&self.stream)?;
        work(&self.stream)?;
        after.record(&self.stream)
    }

    /// How long the kernel of a finished frame took. `None` if a later frame has reused its events and is not done.
    pub fn time(&self, frame: u64) -> Result<Option<Duration>> {
        let (before, after) = self.events(frame);
        let elapsed = before.elapsed_ms(after).map_err(|error| self.blame(error))?;
        Ok(elapsed.map(|milliseconds| Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) * 1e-3)))
    }

    /// The events around a frame's kernel. Later frames reuse them.
    pub fn events(&self, frame: u64) -> (&Event, &Event) {
        let (before, after) = &self.marks[(frame % KEPT) as usize];
        (before, after)
    }

    /// The time from the end of the previous frame to the end of this one. Both must have finished. `None` for frame
    /// 0, or if a later frame has reused the events.
    pub fn period(&self, frame: u64) -> Result<Option<Duration>> {
        let Some(last) = frame.checked_sub(1) else { return Ok(None) };
        let end = |frame: u64| &self.marks[(frame % KEPT) as usize].1;
        let elapsed = end(last).elapsed_ms(end(frame)).map_err(|error| self.blame(error))?;
        let elapsed = elapsed.filter(|milliseconds| *milliseconds >= 0.0);
        Ok(elapsed.map(|milliseconds| Duration::from_secs_f64(f64::from(milliseconds) * 1e-3)))
    }

    /// Whether the stream is idle. Fails if the kernel has faulted.
    pub fn is_idle(&self) -> Result<bool> {
        self.stream.is_idle().map_err(|error| self.blame(error))
    }

    /// Blocks until the stream is idle, for at most `timeout`. `cuStreamSynchronize` has no timeout, and a kernel may never
    /// end.
    pub fn wait_idle(&self, timeout: Duration) -> Result<()> {
        let began = Instant::now();
        while !self.is_idle()? {
            if began.elapsed() > timeout {
                return Err(Error::Stuck {
                    device: self.stream.context().info().name.clone(),
                    seconds: timeout.as_secs_f64(),
                    progress: format!("CUDA did not finish {}", self.name),
                });
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Which side keeps a frame waiting, for hand-offs without timelines.
    pub fn late_side(&self) -> String {
        match self.stream.is_idle() {
            Ok(false) => format!("CUDA did not signal: it has not finished {}", self.name),
            _ => "Vulkan did not finish a frame that CUDA has filled".into(),
        }
    }

    /// Blames the kernel instead of the call: once a kernel has faulted, every call on its context fails with the same code.
    pub fn blame(&self, error: Error) -> Error {
        match error {
            Error::Cuda { code, .. } if is_sticky(code) => {
                Error::Kernel { kernel: self.name.clone(), problem: error.to_string() }
            }
            other => other,
        }
    }
}
