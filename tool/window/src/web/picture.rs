//! Encodes a picture as JPEG, in as many qualities as its viewers need.

use std::time::{Duration, Instant};

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use tungstenite::Bytes;

use wavefield_run::watch::recording::Pixels;

/// JPEG quality and chroma sampling, best first. The first takes twice as long, so it is only for still
/// pictures.
const QUALITIES: [(u8, SamplingFactor); 5] = [
    (95, SamplingFactor::F_1_1),
    (90, SamplingFactor::F_2_2),
    (75, SamplingFactor::F_2_2),
    (50, SamplingFactor::F_2_2),
    (25, SamplingFactor::F_2_2),
];
pub(crate) const BEST: usize = 0;
pub(crate) const MOVING: usize = 1;
pub(crate) const LEAST: usize = QUALITIES.len() - 1;
/// A picture that has not changed for this long is sent again in better quality.
pub(crate) const STILL: Duration = Duration::from_millis(300);

pub(crate) struct ShownPicture {
    pub(crate) number: u32,
    since: Instant,
    pub(crate) pixels: Pixels,
    /// The encoded messages, indexed by quality.
    made: [Option<Bytes>; QUALITIES.len()],
}

impl ShownPicture {
    pub(crate) fn new(number: u32, pixels: Pixels) -> Self {
        Self { number, since: Instant::now(), pixels, made: Default::default() }
    }

    pub(crate) fn is_still(&self) -> bool {
        self.since.elapsed() >= STILL
    }

    /// Returns the number (32 bits, little endian) followed by the JPEG; `None` if the picture has no pixels.
    pub(crate) fn message(&mut self, quality: usize) -> Option<Bytes> {
        let made = &mut self.made[quality];
        if made.is_none() {
            let Pixels { bytes, extent } = &self.pixels;
            let (quality, sampling) = QUALITIES[quality];
            let mut message = self.number.to_le_bytes().to_vec();
            let mut encoder = Encoder::new(&mut message, quality);
            encoder.set_sampling_factor(sampling);
            // Each side fits in 16 bits: `message` limits the sizes that a page asks for, and the device the
            // first size.
            let (width, height) = (extent.width as u16, extent.height as u16);
            encoder.encode(bytes, width, height, ColorType::Rgba).ok()?;
            *made = Some(message.into());
        }
        made.clone()
    }
}
