//! The command line: what can be asked, and what is nonsense.

mod bench;
mod devices;
#[cfg(target_os = "linux")]
mod serve;
#[cfg(target_os = "linux")]
mod try_kernel;
mod verify;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use ash::vk;
use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Arg, Args, Parser, Subcommand, ValueEnum};
use vulkan_cuda::Ring;
use wavefield::app::{
    Config, Ended, EventLoop, ProducerKind, RISK, Scene, Stop, attempt_headless, attempt_windowed,
};
use wavefield::cuda::KernelSource;
use wavefield::handoff::Handoff;
use wavefield::render::{ColorMap, Samples};
use wavefield::report::Failures;
use wavefield::vulkan::{PresentMode, Validation};
use wavefield::wave::Grid;
use wavefield::{Error, Result, check_outputs, note, say};

/// CUDA fills a field of vertices, Vulkan draws it, and nothing is copied.
///
/// In the window: drag to turn, wheel to zoom, Space pauses, C changes the colours, R resets the camera, Escape leaves.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true, after_help = help_end(RUN_EXAMPLES))]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArgs,
}

/// The groups of options in the help, in this order.
const WHAT: &str = "What is shown";
const HOW: &str = "How it is done";
const OUTPUT: &str = "What comes out";
const DIAGNOSIS: &str = "Diagnosis";

const RUN_EXAMPLES: &str =
    "  wavefield                                              a window, by CUDA where it can be
  wavefield --headless --output wave.png                 the last frame as a picture
  wavefield --headless --grid 4096x4096 --ring 8         a larger field, a deeper ring
  wavefield --kernel kernels/test/flat.ptx               another kernel than the wave
  wavefield --headless --frames 60 --trace frames.svg    when everything was";

/// Below a command's options: examples, and what its exit code says.
fn help_end(examples: &str) -> String {
    format!("Examples:\n{examples}\n\nExit codes: 0 done, 1 failed, 2 wrong usage.")
}

#[derive(Subcommand)]
enum Command {
    /// Draw the field (what happens without a command).
    #[command(after_help = help_end(RUN_EXAMPLES))]
    Run(RunArgs),
    /// List every device of both APIs, and which one would be used.
    Devices(devices::DevicesArgs),
    /// Draw what another process writes: the Python package, or any client of docs/protocol.md.
    #[cfg(target_os = "linux")]
    Serve(serve::ServeArgs),
    /// Run the PTX on standard input once: what `serve` starts for each kernel that a client sends, see `try_kernel.rs`.
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    TryKernel(try_kernel::TryKernelArgs),
    /// Measure what each way of handing a frame over costs.
    Bench(Box<bench::BenchArgs>),
    /// Look at every vertex of every frame, or every texel of every level: is any stale, torn or missing?
    Verify(verify::VerifyArgs),
}

#[derive(Args)]
struct DeviceArgs {
    /// Use this device: its number in `wavefield devices`, part of its name, or its UUID.
    #[arg(long, value_name = "DEVICE", value_parser = parse_name, help_heading = HOW)]
    device: Option<String>,
    /// Who fills the field.
    #[arg(long, value_enum, default_value_t, help_heading = HOW)]
    producer: ProducerKind,
}

