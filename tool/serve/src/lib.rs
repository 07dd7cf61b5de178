//! `wavefield serve`: draws what a client in *another process* writes, without trusting that client.
//!
//! `docs/protocol.md` describes the protocol. Read the code in this order ("pure" means: no sockets and no
//! GPU):
//!
//! | file | what it is |
//! |---|---|
//! | [`protocol`] | the messages |
//! | `array_description`, `settings` | how messages describe arrays, parameters and the camera; pure |
//! | [`session`] | which messages a client may send when, and what the renderer then does; pure |
//! | [`frame_ledger`] | which frame is shown, which slots are free, what no correct client sends; pure |
//! | [`listener`] | the socket file, its default folder, and the lock file |
//! | `fd_reaper` | closes descriptors that came from clients, on a thread of its own |
//! | [`socket`] | connections: the peer's identity, packets and descriptors |
//! | `acceptor` | accepts connections, and reads each `hello` once it has arrived |
//! | `memory` | a client's memory, allocated anew for each client |
//! | `handshake` | allocates that memory for a new client, and sends the `welcome` that describes it |
//! | `client` | the client whose frames are drawn: receives its messages and sends the answers |
//! | `requests` | handles requests: memory (a child process tries imports), pictures, parameters, the state |
//! | `renders` | renders pictures into a client's allocations, for the client's own use |
//! | `client_producer` | the [`Producer`](wavefield_handoff::producer::Producer) of a client's frames |
//! | `until_closed` | stops the renderer when the program that started it ends |
//! | `stuck_draw` | waits for the GPU when drawing an array takes too long |
//! | `stamps` | `--verify`: reports wrong stamps, and clients that do not stamp their frames |
//! | `statistics` | measures, prints and writes frame times and CPU time |
//! | `serve_hook` | what the render thread does between two frames, with all of the above |
//! | `headless` | the entry points: without a window, and with one |
//!
//! One rule holds everywhere: the render thread waits only for the GPU, and the GPU only for its own work.
//! Neither waits for a client. The render thread *reads* the counter of a client's semaphore, and submits a
//! draw only once the counter allows it.

#![warn(unreachable_pub)]
#![cfg(target_os = "linux")]

mod acceptor;
mod array_description;
mod client;
mod client_producer;
mod fd_reaper;
pub mod frame_ledger;
mod handshake;
mod headless;
pub mod listener;
mod memory;
pub mod protocol;
mod renders;
mod requests;
mod serve_hook;
pub mod session;
mod settings;
pub mod socket;
mod stamps;
mod statistics;
mod stuck_draw;
mod until_closed;

use std::path::PathBuf;
use std::time::Duration;

use wavefield_gpu::{Error, Result};
use wavefield_run::{Choice, Config, Scene, Stop};

use acceptor::Acceptor;
use listener::Listener;

pub use headless::{serve_headless, serve_windowed};
pub use listener::default_path;
pub use until_closed::end_when_closed;

#[derive(Clone, Debug)]
pub struct ServeOptions {
    pub socket: PathBuf,
    /// Whether to remove the socket's folder at the end too, if it is empty. For a program that creates a
    /// folder for one renderer.
    pub remove_folder: bool,
    /// Without a window: the draws per second while no new frame is ready. 0 means 60 while a client's frames
    /// are shown, and no limit otherwise.
    pub pace: f64,
    /// The JSON file to which measurements are written.
    pub json: Option<PathBuf>,
}

struct ServeSetup {
    choice: Choice,
    config: Config,
    options: ServeOptions,
    /// Whether people see the field, in a window or a browser.
    window: bool,
}

fn listen(config: &Config, options: &ServeOptions, stop: &Stop) -> Result<Acceptor> {
    if config.scene == Scene::Texture {
        return Err(Error::Usage(
            "serve draws the vertices that a client writes, and --scene texture has none: leave it out"
                .into(),
        ));
    }
    let listener = Listener::bind(&options.socket, options.remove_folder)?;
    Acceptor::open(listener, rustix::process::getuid().as_raw(), stop)
}

/// The time step of the field between two frames, in seconds: `frame_seconds` in `welcome`.
const FRAME_SECONDS: f64 = 1.0 / 60.0;

/// Returns [`FRAME_SECONDS`] as a duration. A longer gap between two draws is reported as late.
fn frame_time() -> Duration {
    Duration::from_secs_f64(FRAME_SECONDS)
}

#[cfg(any(test, fuzzing))]
pub mod tests;
