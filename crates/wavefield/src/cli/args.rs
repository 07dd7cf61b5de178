//! The options of a run, which several commands share, and the [`Config`] that they make.

use std::path::PathBuf;
use std::time::Duration;

use ash::vk;
use clap::{Args, ValueEnum};
use vulkan_cuda::Ring;
use wavefield::app::{Batching, Config, OverlayMode, ProducerKind, RISK, Scene};
use wavefield::cuda::KernelSource;
use wavefield::film::FilmDesc;
use wavefield::gallery;
use wavefield::handoff::Handoff;
use wavefield::render::{Camera, ColorMap, Samples, Style};
use wavefield::vulkan::{PresentMode, Validation, Wait};
use wavefield::wave::Grid;
use wavefield::{Error, Result};

use super::parse::Frames;
use super::{help, parse};

#[derive(Args)]
pub struct DeviceArgs {
    /// Use this device: its number in `wavefield devices`, part of its name, or its UUID.
    #[arg(long, value_name = "DEVICE", value_parser = parse::name, help_heading = help::HOW)]
    pub device: Option<String>,
    /// Who fills the field.
    #[arg(long, value_enum, default_value_t, help_heading = help::HOW)]
    pub producer: ProducerKind,
}

#[derive(Args)]
pub struct RunArgs {
    /// What to show.
    #[arg(long, value_enum, default_value_t, help_heading = help::WHAT)]
    scene: Scene,
    /// Columns and rows of vertices; with --scene texture, of texels.
    #[arg(long, value_name = "COLSxROWS", default_value = "1024x1024", value_parser = parse::grid, allow_hyphen_values = true, help_heading = help::WHAT)]
    grid: Grid,
    /// Run a kernel other than the wave: ripples, ocean, pond or swarm, or a file of your own (its signature is in
    /// crates/wavefield/kernels/README.md). A .ptx file is loaded; a .cu file is compiled by NVRTC first. If the file has several
    /// entries, add :ENTRY. A plain run in a window reloads the file whenever it is saved.
    #[arg(long, value_name = "NAME|FILE[:ENTRY]", value_parser = parse::name, help_heading = help::WHAT)]
    pub kernel: Option<String>,
    /// Set a parameter of the kernel; may be repeated. The wave has amplitude and frequency. A kernel of
    /// your own declares its parameters in lines of //!PARAM (crates/wavefield/kernels/README.md).
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse::parameter, help_heading = help::WHAT)]
    param: Vec<(String, f32)>,
    /// Seconds of animation per second of real time; 0 stands still.
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = parse::speed, allow_hyphen_values = true, help_heading = help::WHAT)]
    speed: f64,
    /// How the field is drawn [default: surface; for the kernel swarm: points].
    #[arg(long, value_enum, help_heading = help::WHAT)]
    style: Option<Style>,
    /// The colours.
    #[arg(long, value_enum, default_value_t, help_heading = help::WHAT)]
    colormap: ColorMap,
    /// Where the camera starts: its angles around the field and above the horizon in radians, its
    /// distance from its target, and the target. The field is 2 wide.
    #[arg(long, value_name = "AROUND,ABOVE,DISTANCE,X,Y,Z", value_parser = parse::camera, allow_hyphen_values = true, help_heading = help::WHAT)]
    camera: Option<Camera>,
    #[command(flatten)]
    device: DeviceArgs,
    /// How CUDA's vertices or texture reach Vulkan. All except timeline are for comparison [default:
    /// timeline].
    #[arg(long, value_enum, help_heading = help::HOW)]
    handoff: Option<Handoff>,
    #[command(flatten)]
    consent: Consent,
    /// Slots between producer and draw. More slots hide the hand-off's cost and add latency. Some
    /// hand-offs have one slot [default: 3; with batches, as many as they need].
    #[arg(long, value_name = "1..=32", value_parser = parse::ring, allow_hyphen_values = true, help_heading = help::HOW)]
    ring: Option<Ring>,
    /// Slots that CUDA fills for each wait, with --handoff timeline. A larger batch makes the hand-off
    /// cheaper and adds latency. auto chooses the smallest batch whose hand-off takes at most a twentieth
    /// of a frame, and adapts it during the run [default: auto; serve: 1].
    #[arg(long, value_name = "auto|1..=RING", value_parser = parse::frames, allow_hyphen_values = true, help_heading = help::HOW)]
    batch: Option<Frames>,
    /// With --batch auto: the longest time in milliseconds that the batch may delay a frame [default: 33].
    #[arg(long, value_name = "MS", value_parser = parse::milliseconds, allow_hyphen_values = true, help_heading = help::HOW)]
    batch_latency: Option<Duration>,
    /// Draw without a window.
    #[arg(long, help_heading = help::HOW)]
    pub headless: bool,
    /// Stop after N frames [default: in a window, never; headless, 120; verify, 1000; on a software
    /// device, 20].
    #[arg(long, value_name = "N", value_parser = parse::Whole(1, u64::MAX), allow_hyphen_values = true, help_heading = help::HOW)]
    frames: Option<u64>,
    /// How a window's frames reach the screen; fifo if the window does not support the choice [default:
    /// fifo].
    #[arg(long, value_enum, help_heading = help::HOW)]
    present: Option<PresentMode>,
    /// What a window shows over the picture at first; Tab changes it, F1 lists all keys [default: on].
    #[arg(long, value_enum, help_heading = help::HOW)]
    overlay: Option<OverlayMode>,
    /// How the CPU waits for the GPU.
    #[arg(long, value_enum, value_name = "HOW", default_value_t, help_heading = help::HOW)]
    wait: Wait,
    /// The picture's size, or the window's initial size.
    #[arg(long, value_name = "WxH", default_value = "1280x720", value_parser = parse::size, allow_hyphen_values = true, help_heading = help::OUTPUT)]
    size: vk::Extent2D,
    /// Samples per pixel: 4 for smooth edges, 1 for speed.
    #[arg(long, value_enum, default_value_t, help_heading = help::OUTPUT)]
    samples: Samples,
    /// Write the last frame to this file; needs --headless. For every output, - is standard output.
    #[arg(long, value_name = "FILE.png", value_parser = parse::named(&["png"]), help_heading = help::OUTPUT)]
    output: Option<PathBuf>,
    /// Record the run as a GIF of at most 25 frames a second. - writes raw frames to standard output, 30
    /// a second, and prints how ffmpeg reads them. A window's panel is recorded too; there, V starts and
    /// stops a recording at any time.
    #[arg(long, value_name = "FILE.gif|-", value_parser = parse::named(&["gif"]), help_heading = help::OUTPUT)]
    record: Option<PathBuf>,
    /// With --record FILE.gif: the longest allowed side of the picture. Larger pictures are scaled down by a whole
    /// number [default: 640].
    #[arg(long, value_name = "PIXELS", value_parser = parse::Whole(16, 4096), allow_hyphen_values = true, help_heading = help::OUTPUT)]
    record_side: Option<u64>,
    /// Write a trace of the first frames for Perfetto: CPU, CUDA, Vulkan and presents on one clock. With a file name that
    /// ends in .svg, write a picture of a few frames instead.
    #[arg(long, value_name = "FILE.json|FILE.svg", value_parser = parse::named(&["json", "svg"]), help_heading = help::DIAGNOSIS)]
    trace: Option<PathBuf>,
    /// Use the Khronos validation layer with synchronization validation: any error ends the run with exit
    /// code 1 [default: on in debug builds if it is installed, otherwise off].
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "on", help_heading = help::DIAGNOSIS)]
    validation: Option<OnOff>,
    /// Give up if no frame finishes, or no display answers, for this many seconds. A software device gets
    /// more: 30 times as long for its first frame, and ten times its slowest frame.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse::timeout, allow_hyphen_values = true, help_heading = help::DIAGNOSIS)]
    pub timeout: Duration,
}