#[derive(Args)]
struct RunArgs {
    /// What to show.
    #[arg(long, value_enum, default_value_t, help_heading = WHAT)]
    scene: Scene,
    /// Vertices across and along; of --scene texture, texels.
    #[arg(long, value_name = "COLSxROWS", default_value = "1024x1024", value_parser = parse_grid, allow_hyphen_values = true, help_heading = WHAT)]
    grid: Grid,
    /// Run this kernel instead of the wave; see kernels/README.md for its signature. Without ENTRY the file must have
    /// one entry only.
    #[arg(long, value_name = "FILE.ptx[:ENTRY]", value_parser = parse_name, help_heading = WHAT)]
    kernel: Option<String>,
    /// Seconds of the field for each second; 0 stands still.
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = parse_speed, allow_hyphen_values = true, help_heading = WHAT)]
    speed: f64,
    /// The colours.
    #[arg(long, value_enum, default_value_t, help_heading = WHAT)]
    colormap: ColorMap,
    #[command(flatten)]
    device: DeviceArgs,
    /// How CUDA's vertices, or its texture, reach Vulkan; all but timeline are there to be compared with it [default:
    /// timeline].
    #[arg(long, value_enum, help_heading = HOW)]
    handoff: Option<Handoff>,
    #[command(flatten)]
    consent: Consent,
    /// Slots between producer and draw: deeper hides the hand-off's cost and adds latency. The hand-offs binary, cpu-sync and
    /// host-copy have one [default: 3].
    #[arg(long, value_name = "1..=32", value_parser = parse_ring, allow_hyphen_values = true, help_heading = HOW)]
    ring: Option<Ring>,
    /// Slots that CUDA fills for each wait, when the hand-off is timeline: helps where a frame's work is long [default: 1].
    #[arg(long, value_name = "1..=RING", value_parser = parse_batch, allow_hyphen_values = true, help_heading = HOW)]
    batch: Option<u32>,
    /// Draw without a window.
    #[arg(long, help_heading = HOW)]
    headless: bool,
    /// Stop after so many frames [headless: 120, or 1000 to verify, or 20 on a software device; in a
    /// window: none].
    #[arg(long, value_name = "N", value_parser = Whole(1, u64::MAX), allow_hyphen_values = true, help_heading = HOW)]
    frames: Option<u64>,
    /// How frames reach a window's screen; fifo where the window does not offer it [default: fifo].
    #[arg(long, value_enum, help_heading = HOW)]
    present: Option<PresentMode>,
    /// Wait for the GPU by asking again and again: costs a core, and the CPU is quicker to go on.
    #[arg(long, help_heading = HOW)]
    spin: bool,
    /// The picture's size, or the window's at first.
    #[arg(long, value_name = "WxH", default_value = "1280x720", value_parser = parse_size, allow_hyphen_values = true, help_heading = OUTPUT)]
    size: vk::Extent2D,
    /// Samples a pixel: 4 for smooth edges, 1 for speed.
    #[arg(long, value_enum, default_value_t, help_heading = OUTPUT)]
    samples: Samples,
    /// Write the last frame here; needs --headless. - is standard output, here and for every other output.
    #[arg(long, value_name = "FILE.png", value_parser = named(&["png"]), help_heading = OUTPUT)]
    output: Option<PathBuf>,
    /// Write a trace of the first frames for Perfetto: CPU, CUDA, Vulkan and presents on one clock. A name that ends with
    /// .svg gives a picture of a few frames instead.
    #[arg(long, value_name = "FILE.json|FILE.svg", value_parser = named(&["json", "svg"]), help_heading = DIAGNOSIS)]
    trace: Option<PathBuf>,
    /// The Khronos validation layer with synchronization validation: any error ends the run with exit code 1 [default:
    /// on in debug builds where it is installed, else off].
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "on", help_heading = DIAGNOSIS)]
    validation: Option<OnOff>,
    /// Give up when no frame was finished, or no display answered, for so many seconds. A software device has longer: 30 times
    /// as long for its first frame, and ten times its slowest frame.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_timeout, allow_hyphen_values = true, help_heading = DIAGNOSIS)]
    timeout: Duration,
}

#[derive(Args)]
struct Consent {
    /// Let a kernel of --kernel, or one that a client of `serve` sends, run inside Vulkan's command buffer (inline). If it
    /// faults there, nothing draws on this GPU any more, in any process: so without this it is refused.
    #[arg(long, help_heading = HOW)]
    risk_the_gpu: bool,
}

impl Consent {
    /// Refuses to put `kernel` into Vulkan's command buffer without consent.
    fn check(&self, kernel: Option<&str>, inline: bool) -> Result<()> {
        match kernel {
            Some(kernel) if inline && !self.risk_the_gpu => {
                Err(Error::Usage(format!("--kernel {kernel} is not run inline: {RISK}")))
            }
            _ => Ok(()),
        }
    }
}

