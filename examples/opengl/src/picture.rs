//! A picture as a PNG file, and its difference from another.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// Pixels of four bytes, row after row.
#[derive(Debug)]
pub struct Picture {
    pub width: u32,
    pub height: u32,
    pub pixels: Vec<u8>,
}

/// The difference between two pictures.
#[derive(Debug, PartialEq)]
pub struct Difference {
    /// The largest of all channels, in steps of 8 bits.
    pub largest: u8,
    /// The mean over all channels, in steps of 8 bits.
    pub mean: f64,
    /// The share of pixels with a channel that is off by more than 16 steps.
    pub off: f64,
}

/// The largest allowed difference: two APIs round differently, and an edge may fall on the other side of a
/// pixel. The frames before and after the right one differ by about three times as much (mean 0.28, 0.29 %
/// off, at 256x256 vertices).
pub const ALLOWED: Difference = Difference { largest: 255, mean: 0.1, off: 0.001 };

impl Picture {
    pub fn write(&self, path: &Path) -> Result<()> {
        let write = || {
            let mut encoder = png::Encoder::new(BufWriter::new(File::create(path)?), self.width, self.height);
            encoder.set_color(png::ColorType::Rgba);
            encoder.set_depth(png::BitDepth::Eight);
            let mut writer = encoder.write_header()?;
            writer.write_image_data(&self.pixels)?;
            Ok::<_, anyhow::Error>(writer.finish()?)
        };
        write().with_context(|| format!("{} was not written", path.display()))
    }

    pub fn read(path: &Path) -> Result<Self> {
        let read = || {
            let mut decoder = png::Decoder::new(BufReader::new(File::open(path)?));
            decoder.set_transformations(
                png::Transformations::normalize_to_color8() | png::Transformations::ALPHA,
            );
            let mut reader = decoder.read_info()?;
            let mut pixels = vec![0; reader.output_buffer_size().context("it is too large")?];
            let png::OutputInfo { width, height, color_type, .. } = reader.next_frame(&mut pixels)?;
            ensure!(color_type == png::ColorType::Rgba, "it has no colours");
            Ok(Self { width, height, pixels })
        };
        read().with_context(|| format!("{} is not a readable PNG picture", path.display()))
    }

    /// # Errors
    /// The pictures have different sizes.
    pub fn difference(&self, other: &Self) -> Result<Difference> {
        let [ours, theirs] = [self, other].map(|picture| (picture.width, picture.height));
        ensure!(
            ours == theirs,
            "it has {}x{} pixels, and the other has {}x{}",
            ours.0,
            ours.1,
            theirs.0,
            theirs.1
        );
        let (mut largest, mut sum, mut off) = (0, 0u64, 0u64);
        for (ours, theirs) in self.pixels.chunks_exact(4).zip(other.pixels.chunks_exact(4)) {
            let differences = ours.iter().zip(theirs).map(|(a, b)| a.abs_diff(*b));
            let worst = differences.clone().max().unwrap_or(0);
            sum += differences.map(u64::from).sum::<u64>();
            off += u64::from(worst > 16);
            largest = largest.max(worst);
        }
        let mean = sum as f64 / self.pixels.len() as f64;
        Ok(Difference { largest, mean, off: off as f64 * 4.0 / self.pixels.len() as f64 })
    }
}

impl Difference {
    pub fn is_allowed(&self) -> bool {
        self.mean <= ALLOWED.mean && self.off <= ALLOWED.off
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_measured() {
        let grey = |value: u8| Picture { width: 10, height: 20, pixels: vec![value; 10 * 20 * 4] };
        let same = grey(7).difference(&grey(7)).unwrap();
        assert_eq!(same, Difference { largest: 0, mean: 0.0, off: 0.0 });
        assert!(same.is_allowed());
        let brighter = grey(9).difference(&grey(7)).unwrap();
        assert_eq!(brighter, Difference { largest: 2, mean: 2.0, off: 0.0 });
        assert!(!brighter.is_allowed(), "all of it is off");
        let mut spots = grey(7);
        (spots.pixels[3], spots.pixels[400]) = (107, 24);
        let spotted = spots.difference(&grey(7)).unwrap();
        assert_eq!(spotted, Difference { largest: 100, mean: 117.0 / 800.0, off: 0.01 });
        assert!(!spotted.is_allowed(), "one pixel in a hundred is off");
        let other = Picture { width: 20, height: 10, ..grey(7) };
        let text = grey(7).difference(&other).unwrap_err().to_string();
        assert_eq!(text, "it has 10x20 pixels, and the other has 20x10");
    }
}
