//! A window in a browser: pictures go out over a WebSocket, input comes back.
//!
//! - `request`: decides who may connect; `page.html`: the page
//! - `message`: parses and checks the messages of a page
//! - `picture`: encodes JPEG; `viewer`: chooses the time and the quality of a page's pictures
//! - `server`: the thread that serves all pages
//! - `offscreen`: the window that the pages show
//!
//! The frame loop never waits for a page. A page gets the newest picture once it has received the previous
//! one, so a slow link gets fewer pictures, in lower quality. A page cannot read files or send kernels.

#![cfg(target_os = "linux")]

mod message;
mod offscreen;
mod picture;
mod request;
mod server;
mod viewer;

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use egui::Event;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

pub use self::offscreen::run_remote;
use self::request::Gate;
use self::server::Server;
use crate::Input;
use wavefield_gpu::{Error, Result, threads::Job};
use wavefield_run::watch::recording::Pixels;

#[derive(Clone, Debug, PartialEq)]
pub enum ViewerEvent {
    Title(String),
    /// A text for the clipboard.
    Copy(String),
}

/// The number of a viewer, and its input.
type ViewerInput = (u64, Input);

struct WebShared {
    state: Mutex<WebState>,
    /// Wakes the frame loop when there is input.
    news: Condvar,
    wake: OwnedFd,
}

#[derive(Default)]
struct WebState {
    inputs: Vec<ViewerInput>,
    /// The newest picture, until the server takes it.
    picture: Option<Pixels>,
    /// Events to send, each with the number of the viewer that last pressed a key or a button.
    told: Vec<(ViewerEvent, u64)>,
    is_watched: bool,
    is_over: bool,
}

impl WebShared {
    fn new() -> rustix::io::Result<Arc<Self>> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self { state: Mutex::default(), news: Condvar::new(), wake }))
    }

    fn lock(&self) -> MutexGuard<'_, WebState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // Fails only if the counter overflows, after 2^64 writes without a read.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn add_inputs(&self, mut inputs: Vec<ViewerInput>) {
        if !inputs.is_empty() {
            self.lock().inputs.append(&mut inputs);
            self.news.notify_all();
        }
    }
}

/// A renderer's page for several viewers. Dropping it tells the viewers that the renderer has ended.
pub struct Web {
    shared: Arc<WebShared>,
    server: Option<Job<()>>,
    /// Port 0 if nobody can connect: see [`Web::through`].
    address: SocketAddr,
    token: String,
    /// The number of the viewer that last pressed a key or a button.
    presser: u64,
}

impl Web {
    /// Listens at `address`; for 127.0.0.1 or ::1, at both. `is_exposed` must be true exactly if other
    /// machines can reach the address. Nothing is encrypted. Fails if the address is in use or not allowed.
    pub fn open(address: SocketAddr, is_exposed: bool) -> Result<Self> {
        if address.ip().is_loopback() == is_exposed {
            return Err(Error::Usage(match is_exposed {
                true => format!(
                    "--web-exposed has no effect: only this machine can reach {address}. Leave it out"
                ),
                false => format!(
                    "--web {address} would let other machines connect, and the connection is not encrypted: add --web-exposed \
                     if that is meant. Without it, `ssh -L` brings a loopback address to another machine, encrypted"
                ),
            }));
        }
        let mut tried = address;
        let mut listeners = listen(&mut tried);
        // The port that the system chooses for one loopback address may be taken at the other: try again.
        for _ in 0..9 {
            if address.port() == 0 && listeners.is_err() {
                tried = address;
                listeners = listen(&mut tried);
            }
        }
        let failed = |error: std::io::Error| {
            let other = SocketAddr::new(address.ip(), tried.port().wrapping_add(1));
            let advice = match error.kind() {
                ErrorKind::AddrInUse => format!("; use another port, such as {other}"),
                ErrorKind::AddrNotAvailable => "; it must be an address of this machine".into(),
                _ => String::new(),
            };
            Error::Unsupported(format!("--web cannot listen at {tried}: {error}{advice}"))
        };
        let listeners = listeners.map_err(failed)?;
        let address = listeners[0].local_addr().map_err(failed)?;
        let token = token().map_err(|error| failed(error.into()))?;
        let shared = WebShared::new().map_err(|error| failed(error.into()))?;
        let server = Server::new(listeners, Gate { token: token.clone(), is_exposed }, shared.clone());
        Ok(Self { shared, server: Some(server.begin()?), address, token, presser: 0 })
    }

