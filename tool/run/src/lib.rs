//! Draws frames without a window: reads the settings, chooses a device, runs producer and renderer.
//!
//! - `config`, [`parse`]: the settings of a run, and how options are read
//! - `select`: chooses a device; `startup`: starts both drivers at the same time
//! - `scene`: makes a producer from the settings
//! - `engine`: draws one frame after another
//! - [`watch`]: checks every vertex, records times and pictures
//! - `headless`: the loop without a window
//! - `trace_file`, `picture_file`, `summary`, `verification`: the results of a run
//! - `frame_hook`: lets `serve` work on the engine between two frames
//! - `child_process`: tries kernels and imports that might end a process in a child process first

#![warn(unreachable_pub)]

#[cfg(target_os = "linux")]
pub mod child_process;
mod client_panel;
mod config;
mod engine;
mod frame_hook;
mod headless;
pub mod parse;
mod picture_file;
mod scene;
mod select;
mod startup;
mod summary;
mod trace_file;
mod verification;
pub mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use client_panel::{ClientPanel, Control, PanelEntry, PanelEvent, PanelValue, PanelWish};
pub use config::{Config, DIAGNOSIS, HOW, OUTPUT, RISK, WHAT};
#[cfg(target_os = "linux")]
pub use engine::ParkedProducer;
pub use engine::{
    AfterDraw, Batching, Drawer, Engine, FoundElement, FrameTiming, Moment, Observers, SlotNow, Work,
};
pub use frame_hook::{FrameHook, FrameHookDesc, Parameters};
pub use headless::{Headless, STEP, announce, check_picture, run_headless};
pub use picture_file::{picture_texts, write_png};
pub use select::{Choice, DeviceTable};
pub use startup::{ContextThread, DriverThread};
pub use summary::{Ended, FrameTimes, RunSummary};
pub use trace_file::Traced;
pub use verification::{VERIFY_SCHEMA, Verdict, Verification};
pub use wavefield_handoff::contents::scene::Scene;

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
    /// Only the scale of the colours, and the value under the pointer. In `serve` it also means that clients'
    /// arrays do not move by themselves: there is nothing to pause.
    Legend,
    /// Nothing.
    Off,
}

/// A request to stop, shared with a signal handler. Clones share the request.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
