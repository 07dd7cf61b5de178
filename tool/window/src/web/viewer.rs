//! A connected page. Decides when the page gets a picture, and in which quality.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use tungstenite::protocol::{Role, WebSocketConfig};
use tungstenite::{Error, Message as Packet, Utf8Bytes, WebSocket};

use super::ViewerInput;
use super::message::{self, Message};
use super::picture::{BEST, LEAST, MOVING, STILL, ShownPicture};
use super::request::Gate;
use crate::Input;

/// Quality falls after [`FEW`] slow pictures in a row, and rises after [`MANY`] quick ones. A picture's time
/// is from sending it until the page acknowledges it, less the round trip of an empty message.
const SLOW: Duration = Duration::from_millis(40);
const QUICK: Duration = Duration::from_millis(13);
const FEW: i32 = 3;
const MANY: i32 = 15;
/// How often to ping a page: at least, and right before a picture. Right before a picture, nothing is queued
/// ahead of the ping, so the answer gives the round trip of an empty message.
const ASK: Duration = Duration::from_secs(10);
const ASK_BEFORE: Duration = Duration::from_secs(1);
/// A page that does not answer a ping or acknowledge a picture for this long is disconnected.
const GONE: Duration = Duration::from_secs(30);
/// The maximum number of bytes to read from a page in one turn.
const TURN: usize = 4 << 10;
/// The maximum number of unsent bytes. The largest picture has fewer.
const UNSENT: usize = 64 << 20;
static VIEWERS: AtomicU64 = AtomicU64::new(1);

struct Limited {
    stream: TcpStream,
    left: usize,
}

impl Read for Limited {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let most = bytes.len().min(self.left);
        if most == 0 && !bytes.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = self.stream.read(&mut bytes[..most])?;
        self.left -= count;
        Ok(count)
    }
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stream.flush()
    }
}

pub(crate) struct Viewer {
    /// Viewers are numbered from 1.
    pub(crate) number: u64,
    socket: WebSocket<Limited>,
    /// The last picture sent, and its quality.
    sent: Option<(u32, usize)>,
    /// When that picture was sent; `None` once the page has acknowledged it.
    waits: Option<Instant>,
    quality: usize,
    /// The number of quick pictures in a row; negative for slow ones.
    row: i32,
    pub(crate) is_visible: bool,
    down: [bool; message::BUTTONS.len()],
    has_unsent: bool,
    /// The times of the last ping and answer, and the shortest round trip.
    asked: Instant,
    answered: Instant,
    trip: Duration,
}

/// The error of a page that has left: nothing more can be sent or read.
pub(crate) struct Left;

