//! What the examples with Bevy, CubeCL, candle and eframe share: arguments, the search for a GPU, a check and a picture.

pub mod check;
pub mod draw;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{CommandFactory, FromArgMatches, Parser, ValueEnum};
use cudarc::driver::{CudaStream, DriverError, result};
use vulkan_cuda_wgpu::vulkan_cuda::VulkanTurn;
use vulkan_cuda_wgpu::{Gpu, WgpuBuffer};

#[derive(Clone, Default, Parser)]
#[command(after_help = "\
Exit codes: 0 done, or skipped because no GPU is shared; 1 failed; 2 wrong arguments.
With WAVEFIELD_REQUIRE_GPU=1 it fails instead of skipping.")]
pub struct Options {
    /// Draw so many frames without a window, and end
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub frames: u32,
    /// Check every word of every frame
    #[arg(long)]
    pub check: bool,
    /// Leave out one of the waits, so that the check finds wrong words
    #[arg(long = "break", value_name = "WAIT", requires = "check")]
    pub broken: Option<Wait>,
    /// Write the last picture to a PNG file
    #[arg(long, value_name = "FILE")]
    pub output: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Wait {
    /// wgpu's wait until CUDA has written a frame
    Ready,
    /// CUDA's wait until wgpu has read it
    Free,
}

impl Options {
    /// Reads the program's arguments. Ends the process if they are wrong, or for `--help`. `frames` is the default: 0 if the
    /// example has a window.
    pub fn read(about: &'static str, frames: &'static str) -> Self {
        let least = if frames == "0" { 0 } else { 1 };
        let frames = |argument: clap::Arg| {
            argument.default_value(frames).value_parser(clap::value_parser!(u32).range(least..))
        };
        let mut command = Self::command().about(about).mut_arg("frames", frames);
        let options = Self::from_arg_matches(&command.get_matches_mut()).unwrap_or_else(|error| error.exit());
        if options.frames == 0 && (options.check || options.output.is_some()) {
            let kind = clap::error::ErrorKind::MissingRequiredArgument;
            command.error(kind, "--check and --output need --frames N").exit();
        }
        options
    }
}

/// Finds a GPU that wgpu and CUDA share. Without one it prints the reason and ends the process.
pub fn find() -> (wgpu::Instance, wgpu::Adapter) {
    let desc = wgpu::InstanceDescriptor::new_without_display_handle();
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor { backends: wgpu::Backends::VULKAN, ..desc });
    match pollster::block_on(vulkan_cuda_wgpu::find(&instance)) {
        Ok(adapter) => (instance, adapter),
        Err(reason) => {
            let required = std::env::var_os("WAVEFIELD_REQUIRE_GPU").is_some_and(|value| value == "1");
            println!("{}: {reason}", if required { "error" } else { "skipped" });
            std::process::exit(required.into())
        }
    }
}

/// Prints the time of a frame and, after a check, its result: a wrong word is a failure. `words` is the number in a frame.
pub fn judge(options: &Options, words: u64, wrong: u64, begin: Instant) -> ExitCode {
    let frames = options.frames;
    let time = begin.elapsed().as_secs_f64() * 1e6 / f64::from(frames);
    let checked = format!("{} words, {wrong} wrong, ", words * u64::from(frames));
    println!("{frames} frames, {}{time:.0} µs a frame", if options.check { &checked } else { "" });
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Call this before CUDA writes a frame, on the ring's stream. Without the wait for `ready`, CUDA sleeps first, so that wgpu
/// does not find the frame by luck.
pub fn delay(options: &Options, stream: &Arc<CudaStream>) -> Result<Arc<CudaStream>, DriverError> {
    unsafe extern "C" fn sleep(_: *mut std::ffi::c_void) {
        std::thread::sleep(Duration::from_millis(20));
    }
    if options.broken == Some(Wait::Ready) {
        // SAFETY: the function has no argument, and calls nothing of CUDA.
        unsafe { result::stream::launch_host_function(stream.cu_stream(), sleep, std::ptr::null_mut()) }?;
    }
    Ok(stream.clone())
}

/// [`Gpu::submit`]. Without the wait for `ready`, the work comes before the turn. Without that for `free`, CUDA writes the slot
/// again while wgpu reads it.
pub fn submit(
    gpu: &Gpu,
    (options, stream): (&Options, &CudaStream),
    turn: VulkanTurn<WgpuBuffer>,
    record: impl FnOnce(&WgpuBuffer, &mut wgpu::CommandEncoder),
) -> anyhow::Result<wgpu::SubmissionIndex> {
    match options.broken {
        None => Ok(gpu.submit(turn, record)?),
        Some(Wait::Free) => {
            let (slot, stream) = (turn.slot(), stream.cu_stream());
            // SAFETY: the slot has so many bytes, and lives until the stream has passed.
            unsafe { result::memset_d8_async(slot.cuda(), 0x55, slot.wgpu().size() as usize, stream) }?;
            Ok(gpu.submit(turn, record)?)
        }
        Some(Wait::Ready) => {
            let mut encoder = gpu.device().create_command_encoder(&Default::default());
            record(turn.slot(), &mut encoder);
            gpu.queue().submit([encoder.finish()]);
            Ok(gpu.submit(turn, |_, _| ())?)
        }
    }
}

/// Waits until wgpu has done the frame before, so that the CPU is at most one frame ahead.
pub fn wait(gpu: &Gpu, frame: Option<wgpu::SubmissionIndex>) -> Result<(), wgpu::PollError> {
    let Some(frame) = frame else { return Ok(()) };
    let timeout = Some(Duration::from_secs(10));
    gpu.device().poll(wgpu::PollType::Wait { submission_index: Some(frame), timeout }).map(drop)
}

/// Writes bytes of red, green, blue and alpha to a PNG file.
pub fn save(path: &str, [cols, rows]: [u32; 2], pixels: &[u8]) -> anyhow::Result<()> {
    let mut encoder = png::Encoder::new(std::fs::File::create(path)?, cols, rows);
    encoder.set_color(png::ColorType::Rgba);
    encoder.write_header()?.write_image_data(pixels)?;
    Ok(())
}

/// The place of a picture with rows of so many bytes.
pub fn rows_of(buffer: &wgpu::Buffer, row: u32) -> wgpu::TexelCopyBufferInfo<'_> {
    let layout = wgpu::TexelCopyBufferLayout { offset: 0, bytes_per_row: Some(row), rows_per_image: None };
    wgpu::TexelCopyBufferInfo { buffer, layout }
}
