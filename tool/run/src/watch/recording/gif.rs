//! An animated GIF, with 256 colours per frame and times in hundredths of a second.

use std::time::Duration;

use gif::{Encoder, EncodingError, Frame, Repeat};

use wavefield_gpu::{Error, Result, output_file::StreamedOutput};

/// 25 frames per second. More would make the file larger, and players hardly show more.
pub(super) const PERIOD: Duration = Duration::from_millis(40);
/// The speed of choosing colours: 1 is slow and thorough, 30 is fast.
const SPEED: i32 = 10;
/// The usual delay of the last frame, in hundredths of a second.
const LAST: u64 = 4;

/// Encodes each frame in memory, then appends it to the file whole.
pub(super) struct Gif {
    encoder: Encoder<Vec<u8>>,
    output: StreamedOutput,
    size: (u16, u16),
    /// The last frame and its time, in hundredths of a second. The next frame's time determines its delay.
    waiting: Option<(Frame<'static>, u64)>,
    begun: bool,
    /// The last frame's delay, in hundredths of a second.
    pub(super) last: u64,
}

impl Gif {
    pub(super) fn new(output: StreamedOutput, (width, height): (u32, u32)) -> Result<Self> {
        // The caller has limited both sides to 16 bits, as GIF demands.
        let size = (width as u16, height as u16);
        let mut encoder = Encoder::new(Vec::new(), size.0, size.1, &[]).map_err(failed)?;
        encoder.set_repeat(Repeat::Infinite).map_err(failed)?;
        Ok(Self { encoder, output, size, waiting: None, begun: false, last: LAST })
    }

    /// Adds a frame. The encoder may change `rgba`.
    pub(super) fn frame(&mut self, rgba: &mut [u8], at: Duration) -> Result<()> {
        let at = (at.as_secs_f64() * 100.0).round() as u64;
        let frame = Frame::from_rgba_speed(self.size.0, self.size.1, rgba, SPEED);
        match self.waiting.replace((frame, at)) {
            Some((before, since)) => self.write(before, at.saturating_sub(since)),
            None => Ok(()),
        }
    }

    fn write(&mut self, mut frame: Frame<'_>, hundredths: u64) -> Result<()> {
        // Browsers replace a delay of less than two hundredths by ten.
        frame.delay = hundredths.clamp(2, u16::MAX.into()) as u16;
        self.encoder.write_frame(&frame).map_err(failed)?;
        let bytes = std::mem::take(self.encoder.get_mut());
        self.output.append(&bytes)?;
        self.begun = true;
        Ok(())
    }

    /// Finishes the file. If a frame failed, the file keeps the frames before it.
    pub(super) fn end(mut self) -> Result<()> {
        let last = match self.waiting.take() {
            Some((frame, _)) => self.write(frame, self.last),
            None => Ok(()),
        };
        if !self.begun {
            return last;
        }
        let rest = self.encoder.into_inner().map_err(failed)?;
        // The last byte is the GIF's trailer. A frame that could not be appended may precede it.
        let end = &rest[rest.len().saturating_sub(1)..];
        let ended = self.output.append(end).and_then(|()| self.output.finish());
        last.and(ended)
    }
}

fn failed(error: EncodingError) -> Error {
    Error::Unsupported(format!("the GIF could not be encoded: {error}"))
}
