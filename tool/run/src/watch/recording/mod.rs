//! Records drawn pictures as a film: a GIF, or raw frames on standard output.
//!
//! A film's [`Copies`] are recorded after the draw. Once the GPU has finished, the pixels go to a thread that
//! encodes them. A window's frame loop never waits for that thread: the film leaves frames out instead.

mod copies;
mod encoder;
mod gif;
mod raw;
mod scale;

use std::fmt;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ash::vk;

pub use self::copies::{Copies, Pixels};
use self::encoder::Encoder;
use self::gif::Gif;
use self::scale::order_of;
use crate::Config;
use wavefield_draw::Picture;
use wavefield_gpu::vulkan::Device;
use wavefield_gpu::{Error, Result, output_file::StreamedOutput};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub path: PathBuf,
    pub frames: u64,
    /// The number of frames that were left out because the encoder was behind.
    pub dropped: u64,
    pub size: Option<(u32, u32)>,
}

impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_os_str() == "-" {
            true => write!(f, "standard output")?,
            false => write!(f, "{}", self.path.display())?,
        }
        if (self.frames, self.dropped) == (0, 0) {
            return write!(f, ": no frame was drawn, so nothing was written");
        }
        write!(f, " ({} frames", self.frames)?;
        if let Some((width, height)) = self.size {
            write!(f, " of {width}x{height}")?;
        }
        match self.dropped {
            0 => write!(f, ")"),
            dropped => write!(f, ", {dropped} left out)"),
        }
    }
}

/// For each frame, call [`Film::wants`] once the GPU has finished the flight's previous frame, and if that is
/// true, [`Film::record`]. [`Film::end`] returns the error that ended a film.
pub struct Film {
    /// Whether to wait for the encoder. Otherwise frames are left out while it is behind.
    complete: bool,
    copies: Copies<Duration>,
    encoder: Encoder,
    clock: FilmClock,
    dropped: u64,
    failure: Option<Error>,
}

impl Film {
    /// Starts the film that `config` asks for. If `complete`, the run waits so that the film has every frame.
    pub fn start(
        device: &Device,
        config: &Config,
        format: vk::Format,
        complete: bool,
    ) -> Result<Option<Self>> {
        let Some(path) = &config.record else { return Ok(None) };
        let Some(order) = order_of(format) else {
            return Err(Error::Unsupported(format!(
                "pictures of {format:?} cannot be recorded: leave --record out"
            )));
        };
        let side = (path.as_os_str() != "-").then_some(config.record_side);
        Ok(Some(Self {
            complete,
            encoder: Encoder::start(path, side, config.timeout, order)?,
            clock: FilmClock::new(if side.is_some() { gif::PERIOD } else { raw::PERIOD }),
            copies: Copies::new(device),
            dropped: 0,
            failure: None,
        }))
    }

    /// Sends a flight's picture to the encoder. The GPU must have finished with the flight.
    fn done(&mut self, flight: usize) {
        let Some((at, pixels)) = self.copies.take(flight) else { return };
        match pixels.and_then(|pixels| self.encoder.send((pixels, at), self.complete)) {
            Ok(true) => {}
            Ok(false) => self.dropped += 1,
            Err(error) => self.fail(error),
        }
    }

    /// Sends every flight's picture to the encoder, so that flights may be renumbered. The GPU must be idle.
    pub fn all_done(&mut self) {
        self.copies.pending().into_iter().for_each(|(_, flight)| self.done(flight));
    }

    /// Sends the picture of the flight's previous frame to the encoder, and returns whether the current frame
    /// belongs in the film. The GPU must have finished with the flight. `now` has any fixed origin, and never
    /// decreases.
    pub fn wants(&mut self, flight: usize, now: Duration) -> bool {
        self.done(flight);
        !self.has_ended() && self.clock.frame(now).is_some()
    }

    /// Records a copy of a picture for which [`Film::wants`] was true, and leaves it in its final layout.
    ///
    /// # Safety
    /// As for [`Copies::record`]. The picture has the film's format; [`Film::wants`] ran for the flight.
    pub unsafe fn record(&mut self, commands: vk::CommandBuffer, flight: usize, picture: &Picture) {
        // SAFETY: the caller's promise; the film's owner waits for the GPU before it drops the film.
        if let Err(error) = unsafe { self.copies.record(commands, flight, picture, self.clock.time) } {
            self.fail(error);
        }
    }

    pub fn has_ended(&self) -> bool {
        self.failure.is_some() || self.encoder.has_failed()
    }

    /// Waits until the film is written, including the copies not yet taken if the GPU is idle (`at_rest`).
    ///
    /// # Errors
    /// Returns the error that ended the film early. Earlier frames are still written if possible.
    pub fn end(&mut self, at_rest: bool) -> Result<Recorded> {
        if at_rest {
            self.all_done();
        }
        let (frames, size) = self.encoder.end().map_err(|error| self.failure.take().unwrap_or(error))?;
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(Recorded { path: self.encoder.path.clone(), frames, dropped: self.dropped, size }),
        }
    }

    fn fail(&mut self, error: Error) {
        wavefield_gpu::note!("note: the recording has ended: {error}");
        self.failure.get_or_insert(error);
    }
}

struct FilmClock {
    period: Duration,
    last: Option<Duration>,
    time: Duration,
    taken: Option<Duration>,
}

/// The longest pause in a film. Longer pauses are shortened to this.
const LONGEST_GAP: Duration = Duration::from_secs(1);
/// How much too early a frame may come, because displays do not pace frames quite evenly.
const EARLY: Duration = Duration::from_millis(2);

impl FilmClock {
    fn new(period: Duration) -> Self {
        Self { period, last: None, time: Duration::ZERO, taken: None }
    }

    /// Returns a drawn frame's time in the film; `None` if the film leaves it out.
    fn frame(&mut self, now: Duration) -> Option<Duration> {
        let before = self.last.replace(now).unwrap_or(now);
        self.time += now.saturating_sub(before).min(LONGEST_GAP);
        if self.taken.is_some_and(|taken| self.time + EARLY < taken + self.period) {
            return None;
        }
        self.taken = Some(self.time);
        Some(self.time)
    }
}

/// Writes a GIF of `rate` pictures per second, at most 50, from RGBA pictures that lie behind each other in `input`. Without
/// a whole picture, writes no file. Changes alpha: all pixels must be opaque.
pub fn encode_gif(mut input: impl Read, path: &Path, size: vk::Extent2D, rate: f64) -> Result<()> {
    let side = |pixels: u32| u16::try_from(pixels).is_ok_and(|pixels| pixels > 0);
    if !(side(size.width) && side(size.height)) {
        return Err(Error::Unsupported(format!(
            "a GIF of {}x{}: its sides have 16 bits",
            size.width, size.height
        )));
    }
    let mut gif = Gif::new(StreamedOutput::begin(path)?, (size.width, size.height))?;
    gif.last = (100.0 / rate).round() as u64;
    let mut picture = vec![0; 4 * size.width as usize * size.height as usize];
    for number in 0u32.. {
        match input.read_exact(&mut picture) {
            Ok(()) => gif.frame(&mut picture, Duration::from_secs_f64(f64::from(number) / rate))?,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
            Err(source) => return Err(Error::Io { action: "read", path: "-".into(), source }),
        }
    }
    gif.end()
}

#[cfg(test)]
mod tests;
