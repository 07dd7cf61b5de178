//! The command line: the options, what is printed, and Ctrl-C. It uses no other file.

use std::fmt::Display;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use ash::vk;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

pub const KEYS: &str = "In the window: drag to turn, wheel to zoom. Up and down change the ring, left and right the batch. \
                        C lets the CPU wait, B hides the bar, space pauses, escape ends.";

/// CUDA writes a field of vertices, Vulkan draws it, and nothing is copied
#[derive(Parser, Debug)]
#[command(version, after_help = KEYS)]
pub struct Options {
    /// Opens no window
    #[arg(long)]
    pub headless: bool,
    /// Draws without a window, and writes the last frame to this PNG file
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Columns and rows of vertices [default: 1024x1024, on a software device 128x128]
    #[arg(long, value_name = "WxH", value_parser = grid)]
    pub grid: Option<[u32; 2]>,
    /// Slots: how many frames CUDA may be ahead of Vulkan
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub ring: u32,
    /// Frames that CUDA writes in a row, at most as many as there are slots
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub batch: u32,
    /// Ends after this many frames [default: 120 without a window]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub frames: Option<u64>,
    /// The picture's size in pixels
    #[arg(long, value_name = "WxH", default_value = "1280x720", value_parser = size)]
    pub size: [u32; 2],
    /// Samples of a pixel, which smooth edges [default: 4, in a software device's window 1]
    #[arg(long, value_name = "N", value_parser = samples)]
    pub samples: Option<u32>,
    /// How frames reach the screen: fifo (at its pace), mailbox (the newest), immediate (may tear)
    #[arg(long, value_name = "MODE", default_value = "fifo", value_parser = present)]
    pub present: vk::PresentModeKHR,
    /// Uses this device: its number, or a part of its name
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// Does not look for CUDA: a compute shader writes the field
    #[arg(long)]
    pub compute: bool,
    /// Lets the CPU wait for CUDA and for Vulkan in each frame, to compare
    #[arg(long)]
    pub cpu_sync: bool,
    /// Measures what a hand-off costs, without a window
    #[arg(long, conflicts_with_all = ["output", "cpu_sync", "compute"])]
    pub bench: bool,
    /// Writes what --bench measures to this file
    #[arg(long, value_name = "FILE", requires = "bench")]
    pub json: Option<PathBuf>,
    /// Loads Vulkan's validation layer; a message makes the program fail
    #[arg(long)]
    pub validation: bool,
}

impl Options {
    /// Reads the command line. Ends the process if that is wrong, or if it asks for help.
    pub fn read() -> Self {
        let options = Self::parse();
        if options.batch > options.ring {
            let text = format!("--batch {} needs as many slots: --ring {}", options.batch, options.batch);
            Self::command().error(ErrorKind::ValueValidation, text).exit();
        }
        options
    }
}

fn pair(text: &str) -> Result<[u32; 2], String> {
    let numbers = text.split_once('x').and_then(|(a, b)| Some([a.parse().ok()?, b.parse().ok()?]));
    numbers.ok_or_else(|| "it must be two whole numbers, such as 640x480".into())
}

fn grid(text: &str) -> Result<[u32; 2], String> {
    let [cols, rows] = pair(text)?;
    let fits = cols >= 2 && rows >= 2 && u64::from(cols) * u64::from(rows) < 1 << 28;
    let error = "each side must be at least 2, and the product less than 2^28";
    fits.then_some([cols, rows]).ok_or(error.into())
}

fn size(text: &str) -> Result<[u32; 2], String> {
    let sides = pair(text)?;
    let fits = sides.iter().all(|side| (1..=16384).contains(side));
    fits.then_some(sides).ok_or("each side must be 1 to 16384".into())
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

/// Prints a note. Ignores errors: standard error may be closed.
pub fn say(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

pub fn print(text: impl Display) -> Result<()> {
    writeln!(std::io::stdout(), "{text}").context("cannot write to standard output")
}

/// Whether Ctrl-C was pressed, or the process received SIGTERM.
static STOP: AtomicBool = AtomicBool::new(false);

pub fn must_stop() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// Lets the first Ctrl-C end the run after the current frame. The next one ends the process.
#[cfg(not(windows))]
pub fn listen() {
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

/// As above. Closing the console and logging off end the run, too.
#[cfg(windows)]
pub fn listen() {
    use windows_sys::Win32::System::Console::{CTRL_BREAK_EVENT, SetConsoleCtrlHandler};
    unsafe extern "system" fn stop(event: u32) -> i32 {
        let first = !STOP.swap(true, Ordering::Relaxed);
        // When the console is closed, Windows ends the process as soon as this returns, or after five seconds.
        if first && event > CTRL_BREAK_EVENT {
            std::thread::sleep(std::time::Duration::from_secs(5));
        }
        // If it is false, Windows ends the process.
        first.into()
    }
    // SAFETY: a function, which Windows calls on a thread of its own.
    unsafe { SetConsoleCtrlHandler(Some(stop), 1) };
}
