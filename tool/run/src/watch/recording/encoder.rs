use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Pixels;
use super::gif::Gif;
use super::raw::Raw;
use super::scale::{Order, fit, fitting};
use wavefield_gpu::{Error, Result, output_file::StreamedOutput, threads::Job};

type Shot = (Pixels, Duration);

type Written = (u64, Option<(u32, u32)>);

/// The maximum number of queued pictures.
const WAITING: usize = 8;
const LOOK: Duration = Duration::from_millis(1);

/// The frame loop's handle to the thread that encodes pictures.
pub(super) struct Encoder {
    /// `None` once the thread has been told to end.
    shots: Option<SyncSender<Shot>>,
    thread: Option<Job<Written>>,
    /// The number of pictures that the thread has encoded.
    encoded: Arc<AtomicU64>,
    pub(super) path: PathBuf,
    /// The film fails if nothing can be written for this long.
    timeout: Duration,
}

impl Encoder {
    /// Encodes a GIF whose longer side has at most `side` pixels; raw frames if that is `None`.
    pub(super) fn start(path: &Path, side: Option<u32>, timeout: Duration, order: Order) -> Result<Self> {
        let (shots, take_shots) = sync_channel(WAITING);
        let encoded = Arc::new(AtomicU64::new(0));
        let limit = side.map(|side| side.clamp(1, u16::MAX.into()));
        let output = StreamedOutput::begin(path)?;
        let count = encoded.clone();
        let thread = Job::begin("recording", move |_| encode(take_shots, output, limit, order, &count))?;
        Ok(Self { shots: Some(shots), thread: Some(thread), encoded, path: path.to_owned(), timeout })
    }

    /// Queues a picture. If the queue is full, returns false, or with `wait` waits until the timeout.
    pub(super) fn send(&self, mut shot: Shot, wait: bool) -> Result<bool> {
        let Some(shots) = &self.shots else { return Ok(false) };
        let began = Instant::now();
        loop {
            match shots.try_send(shot) {
                // If the thread has failed, `end` returns the reason.
                Ok(()) | Err(TrySendError::Disconnected(_)) => return Ok(true),
                Err(TrySendError::Full(_)) if !wait => return Ok(false),
                Err(TrySendError::Full(_)) if began.elapsed() > self.timeout => return Err(self.stuck()),
                Err(TrySendError::Full(again)) => shot = again,
            }
            sleep(LOOK);
        }
    }

    /// Returns whether the thread has failed, and so accepts no more pictures.
    pub(super) fn has_failed(&self) -> bool {
        self.shots.is_some() && self.thread.as_ref().is_some_and(Job::is_done)
    }

    /// Waits until everything is written. Fails if no picture is written for as long as the timeout.
    pub(super) fn end(&mut self) -> Result<Written> {
        self.shots = None;
        let Some(thread) = self.thread.take() else { return Ok((0, None)) };
        let (mut encoded, mut since) = (0, Instant::now());
        while !thread.is_done() {
            let now = self.encoded.load(Ordering::Relaxed);
            if std::mem::replace(&mut encoded, now) != now {
                since = Instant::now();
            }
            if since.elapsed() > self.timeout {
                return Err(self.stuck());
            }
            sleep(LOOK);
        }
        thread.finish()
    }

    /// Returns an error that blames the reader of the output. The thread is not stopped and keeps waiting.
    fn stuck(&self) -> Error {
        let words = format!(
            "nothing was read from it for {:.0} s: is its reader still running?",
            self.timeout.as_secs_f64()
        );
        let source = std::io::Error::new(std::io::ErrorKind::TimedOut, words);
        Error::Io { action: "write", path: self.path.clone(), source }
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        // After a run that fails early, finish the file or remove it.
        let _ = self.end();
    }
}

enum Sink {
    Gif(Gif),
    Raw(Raw),
}

/// Encodes pictures until the last one or a failure. Without pictures, writes no file. `limit` is the maximum
/// length of a GIF's longer side; `None` means raw frames.
fn encode(
    shots: Receiver<Shot>,
    output: StreamedOutput,
    limit: Option<u32>,
    order: Order,
    encoded: &AtomicU64,
) -> Result<Written> {
    // The first picture determines the size.
    let Ok(first) = shots.recv() else { return Ok((0, None)) };
    let size = fitting(first.0.extent, limit.unwrap_or(u32::MAX));
    let mut sink = match limit {
        Some(_) => Sink::Gif(Gif::new(output, size)?),
        None => Sink::Raw(Raw::new(output, size)),
    };
    let (mut film, mut frames, mut outcome) = (Vec::new(), 0, Ok(()));
    for (pixels, at) in std::iter::once(first).chain(shots) {
        fit(&pixels.bytes, pixels.extent, order, size, &mut film);
        outcome = match &mut sink {
            Sink::Gif(gif) => gif.frame(&mut film, at),
            Sink::Raw(raw) => raw.frame(&film, at),
        };
        if let Err(error) = &outcome {
            wavefield_gpu::note!(
                "note: the recording has ended, a file keeps what was written so far: {error}"
            );
            break;
        }
        frames += 1;
        encoded.store(frames, Ordering::Relaxed);
    }
    let ended = match sink {
        Sink::Gif(gif) => gif.end(),
        Sink::Raw(raw) => raw.end(),
    };
    outcome.and(ended).map(|()| (frames, Some(size)))
}
