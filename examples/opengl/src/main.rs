//! OpenGL draws what a CUDA kernel writes, in memory that Vulkan exported. Read [`interop`] first: it is the recipe.

mod check;
mod classic;
mod draw;
mod egl;
mod gl;
mod interop;
mod picture;
mod program;

// The kernels are those of the wgpu example.
#[path = "../../wgpu/src/kernels.rs"]
mod kernels;
// What is drawn, and from where, is the application's.
#[allow(dead_code)]
#[path = "../../../src/render/camera.rs"]
mod camera;
#[path = "../../../src/render/mesh.rs"]
mod mesh;
#[allow(dead_code)]
#[path = "../../../src/texture.rs"]
mod texture;
#[allow(dead_code)]
#[path = "../../../src/wave.rs"]
mod wave;
// The device is that of the library's examples, and so is the way to run a few of Vulkan's commands.
#[allow(dead_code)]
#[path = "../../../crates/vulkan-cuda/examples/01_match.rs"]
mod match_devices;
#[path = "../../../crates/vulkan-cuda/examples/readback/mod.rs"]
mod readback;

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};

use gl::Gl;
use interop::semaphore::By;

const HELP: &str = "\
OpenGL draws what a CUDA kernel writes, in memory that Vulkan exported.

Usage: wavefield-opengl-example [OPTIONS]

Without --output it checks: a compute shader of OpenGL's looks at every word of every frame.

  --check          The same, for those who want to say it
  --texture        A texture with all its levels, instead of a vertex buffer
  --size BYTES     Bytes in a slot, or in a texture's first level
                   [default: 4194304 for checks, 1024x1024 vertices or texels for --output]
  --frames N       Frames [default: 120 for --output, 1000 for checks]
  --ring N         Buffers or textures, 1 to 32 [default: 3]
  --by KIND        How the two wait for each other: timeline or binary semaphores, or cpu
                   [default: timeline, or binary where the driver imports no timelines]
  --output FILE    Write the last frame to a PNG file; it shows what wavefield --headless shows in the same frame
  --compare OTHER  With --output: print how far the picture is from another, and fail if that is too far
  --alone          Without CUDA and Vulkan. A check: OpenGL writes, too, to compare times. A picture: the CPU computes it
  --classic        The check by cuGraphicsGLRegisterBuffer, map and unmap, without Vulkan's memory, to compare times
  --break ready    With a check: leave out the wait for CUDA, so that it finds wrong words
  --help           This text

Exit codes: 0 done, or skipped because no GPU is shared; 1 failed; 2 wrong arguments.
With WAVEFIELD_REQUIRE_GPU=1 nothing is skipped: it fails.
";

/// This machine cannot do what was asked. The program is then skipped.
#[derive(Debug)]
pub struct Unavailable(pub String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

#[derive(Default)]
struct Options {
    texture: bool,
    size: Option<u64>,
    frames: Option<u64>,
    ring: Option<u64>,
    by: Option<By>,
    check: bool,
    output: Option<PathBuf>,
    compare: Option<PathBuf>,
    alone: bool,
    classic: bool,
    break_ready: bool,
    help: bool,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self::default();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--texture" => options.texture = true,
                // Four vertices or eight texels, and what an `int` can say.
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
            (self.alone && by, "--alone has nobody to wait for: it excludes --by"),
            (self.break_ready && drawn, "--break needs a check: it excludes --output"),
            (self.break_ready && self.alone, "--alone has no wait to leave out"),
            (self.break_ready && self.classic, "--classic has no wait to leave out"),
            (
                self.break_ready && self.by == Some(By::Binary),
                "a binary semaphore that nobody waits for cannot be signalled again: --break needs --by timeline or cpu",
            ),
        ] {
            ensure!(!both, "{words}");
        }
        Ok(())
    }

    /// Columns and rows of the squares that slots are: a vertex has 16 bytes, a texel 8.
    fn square(&self) -> (u32, u32) {
        let element = if self.texture { 8 } else { 16 };
        let default = if self.output.is_some() { element << 20 } else { 4 << 20 };
        let side = (self.size.unwrap_or(default) / element).isqrt() as u32;
        (side, side)
    }

    fn ring(&self) -> u32 {
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

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::from(2);
        }
    };
    if options.help {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<Unavailable>() && !required() => {
            println!("skipped: {error:#}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn required() -> bool {
    std::env::var_os("WAVEFIELD_REQUIRE_GPU").is_some_and(|value| value == "1")
}

fn run(options: &Options) -> Result<()> {
    match &options.output {
        Some(path) => {
            let other = options.compare.as_deref().map(picture::Picture::read).transpose()?;
            let picture = drawn(options)?;
            picture.write(path)?;
            other.map_or(Ok(()), |other| compare(&picture, &other))
        }
        None => judge(&checked(options)?),
    }
}

fn drawn(options: &Options) -> Result<picture::Picture> {
    let (cols, rows) = options.square();
    let job = draw::Job {
        texture: options.texture,
        frames: options.frames.unwrap_or(120),
        grid: wave::Grid { cols, rows },
        ring: options.ring(),
    };
    if options.alone {
        let gl = Gl::open(None)?;
        println!("OpenGL alone, {}", gl.name);
        return draw::alone(&gl, &job);
    }
    let gpu = interop::open()?;
    let by = By::choose(options.by, &gpu.gl)?;
    println!("OpenGL, Vulkan and CUDA, {}; ring of {}, {}", gpu.gl.name, job.ring, by.words());
    draw::shared(&gpu, &job, by)
}

fn checked(options: &Options) -> Result<check::Counts> {
    let job = check::Job {
        texture: options.texture,
        frames: options.frames.unwrap_or(1000),
        size: options.square(),
        ring: options.ring(),
        wait: !options.break_ready,
    };
    if options.alone {
        let gl = Gl::open(None)?;
        println!("OpenGL alone, {}; ring of {}", gl.name, job.ring);
        return check::alone(&gl, &job);
    }
    let gpu = interop::open()?;
    if options.classic {
        println!("OpenGL and CUDA, {}; ring of {}, mapped and unmapped in each frame", gpu.gl.name, job.ring);
        return check::classic(&gpu, &job);
    }
    let by = By::choose(options.by, &gpu.gl)?;
    if options.break_ready && by == By::Binary {
        bail!(Unavailable(format!("--break needs timelines, which {} does not import; or --by cpu", gpu.gl.name)));
    }
    println!("OpenGL, Vulkan and CUDA, {}; ring of {}, {}", gpu.gl.name, job.ring, by.words());
    check::shared(&gpu, &job, by)
}

/// Says what was counted. A wrong word is an error.
fn judge(counts: &check::Counts) -> Result<()> {
    let check::Counts { frames, words, wrong, microseconds } = counts;
    println!("{frames} frames, {words} words, {wrong} wrong, {microseconds:.0} µs a frame");
    ensure!(*wrong == 0, "{wrong} words were not what was written");
    Ok(())
}

/// Says how far the pictures are apart. Too far is an error.
fn compare(picture: &picture::Picture, other: &picture::Picture) -> Result<()> {
    let difference = picture.difference(other).context("the pictures cannot be compared")?;
    let allowed = picture::ALLOWED;
    println!(
        "compared: largest difference {} of 255, mean {:.4} (allowed {}), {:.3} % of the pixels off by more than 16 (allowed {} %)",
        difference.largest,
        difference.mean,
        allowed.mean,
        100.0 * difference.off,
        100.0 * allowed.off
    );
    ensure!(difference.is_allowed(), "the pictures do not show the same");
    Ok(())
}
