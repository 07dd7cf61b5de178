//! The application: choose a device, make an engine, run its frames in a window or without one.

mod companion;
mod config;
mod early;
mod engine;
mod filmed;
mod headless;
pub mod parse;
mod picture_file;
mod scene;
mod select;
mod summary;
mod traced;
mod verification;
mod watchdog;
mod windowed;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use crate::scene::Scene;
pub use companion::Parameters;
pub(crate) use companion::{Companion, CompanionDesc};
pub use config::{Config, DIAGNOSIS, HOW, OUTPUT, RISK, WHAT};
pub(crate) use early::EarlyContext;
pub use early::EarlyDriver;
#[cfg(target_os = "linux")]
pub(crate) use engine::Installed;
pub use engine::{Batching, Engine, FrameTiming, Moment};
pub(crate) use engine::{Found, SlotNow};
pub use headless::{Headless, run_headless};
pub use picture_file::write_png;
pub use select::{Choice, DeviceTable};
pub use summary::{Ended, FrameTimes, Summary};
pub use verification::{VERIFY_SCHEMA, Verdict, Verification, write_verification};
#[cfg(target_os = "linux")]
pub(crate) use windowed::run_with;
pub use windowed::{EventLoop, run_windowed};

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
    pub fn may_use_cuda(self) -> bool {
        matches!(self, Self::Auto | Self::Cuda)
    }
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

/// A request to stop, shared with a signal handler. Clones share one request.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks the run to end after the current frame.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
