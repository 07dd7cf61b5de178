//! The client that has the seat: the render thread hears it between two frames, and tells it things. Waits for neither.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::door::Seated;
use super::foreign::Shared;
use super::imports::Import;
use super::memory::ClientMemory;
use super::protocol::{
    ErrorCode, FromServer, MemoryKind, Parameters, Request, Tagged, Version, encode, short,
};
use super::session::{Action, Fault, Session, Terms};
use super::socket::{Connection, Received, discard, take_leave};
use super::version_1;
use crate::app::Config;
use crate::render::{Camera, Drawing};
use crate::{Result, note};

/// How long the last frames of a client that said goodbye may take.
const FAREWELL: Duration = Duration::from_secs(1);
/// Failed requests of one client that are worth a line, and how long that may be in bytes; the client gets all of it.
const MAX_COMPLAINTS: u32 = 20;
const MAX_NOTE: usize = 1000;
const CLOSED: &str = "its connection closed";
/// Answers that wait for an import, beyond which the client is not heard.
const MAX_LATER: usize = 64;
/// How often `ready` is read while frames come in quick succession, and while they do not.
const QUICK: Duration = Duration::from_micros(50);
const CALM: Duration = Duration::from_millis(1);
/// How long after a client's last frame the next one is looked for quickly.
const QUICK_FOR: Duration = Duration::from_millis(100);

/// A client, from its `welcome` to its end.
pub(super) struct Client {
    pub(super) name: String,
    pub(super) connection: Arc<Connection>,
    pub(super) shared: Rc<RefCell<Shared>>,
    version: Version,
    /// Its kernel that is being tried and compiled.
    pub(super) compiling: Option<Request>,
    /// Its kernel that was put into the engine, until the client has been told that it runs.
    pub(super) starting: Option<Starting>,
    /// The picture that it asked for and has not got yet.
    pub(super) wants_picture: Option<WantedPicture>,
    /// One heavy request a frame is enough.
    pub(super) busy: bool,
    /// When it said goodbye: what it made ready before is still shown.
    pub(super) leaving: Option<Instant>,
    /// What draws its arrays.
    pub(super) drawing: Drawing,
    /// Where it wants the camera, until something of it is drawn. `None`: where it usually is.
    pub(super) camera: Option<Camera>,
    /// The parameters that it knows, its own included, and those of its kernel.
    pub(super) told: (Parameters, BTreeMap<String, f32>),
    /// When something new of it was last drawn.
    pub(super) last_new: Instant,
    /// When the frame on show was first drawn, in nanoseconds of `CLOCK_MONOTONIC`.
    pub(super) shown_at: Option<u64>,
    /// Memory of it that is being tried.
    pub(super) import: Option<Import>,
    /// What it is told once that is done: answers come in the order of the requests.
    later: Vec<(Vec<u8>, Vec<OwnedFd>)>,
    /// One of these is a picture.
    pub(super) picture_later: bool,
    /// Why it is to be dropped.
    ended: Option<Ended>,
    complaints: u32,
    _seat: Seated,
}

/// A kernel whose first frame is not drawn yet.
#[derive(Clone, Copy)]
pub(super) struct Starting {
    /// When it was put into the engine, in frames drawn.
    pub(super) since: u64,
    pub(super) request: Request,
}

/// A picture that a client waits for.
#[derive(Clone, Copy)]
pub(super) struct WantedPicture {
    pub(super) request: Request,
    /// Not before this frame was drawn.
    pub(super) after: Option<u64>,
}

/// A message as a client of this version reads it, with the `request_id` of the request that it answers.
pub(super) fn packet(version: Version, message: &FromServer, request_id: Option<u64>) -> Vec<u8> {
    match version {
        Version::One => version_1::write(message),
        Version::Two => encode(&Tagged { message, request_id }),
    }
}

/// How a client's time ends.
enum Ended {
    /// By itself.
    Left(&'static str),
    /// It is told why.
    Dropped(Fault),
}

/// The values of `ready` and `free`, with memory `cuda`.
#[derive(Clone, Copy)]
pub(super) struct Counters(Option<(u64, u64)>);

impl Client {
    /// One that has been told `parameters`.
    pub(super) fn new(
        name: String,
        seat: Seated,
        connection: Connection,
        terms: Terms,
        memory: ClientMemory,
        drawing: Drawing,
        parameters: Parameters,
    ) -> Self {
        let connection = Arc::new(connection);
        Self {
            name,
            shared: Shared::new(Session::new(terms), memory, &connection),
            connection,
            version: terms.version,
            compiling: None,
            starting: None,
            wants_picture: None,
            busy: false,
            leaving: None,
            drawing,
            camera: None,
            told: (parameters, BTreeMap::new()),
            last_new: Instant::now(),
            shown_at: None,
            import: None,
            later: Vec::new(),
            picture_later: false,
            ended: None,
            complaints: 0,
            _seat: seat,
        }
    }

