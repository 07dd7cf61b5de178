//! `wavefield serve`: draws what a client in *another process* writes, and trusts it with nothing.
//!
//! The protocol is written down in `docs/protocol.md`. Read the code in this order:
//!
//! | file | what it is |
//! |---|---|
//! | [`protocol`] | the messages, as version 2 has them |
//! | `described`, `wishes` | what they say of an array, of parameters and the camera, checked: pure |
//! | `version_1` | what version 1 has otherwise |
//! | [`session`] | what a client may say when, and what follows: pure |
//! | [`ledger`] | which frame is shown, which slot is free, what is a lie: pure |
//! | `folder` | where the socket lies, and that nobody else can put one there |
//! | [`listener`] | the socket's file, and the lock beside it |
//! | [`socket`] | connections: who is at the other end, packets and descriptors |
//! | `door` | accepts, and listens to newcomers until they have said hello, on threads of its own |
//! | `memory` | what a client is given, made anew for each |
//! | `welcome` | gives it to a newcomer, and says where it lies |
//! | `client` | the client that has the seat: hears it, and tells it things |
//! | `requests` | what it can ask for: kernels, memory, pictures, parameters, the state |
//! | `imports` | has memory that clients bring tried ([`crate::trial`]) on a thread of its own, and imports it |
//! | `foreign` | the [`Producer`](crate::producer::Producer) that stands for a client |
//! | `kernels` | has the kernels that clients send tried ([`crate::trial`]) and compiled, on a thread of its own |
//! | `parent` | ends with the program that started this one |
//! | `exchange` | which producer is in the engine: the renderer's own, a client's ring, a client's kernel |
//! | `stamps` | `--verify`: did a client stamp its frames? |
//! | `pace`, `report` | how evenly frames came, and what they cost: measured, printed, written |
//! | `host` | the render thread's side, which ties all this: a look at the client between two frames |
//!
//! The rule that everything follows: the render thread waits for the GPU, and the GPU for its own work, never for a client. A
//! semaphore that a client signals is *read* (a look at a counter), and what it guards is submitted only afterwards.

mod absent;
mod client;
mod described;
mod door;
mod exchange;
mod folder;
mod foreign;
#[cfg(test)]
mod fuzz;
mod headless;
mod host;
mod imports;
mod kernels;
pub mod ledger;
pub mod listener;
mod memory;
mod pace;
mod parent;
pub mod protocol;
mod report;
mod requests;
pub mod session;
pub mod socket;
mod stamps;
mod version_1;
mod welcome;
mod windowed;
mod wishes;

use std::path::PathBuf;
use std::time::Duration;

use crate::app::{Choice, Config, Scene, Stop};
use crate::{Error, Result};

use door::Door;
use listener::Listener;

pub use folder::default_path;
pub use headless::serve_headless;
pub use parent::end_when_closed;
pub use windowed::serve_windowed;

/// What is asked of `serve` besides what every run is told.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen; [`default_path`] if nothing is said.
    pub socket: Option<PathBuf>,
    /// The socket's folder goes with the socket, if it is empty then: for whoever makes a folder for one renderer.
    pub remove_folder: bool,
    /// Let Vulkan wait for a client's semaphore without looking first: only to measure what looking costs.
    pub trust: bool,
    /// Draws a second without anything new to draw, headless; 0: as many as can be.
    pub pace: f64,
    /// Where to write what was measured, as JSON.
    pub json: Option<PathBuf>,
    /// The program that tries each kernel and each import of a client, in a process of its own: a `wavefield` of the same release,
    /// started as `wavefield try-kernel` or `try-import`. `wavefield serve` names itself, by `/proc/self/exe`, which is right even where the
    /// file was replaced or deleted since. Another program that calls this library must not, for it would start *itself* once
    /// more; it names an installed `wavefield`. Without one kernels and imports are refused. Starting it marks every descriptor of this
    /// process from 3 on as one to be closed in whatever is started (`FD_CLOEXEC`).
    pub try_with: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self { socket: None, remove_folder: false, trust: false, pace: 60.0, json: None, try_with: None }
    }
}

/// How the renderer was started.
struct Setup {
    choice: Choice,
    config: Config,
    options: Options,
}

/// Refuses what a client cannot fill.
fn check_scene(config: &Config) -> Result<()> {
    match config.scene {
        Scene::Field => Ok(()),
        Scene::Texture => Err(Error::Usage(
            "serve draws the vertices that a client writes, and --scene texture has none: leave it out"
                .into(),
        )),
    }
}

/// Begins to listen, as asked for.
fn listen(options: &Options, stop: &Stop) -> Result<Door> {
    let listener = Listener::bind(options.socket.as_deref())?;
    if options.remove_folder {
        listener.remove_folder_too();
    }
    Door::open(listener, rustix::process::getuid().as_raw(), stop).map_err(|error| {
        Error::Unsupported(format!("the thread for the socket could not be started: {error}"))
    })
}

/// Seconds of the field between two frames, as far as a client is told.
const FRAME_SECONDS: f64 = 1.0 / 60.0;

/// [`FRAME_SECONDS`] on the clock: a draw that comes later is late.
fn frame_time() -> Duration {
    Duration::from_secs_f64(FRAME_SECONDS)
}