    /// Shows the window to one viewer only, at the other end of this stream, a socket pair. The viewer speaks as a page
    /// does once it is let in, and its first message is the page.
    pub fn through(stream: OwnedFd) -> Result<Self> {
        let failed = |error: std::io::Error| Error::Unsupported(format!("--viewer: {error}"));
        // A `TcpStream` only receives and sends, which is the same for all streams.
        let stream = TcpStream::from(stream);
        stream.set_nonblocking(true).map_err(failed)?;
        let shared = WebShared::new().map_err(|error| failed(error.into()))?;
        let gate = Gate { token: String::new(), is_exposed: false };
        let mut server = Server::new(Vec::new(), gate, shared.clone());
        server.show_to(stream);
        let (server, token) = (Some(server.begin()?), String::new());
        let address = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        Ok(Self { shared, server, address, token, presser: 0 })
    }

    /// Returns the page's URL with the viewers' token. Browsers do not send the part after the `#`.
    pub fn url(&self) -> String {
        let host = match self.address.ip().is_unspecified() {
            true => format!("{}:{}", host_name(), self.address.port()),
            false => self.address.to_string(),
        };
        format!("http://{host}/#token={}", self.token)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn inputs(&mut self) -> Vec<Input> {
        let inputs = std::mem::take(&mut self.shared.lock().inputs);
        if !inputs.is_empty() {
            // There is room for input again, so wake the server to read from the pages.
            self.shared.wake();
        }
        let is_press =
            |input: &Input| matches!(input, Input::Event(Event::PointerButton { .. } | Event::Key { .. }));
        self.presser =
            inputs.iter().rfind(|(_, input)| is_press(input)).map_or(self.presser, |(viewer, _)| *viewer);
        inputs.into_iter().map(|(_, input)| input).collect()
    }

    pub fn is_watched(&self) -> bool {
        self.server.as_ref().is_some_and(|server| !server.is_done()) && self.shared.lock().is_watched
    }

    /// Sends a picture, in sRGB RGBA, to the viewers. Does not wait.
    pub fn send(&mut self, picture: Pixels) {
        self.shared.lock().picture = Some(picture);
        self.shared.wake();
    }

    pub fn send_event(&mut self, event: ViewerEvent) {
        self.shared.lock().told.push((event, self.presser));
        self.shared.wake();
    }

    /// Waits until there is input, or until the time `until`.
    pub fn wait(&mut self, until: Instant) {
        let state = self.shared.lock();
        let left = until.saturating_duration_since(Instant::now());
        drop(self.shared.news.wait_timeout_while(state, left, |state| state.inputs.is_empty()));
    }
}

pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns 128 random bits as hexadecimal digits.
fn token() -> rustix::io::Result<String> {
    let mut bytes = [0u8; 16];
    // A request for up to 256 bytes is never answered in part: see getrandom(2).
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

/// Listens at both 127.0.0.1 and ::1 if `address` is one of them: `localhost` may mean either, and another
/// user could listen at the one that is left free. Sets `address` to the last address that was tried.
fn listen(address: &mut SocketAddr) -> std::io::Result<Vec<TcpListener>> {
    let bind = |address: SocketAddr| {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true).map(|()| listener)
    };
    let first = bind(*address)?;
    *address = first.local_addr()?;
    match address.ip() {
        ip if ip == Ipv4Addr::LOCALHOST => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        ip if ip == Ipv6Addr::LOCALHOST => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        _ => return Ok(vec![first]),
    }
    let second = bind(*address);
    match second.as_ref().err().and_then(Errno::from_io_error) {
        Some(Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT) => Ok(vec![first]),
        _ => Ok(vec![first, second?]),
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.wake();
        let _ = self.server.take().map(Job::finish);
    }
}

/// Entry points for the fuzz target.
#[cfg(fuzzing)]
pub mod fuzzing {
    use super::message::Message;
    use super::request::{Gate, RequestOutcome};
    use crate::Input;

    pub use egui::Event;

    pub fn inputs(text: &str, scale: f32) -> Option<Vec<Input>> {
        Some(Message::read(text)?.inputs(scale))
    }

    /// Returns the answer and, if accepted, the request's length and the proof; `None` if it is incomplete.
    pub fn judge(bytes: &[u8], is_exposed: bool) -> Option<(String, Option<(usize, String)>)> {
        match (Gate { token: "token".into(), is_exposed }).judge(bytes) {
            RequestOutcome::Wait => None,
            RequestOutcome::Answer(answer) => Some((answer, None)),
            RequestOutcome::Accept { answer, length, proof } => Some((answer, Some((length, proof)))),
        }
    }
}