    /// Where the camera is when its first array is drawn.
    pub(super) fn first_camera(&self, config: &Config) -> Camera {
        self.camera.unwrap_or_else(|| config.camera_for(&self.shared.borrow().session.terms().array))
    }

    /// Sends news, which answer no request.
    pub(super) fn send(&mut self, message: &FromServer) {
        self.answer(None, message, Vec::new());
    }

    /// Sends, once an import that is being tried is answered.
    pub(super) fn answer(
        &mut self,
        request_id: Option<u64>,
        message: &FromServer,
        descriptors: Vec<OwnedFd>,
    ) {
        let packet = packet(self.version, message, request_id);
        match self.import {
            Some(_) => self.later.push((packet, descriptors)),
            None => self.send_now(&packet, &descriptors),
        }
    }

    /// Sends what waited for an import.
    pub(super) fn catch_up(&mut self) {
        self.picture_later = false;
        for (packet, descriptors) in std::mem::take(&mut self.later) {
            self.send_now(&packet, &descriptors);
        }
    }

    /// Sends, and remembers when that cannot be done: a renderer waits for nobody who does not read.
    fn send_now(&mut self, packet: &[u8], descriptors: &[OwnedFd]) {
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let ended = match self.connection.send_bytes(packet, &descriptors) {
            Ok(()) => return,
            Err(Errno::AGAIN) => Ended::Dropped(Fault {
                code: ErrorCode::Slow,
                reason: "the client does not read what it is sent".into(),
            }),
            Err(_) => Ended::Left("its connection broke"),
        };
        self.ended.get_or_insert(ended);
    }

    /// The last word of a conversation.
    pub(super) fn send_error(&self, code: ErrorCode, reason: String) {
        let _ = self.connection.send(&FromServer::Error { code, reason }, &[]);
    }

    /// A request did nothing.
    pub(super) fn fail(&mut self, Request { name, id }: Request, reason: impl ToString) {
        let reason = reason.to_string();
        if self.complaints < MAX_COMPLAINTS {
            self.complaints += 1;
            // A compiler's log quotes what the client sent, and this goes to a terminal.
            note!("note: {}: {name} failed: {}", self.name, short(&reason, MAX_NOTE));
        }
        self.answer(id, &FromServer::Failed { request: name.into(), reason }, Vec::new());
    }

    /// Tells it the parameters, and those of its kernel, as an answer perhaps.
    pub(super) fn tell(
        &mut self,
        request_id: Option<u64>,
        parameters: Parameters,
        kernel: BTreeMap<String, f32>,
    ) {
        self.told = (parameters, kernel.clone());
        self.answer(request_id, &FromServer::Parameters { parameters, kernel }, Vec::new());
    }

    /// Reads the counters. To be done before its messages are read: what was said before `ready` was signalled has arrived
    /// then, and is read before `ready` counts.
    pub(super) fn counters(&self) -> Result<Counters> {
        Ok(Counters(match &self.shared.borrow().memory {
            ClientMemory::Cuda(memory) => Some((memory.ready.value()?, memory.free.value()?)),
            ClientMemory::Host(_) => None,
        }))
    }

    fn see(&self, Counters(counters): Counters) -> Result<(), Fault> {
        let Some((ready, free)) = counters else { return Ok(()) };
        let session = &mut self.shared.borrow_mut().session;
        session.see_free(free).and_then(|()| session.see_ready(ready))
    }

