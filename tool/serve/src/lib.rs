//! `wavefield serve`: draws what a client in *another process* writes, without trusting that client.
//!
//! `docs/protocol.md` describes the protocol. Read the code in this order:
//!
//! | file | what it is |
//! |---|---|
//! | [`protocol`] | the messages |
//! | `array_description`, `settings` | an array, the parameters and the camera in a message; pure |
//! | [`session`] | what a client may say when, and what the renderer does then; pure |
//! | [`frame_ledger`] | which frame is shown, which slot is free, which claims are false; pure |
//! | [`listener`] | the socket's file, its folder, which only its user can write to, and the lock beside it |
//! | `fd_reaper` | closes what came from clients, on a thread of its own |
//! | [`socket`] | connections: who is at the other end, packets and descriptors |
//! | `acceptor` | accepts connections, and reads each `hello` once it is there |
//! | `memory` | a client's memory, new for each client |
//! | `handshake` | makes that memory for a newcomer, and says where it lies |
//! | `client` | the client whose frames are drawn: reads its messages and sends it others |
//! | `requests` | its requests: memory (imports are tried in a child process), pictures, parameters, the state |
//! | `renders` | pictures for its own program, in its allocations |
//! | `client_producer` | the [`Producer`](wavefield_handoff::producer::Producer) of a client's frames |
//! | `until_closed` | ends the renderer with the program that started it |
//! | `stuck_draw` | waits for the GPU while it draws an array that takes too long |
//! | `stamps` | `--verify`: did a client stamp its frames? |
//! | `statistics` | frame times and CPU time: measured, printed, written |
//! | `serve_hook` | the render thread's part, which uses all of the above |
//! | `headless` | the entries: without a window, and with one |
//!
//! One rule holds everywhere: the render thread waits for the GPU, and the GPU for its own work, but never
//! for a client. It *reads* the counter of a client's semaphore, and only then submits what it guards.

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
    /// `None` means [`default_path`].
    pub socket: Option<PathBuf>,
    /// Removes the socket's folder too, if it is empty. For a program that makes a folder for one renderer.
    pub remove_folder: bool,
    /// Headless: draws per second while nothing is new. 0 means 60 while a client draws, otherwise no limit.
    pub pace: f64,
    /// Where to write measurements, as JSON.
    pub json: Option<PathBuf>,
}

struct ServeSetup {
    choice: Choice,
    config: Config,
    options: ServeOptions,
}

fn listen(config: &Config, options: &ServeOptions, stop: &Stop) -> Result<Acceptor> {
    if config.scene == Scene::Texture {
        return Err(Error::Usage(
            "serve draws the vertices that a client writes, and --scene texture has none: leave it out"
                .into(),
        ));
    }
    let listener = Listener::bind(options.socket.as_deref())?;
    if options.remove_folder {
        listener.remove_folder_too();
    }
    Acceptor::open(listener, rustix::process::getuid().as_raw(), stop)
}

/// Seconds of the field between two frames: `frame_seconds` in `welcome`.
const FRAME_SECONDS: f64 = 1.0 / 60.0;

/// A longer gap between two draws counts as late.
fn frame_time() -> Duration {
    Duration::from_secs_f64(FRAME_SECONDS)
}

#[cfg(any(test, fuzzing))]
pub mod tests;
