//! A field of vertices that CUDA writes and Vulkan draws, through the ring of the library `vulkan-cuda`.
//!
//! Read `frame.rs` first: it has one function, which draws one frame. Then, in this order:
//!
//! | file | what is in it |
//! |---|---|
//! | `field` | the kernel, the slots, and the ring that hands them over |
//! | `gpu`, `instance` | which device CUDA and Vulkan share, and the device |
//! | `draw`, `objects` | pipelines, camera, depth and samples; buffers and images |
//! | `compute` | the same wave without CUDA |
//! | `swapchain`, `window` | the window, and what it tells the program |
//! | `picture` | a PNG file instead of a window |
//! | `measure` | frame times, and what a hand-off costs |

#![deny(unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks)]

mod compute;
mod draw;
mod field;
mod frame;
mod gpu;
mod instance;
mod objects;
mod picture;
mod swapchain;

use std::fmt::Display;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use ash::vk;
use clap::Parser;

use draw::{Camera, View};
use frame::{Canvas, Frames, Sync};
use gpu::{Gpu, Wish};
use instance::Instance;
use picture::Png;

/// CUDA writes a field of vertices, Vulkan draws it, and nothing is copied.
///
/// In the window: drag to turn, wheel to zoom.
#[derive(Parser, Debug)]
#[command(version, max_term_width = 100)]
struct Options {
    /// Opens no window
    #[arg(long)]
    headless: bool,
    /// Draws without a window, and writes the last frame to this PNG file
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Columns and rows of vertices [default: 1024x1024, on a software device 128x128]
    #[arg(long, value_name = "WxH", value_parser = grid)]
    grid: Option<[u32; 2]>,
    /// Slots: how many frames CUDA may be ahead of Vulkan
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=32))]
    ring: u32,
    /// Frames that CUDA writes in a row, at most as many as there are slots
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=32))]
    batch: u32,
    /// Ends after this many frames [default: 120 without a window]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    frames: Option<u64>,
    /// The picture's size in pixels
    #[arg(long, value_name = "WxH", default_value = "1280x720", value_parser = size)]
    size: [u32; 2],
    /// Samples for each pixel, which smooth the edges
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = samples)]
    samples: u32,
    /// Uses this device: its number, or a part of its name
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Does not look for CUDA: a compute shader writes the field
    #[arg(long)]
    compute: bool,
    /// Lets the CPU wait for CUDA and for Vulkan in each frame, to compare
    #[arg(long)]
    cpu_sync: bool,
    /// Loads Vulkan's validation layer; a message makes the program fail
    #[arg(long)]
    validation: bool,
}

fn pair(text: &str) -> Result<[u32; 2], String> {
    let numbers = text.split_once('x').and_then(|(a, b)| Some([a.parse().ok()?, b.parse().ok()?]));
    numbers.ok_or_else(|| "it must be two whole numbers, such as 640x480".into())
}

fn grid(text: &str) -> Result<[u32; 2], String> {
    let [cols, rows] = pair(text)?;
    match cols >= 2 && rows >= 2 && u64::from(cols) * u64::from(rows) <= 1 << 28 {
        true => Ok([cols, rows]),
        false => Err("each side must be at least 2, and the product at most 2^28".into()),
    }
}

fn size(text: &str) -> Result<[u32; 2], String> {
    let sides = pair(text)?;
    match sides.iter().all(|side| (1..=16384).contains(side)) {
        true => Ok(sides),
        false => Err("each side must be 1 to 16384".into()),
    }
}

fn samples(text: &str) -> Result<u32, String> {
    let samples = text.parse().ok().filter(|samples| [1, 2, 4, 8].contains(samples));
    samples.ok_or_else(|| "it must be 1, 2, 4 or 8".into())
}

/// Whether Ctrl-C was pressed.
static STOP: AtomicBool = AtomicBool::new(false);

/// Whether to end after this frame.
pub fn must_stop() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// Prints a note. A closed standard error is no reason to fail.
pub fn say(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Prints an error and ends the process, without freeing anything.
pub fn fail(error: &anyhow::Error) -> ! {
    say(format_args!("error: {error:#}"));
    std::process::exit(1)
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    headless(options)?;
    match instance::validation_messages() {
        0 => Ok(()),
        count => bail!("the validation layer has written {count} messages"),
    }
}

/// Draws frames without a window, and writes the last one to a file if there is one to write to.
fn headless(options: &Options) -> Result<()> {
    let png = options.output.as_deref().map(Png::create).transpose()?;
    let instance = Instance::new(None, options.validation)?;
    let gpu = Gpu::new(instance, &options.wish(None))?;
    let [width, height] = options.size;
    let image = picture::image(&gpu, vk::Extent2D { width, height })?;
    let mut frames = options.frames(&gpu, Canvas::Picture(image))?;
    let drawn = (|| {
        for number in 0..options.frames.unwrap_or(120) {
            const STEP: f64 = 1.0 / 60.0;
            let view = View { camera: Camera::default(), time: number as f64 * STEP, step: STEP };
            frames.draw(&view)?;
            if must_stop() {
                break;
            }
        }
        frames.wait_all()?;
        match &frames.canvas {
            Canvas::Picture(image) if png.is_some() => Ok(Some(picture::read(&gpu, image)?)),
            _ => Ok(None),
        }
    })();
    if let (Some(pixels), Some(png)) = (frames.close(drawn)?, png) {
        png.write(vk::Extent2D { width, height }, &pixels)?;
    }
    Ok(())
}

impl Options {
    fn wish<'a>(&'a self, presents: Option<gpu::Presents<'a>>) -> Wish<'a> {
        Wish { device: self.device.as_deref(), presents, cuda: !self.compute }
    }

    /// Makes what the frames need, and says who writes the field.
    fn frames(&self, gpu: &std::sync::Arc<Gpu>, canvas: Canvas) -> Result<Frames> {
        let side = if gpu.is_software { 128 } else { 1024 };
        let grid = self.grid.unwrap_or([side; 2]);
        match &gpu.cuda {
            Ok(device) => say(format_args!("{}, which is CUDA's device {}", gpu.name, device.ordinal)),
            Err(reason) => {
                say(format_args!("{}, without CUDA: {reason}", gpu.name));
                say("A compute shader writes the field.");
            }
        }
        let mut frames = Frames::new(gpu, canvas, grid, self.ring as usize, self.samples)?;
        frames.batch = self.batch as usize;
        frames.sync = if self.cpu_sync { Sync::Cpu } else { Sync::Gpu };
        Ok(frames)
    }
}
