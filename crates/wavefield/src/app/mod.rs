//! The application: choose a device, make an engine, run its frames in a window or without one.

mod command_line;
mod companion;
mod early;
mod engine;
mod filmed;
mod headless;
mod picture_file;
mod scene;
mod select;
mod summary;
mod traced;
mod verification;
mod watchdog;
mod windowed;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ash::vk;
use vulkan_cuda::Ring;

use crate::cuda::{KernelSource, KernelValues};
use crate::film::FilmDesc;
use crate::handoff::Handoff;
use crate::render::{Camera, ColorMap, Samples, Style};
use crate::verify::Broken;
use crate::vulkan::{PresentMode, Validation, Wait};
use crate::wave::Grid;

pub use crate::scene::Scene;
pub use companion::Parameters;
pub(crate) use companion::{Companion, CompanionDesc};
pub(crate) use early::EarlyContext;
pub use early::EarlyDriver;
#[cfg(target_os = "linux")]
pub(crate) use engine::Installed;
pub use engine::{Batching, Engine, FrameTiming, Moment};
pub(crate) use engine::{Found, SlotNow};
pub use headless::{Headless, attempt_headless, run_headless};
pub use picture_file::{read_png, write_png};
#[cfg(target_os = "linux")]
pub(crate) use scene::make_producer;
pub use select::{Choice, DeviceTable};
pub use summary::{Ended, FrameTimes, Summary};
pub use verification::{VERIFY_SCHEMA, Verdict, Verification, write_verification};
#[cfg(target_os = "linux")]
pub(crate) use windowed::run_with;
pub use windowed::{EventLoop, attempt_windowed, run_windowed};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ProducerKind {
    /// CUDA if available, otherwise a Vulkan compute shader; prints the reason.
    #[default]
    Auto,
    /// A CUDA kernel; an error if CUDA is not available.
    Cuda,
    /// A Vulkan compute shader.
    Compute,
    /// CPU threads.
    Host,
    /// A Vulkan compute shader, for the first frame only: the benchmark measures the draw alone.
    #[value(skip)]
    Still,
    /// [`ProducerKind::Still`] from memory that could be shared with CUDA.
    #[value(skip)]
    StillShared,
}

impl ProducerKind {
    pub(crate) fn may_use_cuda(self) -> bool {
        matches!(self, Self::Auto | Self::Cuda)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Reload {
    /// The argument of [`KernelSource::from_argument`].
    pub argument: String,
    /// The program that tries each kernel in a separate process before the window uses it: a `wavefield` of the same release. With
    /// `None`, a kernel that faults ends the run. Trials run on Linux only, and not for kernels that paint a texture.
    pub try_with: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum OverlayMode {
    /// Figures and settings.
    #[default]
    On,
    /// Only the scale of the colours, and the value under the pointer. In `serve` it also means that clients' arrays do not move
    /// by themselves: there is nothing to pause.
    Legend,
    /// Nothing.
    Off,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// An index of the device table, part of a name, or a UUID.
    pub device: Option<String>,
    pub scene: Scene,
    pub producer: ProducerKind,
    /// A kernel to run instead of the wave; CUDA only, unless it has a twin in [`crate::gallery`].
    pub kernel: Option<KernelSource>,
    /// Read [`Config::kernel`] again whenever its file is saved; in a window only.
    pub reload: Option<Reload>,
    pub parameters: KernelValues,
    pub handoff: Handoff,
    /// Allows the user's kernels inside Vulkan's command buffer ([`Handoff::Inline`]): see [`RISK`].
    pub risk_the_gpu: bool,
    pub grid: Grid,
    /// Slots between the producer and the draw. With `None`, three, or more if batches need them.
    pub ring: Option<Ring>,
    pub batch: Batching,
    pub size: vk::Extent2D,
    pub samples: Samples,
    /// Frames to draw. With `None`, a window runs until it is told to stop, and a headless run chooses a number.
    pub frames: Option<u64>,
    pub output: Option<PathBuf>,
    /// The GIF file to record the run to, or `-` for raw frames on standard output.
    pub record: Option<PathBuf>,
    pub record_side: u32,
    /// The initial camera. The default is [`Scene::camera`].
    pub camera: Option<Camera>,
    /// The file for a trace of the first frames: see [`crate::trace`].
    pub trace: Option<PathBuf>,
    pub present: PresentMode,
    pub overlay: OverlayMode,
    pub style: Style,
    pub color_map: ColorMap,
    /// Seconds of the field per second of the clock; 0 stops the field.
    pub speed: f64,
    pub wait: Wait,
    /// The run fails if no frame finishes for this long.
    pub timeout: Duration,
    pub validation: Validation,
    /// Whether to check every vertex of every frame: see [`crate::verify`].
    pub verify: bool,
    pub broken: Option<Broken>,
}

/// Why the user must allow their own kernel inside Vulkan's command buffer.
pub const RISK: &str = "a kernel that faults inside Vulkan's command buffer stops drawing on this GPU for every process \
     (docs/reliability.md); use another --handoff, or accept that with --risk-the-gpu";

impl Default for Config {
    fn default() -> Self {
        Self {
            device: None,
            scene: Scene::default(),
            producer: ProducerKind::Auto,
            kernel: None,
            reload: None,
            parameters: KernelValues::default(),
            handoff: Handoff::default(),
            risk_the_gpu: false,
            grid: Grid { cols: 1024, rows: 1024 },
            ring: None,
            batch: Batching::default(),
            size: vk::Extent2D { width: 1280, height: 720 },
            samples: Samples::default(),
            frames: None,
            output: None,
            record: None,
            record_side: FilmDesc::SIDE,
            camera: None,
            trace: None,
            present: PresentMode::Fifo,
            overlay: OverlayMode::On,
            style: Style::default(),
            color_map: ColorMap::default(),
            speed: 1.0,
            wait: Wait::default(),
            timeout: Duration::from_secs(10),
            validation: Validation::Off,
            verify: false,
            broken: None,
        }
    }
}

/// A request to stop, shared with a signal handler. Clones share one request.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks the run to end after the current frame.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether [`Stop::request`] was called.
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
