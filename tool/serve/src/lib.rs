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

use clap::Args;
use wavefield_gpu::{Error, Result};
use wavefield_run::{Choice, Config, HOW, OUTPUT, Scene, Stop, parse};

use acceptor::Acceptor;
use listener::Listener;

pub use headless::{serve_headless, serve_windowed};
pub use listener::default_path;
pub use until_closed::end_when_closed;

// An option's doc comment is its help.
#[derive(Args, Clone, Debug)]
pub struct ServeOptions {
    /// Listen here [default: $XDG_RUNTIME_DIR/wavefield.sock, or /tmp/wavefield-UID/wavefield.sock].
    #[arg(long, value_name = "PATH", help_heading = HOW)]
    pub socket: Option<PathBuf>,
    /// End when the other end of this inherited pipe or socket closes, that is, when the program that
    /// started this one ends. Then the socket's folder is removed if it is empty.
    #[arg(long, value_name = "FD", value_parser = parse::whole(0, i32::MAX as u64), allow_hyphen_values = true, help_heading = HOW)]
    pub until_closed: Option<u64>,
    // 0 means 60 while a client's frames are shown, and no limit otherwise.
    /// Headless, with --frames or --verify: draws per second while there is nothing new; 0 draws without a pause.
    #[arg(long, value_name = "HZ", default_value = "60", value_parser = parse::pace, allow_hyphen_values = true, help_heading = HOW)]
    pub pace: f64,
    /// Write the measurements of each client as JSON.
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub json: Option<PathBuf>,
}

struct ServeSetup {
    choice: Choice,
    config: Config,
    options: ServeOptions,
    /// Whether people see the field, in a window or a browser.
    window: bool,
}

impl ServeOptions {
    fn socket(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(default_path)
    }
}

fn listen(config: &Config, options: &ServeOptions, stop: &Stop) -> Result<Acceptor> {
    if config.scene == Scene::Texture {
        return Err(Error::Usage(
            "serve draws the vertices that a client writes, and --scene texture has none: leave it out"
                .into(),
        ));
    }
    let listener = Listener::bind(&options.socket(), options.until_closed.is_some())?;
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
