//! The client whose frames are drawn. Its messages are read between two frames, without waiting.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use vulkan_cuda::ExportedSemaphore;

use super::client_producer::ClientState;
use super::fd_reaper::{self, ClientFd};
use super::memory::ClientMemory;
use super::protocol::{
    ClientParameters, ErrorCode, FromServer, MAX_MESSAGE, MemoryKind, Render, Request, Tagged, short,
};
use super::requests::{Import, MAX_UNREAD};
use super::session::{Fault, Session, Terms, Validated, is_heavy};
use super::socket::{Connection, Received};
use wavefield_draw::{Camera, Drawing};
use wavefield_gpu::{Result, note};
use wavefield_run::{ClientPanel, Config};

/// How long a client's ready frames may still be shown after its `bye`.
const FAREWELL: Duration = Duration::from_secs(1);
/// The maximum number of failures printed per client. The client itself receives all of them.
const MAX_COMPLAINTS: u32 = 20;
/// The maximum length of a printed reason, in bytes.
const MAX_NOTE: usize = 1000;
const CLOSED: &str = "its connection closed";
/// The time between two reads of `ready` while frames arrive quickly or renders wait. Otherwise it is
/// [`CALM`].
const QUICK: Duration = Duration::from_micros(50);
const CALM: Duration = Duration::from_millis(1);
const QUICK_FOR: Duration = Duration::from_millis(100);

pub(super) struct Client {
    pub(super) name: String,
    pub(super) connection: Connection,
    pub(super) shared: Rc<RefCell<ClientState>>,
    pub(super) wants_picture: Option<WantedPicture>,
    /// Whether further messages must wait: after a heavy request ([`is_heavy`]) until the next draw, and
    /// after a `snapshot` without `after` until its picture is sent.
    pub(super) busy: bool,
    /// When its `bye` was read. Ready frames are still shown, for at most [`FAREWELL`].
    pub(super) leaving: Option<Instant>,
    pub(super) drawing: Drawing,
    /// The camera that the client requested before the engine had its ring. `None` means the default camera.
    pub(super) camera: Option<Camera>,
    pub(super) told: ClientParameters,
    pub(super) panel: ClientPanel,
    pub(super) last_new: Instant,
    /// When the shown frame was first drawn, in nanoseconds of `CLOCK_MONOTONIC`, which all processes share.
    pub(super) shown_at: Option<u64>,
    pub(super) import: Option<Import>,
    pub(super) renders: VecDeque<WantedRender>,
    pub(super) rendered: u64,
    /// Set once the client has left or must be dropped. See [`Client::part`].
    pub(super) ended: Option<ClientEnd>,
    complaints: u32,
}

#[derive(Clone, Copy)]
pub(super) struct WantedPicture {
    pub(super) request: Request,
    /// The picture is taken once this frame of the client, or a later one, is shown.
    pub(super) after: Option<u64>,
    /// If it is not that on screen.
    pub(super) size: Option<[u32; 2]>,
}

const MAX_RENDERS: usize = 64;

pub(super) struct WantedRender {
    pub(super) request: Request,
    pub(super) render: std::result::Result<Box<Render>, String>,
}

pub(super) enum ClientEnd {
    Left(&'static str),
    Dropped(Fault),
}

impl From<Fault> for ClientEnd {
    fn from(fault: Fault) -> Self {
        Self::Dropped(fault)
    }
}

pub(super) type ReceivedRequest = (Request, Validated, Vec<ClientFd>);

/// The values of `ready` and `free`; `None` with memory `host`.
type Counters = Option<(u64, u64)>;

impl Client {
    pub(super) fn new(
        name: String,
        connection: Connection,
        terms: Terms,
        memory: ClientMemory,
        drawing: Drawing,
        parameters: ClientParameters,
    ) -> Self {
        Self {
            name,
            shared: Rc::new(RefCell::new(ClientState {
                session: Session::new(terms),
                memory,
                current: None,
                copied: Vec::new(),
            })),
            connection,
            wants_picture: None,
            busy: false,
            leaving: None,
            drawing,
            camera: None,
            told: parameters,
            panel: ClientPanel::default(),
            last_new: Instant::now(),
            shown_at: None,
            import: None,
            renders: VecDeque::new(),
            rendered: 0,
            ended: None,
            complaints: 0,
        }
    }

    pub(super) fn first_camera(&self, config: &Config) -> Camera {
        self.camera.unwrap_or_else(|| config.camera_for(&self.shared.borrow().session.terms.array))
    }

    /// Sends the answer to a request. Drops a client that does not read its messages, because the renderer
    /// never waits for a client.
    pub(super) fn answer(&mut self, request_id: Option<u64>, message: &FromServer, descriptors: &[OwnedFd]) {
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let ended = match self.connection.send(&Tagged { message, request_id }, &descriptors) {
            Ok(()) => return,
            Err(Errno::AGAIN) => {
                Fault::new(ErrorCode::Slow, "the client does not read what it is sent").into()
            }
            Err(_) => ClientEnd::Left("its connection broke"),
        };
        self.ended.get_or_insert(ended);
    }

