//! wgpu draws what a CUDA kernel writes, without a copy, or CUDA reads what wgpu writes. Read [`draw`] first:
//! `Scene::draw` is a frame.

mod check;
mod draw;
mod kernels;
mod plain;
mod window;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, ensure};
use vulkan_cuda_wgpu::Gpu;

const HELP: &str = "\
wgpu draws what a CUDA kernel writes, or CUDA reads what wgpu writes, without a copy.

Usage: wavefield-wgpu-example [OPTIONS]

Without --output, --check, --alone and --plain it opens a window.

  --texture        A texture that CUDA paints, instead of a vertex buffer
  --size BYTES     Bytes in a slot [default: 4194304]
  --frames N       Frames [default: 120 for --output, 1000 for checks; a window runs until it is closed]
  --output FILE    Draw without a window, and write the last frame to a PNG file
  --check          Draw nothing: a compute pass checks every word of every frame
  --to-cuda        With --check: wgpu writes, and a CUDA kernel checks
  --attachment     With --to-cuda: wgpu writes the texture in a render pass
  --alone          The same check of data that wgpu itself writes, without CUDA, to compare times
  --plain          The same check of CUDA's data with plain Vulkan instead of wgpu, to compare times
  --break WAIT     With --check: leave out a wait, so that the check finds wrong words: `ready`, until a slot is
                   written, or `free`, until it is read. With --plain: `ready`
  --help           This text

Exit codes: 0 done, or skipped because no GPU is shared; 1 failed; 2 wrong arguments.
With WAVEFIELD_REQUIRE_GPU=1 it fails instead of skipping.
";

#[derive(Default)]
struct Options {
    texture: bool,
    size: Option<u64>,
    frames: Option<u64>,
    output: Option<PathBuf>,
    check: bool,
    alone: bool,
    plain: bool,
    to_cuda: bool,
    attachment: bool,
    broken: Option<check::Broken>,
    help: bool,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self::default();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--texture" => options.texture = true,
                "--size" => options.size = Some(number(&argument, &value()?)?),
                "--frames" => options.frames = Some(number(&argument, &value()?)?),
                "--output" => options.output = Some(value()?.into()),
                "--check" => options.check = true,
                "--to-cuda" => options.to_cuda = true,
                "--attachment" => (options.attachment, options.texture) = (true, true),
                "--alone" => options.alone = true,
                "--plain" => options.plain = true,
                "--break" => {
                    options.broken = Some(match value()?.as_str() {
                        "ready" => check::Broken::Ready,
                        "free" => check::Broken::Free,
                        other => anyhow::bail!("--break can leave out `ready` or `free`, not `{other}`"),
                    });
                }
                "--help" | "-h" => options.help = true,
                _ => anyhow::bail!("{argument} is not an option; see --help"),
            }
        }
        let modes = [options.output.is_some(), options.check, options.alone, options.plain];
        ensure!(
            modes.into_iter().filter(|mode| *mode).count() <= 1,
            "--output, --check, --alone and --plain exclude each other"
        );
        let breakable = options.check || options.plain && options.broken == Some(check::Broken::Ready);
        ensure!(breakable || options.broken.is_none(), "--break needs --check, or, as `ready`, --plain");
        ensure!(options.check || !options.to_cuda, "--to-cuda needs --check");
        ensure!(options.to_cuda || !options.attachment, "--attachment needs --to-cuda");
        Ok(options)
    }

    /// Columns and rows of a slot, which is a square. A vertex has 16 bytes, a texel 8.
    fn square(&self) -> (u32, u32) {
        let element = if self.texture { 8 } else { 16 };
        let side = (self.size.unwrap_or(4 << 20) / element).isqrt() as u32;
        (side, side)
    }
}

fn number(name: &str, text: &str) -> Result<u64> {
    // The size: at least four vertices or eight texels, at most what 32-bit indices can address.
    let range = if name == "--size" { 64..=1 << 30 } else { 1..=1 << 32 };
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.with_context(|| {
        format!("{name} is a number from {} to {}, not `{text}`", range.start(), range.end())
    })
}

/// Prints the messages of wgpu and the validation layer. Debug assertions or WGPU_VALIDATION=1 turn the layer
/// on.
struct Log;

impl log::Log for Log {
    fn enabled(&self, _: &log::Metadata) -> bool {
        true
    }

    fn log(&self, record: &log::Record) {
        eprintln!("{}: {}: {}", record.level().as_str().to_lowercase(), record.target(), record.args());
    }

    fn flush(&self) {}
}

fn main() -> ExitCode {
    if log::set_logger(&Log).is_ok() {
        log::set_max_level(log::LevelFilter::Warn);
    }
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
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let size = options.square();
    let frames = options.frames;
    let job = check::Job {
        texture: options.texture,
        frames: frames.unwrap_or(1000),
        size,
        attachment: options.attachment,
        broken: options.broken,
    };
    if options.plain {
        return match plain::check(&job)? {
            Ok(counts) => judge(&counts),
            Err(reason) => skip(anyhow!(reason)),
        };
    }
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends: wgpu::Backends::VULKAN,
        ..wgpu::InstanceDescriptor::new_without_display_handle_from_env()
    });
    if options.alone {
        let adapter = pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions {
            power_preference: wgpu::PowerPreference::HighPerformance,
            ..Default::default()
        }));
        let adapter = match adapter {
            Ok(adapter) => adapter,
            Err(error) => return skip(error.into()),
        };
        let desc = wgpu::DeviceDescriptor { required_limits: adapter.limits(), ..Default::default() };
        let (device, queue) = pollster::block_on(adapter.request_device(&desc))?;
        println!("wgpu alone, {}", adapter.get_info().name);
        return judge(&check::alone(&device, &queue, &job)?);
    }
    let adapter = match pollster::block_on(vulkan_cuda_wgpu::find(&instance)) {
        Ok(adapter) => adapter,
        Err(reason) => return skip(reason.into()),
    };
    let limits = wgpu::DeviceDescriptor { required_limits: adapter.limits(), ..Default::default() };
    let gpu = Gpu::open(&adapter, &limits)?;
    let info = gpu.pair().vk().info();
    println!("wgpu and CUDA, {} ({})", info.name, info.uuid);
    if options.check {
        let check = if options.to_cuda { check::to_cuda } else { check::from_cuda };
        return judge(&check(&gpu, &job)?);
    }
    match &options.output {
        Some(path) => draw::picture(&gpu, options.texture, size, frames.unwrap_or(120), path)
            .with_context(|| format!("{} was not written", path.display())),
        None => window::show(&instance, &adapter, &gpu, options.texture, size, frames),
    }
}

/// Prints the result. A wrong word is an error.
fn judge(counts: &check::Counts) -> Result<()> {
    let check::Counts { frames, words, wrong, microseconds } = counts;
    println!("{frames} frames, {words} words, {wrong} wrong, {microseconds:.0} µs a frame");
    ensure!(*wrong == 0, "{wrong} words were not what was written");
    Ok(())
}

/// Without a GPU that both share, the program is skipped.
fn skip(reason: anyhow::Error) -> Result<()> {
    if std::env::var_os("WAVEFIELD_REQUIRE_GPU").is_some_and(|value| value == "1") {
        return Err(reason);
    }
    println!("skipped: {reason:#}");
    Ok(())
}
