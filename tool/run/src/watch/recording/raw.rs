//! Raw frames at a constant rate, for `ffmpeg -f rawvideo`.

use std::time::Duration;

use wavefield_gpu::{Result, output_file::StreamedOutput};

const RATE: u32 = 30;
pub(super) const PERIOD: Duration = Duration::from_nanos(1_000_000_000 / RATE as u64);

pub(super) struct Raw {
    output: StreamedOutput,
    /// The last frame, which is repeated for missing ones.
    last: Vec<u8>,
    written: u64,
}

impl Raw {
    pub(super) fn new(output: StreamedOutput, (width, height): (u32, u32)) -> Self {
        wavefield_gpu::note!(
            "note: raw frames go to standard output, for example to: \
             ffmpeg -f rawvideo -pix_fmt rgba -s {width}x{height} -r {RATE} -i - -pix_fmt yuv420p wave.mp4"
        );
        Self { output, last: Vec::new(), written: 0 }
    }

    /// Writes a frame. Fills a gap before it with copies of the previous frame.
    pub(super) fn frame(&mut self, rgba: &[u8], at: Duration) -> Result<()> {
        let number = (at.as_secs_f64() * f64::from(RATE)).round() as u64;
        while self.written > 0 && self.written < number {
            self.output.append(&self.last)?;
            self.written += 1;
        }
        // Of two frames at the same place in the film, keep the first.
        if number < self.written {
            return Ok(());
        }
        self.output.append(rgba)?;
        self.last.clear();
        self.last.extend_from_slice(rgba);
        self.written += 1;
        Ok(())
    }

    pub(super) fn end(self) -> Result<()> {
        self.output.finish()
    }
}
