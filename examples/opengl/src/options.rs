//! The command line.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use crate::interop::semaphore::By;

pub const HELP: &str = "\
OpenGL draws what a CUDA kernel writes, in memory that Vulkan exported.

Usage: wavefield-opengl-example [OPTIONS]

Without --output, an OpenGL compute shader checks every word of every frame.

  --check          Check every word; this is the default
  --texture        A texture with all its levels, instead of a vertex buffer
  --size BYTES     Bytes in a slot, or in a texture's first level
                   [default: 4194304 for checks, 1024x1024 vertices or texels for --output]
  --frames N       Frames [default: 120 for --output, 1000 for checks]
  --ring N         Buffers or textures, 1 to 32 [default: 3]
  --by KIND        How the two wait for each other: timeline or binary semaphores, or cpu
                   [default: timeline, or binary if the driver cannot import timelines]
  --output FILE    Write the last frame to a PNG file: the same picture as wavefield --headless for that frame
  --compare OTHER  With --output: draw at the size of another picture, print the difference, and fail if it is too large
  --alone          Without CUDA and Vulkan: OpenGL writes the words of a check, the CPU computes the frame of a picture
  --classic        The check with cuGraphicsGLRegisterBuffer, map and unmap instead of Vulkan's memory, to compare times
  --break ready    With a check: leave out the wait for CUDA, so that the check finds wrong words
  --help           This text

Exit codes: 0 done, or skipped because no GPU is shared; 1 failed; 2 wrong arguments.
With WAVEFIELD_REQUIRE_GPU=1 it fails instead of skipping.
";

#[derive(Default)]
pub struct Options {
    pub texture: bool,
    pub size: Option<u64>,
    pub frames: Option<u64>,
    pub ring: Option<u64>,
    pub by: Option<By>,
    pub check: bool,
    pub output: Option<PathBuf>,
    pub compare: Option<PathBuf>,
    pub alone: bool,
    pub classic: bool,
    pub break_ready: bool,
    pub help: bool,
}

impl Options {
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self::default();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--texture" => options.texture = true,
                // At least four vertices or eight texels, at most what fits into an `int`.
                "--size" => options.size = Some(number(&argument, &value()?, 64, 1 << 30)?),
                "--frames" => options.frames = Some(number(&argument, &value()?, 1, 1 << 32)?),
                "--ring" => options.ring = Some(number(&argument, &value()?, 1, 32)?),
                "--by" => options.by = Some(by(&value()?)?),
                "--check" => options.check = true,
                "--output" => options.output = Some(value()?.into()),
                "--compare" => options.compare = Some(value()?.into()),
                "--alone" => options.alone = true,
                "--classic" => options.classic = true,
                "--break" => {
                    let part = value()?;
                    ensure!(part == "ready", "--break can leave out `ready`, not `{part}`");
                    options.break_ready = true;
                }
                "--help" | "-h" => options.help = true,
                _ => bail!("{argument} is not an option; see --help"),
            }
        }
        options.fit_together()?;
        Ok(options)
    }

    fn fit_together(&self) -> Result<()> {
        let (drawn, by) = (self.output.is_some(), self.by.is_some());
        for (both, words) in [
            (self.check && drawn, "--check and --output exclude each other"),
            (self.compare.is_some() && !drawn, "--compare needs --output"),
            (self.classic && drawn, "--classic is a check: it excludes --output"),
            (self.classic && self.alone, "--classic and --alone exclude each other"),
            (self.classic && self.texture, "--classic is about buffers: it excludes --texture"),
            (self.classic && by, "--classic has no semaphores: it excludes --by"),
            (self.alone && by, "--alone has nothing to wait for: it excludes --by"),
            (self.break_ready && drawn, "--break needs a check: it excludes --output"),
            (self.break_ready && self.alone, "--alone has no wait to leave out"),
            (self.break_ready && self.classic, "--classic has no wait to leave out"),
            (
                self.break_ready && self.by == Some(By::Binary),
                "a binary semaphore cannot be signalled again without a wait: --break needs --by timeline or cpu",
            ),
        ] {
            ensure!(!both, "{words}");
        }
        Ok(())
    }

    /// Columns and rows of a slot, which is a square. A vertex has 16 bytes, a texel 8.
    pub fn square(&self) -> (u32, u32) {
        let element = if self.texture { 8 } else { 16 };
        let default = if self.output.is_some() { element << 20 } else { 4 << 20 };
        let side = (self.size.unwrap_or(default) / element).isqrt() as u32;
        (side, side)
    }

    pub fn ring(&self) -> u32 {
        self.ring.unwrap_or(3) as u32
    }
}

fn number(name: &str, text: &str, least: u64, most: u64) -> Result<u64> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.with_context(|| format!("{name} is a number from {least} to {most}, not `{text}`"))
}

fn by(text: &str) -> Result<By> {
    Ok(match text {
        "timeline" => By::Timeline,
        "binary" => By::Binary,
        "cpu" => By::Cpu,
        _ => bail!("--by is timeline, binary or cpu, not `{text}`"),
    })
}