    pub(super) fn send_error(&self, code: ErrorCode, reason: String) {
        let _ = self.connection.send(&FromServer::Error { code, reason }, &[]);
    }

    pub(super) fn fail(&mut self, Request { name, id }: Request, reason: impl ToString) {
        let reason = reason.to_string();
        if self.complaints < MAX_COMPLAINTS {
            self.complaints += 1;
            // A reason may quote the client, so make it safe to print.
            note!("note: {}: {name} failed: {}", self.name, short(&reason, MAX_NOTE));
        }
        self.answer(id, &FromServer::Failed { request: name.into(), reason }, &[]);
    }

    /// Sends the parameters, in answer to `request_id` if there is one.
    pub(super) fn send_parameters(&mut self, request_id: Option<u64>, parameters: ClientParameters) {
        self.told = parameters;
        self.answer(request_id, &FromServer::Parameters { parameters: Box::new(parameters) }, &[]);
    }

    /// Sends what the user did in the panel, unless the client has not read what was sent before.
    pub(super) fn send_events(&mut self) {
        if self.connection.unread() <= MAX_UNREAD {
            for event in self.panel.take_events() {
                self.answer(None, &FromServer::Event(event), &[]);
            }
        }
    }

    /// Reads the counters. Call this before reading messages: a message that was sent before `ready` was
    /// signalled has then arrived, and is handled before the new value takes effect.
    pub(super) fn counters(&self) -> Result<Counters> {
        Ok(match &self.shared.borrow().memory {
            ClientMemory::Cuda(memory) => Some((memory.ready.value()?, memory.free.value()?)),
            ClientMemory::Host(_) => None,
        })
    }

    /// Returns whether only the renderer has signalled `drawn`. Drops a client that has signalled it too: the
    /// renderer may signal only values above the counter.
    pub(super) fn is_honest(&mut self) -> Result<bool> {
        let value = self.shared.borrow().memory.drawn().map(ExportedSemaphore::value).transpose()?;
        let (value, own) = (value.unwrap_or_default(), self.rendered);
        if value > own {
            let reason = format!("`drawn` is {value}, and the renderer signalled {own} at most");
            self.drop_for(Fault::value(reason));
        }
        Ok(value <= own)
    }

    /// Signals `drawn` from the CPU, for a failed render. All earlier renders must be done, so that no signal
    /// is pending.
    pub(super) fn signal_drawn(&mut self) {
        let signalled = self.shared.borrow().memory.drawn().map(|drawn| {
            // SAFETY: the renderer's values only grow, and no signal is pending: all earlier renders are
            // done.
            unsafe { drawn.signal_from_host(self.rendered) }
        });
        if let Some(Err(error)) = signalled {
            // The client may have signalled `drawn` itself in the meantime.
            self.drop_for(Fault::value(format!("`drawn` could not be signalled: {error}")));
        }
    }

    pub(super) fn drop_for(&mut self, fault: Fault) {
        self.ended.get_or_insert(fault.into());
    }

    fn see(&self, counters: Counters) -> Result<(), Fault> {
        let Some((ready, free)) = counters else { return Ok(()) };
        let ledger = &mut self.shared.borrow_mut().session.ledger;
        ledger.see_free(free).and_then(|()| ledger.see_ready(ready)).map_err(Fault::value)
    }

    /// Returns the next request and its descriptors, or `None` if there is none or if messages must wait.
    pub(super) fn next_request(&mut self, counters: Counters) -> Option<ReceivedRequest> {
        if self.leaving.is_some() || self.ended.is_some() {
            return None;
        }
        self.next(counters).unwrap_or_else(|ended| {
            self.ended = Some(ended);
            None
        })
    }

    fn next(&mut self, counters: Counters) -> Result<Option<ReceivedRequest>, ClientEnd> {
        if self.waits() {
            if self.import.is_some() && self.connection.is_closed() {
                return Err(ClientEnd::Left(CLOSED));
            }
            // An unread message may be a `show`, which must be handled before a new value of `ready` takes
            // effect.
            if !self.connection.has_news() || self.shared.borrow().session.allocations.is_empty() {
                self.see(counters)?;
            }
            return Ok(None);
        }
        let (packet, descriptors) = match self.connection.receive() {
            Received::Packet(packet, descriptors) => (packet, ClientFd::all(descriptors)),
            Received::Nothing => {
                self.see(counters)?;
                return Ok(None);
            }
            Received::Closed => return Err(ClientEnd::Left(CLOSED)),
            Received::TooLong => {
                let reason = format!("a message longer than {MAX_MESSAGE} bytes");
                return Err(Fault::new(ErrorCode::Message, reason).into());
            }
        };
        if !descriptors.is_empty() && fd_reaper::is_full() {
            return Err(Fault::new(ErrorCode::Stuck, fd_reaper::FULL).into());
        }
        let (request, validated) = self.shared.borrow_mut().session.read(&packet, descriptors.len())?;
        self.busy = validated.as_ref().is_ok_and(is_heavy);
        Ok(Some((request, validated, descriptors)))
    }

