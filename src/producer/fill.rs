//! The kernel on its stream: what every hand-off from CUDA has in common.

use std::time::{Duration, Instant};

use cudarc::driver::sys::CUdeviceptr;
use tracing::trace_span;

use super::Frame;
use crate::cuda::{Cuda, Event, Kernel, KernelSource, Signature, Stream, is_sticky, memset};
use crate::wave::Grid;
use crate::{Error, Result};

/// Runs the kernel once a frame, between two events that keep time.
pub struct Fill {
    // The stream goes before what it uses.
    stream: Stream,
    kernel: Kernel,
    /// Where frames are stamped: runs behind the kernel. See [`crate::stamp`].
    stamp: Option<Kernel>,
    marks: Vec<(Event, Event)>,
    name: String,
    grid: Grid,
}

/// Frames whose times are kept: more than can be in flight, batches included.
const KEPT: u64 = 128;

impl Fill {
    /// Compiles the kernel.
    ///
    /// # Errors
    /// Those of [`Kernel::load`]; a kernel of another signature.
    pub fn new(context: &Cuda, source: &KernelSource, signature: Signature, grid: Grid) -> Result<Self> {
        let kernel = Kernel::load(context, source)?;
        // Only now, because the compiler knows better what is wrong with text that is no PTX.
        source.check_signature(signature)?;
        let mark = |_| Ok((Event::new(context)?, Event::new(context)?));
        Ok(Self {
            stream: Stream::new(context)?,
            kernel,
            stamp: None,
            marks: (0..KEPT).map(mark).collect::<Result<_>>()?,
            name: source.name.clone(),
            grid,
        })
    }

    /// The stream that it runs on.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Enqueues the kernel for `frame`.
    ///
    /// # Safety
    /// `vertices` is memory of this context for the whole grid, which nobody else touches until the stream has passed
    /// this point; this was made for [`Signature::Field`].
    pub unsafe fn enqueue(&self, vertices: CUdeviceptr, frame: &Frame) -> Result<()> {
        let Grid { cols, rows } = self.grid;
        self.enqueue_with(frame, |kernel, stream| {
            // SAFETY: the caller's promise.
            unsafe { kernel.launch(stream, vertices, cols, rows, frame.index, frame.time) }
        })?;
        if let Some(stamp) = &self.stamp {
            // SAFETY: as above; the stamp has the documented signature.
            unsafe { stamp.launch(&self.stream, vertices, cols, rows, frame.index, frame.time) }?;
        }
        Ok(())
    }

    /// From the next frame on, every vertex carries its frame's number.
    pub fn stamp_frames(&mut self) -> Result<()> {
        self.stamp = Some(Kernel::load(self.stream.context(), &KernelSource::frame_stamp())?);
        Ok(())
    }

    /// Enqueues work between the frame's events, with the kernel or without.
    pub(crate) fn enqueue_with(
        &self,
        frame: &Frame,
        work: impl FnOnce(&Kernel, &Stream) -> Result<()>,
    ) -> Result<()> {
        let _span = trace_span!("launch", frame = frame.index).entered();
        let (before, after) = self.events(frame.index);
        before.record(&self.stream)?;
        work(&self.kernel, &self.stream)?;
        after.record(&self.stream)
    }

    /// Enqueues `cuMemsetD32Async` over the same bytes between the frame's events instead of the kernel: the yardstick for
    /// how fast memory can be written.
    ///
    /// # Safety
    /// As for [`Fill::enqueue`].
    pub(crate) unsafe fn enqueue_memset(&self, vertices: CUdeviceptr, frame: &Frame) -> Result<()> {
        self.enqueue_with(frame, |_kernel, stream| {
            // SAFETY: the caller's promise.
            unsafe { memset(stream, vertices, self.grid.bytes()) }
        })
    }

    /// How long the kernel of a finished frame took, if that is still known.
    pub fn time(&self, frame: u64) -> Result<Option<Duration>> {
        let (before, after) = self.events(frame);
        let elapsed = before.elapsed_ms(after).map_err(|error| self.blame(error))?;
        Ok(elapsed.map(|milliseconds| Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) * 1e-3)))
    }

    /// The events around a frame's kernel; those of a frame long ago are a later one's by now.
    pub fn events(&self, frame: u64) -> (&Event, &Event) {
        let (before, after) = &self.marks[(frame % KEPT) as usize];
        (before, after)
    }

    /// From the end of the frame before to the end of this one, both finished, if that is still known.
    pub fn period(&self, frame: u64) -> Result<Option<Duration>> {
        let Some(last) = frame.checked_sub(1) else { return Ok(None) };
        let end = |frame: u64| &self.marks[(frame % KEPT) as usize].1;
        let elapsed = end(last).elapsed_ms(end(frame)).map_err(|error| self.blame(error))?;
        let elapsed = elapsed.filter(|milliseconds| *milliseconds >= 0.0);
        Ok(elapsed.map(|milliseconds| Duration::from_secs_f64(f64::from(milliseconds) * 1e-3)))
    }

    /// Whether the stream is idle; an error if the kernel has faulted.
    pub fn is_idle(&self) -> Result<bool> {
        self.stream.is_idle().map_err(|error| self.blame(error))
    }

    /// Blocks until the stream is idle, at most for `timeout`: a kernel may never end, and `cuStreamSynchronize` would
    /// not come back from that.
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

    /// Which side keeps a frame waiting, where no timeline says so.
    pub fn late_side(&self) -> String {
        match self.stream.is_idle() {
            Ok(false) => format!("CUDA did not signal: it has not finished {}", self.name),
            _ => "Vulkan did not finish a frame that CUDA has filled".into(),
        }
    }

    /// Once a kernel has faulted, every call on its context fails with the same code: name the kernel, not the call.
    pub fn blame(&self, error: Error) -> Error {
        match error {
            Error::Cuda { code, .. } if is_sticky(code) => {
                Error::Kernel { kernel: self.name.clone(), problem: error.to_string() }
            }
            other => other,
        }
    }
}
