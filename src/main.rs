//! A field of vertices that CUDA writes and Vulkan draws, through the ring of the library `vulkan-cuda`.
//!
//! Read `frame.rs` first: it has one function, which draws one frame. README.md lists the other files.

#![deny(unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks)]

mod compute;
mod draw;
mod field;
mod frame;
mod gpu;
mod instance;
mod measure;
mod objects;
mod picture;
mod swapchain;
mod window;

use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use ash::vk;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use draw::{Camera, View};
use frame::{Canvas, Frames, HandOff};
use gpu::{Gpu, Wish};
use instance::Instance;
use measure::{Bench, Times};
use picture::{FORMAT, Picture, WholeFile};

/// CUDA writes a field of vertices, Vulkan draws it, and nothing is copied
#[derive(Parser, Debug)]
#[command(version, after_help = window::KEYS)]
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
    /// Samples of a pixel, which smooth edges [default: 4, in a software device's window 1]
    #[arg(long, value_name = "N", value_parser = samples)]
    samples: Option<u32>,
    /// How frames reach the screen: fifo (at its pace), mailbox (the newest), immediate (may tear)
    #[arg(long, value_name = "MODE", default_value = "fifo", value_parser = present)]
    present: vk::PresentModeKHR,
    /// Uses this device: its number, or a part of its name
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Does not look for CUDA: a compute shader writes the field
    #[arg(long)]
    compute: bool,
    /// Lets the CPU wait for CUDA and for Vulkan in each frame, to compare
    #[arg(long)]
    cpu_sync: bool,
    /// Measures what a hand-off costs, without a window
    #[arg(long, conflicts_with_all = ["output", "cpu_sync", "compute"])]
    bench: bool,
    /// Writes what --bench measures to this file
    #[arg(long, value_name = "FILE", requires = "bench")]
    json: Option<PathBuf>,
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
    match cols >= 2 && rows >= 2 && u64::from(cols) * u64::from(rows) < 1 << 28 {
        true => Ok([cols, rows]),
        false => Err("each side must be at least 2, and the product less than 2^28".into()),
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

fn present(text: &str) -> Result<vk::PresentModeKHR, String> {
    match text {
        "fifo" => Ok(vk::PresentModeKHR::FIFO),
        "mailbox" => Ok(vk::PresentModeKHR::MAILBOX),
        "immediate" => Ok(vk::PresentModeKHR::IMMEDIATE),
        _ => Err("it must be fifo, mailbox or immediate".into()),
    }
}

/// Whether Ctrl-C was pressed, or the process received SIGTERM.
static STOP: AtomicBool = AtomicBool::new(false);

pub fn must_stop() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// Prints a note. Ignores errors: standard error may be closed.
pub fn say(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn print(text: impl Display) -> Result<()> {
    writeln!(std::io::stdout(), "{text}").context("cannot write to standard output")
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.batch > options.ring {
        let text = format!("--batch {} needs as many slots: --ring {}", options.batch, options.batch);
        Options::command().error(ErrorKind::ValueValidation, text).exit();
    }
    match run(&options).inspect_err(|error| say(format_args!("error: {error:#}"))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run(options: &Options) -> Result<()> {
    listen();
    if options.headless || options.output.is_some() || options.bench {
        headless(options, options.output.as_deref())?;
    } else {
        match window::connect() {
            Ok(event_loop) => {
                if let Some(times) = window::run(event_loop, options)? {
                    print(times)?;
                }
            }
            Err(reason) => {
                say(format_args!("There is no display: {reason:#}"));
                say(format_args!("This draws a picture instead: {PICTURE}"));
                if cfg!(target_os = "linux") {
                    say(format_args!("In a browser: cargo run --release -p wavefield -- --web"));
                }
                headless(options, Some(PICTURE.as_ref()))?;
            }
        }
    }
    match instance::validation_messages() {
        0 => Ok(()),
        count => bail!("the validation layer has written {count} messages"),
    }
}

/// The file that is written if there is no display.
const PICTURE: &str = "wavefield.png";

/// Draws frames without a window, and writes the last frame to `output` if it is given.
fn headless(options: &Options, output: Option<&Path>) -> Result<()> {
    const STEP: f64 = 1.0 / 60.0;
    let file = output.or(options.json.as_deref()).map(WholeFile::create).transpose()?;
    let instance = Instance::new(None, options.validation)?;
    let gpu = Gpu::new(instance, &options.wish(None))?;
    let [width, height] = options.size;
    let (extent, longest) = (vk::Extent2D { width, height }, gpu.limits.max_image_dimension2_d);
    if width.max(height) > longest {
        bail!("--size has a side of more than {longest} pixels, the most of {}", gpu.name);
    }
    let mut frames = options.frames(&gpu, Canvas::Picture(Picture::new(&gpu, extent, FORMAT)?))?;
    let mut view = View { camera: Camera::default(), time: 0.0, step: STEP, bar: None };
    if options.bench {
        let measured = Bench::measure(&mut frames, &view, options.frames.unwrap_or(1000));
        let bench = frames.close(measured)?;
        file.map_or(Ok(()), |file| file.write(bench.json().as_bytes()))?;
        return print(&bench);
    }
    let drawn = (|| {
        let mut times = Times::default();
        for number in 0..options.frames.unwrap_or(120) {
            view.time = number as f64 * STEP;
            frames.draw(&view)?;
            // The first frames only fill the slots, so do not time them.
            if number >= frames.ring() as u64 {
                times.frame();
            }
            if must_stop() {
                break;
            }
        }
        Ok((frames.pixels()?, times.newest(usize::MAX)))
    })();
    let (pixels, times) = frames.close(drawn)?;
    if let (Some(file), Some(pixels)) = (file, pixels) {
        file.write(&picture::png(extent, &pixels)?)?;
    }
    times.map_or(Ok(()), print)
}

impl Options {
    fn wish<'a>(&'a self, presents: Option<gpu::Presents<'a>>) -> Wish<'a> {
        Wish { device: self.device.as_deref(), presents, cuda: !self.compute }
    }

    /// Creates what the frames need, and prints what writes the field.
    fn frames(&self, gpu: &Arc<Gpu>, canvas: Canvas) -> Result<Frames> {
        match &gpu.cuda {
            Ok(device) => say(format_args!("{}, which is CUDA's device {}", gpu.name, device.ordinal)),
            Err(reason) => {
                say(format_args!("{}, without CUDA: {reason}", gpu.name));
                say("A compute shader writes the field.");
            }
        }
        let [cols, rows] = self.grid.unwrap_or(if gpu.is_software { [128; 2] } else { [1024; 2] });
        if gpu.is_software && self.grid.is_none() {
            say(format_args!("A software device is slow, so the field is small: --grid {cols}x{rows}"));
        }
        let (bytes, most) = (16 * u64::from(cols) * u64::from(rows), gpu.limits.max_storage_buffer_range);
        if bytes > u64::from(most) {
            bail!("--grid {cols}x{rows} needs {bytes} bytes, and {} binds at most {most}", gpu.name);
        }
        let is_slow = gpu.is_software && matches!(canvas, Canvas::Window(_));
        let samples = self.samples.unwrap_or(if is_slow { 1 } else { 4 });
        let mut frames = Frames::new(gpu, canvas, [cols, rows], self.ring as usize, samples)?;
        frames.batch = self.batch as usize;
        frames.hand_off = if self.cpu_sync { HandOff::Cpu } else { HandOff::Gpu };
        Ok(frames)
    }
}

/// Lets the first Ctrl-C end the run after the current frame. The next one ends the process.
fn listen() {
    extern "C" fn stop(signal: libc::c_int) {
        STOP.store(true, Ordering::Relaxed);
        // SAFETY: the signal is valid, and `signal` is async-signal-safe.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let handler = stop as extern "C" fn(libc::c_int);
        // SAFETY: a valid signal. The handler does only what is async-signal-safe.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}