#[derive(Args)]
pub struct Consent {
    /// Let --handoff inline run a kernel of your own, or one that a client of `serve` sends. If it faults
    /// inside Vulkan's command buffer, no process can draw on this GPU any more. Without this option such
    /// a kernel is refused.
    #[arg(long, help_heading = help::HOW)]
    pub risk_the_gpu: bool,
}

impl Consent {
    /// Refuses to put a kernel of the user's own into Vulkan's command buffer without consent.
    pub fn check(&self, kernel: Option<&str>, inline: bool) -> Result<()> {
        match kernel {
            Some(kernel) if inline && !self.risk_the_gpu && gallery::named(kernel)?.is_none() => {
                Err(Error::Usage(format!("--kernel {kernel} does not run inline: {RISK}")))
            }
            _ => Ok(()),
        }
    }
}

/// Reads the kernel of `--kernel`. Fails if it cannot fill the scene.
pub fn read_kernel(argument: Option<&str>, scene: Scene) -> Result<Option<KernelSource>> {
    let Some(argument) = argument else { return Ok(None) };
    if let Some(entry) = gallery::named(argument)? {
        return match scene {
            Scene::Field => Ok(Some(entry.source())),
            Scene::Texture => Err(Error::Usage(format!(
                "--kernel {argument} fills a field, and --scene texture has none: leave one of them out"
            ))),
        };
    }
    let kernel = KernelSource::from_argument(argument)?;
    kernel.check_signature(scene.signature())?;
    Ok(Some(kernel))
}

