//! What the examples with Bevy, CubeCL, candle and eframe share: arguments, the search for a GPU, a check and a picture.

pub mod check;
pub mod draw;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaStream, DriverError, result};
use vulkan_cuda_wgpu::vulkan_cuda::VulkanTurn;
use vulkan_cuda_wgpu::{Gpu, WgpuBuffer};

/// The arguments of an example.
#[derive(Clone, Default)]
pub struct Options {
    /// Frames without a window, or 0: a window.
    pub frames: u32,
    /// Check every word of every frame.
    pub check: bool,
    /// Leave out wgpu's wait for CUDA, so that the check finds wrong words.
    pub broken: bool,
    /// The file for the last picture.
    pub output: Option<String>,
}

impl Options {
    /// Reads the program's arguments. Ends the process if they are wrong, or for `--help`.
    ///
    /// `window`: whether the example has a window, which it opens without `--frames`.
    pub fn read(about: &str, window: bool) -> Self {
        let (frames, default) =
            if window { (0, "or a window without it") } else { (1000, "[default: 1000]") };
        let help = format!(
            "{about}\n\n  --frames N       So many frames, {default}\n  \
             --check          Check every word of every frame\n  \
             --break ready    With --check: wgpu does not wait for CUDA, so that the check finds wrong words\n  \
             --output FILE    Write the last picture to a PNG file\n\n\
             Exit codes: 0 done, or skipped because no GPU is shared; 1 failed; 2 wrong arguments.\n\
             With WAVEFIELD_REQUIRE_GPU=1 it fails instead of skipping."
        );
        let (mut options, mut arguments) = (Self { frames, ..Self::default() }, std::env::args().skip(1));
        let mut parse = || {
            while let Some(argument) = arguments.next() {
                match argument.as_str() {
                    "--frames" => options.frames = arguments.next()?.parse().ok().filter(|n| *n > 0)?,
                    "--check" => options.check = true,
                    "--break" => options.broken = (arguments.next()? == "ready").then_some(true)?,
                    "--output" => options.output = Some(arguments.next()?),
                    "--help" => return Some(false),
                    _ => return None,
                }
            }
            let alone = options.check || options.output.is_some();
            ((options.frames > 0 || !alone) && (options.check || !options.broken)).then_some(true)
        };
        let parsed = parse();
        if parsed != Some(true) {
            println!("{}{help}", if parsed.is_none() { "error: the arguments are wrong\n\n" } else { "" });
            std::process::exit(if parsed.is_none() { 2 } else { 0 })
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

/// With `--break`, lets CUDA sleep before it writes a frame, so that wgpu does not find the frame by luck.
pub fn delay(options: &Options, stream: &CudaStream) -> Result<(), DriverError> {
    unsafe extern "C" fn sleep(_: *mut std::ffi::c_void) {
        std::thread::sleep(Duration::from_millis(20));
    }
    // SAFETY: the function has no argument, and calls nothing of CUDA.
    let sleep =
        || unsafe { result::stream::launch_host_function(stream.cu_stream(), sleep, std::ptr::null_mut()) };
    if options.broken { sleep() } else { Ok(()) }
}

/// [`Gpu::submit`], or with `--break` the same work before the turn.
pub fn submit(
    gpu: &Gpu,
    options: &Options,
    turn: VulkanTurn<WgpuBuffer>,
    record: impl FnOnce(&WgpuBuffer, &mut wgpu::CommandEncoder),
) -> vulkan_cuda_wgpu::Result<wgpu::SubmissionIndex> {
    if !options.broken {
        return gpu.submit(turn, record);
    }
    let mut encoder = gpu.device().create_command_encoder(&Default::default());
    record(turn.slot(), &mut encoder);
    gpu.queue().submit([encoder.finish()]);
    gpu.submit(turn, |_, _| ())
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
