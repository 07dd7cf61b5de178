//! The thread that encodes pictures, and the queue to it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::Builder;
use std::time::Duration;

use ash::vk;

use super::FilmDesc;
use super::gif::Gif;
use super::raw::Raw;
use super::scale::{Order, fit, fitting};
use crate::threads::not_started;
use crate::whole_file::Growing;
use crate::{Error, Result};

/// A picture as the GPU drew it.
pub(super) struct Shot {
    pub(super) pixels: Vec<u8>,
    pub(super) extent: vk::Extent2D,
    pub(super) order: Order,
    /// Its time in the film.
    pub(super) at: Duration,
}

/// The number of frames in the film, and its size.
type Written = (u64, Option<(u32, u32)>);

/// The most pictures on their way to the encoder, including those that the GPU still copies.
const UNDER_WAY: usize = 8;

/// The frame loop's side of the thread.
pub(super) struct Encoder {
    /// `None` once the thread was told to end.
    shots: Option<Sender<Shot>>,
    /// Buffers that come back from the thread, to be used again.
    back: Receiver<Vec<u8>>,
    outcome: Receiver<(Written, Result<()>)>,
    /// How many buffers exist.
    made: usize,
    failed: Arc<AtomicBool>,
    path: PathBuf,
    timeout: Duration,
}

impl Encoder {
    pub(super) fn start(desc: &FilmDesc) -> Result<Self> {
        let output = Growing::begin(&desc.path)?;
        let (shots, take_shots) = channel();
        let (give_back, back) = channel();
        let (give_outcome, outcome) = channel();
        let failed = Arc::new(AtomicBool::new(false));
        let reel = Reel { output: Some(output), sink: None, limit: limit(desc), film: Vec::new() };
        let seen = failed.clone();
        Builder::new()
            .name("recording".into())
            .spawn(move || {
                // The receiver may be gone.
                let _ = give_outcome.send(work(reel, &take_shots, &give_back, &seen));
            })
            .map_err(|error| not_started("recording", error))?;
        let (path, timeout) = (desc.path.clone(), desc.timeout);
        Ok(Self { shots: Some(shots), back, outcome, made: 0, failed, path, timeout })
    }

    /// A buffer for a picture; `None` if all are in use, or the thread has ended. With `wait`, waits for one up to the timeout.
    pub(super) fn room(&mut self, wait: bool) -> Result<Option<Vec<u8>>> {
        match self.back.try_recv() {
            Ok(pixels) => return Ok(Some(pixels)),
            Err(TryRecvError::Disconnected) => return Ok(None),
            Err(TryRecvError::Empty) => {}
        }
        if self.made < UNDER_WAY {
            self.made += 1;
            return Ok(Some(Vec::new()));
        }
        if !wait {
            return Ok(None);
        }
        match self.back.recv_timeout(self.timeout) {
            Ok(pixels) => Ok(Some(pixels)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(self.stuck()),
        }
    }

    /// Sends a picture to the thread.
    pub(super) fn send(&self, shot: Shot) {
        // If the thread has ended, `end` returns the reason.
        let _ = self.shots.as_ref().map(|shots| shots.send(shot));
    }

    /// Whether the thread has failed and takes no more pictures.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Waits until everything is written. Fails if nothing is written for the whole timeout.
    pub(super) fn end(&mut self) -> Result<Written> {
        self.shots = None;
        loop {
            match self.outcome.recv_timeout(self.timeout) {
                Ok((written, outcome)) => return outcome.map(|()| written),
                Err(RecvTimeoutError::Timeout) if self.back.try_iter().count() > 0 => {}
                Err(RecvTimeoutError::Timeout) => return Err(self.stuck()),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::Unsupported("the thread that records has ended too early".into()));
                }
            }
        }
    }

    /// The error of a thread that waits for the reader of its output. The thread is not stopped.
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
        if self.shots.is_some() {
            let _ = self.end();
        }
    }
}

/// The limit for the longer side of a GIF; `None` for raw frames.
fn limit(desc: &FilmDesc) -> Option<u32> {
    (!desc.is_raw()).then(|| desc.side.clamp(1, u16::MAX.into()))
}

/// The thread's work, until the last picture. After a failure it only returns the buffers.
fn work(
    mut reel: Reel,
    shots: &Receiver<Shot>,
    back: &Sender<Vec<u8>>,
    failed: &AtomicBool,
) -> (Written, Result<()>) {
    let (mut frames, mut size, mut outcome) = (0, None, Ok(()));
    for shot in shots {
        if outcome.is_ok() {
            match reel.frame(&shot, &mut size) {
                Ok(()) => frames += 1,
                Err(error) => {
                    crate::note!(
                        "note: the recording has ended, a file keeps what was written so far: {error}"
                    );
                    failed.store(true, Ordering::Relaxed);
                    outcome = Err(error);
                }
            }
        }
        // At the end nothing receives it.
        let _ = back.send(shot.pixels);
    }
    let ended = reel.end();
    ((frames, size), outcome.and(ended))
}

/// The film in progress. Its first picture determines its size, so the sink is made only then.
struct Reel {
    output: Option<Growing>,
    sink: Option<Sink>,
    limit: Option<u32>,
    film: Vec<u8>,
}

enum Sink {
    Gif(Gif),
    Raw(Raw),
}

impl Reel {
    fn frame(&mut self, shot: &Shot, size: &mut Option<(u32, u32)>) -> Result<()> {
        let size = *size.get_or_insert_with(|| fitting(shot.extent, self.limit.unwrap_or(u32::MAX)));
        if let Some(output) = self.output.take() {
            self.sink = Some(match self.limit {
                Some(_) => Sink::Gif(Gif::new(output, size)?),
                None => Sink::Raw(Raw::new(output, size)),
            });
        }
        fit(&shot.pixels, shot.extent, shot.order, size, &mut self.film);
        match &mut self.sink {
            Some(Sink::Gif(gif)) => gif.frame(&mut self.film, shot.at),
            Some(Sink::Raw(raw)) => raw.frame(&self.film, shot.at),
            None => Ok(()),
        }
    }

    /// Finishes the file. Without frames there is no file.
    fn end(self) -> Result<()> {
        match self.sink {
            Some(Sink::Gif(gif)) => gif.end(),
            Some(Sink::Raw(raw)) => raw.end(),
            None => Ok(()),
        }
    }
}