/// The kernel of `--kernel`, if it can fill that scene.
fn read_kernel(argument: Option<&str>, scene: Scene) -> Result<Option<KernelSource>> {
    let kernel = argument.map(KernelSource::from_argument).transpose()?;
    if let Some(kernel) = &kernel {
        kernel.check_signature(scene.signature())?;
    }
    Ok(kernel)
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnOff {
    On,
    Off,
}

impl Cli {
    /// Whether it looks after signals itself. A kernel's trial does not: a signal is to end it, whatever the kernel does.
    pub fn handles_signals(&self) -> bool {
        #[cfg(target_os = "linux")]
        return !matches!(self.command, Some(Command::TryKernel(_)));
        #[cfg(not(target_os = "linux"))]
        true
    }

    /// Does what was asked.
    pub fn execute(self, stop: &Stop) -> Result<()> {
        match self.command {
            None => run(self.run, stop),
            Some(Command::Run(args)) => run(args, stop),
            Some(Command::Devices(args)) => devices::execute(args, stop),
            #[cfg(target_os = "linux")]
            Some(Command::Serve(args)) => serve::execute(args, stop),
            #[cfg(target_os = "linux")]
            Some(Command::TryKernel(args)) => try_kernel::execute(args),
            Some(Command::Bench(args)) => bench::execute(*args, stop),
            Some(Command::Verify(args)) => verify::execute(args, stop),
        }
    }
}

fn run(args: RunArgs, stop: &Stop) -> Result<()> {
    let headless = args.headless;
    args.check_ring()?;
    let mut config = args.config(headless)?;
    check_outputs(config.output.iter().chain(&config.trace))?;
    if !headless {
        match connect(&config, stop) {
            Ok(mut event_loop) => return show(attempt_windowed(&mut event_loop, &config, stop)?),
            Err(error) => {
                note!("note: {error}; running headless, the last frame goes to wavefield.png");
                config.output = Some("wavefield.png".into());
            }
        }
    }
    show(attempt_headless(&config, stop)?)?;
    match &config.output {
        Some(path) => say!("picture       {}", path.display()),
        None => say!("picture       none; --output FILE.png writes the last frame"),
    }
    Ok(())
}

/// Prints the summary, whatever failed, and hands the failure on.
fn show(ended: Ended) -> Result<()> {
    say!("{}", ended.summary);
    ended.failure.map_or(Ok(()), Err)
}

impl RunArgs {
    /// Wrong usage where an option would have no effect beside another, or without a window, or with one.
    fn check(&self, headless: bool) -> Result<()> {
        if headless && self.present.is_some() {
            return Err(Error::Usage(
                "--present is for a window, and this run has none: leave it out".into(),
            ));
        }
        if !headless && self.output.is_some() {
            return Err(Error::Usage(
                "--output is the last picture of a run without a window: add --headless".into(),
            ));
        }
        let producer = match self.device.producer {
            ProducerKind::Auto | ProducerKind::Cuda => None,
            other => other.to_possible_value(),
        };
        if let Some(producer) = producer {
            let for_cuda = [
                (self.kernel.is_some(), "--kernel"),
                (self.handoff.is_some(), "--handoff"),
                (self.batch.is_some(), "--batch"),
            ];
            if let Some((_, option)) = for_cuda.iter().find(|(given, _)| *given) {
                let producer = producer.get_name();
                return Err(Error::Usage(format!(
                    "{option} is for the CUDA producer, and --producer {producer} asks for another: leave one of them out"
                )));
            }
        }
        match (self.handoff, self.batch) {
            (Some(handoff), Some(_)) if handoff != Handoff::Timeline => Err(Error::Usage(format!(
                "--batch is for --handoff timeline: --handoff {} fills one slot at a time",
                handoff.name()
            ))),
            _ => Ok(()),
        }
    }

    /// The same for runs whose ring is this producer's alone.
    fn check_ring(&self) -> Result<()> {
        match (self.handoff, self.ring) {
            (Some(handoff @ (Handoff::Binary | Handoff::CpuSync | Handoff::HostCopy)), Some(ring))
                if ring.depth() > 1 =>
            {
                Err(Error::Usage(format!(
                    "--handoff {} has one slot, so there is no --ring {}: leave it out",
                    handoff.name(),
                    ring.depth()
                )))
            }
            _ => Ok(()),
        }
    }

    fn config(self, headless: bool) -> Result<Config> {
        self.check(headless)?;
        self.consent.check(self.kernel.as_deref(), self.handoff == Some(Handoff::Inline))?;
        let (ring, batch) = (self.ring.unwrap_or_default(), self.batch.unwrap_or(1));
        Ok(Config {
            device: self.device.device,
            scene: self.scene,
            producer: self.device.producer,
            kernel: read_kernel(self.kernel.as_deref(), self.scene)?,
            grid: self.grid,
            ring: ring.with_batch(batch).ok_or_else(|| {
                Error::Usage(format!(
                    "--batch {batch} does not fit a ring of {}: it is from 1 to the ring's depth",
                    ring.depth()
                ))
            })?,
            handoff: self.handoff.unwrap_or_default(),
            risk_the_gpu: self.consent.risk_the_gpu,
            size: self.size,
            samples: self.samples,
            frames: self.frames,
            output: self.output,
            trace: self.trace,
            present: self.present.unwrap_or_default(),
            color_map: self.colormap,
            speed: self.speed,
            spin: self.spin,
            timeout: self.timeout,
            validation: match self.validation {
                Some(OnOff::On) => Validation::Required,
                Some(OnOff::Off) => Validation::Off,
                None if cfg!(debug_assertions) => Validation::IfInstalled,
                None => Validation::Off,
            },
            verify: false,
            broken: None,
        })
    }
}

/// Connects to the display.
///
/// A display server that accepts the connection and then says nothing holds this thread inside its library for ever. So another
/// thread keeps the time and listens for a stop meanwhile, and ends the process: nothing was begun yet.
///
/// # Errors
/// Those of [`EventLoop::new`].
fn connect(config: &Config, stop: &Stop) -> Result<EventLoop> {
    let (connected, wait) = std::sync::mpsc::channel::<()>();
    let (timeout, stop, began) = (config.timeout, stop.clone(), Instant::now());
    let mut asked = None;
    let watch = move || {
        while wait.recv_timeout(Duration::from_millis(50)) == Err(RecvTimeoutError::Timeout) {
            // Not at once: a display that answers in time shows and closes its window, which is the better end.
            let stopped =
                stop.requested() && asked.get_or_insert_with(Instant::now).elapsed() > Duration::from_secs(1);
            let error = if stopped {
                Error::Stopped("stopped while connecting to the display".into())
            } else if began.elapsed() > timeout {
                Error::Window {
                    what: "connecting to the display",
                    reason: format!(
                        "it accepted the connection and said nothing for {:.0} s; --timeout allows more, --headless \
                         needs no display",
                        timeout.as_secs_f64()
                    ),
                }
            } else {
                continue;
            };
            note!("error: {error}");
            crate::leave_at_once(error.exit_code());
        }
    };
    // Without a thread to spare it goes on without a limit; a second signal ends that.
    let _ = std::thread::Builder::new().name("display watch".into()).spawn(watch);
    let event_loop = EventLoop::new();
    drop(connected);
    event_loop
}

/// Writes an output if it was asked for, and says so.
fn write(failures: &mut Failures, path: &Option<PathBuf>, write: impl FnOnce(&Path) -> Result<()>) {
    if let Some(path) = path
        && failures.catch(write(path)).is_some()
    {
        note!("wrote {}", path.display());
    }
}

/// An output whose format its name tells: an ending, if it has one, is one of these.
fn named(endings: &'static [&'static str]) -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(move |path| {
        let ending = path.extension();
        match ending.is_none_or(|ending| endings.iter().any(|one| ending.eq_ignore_ascii_case(one))) {
            true => Ok(path),
            false => Err(format!(
                "its name would have to end with .{}, which is what is written",
                endings.join(" or .")
            )),
        }
    })
}

