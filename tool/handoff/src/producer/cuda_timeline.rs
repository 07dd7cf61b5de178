use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::trace_span;

use wavefield_gpu::cuda::{Cuda, Event, Stream, is_sticky};
use wavefield_gpu::{Error, Result};

/// CUDA's stream, with two events for each recent frame: before and after its kernel.
pub struct CudaTimeline {
    // Fields are dropped in this order: the stream before the events that it uses.
    stream: Arc<Stream>,
    marks: Kept<(Event, Event)>,
    name: String,
}

/// The number of recent frames with events: more than can be in flight, batches included.
const KEPT: u64 = 128;

/// One item for each recent frame, used in turn: frame `n` takes item `n % len`. Each knows its last user.
struct Kept<T>(Vec<(Cell<Option<u64>>, T)>);

impl<T> Kept<T> {
    fn place(&self, frame: u64) -> &(Cell<Option<u64>>, T) {
        &self.0[(frame % self.0.len() as u64) as usize]
    }

    fn take(&self, frame: u64) -> &T {
        let (user, item) = self.place(frame);
        user.set(Some(frame));
        item
    }

    /// Returns the frame's item, or `None` if the frame never took one, or a later frame has reused it.
    fn of(&self, frame: u64) -> Option<&T> {
        let (user, item) = self.place(frame);
        (user.get() == Some(frame)).then_some(item)
    }
}

impl CudaTimeline {
    /// Makes a stream and its events. `name` is the kernel's name, for errors.
    pub fn new(context: &Cuda, name: &str) -> Result<Self> {
        let mark = |_| Ok((Cell::new(None), (Event::new(context)?, Event::new(context)?)));
        let marks = Kept((0..KEPT).map(mark).collect::<Result<_>>()?);
        Ok(Self { stream: Arc::new(Stream::new(context)?), marks, name: name.to_owned() })
    }

    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    pub fn timed(&self, frame: u64, work: impl FnOnce(&Stream) -> Result<()>) -> Result<()> {
        let _span = trace_span!("launch", frame).entered();
        let (before, after) = self.marks.take(frame);
        before.record(&self.stream)?;
        work(&self.stream)?;
        after.record(&self.stream)
    }

    /// Returns how long a frame's kernel took, or `None` if it is unfinished or its events were reused.
    pub fn time(&self, frame: u64) -> Result<Option<Duration>> {
        self.between(self.events(frame))
    }

    /// Returns the events before and after a frame's kernel, or `None` if a later frame has reused them.
    pub fn events(&self, frame: u64) -> Option<(&Event, &Event)> {
        self.marks.of(frame).map(|(before, after)| (before, after))
    }

    /// Returns the time from the end of the previous frame's kernel to the end of this frame's. Returns
    /// `None` if one of them is unfinished or its events were reused.
    pub fn period(&self, frame: u64) -> Result<Option<Duration>> {
        let last = frame.checked_sub(1).and_then(|last| self.events(last));
        self.between(last.zip(self.events(frame)).map(|((_, last), (_, end))| (last, end)))
    }

    fn between(&self, events: Option<(&Event, &Event)>) -> Result<Option<Duration>> {
        let Some((from, to)) = events else { return Ok(None) };
        let milliseconds = from.elapsed_ms(to).map_err(|error| self.blame(error))?;
        Ok(milliseconds.map(|time| Duration::from_secs_f64(f64::from(time.max(0.0)) * 1e-3)))
    }

    /// Returns whether all enqueued work is done. Fails if the kernel has faulted.
    pub fn is_idle(&self) -> Result<bool> {
        self.stream.is_idle().map_err(|error| self.blame(error))
    }

    /// Polls until the stream is idle, and fails after `timeout`. (`cuStreamSynchronize` has no timeout.)
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

    /// Says which side is late. For hand-offs without timelines in which only the GPU waits.
    pub(crate) fn late_side(&self) -> String {
        match self.stream.is_idle() {
            Ok(false) => format!("CUDA did not signal: it has not finished {}", self.name),
            _ => "Vulkan did not finish a frame that CUDA has filled".into(),
        }
    }

    /// Attributes a sticky error to the kernel. After a fault, all calls on the context fail with that code.
    pub fn blame(&self, error: Error) -> Error {
        match error {
            Error::Cuda { code, .. } if is_sticky(code) => {
                Error::Kernel { kernel: self.name.clone(), problem: error.to_string() }
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_keeps_its_item_until_a_later_one_reuses_it() {
        let kept = Kept((0..4).map(|item| (Cell::new(None), item)).collect());
        assert_eq!(kept.of(0), None, "no frame has used it");
        for frame in 0..7 {
            assert_eq!(*kept.take(frame), frame % 4);
        }
        let found: Vec<_> = (0..9).map(|frame| kept.of(frame).copied()).collect();
        assert_eq!(found, [None, None, None, Some(3), Some(0), Some(1), Some(2), None, None]);
    }
}
