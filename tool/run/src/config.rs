//! The settings of a run, each described once: clap reads the options from here, their defaults are those of
//! [`Config::default`], and [`Config::command_line`] writes the options back.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use ash::vk;
use clap::builder::TypedValueParser;
use clap::{Parser, ValueEnum};
use vulkan_cuda::Ring;

use super::{Batching, OverlayMode, ProducerKind, Scene, parse};
use crate::watch::verify::Broken;
use wavefield_draw::{Camera, ColorMap, Raster, Samples, Style};
use wavefield_gpu::cuda::{KernelSource, KernelValues};
use wavefield_gpu::report;
use wavefield_gpu::vulkan::{PresentMode, Validation};
use wavefield_handoff::Handoff;
use wavefield_handoff::contents::wave::Grid;

// The groups of options in `--help`, in this order.
pub const WHAT: &str = "What is shown";
pub const HOW: &str = "How it is done";
pub const OUTPUT: &str = "What comes out";
pub const DIAGNOSIS: &str = "Diagnosis";

/// Why the user must allow their own kernel inside Vulkan's command buffer.
pub const RISK: &str = "a kernel that faults inside Vulkan's command buffer stops drawing on this GPU for every process \
     (docs/reliability.md); use another --handoff, or accept that with --risk-the-gpu";

// The settings of a run. An option's doc comment is its help; one here would be every command's help.
#[derive(Parser, Clone, Debug, PartialEq)]
pub struct Config {
    /// What to show.
    #[arg(long, value_enum, default_value_t, help_heading = WHAT)]
    pub scene: Scene,
    /// Columns and rows of vertices; with --scene texture, of texels [default: 1024x1024; on a software
    /// device 128x128].
    #[arg(long, value_name = "COLSxROWS", default_value = "1024x1024", hide_default_value = true, value_parser = parse::grid, allow_hyphen_values = true, help_heading = WHAT)]
    pub grid: Grid,
    // Runs instead of the wave; CUDA only, unless `gallery` has a shader for it.
    #[arg(skip)]
    pub kernel: Option<KernelSource>,
    // Where a window reloads `kernel` from whenever the file is saved.
    #[arg(skip)]
    pub reload: Option<String>,
    #[arg(skip)]
    pub parameters: KernelValues,
    /// Seconds of animation per second of real time; 0 stands still.
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = parse::speed, allow_hyphen_values = true, help_heading = WHAT)]
    pub speed: f64,
    /// How the field is drawn [default: surface; for the kernel swarm: points].
    #[arg(long, value_enum, default_value_t, hide_default_value = true, help_heading = WHAT)]
    pub style: Style,
    /// The colours.
    #[arg(long = "colormap", value_enum, default_value_t, help_heading = WHAT)]
    pub color_map: ColorMap,
    /// Where the camera starts: its angles around the field and above the horizon in radians, its
    /// distance from its target, and the target. The field is 2 wide.
    #[arg(long, value_name = "AROUND,ABOVE,DISTANCE,X,Y,Z", value_parser = parse::camera, allow_hyphen_values = true, help_heading = WHAT)]
    pub camera: Option<Camera>,
    /// Use this device: its number in `wavefield devices`, part of its name, or its UUID.
    #[arg(long, value_name = "DEVICE", value_parser = parse::name, help_heading = HOW)]
    pub device: Option<String>,
    /// Who fills the field.
    #[arg(long, value_enum, default_value_t, help_heading = HOW)]
    pub producer: ProducerKind,
    /// How CUDA's vertices or texture reach Vulkan. All except timeline are for comparison [default:
    /// timeline].
    #[arg(long, value_enum, default_value_t, hide_default_value = true, help_heading = HOW)]
    pub handoff: Handoff,
    // Allows the user's kernels inside Vulkan's command buffer: see [`RISK`].
    #[arg(skip)]
    pub risk_the_gpu: bool,
    /// Slots between producer and draw. More slots hide the hand-off's cost and add latency. Some
    /// hand-offs have one slot [default: 3; with batches, as many as they need].
    #[arg(long, value_name = "1..=32", value_parser = parse::ring, allow_hyphen_values = true, help_heading = HOW)]
    pub ring: Option<Ring>,
    #[arg(skip)]
    pub batch: Batching,
    /// Stop after N frames [default: in a window, never; headless, 120; verify, 1000; on a software
    /// device, 20].
    #[arg(long, value_name = "N", value_parser = parse::whole(1, u64::MAX), allow_hyphen_values = true, help_heading = HOW)]
    pub frames: Option<u64>,
    /// How a window's frames reach the screen; fifo if the window does not support the choice [default:
    /// fifo].
    #[arg(long, value_enum, default_value_t, hide_default_value = true, help_heading = HOW)]
    pub present: PresentMode,
    /// What a window shows over the picture at first; Tab changes it, F1 lists all keys [default: on].
    #[arg(long, value_enum, default_value_t, hide_default_value = true, help_heading = HOW)]
    pub overlay: OverlayMode,
    /// The picture's size, or the window's initial size.
    #[arg(long, value_name = "WxH", default_value = "1280x720", value_parser = parse::size, allow_hyphen_values = true, help_heading = OUTPUT)]
    pub size: vk::Extent2D,
    /// Samples per pixel: 4 for smooth edges, 1 for speed [default: 4; in a software device's window 1].
    #[arg(long, value_enum, default_value_t, hide_default_value = true, help_heading = OUTPUT)]
    pub samples: Samples,
    /// What draws arrays. Compute shaders are faster on a GPU with little graphics hardware.
    #[arg(long, value_enum, default_value_t, help_heading = HOW)]
    pub raster: Raster,
    // Whether `--grid` and `--samples` were left out: see `Config::suited_to`.
    #[arg(skip)]
    pub any_grid: bool,
    #[arg(skip)]
    pub any_samples: bool,
    /// Write the last frame to this file; needs --headless. For every output, - is standard output.
    #[arg(long, value_name = "FILE.png", value_parser = parse::named(&["png"]), help_heading = OUTPUT)]
    pub output: Option<PathBuf>,
    /// Record the run as a GIF of at most 25 frames a second. - writes raw frames to standard output, 30
    /// a second, and prints how ffmpeg reads them. A window's panel is recorded too; there, V starts and
    /// stops a recording at any time.
    #[arg(long, value_name = "FILE.gif|-", value_parser = parse::named(&["gif"]), help_heading = OUTPUT)]
    pub record: Option<PathBuf>,
    /// With --record FILE.gif: the longest allowed side of the picture. Larger pictures are scaled down by a whole
    /// number.
    #[arg(long, value_name = "PIXELS", default_value = "640", value_parser = parse::whole(16, 4096).map(|side| side as u32), allow_hyphen_values = true, help_heading = OUTPUT)]
    pub record_side: u32,
    /// Write a trace of the first frames for Perfetto: CPU, CUDA, Vulkan and presents on one clock. With a file name that
    /// ends in .svg, write a picture of a few frames instead.
    #[arg(long, value_name = "FILE.json|FILE.svg", value_parser = parse::named(&["json", "svg"]), help_heading = DIAGNOSIS)]
    pub trace: Option<PathBuf>,
    #[arg(skip = Validation::Off)]
    pub validation: Validation,
    /// Give up if no frame finishes, or no display answers, for this many seconds. A software device gets
    /// more: 30 times as long for its first frame, and ten times its slowest frame.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse::timeout, allow_hyphen_values = true, help_heading = DIAGNOSIS)]
    pub timeout: Duration,
    // See [`crate::watch::verify`].
    #[arg(skip)]
    pub verify: bool,
    // The part of the hand-off to leave out, to show that the check finds it.
    #[arg(skip)]
    pub broken: Option<Broken>,
}

