//! The client that has the seat. The render thread reads and sends its messages between two frames, and never waits for it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::closing::{self, ClientFd};
use super::door::Seated;
use super::foreign::Shared;
use super::imports::Import;
use super::memory::ClientMemory;
use super::protocol::{
    ErrorCode, FromServer, MemoryKind, Parameters, Request, Tagged, Version, encode, short,
};
use super::session::{Action, Fault, Session, Terms};
use super::socket::{Connection, Received};
use super::version_1;
use crate::app::Config;
use crate::render::{Camera, Drawing};
use crate::{Result, note};

/// How long frames of a client are still shown after its `bye`.
const FAREWELL: Duration = Duration::from_secs(1);
/// How many failed requests of one client are printed, and how many bytes of each reason. The client gets the whole reason.
const MAX_COMPLAINTS: u32 = 20;
const MAX_NOTE: usize = 1000;
const CLOSED: &str = "its connection closed";
/// While this many answers wait for an import, the client's messages are not read.
const MAX_LATER: usize = 64;
/// The time between two reads of `ready`: while frames come in quick succession, and otherwise.
const QUICK: Duration = Duration::from_micros(50);
const CALM: Duration = Duration::from_millis(1);
/// How long after a client's last frame [`QUICK`] applies.
const QUICK_FOR: Duration = Duration::from_millis(100);

/// A client, from its `welcome` to its end.
pub(super) struct Client {
    pub(super) name: String,
    pub(super) connection: Arc<Connection>,
    pub(super) shared: Rc<RefCell<Shared>>,
    version: Version,
    /// The `kernel` request that is being tried and compiled.
    pub(super) compiling: Option<Request>,
    /// The kernel that was put into the engine, until `running` is sent.
    pub(super) starting: Option<Starting>,
    /// The `snapshot` whose picture is not taken yet.
    pub(super) wants_picture: Option<WantedPicture>,
    /// Whether its messages wait: after a heavy request until the next draw, and until a picture without `after` is taken.
    pub(super) busy: bool,
    /// When its `bye` was read. Frames that were ready by then are still shown.
    pub(super) leaving: Option<Instant>,
    /// What draws its arrays.
    pub(super) drawing: Drawing,
    /// The camera for its ring or kernel that is put into the engine next: what it asked for, or where it was before a fault.
    /// `None` means the default.
    pub(super) camera: Option<Camera>,
    /// The parameters that it was last told, and those of its kernel.
    pub(super) told: (Parameters, BTreeMap<String, f32>),
    /// When something new of it was last drawn.
    pub(super) last_new: Instant,
    /// When the frame on show was first drawn, in nanoseconds of `CLOCK_MONOTONIC`.
    pub(super) shown_at: Option<u64>,
    /// The import that is being tried.
    pub(super) import: Option<Import>,
    /// Messages that wait for the import's answer: answers come in the order of the requests.
    later: Vec<(Vec<u8>, Vec<OwnedFd>)>,
    /// Whether one of them is a picture.
    pub(super) picture_later: bool,
    /// Why its time is over, once it is.
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
    /// It is taken once this frame of the client, or a later one, is drawn.
    pub(super) after: Option<u64>,
}

/// Encodes a message for a client of this version, with the `request_id` of the request that it answers.
pub(super) fn packet(version: Version, message: &FromServer, request_id: Option<u64>) -> Vec<u8> {
    match version {
        Version::One => version_1::write(message),
        Version::Two => encode(&Tagged { message, request_id }),
    }
}

/// How a client's time ends.
enum Ended {
    /// The client left.
    Left(&'static str),
    /// The renderer drops it, and tells it why.
    Dropped(Fault),
}

/// The values of `ready` and `free`; `None` with memory `host`.
#[derive(Clone, Copy)]
pub(super) struct Counters(Option<(u64, u64)>);

impl Client {
    /// A client whose `welcome` had these `parameters`.
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

    /// The camera for its first frame.
    pub(super) fn first_camera(&self, config: &Config) -> Camera {
        self.camera.unwrap_or_else(|| config.camera_for(&self.shared.borrow().session.terms().array))
    }

    /// Sends a message that answers no request. Like an answer, it waits for an import that is being tried.
    pub(super) fn send(&mut self, message: &FromServer) {
        self.answer(None, message, Vec::new());
    }

    /// Sends an answer. While an import is being tried, keeps it until the import is answered.
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

    /// Sends the messages that waited for an import.
    pub(super) fn catch_up(&mut self) {
        self.picture_later = false;
        for (packet, descriptors) in std::mem::take(&mut self.later) {
            self.send_now(&packet, &descriptors);
        }
    }

    /// Sends at once. If the client does not read, or its connection is broken, its time is over: the renderer never waits.
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