    /// What it asks for next, with the descriptors that came with that; `None` if nothing more is to be heard now.
    pub(super) fn hear(&mut self, counters: Counters) -> Option<(Request, Action, Vec<OwnedFd>)> {
        if self.leaving.is_some() || self.ended.is_some() {
            return None;
        }
        if self.busy || self.later.len() >= MAX_LATER {
            if self.import.is_some() && self.connection.is_closed() {
                // An import can take long: do not try it for a client that is gone.
                self.ended = Some(Ended::Left(CLOSED));
            } else if self.can_count() {
                self.ended = self.see(counters).err().map(Ended::Dropped);
            }
            return None;
        }
        let (packet, descriptors) = match self.connection.receive() {
            Received::Packet(packet, descriptors) => (packet, descriptors),
            Received::Nothing => {
                self.ended = self.see(counters).err().map(Ended::Dropped);
                return None;
            }
            Received::Closed => {
                self.ended = Some(Ended::Left(CLOSED));
                return None;
            }
            Received::TooLong(descriptors) => {
                discard(descriptors);
                let reason = "a message longer than 65536 bytes".into();
                self.ended = Some(Ended::Dropped(Fault { code: ErrorCode::Message, reason }));
                return None;
            }
        };
        let judged = self.shared.borrow_mut().session.read(&packet, descriptors.len());
        match judged {
            Ok((request, action)) => {
                self.busy = action.is_heavy();
                Some((request, action, descriptors))
            }
            Err(fault) => {
                discard(descriptors);
                self.ended = Some(Ended::Dropped(fault));
                None
            }
        }
    }

    /// Whether `ready` counts although the client's messages wait: none of those can be a `show` of a frame that is ready.
    fn can_count(&self) -> bool {
        !self.connection.has_news() || !self.shared.borrow().session.has_allocations()
    }

    /// Whether a picture without `after` is pending, which answers before anything that the client says next.
    pub(super) fn awaits_picture(&self) -> bool {
        self.wants_picture.is_some_and(|picture| picture.after.is_none())
    }

    /// Of a client that said goodbye the frames are still shown that were ready then: a ring of them at most.
    pub(super) fn see_off(&mut self, counters: Counters, since: Instant) {
        let seen = self.see(counters);
        let has_next = self.shared.borrow().session.has_next();
        self.ended = match seen {
            Err(fault) => Some(Ended::Dropped(fault)),
            // In a hidden window nothing is drawn.
            Ok(()) if has_next && since.elapsed() < FAREWELL => None,
            Ok(()) => Some(Ended::Left("it said goodbye")),
        };
    }

    /// No frame was finished for so long: what it wrote takes too long to draw, or (with `--trust`) does not come.
    pub(super) fn give_up(&mut self, seconds: f64) {
        let reason = match self.shared.borrow().session.terms().trust {
            true => {
                format!("no frame was finished for {seconds:.0} s (--timeout): a promised one did not come")
            }
            false => format!(
                "drawing its array takes too long: no frame was finished for {seconds:.0} s (--timeout). \
                 Thousands of triangles that each cover much of the picture do that: vertices that are neighbours \
                 in the grid should be neighbours in space"
            ),
        };
        self.ended = Some(Ended::Dropped(Fault { code: ErrorCode::Stuck, reason }));
    }

    /// Whether it is to be dropped.
    pub(super) fn is_over(&self) -> bool {
        self.ended.is_some()
    }

    /// Its time is over: tells it why if that is not its own doing, and gives the reason. It keeps the seat until it is
    /// [closed](Self::close).
    pub(super) fn part(&mut self) -> String {
        let why = match self.ended.take() {
            Some(Ended::Dropped(fault)) => {
                let why = format!("dropped: {}", fault.reason);
                self.send_error(fault.code, fault.reason);
                why
            }
            Some(Ended::Left(why)) => why.into(),
            None => "the renderer let it go".into(),
        };
        note!("note: {}: {why}", self.name);
        why
    }

    pub(super) fn close(self) {
        if let Some(connection) = Arc::into_inner(self.connection) {
            take_leave(connection);
        }
    }

    /// A frame was submitted: it may ask for more, and learns what was copied for that.
    pub(super) fn drawn(&mut self) {
        self.busy = self.awaits_picture();
        let copied = std::mem::take(&mut self.shared.borrow_mut().copied);
        for frame in copied {
            self.send(&FromServer::Free { frame });
        }
    }

    /// Sleeps until there may be news, but not longer than `left`. `draws`: its ring is in the engine.
    pub(super) fn rest(&self, draws: bool, left: Duration) {
        let by_semaphore = self.shared.borrow().session.terms().memory == MemoryKind::Cuda;
        match by_semaphore {
            // What it says next waits for the next draw.
            _ if self.busy => std::thread::sleep(left.min(CALM)),
            true if draws && self.last_new.elapsed() < QUICK_FOR => std::thread::sleep(left.min(QUICK)),
            true => std::thread::sleep(left.min(CALM)),
            // All of its news comes by the socket.
            false => self.connection.wait(left.min(CALM)),
        }
    }
}