/// Digits and nothing else. What is beyond 64 bits is the largest that they hold, which is too large for everything here.
fn parse_whole(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Takes whole numbers from the first to the second.
#[derive(Clone)]
struct Whole(u64, u64);

impl TypedValueParser for Whole {
    type Value = u64;

    fn parse_ref(
        &self,
        command: &clap::Command,
        option: Option<&Arg>,
        value: &OsStr,
    ) -> Result<u64, clap::Error> {
        let Self(least, most) = *self;
        let parse = move |text: &str| -> Result<u64, String> {
            let number = parse_whole(text).filter(|number| (least..=most).contains(number));
            number.ok_or_else(|| match most {
                u64::MAX => format!("`{text}` is not a whole number from {least} on"),
                most => format!("`{text}` is not a whole number from {least} to {most}"),
            })
        };
        parse.parse_ref(command, option, value)
    }
}

/// The name of something.
fn parse_name(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("an empty name names nothing: leave the option out".into()),
        _ => Ok(text.to_owned()),
    }
}

/// Two numbers with an `x` between them.
fn parse_pair(text: &str) -> Result<(u64, u64), String> {
    let pair = text.split_once(['x', 'X']).and_then(|(a, b)| Some((parse_whole(a)?, parse_whole(b)?)));
    pair.ok_or_else(|| format!("`{text}` is not two whole numbers with an x between, like 1280x720"))
}