    /// Sends an `error`, the last message of a connection.
    pub(super) fn send_error(&self, code: ErrorCode, reason: String) {
        let _ = self.connection.send(&FromServer::Error { code, reason }, &[]);
    }

    /// Answers that a request did nothing.
    pub(super) fn fail(&mut self, Request { name, id }: Request, reason: impl ToString) {
        let reason = reason.to_string();
        if self.complaints < MAX_COMPLAINTS {
            self.complaints += 1;
            // A compiler's log quotes what the client sent, so it is made safe for the terminal.
            note!("note: {}: {name} failed: {}", self.name, short(&reason, MAX_NOTE));
        }
        self.answer(id, &FromServer::Failed { request: name.into(), reason }, Vec::new());
    }

    /// Sends the parameters and those of its kernel, as an answer if there is a `request_id`.
    pub(super) fn tell(
        &mut self,
        request_id: Option<u64>,
        parameters: Parameters,
        kernel: BTreeMap<String, f32>,
    ) {
        self.told = (parameters, kernel.clone());
        self.answer(request_id, &FromServer::Parameters { parameters, kernel }, Vec::new());
    }

    /// Reads the counters. Call this before reading messages: a message that was sent before `ready` was signalled has then
    /// arrived, and is read before the new value counts.
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

    /// The next request and its descriptors. `None` if there is no message, or if messages wait.
    pub(super) fn hear(&mut self, counters: Counters) -> Option<(Request, Action, Vec<ClientFd>)> {
        if self.leaving.is_some() || self.ended.is_some() {
            return None;
        }
        if self.busy || self.later.len() >= MAX_LATER {
            if self.import.is_some() {
                self.notice_end();
            }
            if self.ended.is_none() && self.can_count() {
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
                drop(ClientFd::all(descriptors));
                let reason = "a message longer than 65536 bytes".into();
                self.ended = Some(Ended::Dropped(Fault { code: ErrorCode::Message, reason }));
                return None;
            }
        };
        let descriptors = ClientFd::all(descriptors);
        if !descriptors.is_empty() && closing::is_full() {
            self.ended = Some(Ended::Dropped(Fault { code: ErrorCode::Stuck, reason: closing::FULL.into() }));
            return None;
        }
        let judged = self.shared.borrow_mut().session.read(&packet, descriptors.len());
        match judged {
            Ok((request, action)) => {
                self.busy = action.is_heavy();
                Some((request, action, descriptors))
            }
            Err(fault) => {
                self.ended = Some(Ended::Dropped(fault));
                None
            }
        }
    }

    /// Ends its time if it is gone although its messages wait. For waits that can take long.
    pub(super) fn notice_end(&mut self) {
        if self.busy || self.later.len() >= MAX_LATER {
            let gone = self.connection.is_closed();
            self.ended = self.ended.take().or(gone.then_some(Ended::Left(CLOSED)));
        }
    }

    /// Whether a new value of `ready` counts while messages wait. It does not if one of them may be a `show`, which must be
    /// read first.
    fn can_count(&self) -> bool {
        !self.connection.has_news() || !self.shared.borrow().session.has_allocations()
    }

    /// Whether a picture without `after` is pending. What the client says next waits for it.
    pub(super) fn awaits_picture(&self) -> bool {
        self.wants_picture.is_some_and(|picture| picture.after.is_none())
    }

    /// After `bye`: the frames that were ready by then are still shown, at most a ring of them.
    pub(super) fn see_off(&mut self, counters: Counters, since: Instant) {
        let seen = self.see(counters);
        let has_next = self.shared.borrow().session.has_next();
        self.ended = match seen {
            Err(fault) => Some(Ended::Dropped(fault)),
            // Not without a limit: in a hidden window nothing is drawn.
            Ok(()) if has_next && since.elapsed() < FAREWELL => None,
            Ok(()) => Some(Ended::Left("it said goodbye")),
        };
    }

    /// Drops the client because no frame was finished for `seconds`: its array takes too long to draw, or (with `--trust`) a
    /// promised frame did not come.
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

    /// Whether its time is over.
    pub(super) fn is_over(&self) -> bool {
        self.ended.is_some()
    }

    /// Ends its time: prints and returns the reason, and sends an `error` if the client is dropped. It keeps the seat until
    /// it is dropped.
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

    /// Gives up its seat.
    pub(super) fn into_connection(self) -> Option<Connection> {
        Arc::into_inner(self.connection)
    }

    /// A frame was submitted: its messages need not wait any more, and it is told which frames were copied.
    pub(super) fn drawn(&mut self) {
        self.busy = self.awaits_picture();
        let copied = std::mem::take(&mut self.shared.borrow_mut().copied);
        for frame in copied {
            self.send(&FromServer::Free { frame });
        }
    }

    /// Sleeps until there may be news, but not longer than `left`. `draws`: whether its ring is in the engine.
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