    fn waits(&self) -> bool {
        // Read on while the first render waits for a later frame: the messages may be about that frame.
        let awaits_frame = |WantedRender { render, .. }: &WantedRender| {
            render.as_ref().is_ok_and(|render| render.after.is_some() && !self.shows(render.after, true))
        };
        self.busy || self.renders.len() >= MAX_RENDERS && !self.renders.front().is_some_and(awaits_frame)
    }

    pub(super) fn wants(&mut self, wanted: WantedRender) {
        if self.renders.len() >= MAX_RENDERS {
            let reason =
                format!("{MAX_RENDERS} renders wait for a frame that is not drawn: the next is one too many");
            return self.drop_for(Fault::value(reason));
        }
        self.renders.push_back(wanted);
    }

    /// Returns whether a picture can be taken now. `draws`: whether the engine has the client's ring. With
    /// `after`, that frame of the client, or a later one, must be shown. Without `after`, whatever is shown
    /// will do, unless the client's first frame is ready and will be drawn next.
    pub(super) fn shows(&self, after: Option<u64>, draws: bool) -> bool {
        let ledger = &self.shared.borrow().session.ledger;
        match after {
            None => draws || !ledger.has_next(),
            Some(frame) => ledger.shown.is_some_and(|shown| shown.frame >= frame),
        }
    }

    /// Returns whether the next render can be answered now. One that will fail is due at once.
    pub(super) fn has_due_render(&self, draws: bool) -> bool {
        let is_due = |WantedRender { render, .. }: &WantedRender| {
            render.as_ref().map_or(true, |render| self.shows(render.after, draws))
        };
        self.ended.is_none() && self.renders.front().is_some_and(is_due)
    }

    /// Ends the session if the client is gone while its messages wait. (Otherwise reading them reports that.)
    /// Call this during long waits.
    pub(super) fn notice_end(&mut self) {
        if self.waits() && self.connection.is_closed() {
            self.ended.get_or_insert(ClientEnd::Left(CLOSED));
        }
    }

    pub(super) fn awaits_picture(&self) -> bool {
        self.wants_picture.is_some_and(|picture| picture.after.is_none())
    }

    /// Ends the session after a `bye`, once every ready frame is shown or [`FAREWELL`] is over.
    pub(super) fn see_off(&mut self, counters: Counters, since: Instant) {
        let seen = self.see(counters);
        let has_next = self.shared.borrow().session.ledger.has_next();
        self.ended = match seen {
            Err(fault) => Some(ClientEnd::Dropped(fault)),
            // Limit this wait, because a hidden window draws nothing.
            Ok(()) if has_next && since.elapsed() < FAREWELL => None,
            Ok(()) => Some(ClientEnd::Left("it said goodbye")),
        };
    }

    pub(super) fn give_up(&mut self, seconds: f64) {
        let reason = format!(
            "drawing its array takes too long: no frame was finished for {seconds:.0} s (--timeout). Thousands of \
             triangles that each cover much of the picture do that: vertices that are neighbours in the grid should be \
             neighbours in space"
        );
        self.ended = Some(Fault::new(ErrorCode::Stuck, reason).into());
    }

    /// Ends the session. Prints and returns the reason, and sends an `error` if the client is dropped.
    pub(super) fn part(&mut self) -> String {
        let why = match self.ended.take() {
            Some(ClientEnd::Dropped(fault)) => {
                let why = format!("dropped: {}", fault.reason);
                self.send_error(fault.code, fault.reason);
                why
            }
            Some(ClientEnd::Left(why)) => why.into(),
            None => "the renderer let it go".into(),
        };
        note!("note: {}: {why}", self.name);
        why
    }

    /// Call this after a frame was submitted. Messages no longer wait, unless a picture is pending. Reports
    /// copied frames as `free`.
    pub(super) fn drawn(&mut self) {
        self.busy = self.awaits_picture();
        let copied = std::mem::take(&mut self.shared.borrow_mut().copied);
        for frame in copied {
            self.answer(None, &FromServer::Free { frame }, &[]);
        }
    }

    pub(super) fn watched(&self) -> Option<PollFd<'_>> {
        let waits = self.waits() || self.leaving.is_some();
        (!waits).then(|| PollFd::new(&self.connection, PollFlags::IN))
    }

    /// Returns how long to wait before `ready` is read again. `draws`: whether the engine has the client's
    /// ring.
    pub(super) fn quiet_time(&self, draws: bool) -> Duration {
        let by_semaphore = self.shared.borrow().session.terms.memory == MemoryKind::Cuda;
        let quick = by_semaphore && draws && !self.busy && self.last_new.elapsed() < QUICK_FOR;
        if quick || !self.renders.is_empty() { QUICK } else { CALM }
    }
}