impl Viewer {
    /// Creates the viewer and pings its page. `rest` has the bytes that arrived after the request.
    pub(crate) fn new(stream: TcpStream, rest: Vec<u8>) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(message::MOST)
            .write_buffer_size(0)
            .max_write_buffer_size(UNSENT)
            .max_message_size(Some(message::MOST))
            .max_frame_size(Some(message::MOST));
        let (stream, now) = (Limited { stream, left: 0 }, Instant::now());
        let mut viewer = Self {
            number: VIEWERS.fetch_add(1, Ordering::Relaxed),
            socket: WebSocket::from_partially_read(stream, rest, Role::Server, Some(config)),
            sent: None,
            waits: None,
            quality: MOVING,
            row: 0,
            is_visible: true,
            down: Default::default(),
            has_unsent: false,
            asked: now,
            answered: now,
            trip: GONE,
        };
        // If this fails, the next message fails too.
        let _ = viewer.send(Packet::Ping(Default::default()));
        viewer
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.socket.get_ref().stream
    }

    /// Returns the events to poll for. `hears`: whether there is room for the page's input.
    pub(crate) fn interest(&self, hears: bool) -> PollFlags {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, hears);
        flags.set(PollFlags::OUT, self.has_unsent);
        flags
    }

    /// Returns the next message, if it is complete and the page's turn is not over.
    fn read(&mut self) -> Result<Option<Utf8Bytes>, Left> {
        loop {
            match self.socket.read() {
                Ok(Packet::Text(text)) => return Ok(Some(text)),
                Ok(Packet::Pong(_)) => {
                    self.answered = Instant::now();
                    self.trip = self.trip.min(self.asked.elapsed());
                }
                Err(Error::Io(error)) if is_for_later(&error) => return Ok(None),
                // A page's script cannot send pings, and a page sends no binary messages.
                _ => return Err(Left),
            }
        }
    }

    /// Returns whether the page has sent the token, which must be its first message.
    pub(crate) fn is_known(&mut self, gate: &Gate) -> Result<bool, Left> {
        self.socket.get_mut().left = TURN;
        match self.read()? {
            Some(text) if !gate.is_token(&text) => Err(Left),
            text => Ok(text.is_some()),
        }
    }

    pub(crate) fn read_inputs(&mut self, inputs: &mut Vec<ViewerInput>, scale: &mut f32) -> Result<(), Left> {
        self.socket.get_mut().left = TURN;
        while let Some(text) = self.read()? {
            let said = Message::read(&text).ok_or(Left)?;
            match said {
                Message::Seen { picture } => self.took(picture),
                Message::Visible { visible } => {
                    self.is_visible = visible;
                    // A hidden page acknowledges pictures without drawing them: send the last one again.
                    self.sent = self.sent.map(|(number, _)| (number, self.quality + 1));
                }
                Message::Button { button, down, .. } => self.down[button] = down,
                Message::Size { scale: pixels, .. } => *scale = pixels,
                _ => {}
            }
            inputs.extend(said.inputs(*scale).into_iter().map(|input| (self.number, input)));
        }
        Ok(())
    }

    /// Handles the acknowledgement of a picture: adapts the quality to the time that it took.
    fn took(&mut self, picture: u32) {
        let Some((_, quality)) = self.sent.filter(|(number, _)| *number == picture) else { return };
        let Some(took) = self.waits.take().map(|since| since.elapsed().saturating_sub(self.trip)) else {
            return;
        };
        // The time of a picture in better quality than usual says nothing about pictures in the usual
        // quality.
        if quality < self.quality {
            return;
        }
        self.row = match took {
            _ if took > SLOW => self.row.min(0) - 1,
            _ if took < QUICK => self.row.max(0) + 1,
            _ => 0,
        };
        if self.row == -FEW {
            (self.quality, self.row) = (LEAST.min(self.quality + 1), 0);
        } else if self.row == MANY {
            (self.quality, self.row) = (MOVING.max(self.quality - 1), 0);
        }
    }

    /// Returns how long to wait for events before a picture or a ping may be due.
    pub(crate) fn patience(&self, shown: Option<&ShownPicture>) -> Duration {
        let lacks_best = |shown: &ShownPicture| self.is_visible && self.sent != Some((shown.number, BEST));
        if shown.is_some_and(lacks_best) { STILL } else { ASK }
    }

    pub(crate) fn show(&mut self, shown: Option<&mut ShownPicture>) -> Result<(), Left> {
        if self.waits.is_some_and(|since| since.elapsed() > GONE) || self.answered.elapsed() > GONE {
            return Err(Left);
        }
        self.ask_after(ASK)?;
        if let Some(shown) = shown.filter(|_| self.is_visible && self.waits.is_none()) {
            let wanted = match self.sent.filter(|(number, _)| *number == shown.number) {
                None => Some(self.quality),
                // Improve the quality step by step, so that no picture takes long on a slow link.
                Some((_, quality)) => quality.checked_sub(1).filter(|_| shown.is_still()),
            };
            if let Some(quality) = wanted
                && let Some(message) = shown.message(quality)
            {
                self.ask_after(ASK_BEFORE)?;
                (self.sent, self.waits) = (Some((shown.number, quality)), Some(Instant::now()));
                return self.send(Packet::Binary(message));
            }
        }
        self.flush()
    }

    /// Pings the page, unless the last ping was within `pause`.
    fn ask_after(&mut self, pause: Duration) -> Result<(), Left> {
        if self.asked.elapsed() <= pause {
            return Ok(());
        }
        self.asked = Instant::now();
        self.send(Packet::Ping(Default::default()))
    }

    pub(crate) fn flush(&mut self) -> Result<(), Left> {
        let flushed = self.socket.flush();
        self.note(flushed)
    }

    /// Returns what a page that is gone leaves undone: its pointer leaves, and each button that is held is released.
    pub(crate) fn releases(&self) -> Vec<ViewerInput> {
        let held = message::BUTTONS.into_iter().zip(self.down).filter(|(_, down)| *down);
        let release = |(button, _)| {
            let (pos, modifiers) = (Default::default(), Default::default());
            (self.number, Input::Event(egui::Event::PointerButton { pos, button, pressed: false, modifiers }))
        };
        held.map(release).chain([(self.number, Input::Event(egui::Event::PointerGone))]).collect()
    }

    pub(crate) fn send_text(&mut self, news: impl ToString) -> Result<(), Left> {
        self.send(Packet::text(news.to_string()))
    }

    pub(crate) fn send(&mut self, packet: Packet) -> Result<(), Left> {
        let written = self.socket.write(packet);
        self.note(written)
    }

    /// Notes whether data remains to be sent later. Fails if the connection has failed.
    fn note(&mut self, outcome: tungstenite::Result<()>) -> Result<(), Left> {
        self.has_unsent = match outcome {
            Ok(()) => false,
            Err(Error::Io(error)) if is_for_later(&error) => true,
            Err(_) => return Err(Left),
        };
        Ok(())
    }
}

pub(crate) fn is_for_later(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
