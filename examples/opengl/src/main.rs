//! OpenGL draws what a CUDA kernel writes, in memory that Vulkan exported. Read [`interop`] first: it is the
//! recipe.

mod check;
mod classic;
mod draw;
mod egl;
mod gl;
mod interop;
mod options;
mod picture;
mod program;

// The kernels come from the wgpu example.
#[path = "../../wgpu/src/kernels.rs"]
#[allow(dead_code)] // It has more than this example needs.
mod kernels;
// The library's examples have the code that opens the device and the code that runs a few Vulkan commands.
#[allow(dead_code)]
#[path = "../../../crates/vulkan-cuda/examples/01_match.rs"]
mod match_devices;
#[path = "../../../crates/vulkan-cuda/examples/readback/mod.rs"]
mod readback;

use std::fmt;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use cudarc::driver::DriverError;
use vulkan_cuda::cuda_advice;
use wavefield_handoff::contents::wave::Grid;

use gl::Gl;
use interop::semaphore::By;
use options::{HELP, Options};

/// This machine cannot do what was requested. The program is then skipped.
#[derive(Debug)]
pub struct Unavailable(pub String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

/// Whether the error means that this machine cannot do what was requested.
fn is_unavailable(error: &anyhow::Error) -> bool {
    error.is::<Unavailable>() || error.downcast_ref().is_some_and(vulkan_cuda::Error::is_unavailable)
}

fn main() -> ExitCode {
    let words = std::env::args_os().skip(1).map(|word| word.into_string());
    let words = words.collect::<Result<Vec<_>, _>>().map_err(|word| anyhow::anyhow!("{word:?} is not UTF-8"));
    let options = match words.and_then(|words| Options::parse(words.into_iter())) {
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
        Err(error) if is_unavailable(&error) && !required() => {
            println!("skipped: {error:#}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            // The library's errors say what to do; cudarc's do not.
            let code = error.downcast_ref::<DriverError>();
            let advice = code.map_or("", |error| cuda_advice("", error.0 as u32));
            eprintln!("error: {error:#}{advice}");
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
            let size = other.as_ref().map_or((1280, 720), |other| (other.width, other.height));
            let picture = drawn(options, size)?;
            picture.write(path)?;
            other.map_or(Ok(()), |other| compare(&picture, &other))
        }
        None => judge(&checked(options)?),
    }
}

/// `size` is the size of the picture, so that it can be compared with another.
fn drawn(options: &Options, size: (u32, u32)) -> Result<picture::Picture> {
    let (cols, rows) = options.square();
    let job = draw::Job {
        texture: options.texture,
        frames: options.frames.unwrap_or(120),
        grid: Grid { cols, rows },
        ring: options.ring(),
        size,
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
        bail!(Unavailable(format!(
            "--break needs timelines, which {} does not import; or --by cpu",
            gpu.gl.name
        )));
    }
    println!("OpenGL, Vulkan and CUDA, {}; ring of {}, {}", gpu.gl.name, job.ring, by.words());
    check::shared(&gpu, &job, by)
}

/// Prints the result. A wrong word is an error.
fn judge(counts: &check::Counts) -> Result<()> {
    let check::Counts { frames, words, wrong, microseconds } = counts;
    println!("{frames} frames, {words} words, {wrong} wrong, {microseconds:.0} µs a frame");
    ensure!(*wrong == 0, "{wrong} words were not what was written");
    Ok(())
}

/// Prints the difference of the pictures. One that is too large is an error.
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