impl Default for Config {
    /// Returns the settings that clap parses from an empty command line.
    fn default() -> Self {
        static USUAL: LazyLock<Config> = LazyLock::new(|| Config::parse_from(["wavefield"]));
        USUAL.clone()
    }
}

impl Config {
    /// Returns the settings for this kind of device: a software device draws less, unless the user chose.
    pub fn suited_to(&self, kind: vk::PhysicalDeviceType, windowed: bool) -> Self {
        let slow = kind == vk::PhysicalDeviceType::CPU;
        let grid = if slow && self.any_grid { Grid { cols: 128, rows: 128 } } else { self.grid };
        let samples = if slow && self.any_samples && windowed { Samples::One } else { self.samples };
        Self { grid, samples, ..self.clone() }
    }

    /// Returns `wavefield …` with the options for these settings, quoted for a shell. Omits options without
    /// effect, those at their defaults, and settings that only the library offers.
    pub fn command_line(&self, headless: bool) -> String {
        let usual = Self { validation: Validation::usual(), style: self.usual_style(), ..Self::default() }
            .options(headless);
        let mut line = String::from(if headless { "wavefield --headless" } else { "wavefield" });
        for option in self.options(headless).into_iter().filter(|option| !usual.contains(option)) {
            line += " --";
            line += option.0;
            if let Some(value) = option.1 {
                line += "=";
                line += &quoted(&value);
            }
        }
        line
    }

