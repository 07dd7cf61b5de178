//! The thread that serves all pages with a single `poll`. It never waits for one page.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;
use tungstenite::Message as Packet;

use super::picture::ShownPicture;
use super::request::{self, Gate, RequestOutcome};
use super::viewer::{Left, Viewer, is_for_later};
use super::{ViewerEvent, ViewerInput, WebShared};
use wavefield_gpu::threads::Job;

const MOST_VIEWERS: usize = 16;
/// The maximum number of connections that have not sent the token, because anybody can connect. Beyond it,
/// the oldest are closed.
const MOST_PENDING: usize = 256;
/// The pause after a system error, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);
/// How long to wait for the pages to read that the renderer has ended.
const FAREWELL: Duration = Duration::from_secs(1);
/// While this many inputs wait for the frame loop, the server does not read from the pages.
const MANY_INPUTS: usize = 256;

enum PendingConnection {
    /// A connection, and the part of its request that has arrived.
    Request(TcpStream, Vec<u8>),
    /// A page, and whether it has sent the token.
    Page(Box<Viewer>, bool),
}

impl PendingConnection {
    fn stream(&self) -> &TcpStream {
        match self {
            Self::Request(stream, _) => stream,
            Self::Page(viewer, _) => viewer.stream(),
        }
    }

    /// Reads and handles what has arrived. Returns `None` if the connection was answered or closed.
    fn read(self, gate: &Gate) -> Option<Self> {
        let (mut stream, mut heard) = match self {
            Self::Request(stream, heard) => (stream, heard),
            Self::Page(mut viewer, _) => {
                let is_known = viewer.is_known(gate).ok()?;
                return Some(Self::Page(viewer, is_known));
            }
        };
        let mut bytes = [0; 1024];
        match stream.read(&mut bytes) {
            Err(error) if is_for_later(&error) => return Some(Self::Request(stream, heard)),
            Ok(0) | Err(_) => return None,
            Ok(count) => heard.extend_from_slice(&bytes[..count]),
        }
        // Any of the answers fits in the send buffer of a new connection, so this does not wait.
        match gate.judge(&heard) {
            RequestOutcome::Wait => Some(Self::Request(stream, heard)),
            RequestOutcome::Answer(answer) => stream.write_all(answer.as_bytes()).err().and(None),
            RequestOutcome::Accept { answer, length, proof } => {
                stream.write_all(answer.as_bytes()).ok()?;
                let mut viewer = Viewer::new(stream, heard.split_off(length));
                viewer.send_text(proof).ok()?;
                Some(Self::Page(Box::new(viewer), false))
            }
        }
    }
}

/// Keeps the viewers for which `each` succeeds. Returns releases of the buttons that removed viewers hold.
fn keep(
    viewers: &mut Vec<Viewer>,
    mut each: impl FnMut(&mut Viewer) -> Result<(), Left>,
) -> Vec<ViewerInput> {
    let left = viewers.extract_if(.., |viewer| each(viewer).is_err());
    left.flat_map(|viewer| viewer.releases()).collect()
}

pub(crate) struct Server {
    listeners: Vec<TcpListener>,
    gate: Gate,
    /// The connections that have not sent the token yet, oldest first.
    pending: Vec<PendingConnection>,
    shared: Arc<WebShared>,
    viewers: Vec<Viewer>,
    shown: Option<ShownPicture>,
    title: String,
    /// The pixels per point of the page that last set the size.
    scale: f32,
}

impl Server {
    pub(crate) fn new(listeners: Vec<TcpListener>, gate: Gate, shared: Arc<WebShared>) -> Self {
        let (pending, viewers, title) = (Vec::new(), Vec::new(), String::new());
        Self { listeners, gate, pending, shared, viewers, shown: None, title, scale: 1.0 }
    }

    /// Lets in the viewer of a socket pair, which is sent the page first. If that fails, the next message fails too.
    pub(crate) fn show_to(&mut self, stream: TcpStream) {
        let mut viewer = Viewer::new(stream, Vec::new());
        let _ = viewer.send_text(request::PAGE);
        self.let_in(viewer);
    }

    pub(crate) fn begin(self) -> wavefield_gpu::Result<Job<()>> {
        Job::begin("web", move |_| {
            self.run();
            Ok(())
        })
    }

    fn run(mut self) {
        while !self.shared.lock().is_over {
            self.wait();
            self.accept();
            self.read_pages();
            self.take();
            self.show();
        }
        self.send_all(&json!({ "ended": true }));
        // Let the pages close first: a page that sends to a closed connection loses what it has not read.
        self.viewers.retain_mut(|viewer| viewer.send(Packet::Close(None)).is_ok());
        let until = Instant::now() + FAREWELL;
        while !self.viewers.is_empty() && Instant::now() < until {
            std::thread::sleep(PAUSE / 10);
            self.viewers.retain_mut(|viewer| {
                viewer.flush().is_ok() && viewer.read_inputs(&mut vec![], &mut 1.0).is_ok()
            });
        }
    }