/// Sets the parameters of `--param`. It is wrong usage if the kernel does not have one of them.
pub fn set_parameters(config: &mut Config, given: &[(String, f32)]) -> Result<()> {
    let kernel = config.kernel();
    let given = given.iter().map(|(name, value)| (name.as_str(), *value));
    let chosen = kernel.parameters()?.choose(&kernel.name, &[], given);
    config.parameters = chosen.map_err(|problem| Error::Usage(format!("--param: {problem}")))?;
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnOff {
    On,
    Off,
}

impl RunArgs {
    /// Refuses options that would have no effect together with another option, without a window, or with one.
    fn check(&self, headless: bool) -> Result<()> {
        if headless && self.present.is_some() {
            return Err(Error::Usage(
                "--present is for a window, and this run has none: leave it out".into(),
            ));
        }
        if headless && self.overlay.is_some() {
            return Err(Error::Usage(
                "--overlay is for a window, and this run has none: leave it out".into(),
            ));
        }
        if !headless && self.output.is_some() {
            return Err(Error::Usage(
                "--output writes the last frame of a run without a window: add --headless".into(),
            ));
        }
        let raw = self.record.as_ref().is_some_and(|path| path.as_os_str() == "-");
        if self.record_side.is_some() && (raw || self.record.is_none()) {
            return Err(Error::Usage("--record-side is for --record FILE.gif".into()));
        }
        if let (Scene::Texture, Some(style)) = (self.scene, self.style) {
            return Err(Error::Usage(format!(
                "--style {} is for the field: the plane of --scene texture is always drawn in the same way",
                style.name()
            )));
        }
        let producer = match self.device.producer {
            ProducerKind::Auto | ProducerKind::Cuda => None,
            other => other.to_possible_value(),
        };
        if let Some(producer) = producer {
            let entry = self.kernel.as_deref().map(gallery::named).transpose()?.flatten();
            let has_shader = self.device.producer == ProducerKind::Compute
                && entry.is_some_and(|entry| entry.twin.is_some());
            let for_cuda = [
                (self.kernel.is_some() && !has_shader, "--kernel"),
                (self.handoff.is_some(), "--handoff"),
                (self.batch.is_some(), "--batch"),
                (self.batch_latency.is_some(), "--batch-latency"),
            ];
            if let Some((_, option)) = for_cuda.iter().find(|(given, _)| *given) {
                let producer = producer.get_name();
                return Err(Error::Usage(format!(
                    "{option} is for the CUDA producer, and --producer {producer} asks for another: leave one of them out"
                )));
            }
        }
        let given = if self.batch.is_some() { "--batch" } else { "--batch-latency" };
        match (self.handoff, self.batch, self.batch_latency) {
            (_, Some(Frames::Fixed(batch)), Some(_)) => Err(Error::Usage(format!(
                "--batch-latency is for --batch auto, and --batch {batch} is fixed"
            ))),
            (Some(handoff), batch, latency)
                if handoff != Handoff::Timeline && (batch.is_some() || latency.is_some()) =>
            {
                Err(Error::Usage(format!(
                    "{given} is for --handoff timeline: --handoff {} fills one slot at a time",
                    handoff.name()
                )))
            }
            _ => Ok(()),
        }
    }

    /// Whether --batch or --batch-latency was given.
    #[cfg(target_os = "linux")] // Only `serve` asks.
    pub fn has_batch(&self) -> bool {
        self.batch.is_some() || self.batch_latency.is_some()
    }

    /// Refuses a --ring that the hand-off ignores. `serve` does not call this: there, clients use the ring too.
    pub fn check_ring(&self) -> Result<()> {
        match (self.handoff, self.ring) {
            (Some(handoff), Some(ring)) if handoff.has_one_slot() && ring.depth() > 1 => {
                Err(Error::Usage(format!(
                    "--handoff {} has one slot, so there is no --ring {}: leave it out",
                    handoff.name(),
                    ring.depth()
                )))
            }
            _ => Ok(()),
        }
    }

    /// The settings that the options ask for, with defaults.
    ///
    /// # Errors
    /// Fails if options contradict each other, or if the kernel cannot be read.
    pub fn config(self, headless: bool) -> Result<Config> {
        self.check(headless)?;
        self.consent.check(self.kernel.as_deref(), self.handoff == Some(Handoff::Inline))?;
        let batch = match self.batch {
            Some(Frames::Fixed(frames)) => Batching::Fixed(frames),
            Some(Frames::Auto) | None => {
                Batching::Auto { latency: self.batch_latency.unwrap_or(Batching::LATENCY) }
            }
        };
        if let (Batching::Fixed(frames), Some(ring)) = (batch, self.ring)
            && frames as usize > ring.depth()
        {
            return Err(Error::Usage(format!(
                "--batch {frames} does not fit a ring of {}: a batch has at most as many frames as the ring has slots",
                ring.depth()
            )));
        }
        let kernel = read_kernel(self.kernel.as_deref(), self.scene)?;
        let mut config = Config {
            device: self.device.device,
            scene: self.scene,
            producer: self.device.producer,
            kernel,
            grid: self.grid,
            ring: self.ring,
            batch,
            handoff: self.handoff.unwrap_or_default(),
            risk_the_gpu: self.consent.risk_the_gpu,
            size: self.size,
            samples: self.samples,
            frames: self.frames,
            output: self.output,
            record_side: self.record_side.map_or(FilmDesc::SIDE, |side| side as u32),
            record: self.record,
            camera: self.camera,
            trace: self.trace,
            present: self.present.unwrap_or_default(),
            overlay: self.overlay.unwrap_or_default(),
            color_map: self.colormap,
            speed: self.speed,
            wait: self.wait,
            timeout: self.timeout,
            validation: match self.validation {
                Some(OnOff::On) => Validation::Required,
                Some(OnOff::Off) => Validation::Off,
                None if cfg!(debug_assertions) => Validation::IfInstalled,
                None => Validation::Off,
            },
            ..Config::default()
        };
        config.style = self.style.unwrap_or(config.usual_style());
        set_parameters(&mut config, &self.param)?;
        Ok(config)
    }
}