    fn options(&self, headless: bool) -> Vec<(&'static str, Option<String>)> {
        let cuda = self.producer.may_use_cuda();
        let batches = cuda && self.handoff == Handoff::Timeline;
        let kernel = self.kernel.as_ref().and_then(|kernel| match kernel.built_in {
            Some(name) => Some(name.to_owned()),
            None => cuda.then(|| format!("{}:{}", kernel.name, kernel.entry)),
        });
        let (frames, latency) = match self.batch {
            Batching::Fixed(frames) => (Some(frames), None),
            Batching::Auto { latency } => (None, Some(latency.as_secs_f64() * 1e3)),
        };
        let ring = self.ring.filter(|_| !(cuda && self.handoff.has_one_slot()));
        let file = |path: &Path| path.display().to_string();
        let has_side = self.record.as_ref().is_some_and(|path| path.as_os_str() != "-")
            && self.record_side != Self::default().record_side;
        let mut all = vec![
            ("scene", word(self.scene)),
            ("grid", Some(self.grid.to_string())),
            ("speed", Some(self.speed.to_string())),
            ("style", word(self.style).filter(|_| self.scene == Scene::Field)),
            ("colormap", word(self.color_map)),
            ("camera", self.camera.map(|camera| camera.to_string())),
            ("device", self.device.clone()),
            ("producer", word(self.producer)),
            ("kernel", kernel),
            ("handoff", word(self.handoff).filter(|_| cuda)),
            ("batch", frames.filter(|_| batches).map(|frames| frames.to_string())),
            ("batch-latency", latency.filter(|_| batches).map(|latency| latency.to_string())),
        ];
        // A kernel with faulty parameter lines was refused earlier.
        let parameters = self.kernel().parameters().unwrap_or_default();
        for (parameter, value) in parameters.iter().zip(parameters.values(&self.parameters).iter()) {
            let differs = *value != parameter.default;
            all.push(("param", differs.then(|| format!("{}={value}", parameter.name))));
        }
        all.extend([
            ("ring", ring.map(|ring| ring.depth().to_string())),
            ("frames", self.frames.map(|frames| frames.to_string())),
            ("present", word(self.present).filter(|_| !headless)),
            ("overlay", word(self.overlay).filter(|_| !headless)),
            ("timeout", Some(self.timeout.as_secs_f64().to_string())),
            ("validation", word(self.validation)),
            ("size", Some(format!("{}x{}", self.size.width, self.size.height))),
            ("samples", word(self.samples)),
            ("raster", word(self.raster)),
            ("output", self.output.as_deref().filter(|_| headless).map(file)),
            ("record", self.record.as_deref().map(file)),
            ("record-side", has_side.then(|| self.record_side.to_string())),
            ("trace", self.trace.as_deref().map(file)),
        ]);
        all.retain(|(_, value)| value.is_some());
        all.extend(self.risk_the_gpu.then_some(("risk-the-gpu", None)));
        all
    }
}

fn word(value: impl ValueEnum) -> Option<String> {
    Some(report::word(value)).filter(|word| !word.is_empty())
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-+=./:,@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProducerKind;

    #[test]
    fn a_software_device_draws_less_of_what_nobody_chose() {
        let suited = |any, kind, windowed| {
            let config = Config { any_grid: any, any_samples: any, ..Config::default() };
            let Config { grid, samples, .. } = config.suited_to(kind, windowed);
            (grid.cols, grid.rows, samples)
        };
        use vk::PhysicalDeviceType as Kind;
        assert_eq!(suited(true, Kind::CPU, true), (128, 128, Samples::One));
        assert_eq!(suited(true, Kind::CPU, false), (128, 128, Samples::Four));
        assert_eq!(suited(false, Kind::CPU, true), (1024, 1024, Samples::Four));
        assert_eq!(suited(true, Kind::DISCRETE_GPU, true), (1024, 1024, Samples::Four));
    }

    #[test]
    fn only_what_differs_is_said_and_quoted_where_it_must_be() {
        let config = Config { validation: Validation::IfInstalled, ..Config::default() };
        assert_eq!(config.command_line(false), "wavefield");
        let config = Config {
            device: Some("NVIDIA's best".into()),
            speed: -0.5,
            overlay: crate::OverlayMode::Off,
            output: Some("my wave.png".into()),
            producer: ProducerKind::Compute,
            handoff: Handoff::Binary,
            ..config
        };
        assert_eq!(
            config.command_line(true),
            r"wavefield --headless --speed=-0.5 --device='NVIDIA'\''s best' --producer=compute --output='my wave.png'"
        );
        let still = Config { producer: ProducerKind::Still, ..config };
        assert!(
            !still.command_line(false).contains("producer")
                && still.command_line(false).contains("--overlay=off")
        );
    }
}