    fn wait(&self) {
        let hears = self.shared.lock().inputs.len() < MANY_INPUTS;
        let viewers = self.viewers.iter().map(|viewer| (viewer.stream(), viewer.interest(hears)));
        // `poll` reports a hang-up even for a stream without flags, and that would end every wait at once.
        let viewers = viewers.filter(|(_, flags)| !flags.is_empty());
        let pending = self.pending.iter().map(|connection| (connection.stream(), PollFlags::IN));
        let patience = self.viewers.iter().map(|viewer| viewer.patience(self.shown.as_ref())).min();
        let limit = patience.and_then(|patience| Timespec::try_from(patience).ok());
        let streams = viewers.chain(pending).map(|(stream, flags)| PollFd::new(stream, flags));
        let listeners = self.listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN));
        let wake = PollFd::new(&self.shared.wake, PollFlags::IN);
        let _ = poll(&mut streams.chain(listeners).chain([wake]).collect::<Vec<_>>(), limit.as_ref());
        let _ = rustix::io::read(&self.shared.wake, &mut [0; 8]);
    }

    fn accept(&mut self) {
        for listener in &self.listeners {
            // The limit keeps a flood of connections from delaying the viewers.
            for _ in 0..MOST_PENDING {
                let prepare = |(stream, _): (TcpStream, _)| {
                    stream.set_nonblocking(true).and(stream.set_nodelay(true)).map(|()| stream)
                };
                match listener.accept().and_then(prepare) {
                    Ok(stream) => self.pending.push(PendingConnection::Request(stream, Vec::new())),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(_) => {
                        std::thread::sleep(PAUSE);
                        break;
                    }
                }
            }
        }
        for connection in std::mem::take(&mut self.pending) {
            match connection.read(&self.gate) {
                Some(PendingConnection::Page(viewer, true)) => self.let_in(*viewer),
                connection => self.pending.extend(connection),
            }
        }
        self.pending.drain(..self.pending.len().saturating_sub(MOST_PENDING));
    }

    fn let_in(&mut self, mut viewer: Viewer) {
        let has_room = self.viewers.len() < MOST_VIEWERS;
        let news = if has_room { json!({ "title": self.title }) } else { json!({ "full": true }) };
        if viewer.send_text(news).is_ok() && has_room {
            self.viewers.push(viewer);
        }
    }

    /// Reads from the pages, starting with a different page each time.
    fn read_pages(&mut self) {
        let room = MANY_INPUTS.saturating_sub(self.shared.lock().inputs.len());
        let (mut inputs, scale) = (Vec::new(), &mut self.scale);
        if let Some(first) = self.viewers.len().checked_sub(1) {
            self.viewers.rotate_right(first.min(1));
        }
        let released = keep(&mut self.viewers, |viewer| match inputs.len() < room {
            true => viewer.read_inputs(&mut inputs, scale),
            false => Ok(()),
        });
        // The releases must come after the presses of this turn.
        inputs.extend(released);
        self.shared.add_inputs(inputs);
    }

    fn take(&mut self) {
        let mut state = self.shared.lock();
        let (pixels, told) = (state.picture.take(), std::mem::take(&mut state.told));
        drop(state);
        if let Some(pixels) = pixels
            && self.shown.as_ref().is_none_or(|shown| shown.pixels != pixels)
        {
            let number = self.shown.as_ref().map_or(0, |shown| shown.number.wrapping_add(1));
            self.shown = Some(ShownPicture::new(number, pixels));
        }
        for (news, presser) in told {
            match news {
                ViewerEvent::Title(title) => {
                    self.send_all(&json!({ "title": title }));
                    self.title = title;
                }
                // Send this only to the viewer that asked. If sending fails, the next message to that viewer
                // fails too.
                ViewerEvent::Copy(text) => {
                    for viewer in self.viewers.iter_mut().filter(|viewer| viewer.number == presser) {
                        let _ = viewer.send_text(json!({ "copy": text }));
                    }
                }
            }
        }
    }

    fn send_all(&mut self, news: &serde_json::Value) {
        self.shared.add_inputs(keep(&mut self.viewers, |viewer| viewer.send_text(news)));
    }

    fn show(&mut self) {
        self.shared.add_inputs(keep(&mut self.viewers, |viewer| viewer.show(self.shown.as_mut())));
        self.shared.lock().is_watched = self.viewers.iter().any(|viewer| viewer.is_visible);
    }
}