fn parse_grid(text: &str) -> Result<Grid, String> {
    let (cols, rows) = parse_pair(text)?;
    if cols < 2 || rows < 2 {
        return Err(format!("a field of {text} has no surface: it needs 2 vertices each way at least"));
    }
    // Indices are 32 bits, and no device allocates more than 4 GiB at once: 2^28 vertices of 16 bytes.
    match (u32::try_from(cols), u32::try_from(rows)) {
        (Ok(cols), Ok(rows)) if u64::from(cols) * u64::from(rows) <= 1 << 28 => Ok(Grid { cols, rows }),
        _ => Err(format!("a field of {text} is beyond 2^28 vertices: the largest square is 16384x16384")),
    }
}

fn parse_size(text: &str) -> Result<vk::Extent2D, String> {
    let (width, height) = parse_pair(text)?;
    if width == 0 || height == 0 {
        return Err(format!("a picture of {text} has no pixels"));
    }
    match (u32::try_from(width), u32::try_from(height)) {
        (Ok(width), Ok(height)) => Ok(vk::Extent2D { width, height }),
        _ => Err(format!("a picture of {text} is larger than any device draws")),
    }
}

fn parse_ring(text: &str) -> Result<Ring, String> {
    let depth = parse_whole(text).and_then(|depth| Ring::new(u32::try_from(depth).ok()?));
    depth.ok_or_else(|| format!("`{text}` is not a whole number from 1 to {}", vulkan_cuda::ring::MAX_DEPTH))
}

fn parse_batch(text: &str) -> Result<u32, String> {
    parse_ring(text).map(|ring| ring.depth() as u32)
}

fn parse_speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if speed.is_finite() && speed.abs() <= 1000.0 => Ok(speed),
        _ => Err(format!("`{text}` is not a number between -1000 and 1000")),
    }
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=86_400.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("`{text}` is not a number of seconds from 0.1 to 86400")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        for (text, part) in [
            ("", "two whole numbers"),
            ("12", "two whole numbers"),
            ("-1x5", "two whole numbers"),
            ("1x5", "no surface"),
            ("99999x99999", "2^28"),
            ("99999999999x2", "2^28"),
            ("99999999999999999999999x2", "2^28"),
            ("+5x5", "two whole numbers"),
        ] {
            let error = parse_grid(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert_eq!(parse_grid("2x2"), Ok(Grid { cols: 2, rows: 2 }));
        assert!(parse_size("0x7").unwrap_err().contains("no pixels"));
        for text in ["0", "33", "three", "-1", "+1", "99999999999"] {
            assert!(parse_ring(text).unwrap_err().contains("1 to 32"));
        }
        for text in ["nan", "inf", "fast"] {
            assert!(parse_speed(text).is_err());
        }
    }
}
